"""The chat of the AI SDK talks to a graph: text, thoughts, calls with approval, a page that is reloaded."""

from __future__ import annotations

import pytest

from orchestrator.protocols import ui_app
from orchestrator.testing.scripted import Said
from tests.protocols.served import Held, adds, asks, faq, mail, node, served

pytestmark = pytest.mark.peer


def test_the_chat_of_the_ai_sdk_talks_to_a_graph() -> None:
    model = Held(
        [
            asks("ann@example.org", "hello"),
            "It is sent.",
            asks("bob@example.org", "hello", "call-2"),
            "That is sent, too.",
            asks("cy@example.org", "hello", "call-3"),
            "Then not.",
            "I talk slowly and say a lot of words.",
            "You are welcome.",
            asks("dee@example.org", "hello"),
        ]
    )
    with (
        served(lambda executor: ui_app(executor, mail), model=model) as server,
        node("ui_client.mjs", ["ai"], f"{server.url}/") as told,
    ):
        found = {}
        for one in told:
            found[one.pop("what")] = one
            if "reloaded" in found and "whole" not in found:
                server.portal.call(model.go.set)

    thought, said = ["reasoning", "They want a mail."], ["text", "I will send that."]
    assert found["asked"] == {
        "parts": [thought, said, ["tool-send_mail", "approval-requested", ""]],
        "status": "ready",
    }
    done = ["tool-send_mail", "output-available", "sent 'hello' to ann@example.org"]
    assert found["approved"] == {"parts": [thought, said, done, ["text", "It is sent."]], "messages": 2}
    assert found["edited"]["parts"][2:] == [
        ["tool-send_mail", "output-available", "sent 'edited' to bob@example.org"],
        ["text", "That is sent, too."],
    ]
    assert found["edited"]["input"] == {"to": "bob@example.org", "text": "edited"}
    assert found["denied"]["parts"][2:] == [["tool-send_mail", "output-denied", ""], ["text", "Then not."]]

    assert found["begun"]["text"].startswith("I talk")
    assert found["reloaded"]["roles"] == ["user", "assistant"] * 3 + ["user"]
    assert found["whole"] == {"parts": [["text", "I talk slowly and say a lot of words."]], "same": True, "ids": True}
    assert found["idle"] == {"status": "ready", "messages": 8}
    assert found["thanked"]["parts"] == [["text", "You are welcome."]]
    assert found["thanked"]["checked"] > 60
    assert found["read"] == {"id": "u.reply", "parts": [thought, said, ["tool-send_mail", "approval-requested", ""]]}
    assert "The journal is the history" in found["error"]["message"]


def test_the_chat_of_the_ai_sdk_goes_on_over_runs_that_end() -> None:
    replies: list[Said] = [adds(1, 2), "It is 3.", adds(3, 4), "It is 7.", "You are welcome."]
    with (
        served(lambda executor: ui_app(executor, faq), replies) as server,
        node("ui_client.mjs", ["ai"], f"{server.url}/", "runs") as told,
    ):
        (answered,) = told
    assert answered["messages"] == [
        [["text", "1 and 2?"]], [["tool-add", "output-available", 3], ["text", "It is 3."]],
        [["text", "3 and 4?"]], [["tool-add", "output-available", 7], ["text", "It is 7."]],
        [["text", "Thanks."]], [["text", "You are welcome."]],
    ]  # fmt: skip
    assert answered["page"] == answered["messages"]
    assert len(set(answered["ids"])) == 6
