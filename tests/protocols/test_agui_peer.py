"""The real client of AG-UI drives a run through approval, edit, denial, a broken connection and a reload."""

from __future__ import annotations

import pytest

from orchestrator.protocols import agui_app
from orchestrator.testing.scripted import Said
from tests.protocols.served import Held, adds, asks, faq, mail, node, served

pytestmark = pytest.mark.peer


def test_the_npm_client_drives_a_run() -> None:
    model = Held(
        [
            asks("ann@example.org", "hello"),
            "It is sent.",
            asks("bob@example.org", "hello", "call-2"),
            "That is sent, too.",
            asks("cy@example.org", "hello", "call-3"),
            "Then not.",
            "I talk slowly and say a lot of words.",
            "Again slowly I say a lot of words.",
            "You are welcome.",
        ]
    )
    make = lambda executor: agui_app(executor, mail, state=["rounds"])  # noqa: E731
    with served(make, model=model) as server, node("agui_client.mjs", ["@ag-ui/client"], f"{server.url}/") as told:
        found = {}
        for one in told:
            found[one.pop("what")] = one
            if set(found) & {"reconnected", "reloaded"}:
                server.portal.call(model.go.set)
                found.pop("reconnected", None)
                found.pop("reloaded", None)

    asked = found["asked"]
    assert (asked["reason"], asked["message"], asked["call"]) == ("tool_call", "Call send_mail?", "call-1")
    assert asked["schema"]["required"] == ["approved"]
    assert found["approved"] == {
        "messages": [
            ["user", "Mail Ann.", []],
            ["reasoning", "They want a mail.", []],
            ["assistant", "I will send that.", ["send_mail"]],
            ["tool", "sent 'hello' to ann@example.org", []],
            ["assistant", "It is sent.", []],
        ],
        "pending": 0,
    }
    assert found["edited"] == {
        "messages": [["tool", "sent 'edited' to bob@example.org", []], ["assistant", "That is sent, too.", []]],
        "state": {"rounds": 1},
    }
    assert found["denied"]["messages"] == [["tool", "denied: not him", []], ["assistant", "Then not.", []]]

    whole = "I talk slowly and say a lot of words."
    assert found["cut"]["error"] == "the connection broke"
    broken = found["whole"]["broken"]
    assert 0 < len(broken) < len(whole)
    assert whole.startswith(broken)
    assert found["whole"]["messages"] == [["user", "Talk.", []], ["assistant", whole, []]]
    assert found["whole"]["pieces"] > 1, "the reply went on while it was read again"

    same = found["same"]
    assert same["messages"][-1] == ["assistant", "Again slowly I say a lot of words.", []]
    assert [role for role, *_ in same["messages"]].count("user") == 5
    assert len(set(same["ids"])) == len(same["ids"])
    assert found["both"]["equal"]
    assert found["end"]["last"] == ["assistant", "You are welcome.", []]
    assert found["end"]["checked"] > 200


def test_the_npm_client_goes_on_over_runs_that_end() -> None:
    replies: list[Said] = [adds(1, 2), "It is 3.", adds(3, 4), "It is 7.", "You are welcome."]
    with (
        served(lambda executor: agui_app(executor, faq), replies) as server,
        node("agui_client.mjs", ["@ag-ui/client"], f"{server.url}/", "runs") as told,
    ):
        (answered,) = told
    assert answered["messages"] == [
        ["user", "1 and 2?", []], ["assistant", "", ["add"]], ["tool", "3", []], ["assistant", "It is 3.", []],
        ["user", "3 and 4?", []], ["assistant", "", ["add"]], ["tool", "7", []], ["assistant", "It is 7.", []],
        ["user", "Thanks.", []], ["assistant", "You are welcome.", []],
    ]  # fmt: skip
    assert answered["late"] == answered["messages"]
    assert len(set(answered["ids"])) == 10
