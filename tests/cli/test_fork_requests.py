"""`show --request` prints the request of a call, and `fork --request` makes the call again with another one."""

from __future__ import annotations

import pytest

from tests.support.shell import Shell

LETTERS = """
from pydantic import BaseModel

from orchestrator import Graph, node
from orchestrator.models import Reply
from orchestrator.testing import ScriptedModel


class Letter(BaseModel):
    topic: str = ""
    draft: str = ""


@node
async def rest():
    return None


@node
async def write(state: Letter, ctx):
    return {"draft": (await ctx.model.complete(f"Write about {state.topic}")).text}


graph = Graph(name="letters", state=Letter, input="topic", output="draft",
              nodes={"rest": rest, "write": write, "more": rest}, edges="START -> rest -> write -> more -> END")
model = ScriptedModel(lambda request: Reply(text=" | ".join(one.content for one in request.messages)))
"""
CALL, OTHER = "3", '{"messages": [{"role": "user", "content": "Write about wasps"}]}'


@pytest.fixture
def written(shell: Shell) -> Shell:
    """A directory with a run `r`, whose record 3 is a call of its model."""
    (shell.place / "letters.py").write_text(LETTERS)
    done = shell("run", "letters:graph", "bees", "--model", "letters:model", "--run-id", "r")
    assert done.code == 0, done.err
    return shell


def fork(shell: Shell, *words: str, at: str = CALL, **given: str) -> object:
    return shell("fork", "r", "--at", at, *words, "--model", "letters:model", **given)


def test_the_request_of_a_call_is_printed_edited_and_sent_again(written: Shell) -> None:
    shown = written("show", "r", "--at", CALL, "--request")
    assert (shown.code, shown.json["messages"][0]["content"]) == (0, "Write about bees")
    (written.place / "other.json").write_text(shown.out.replace("bees", "wasps"))
    made = fork(written, "--request", "other.json", "--run-id", "f")
    assert made.code == 3, made.err
    assert written("show", "f", "--json").json["state"]["draft"] == "Write about wasps"
    assert written("show", "r", "--json").json["state"]["draft"] == "Write about bees"
    assert written("resume", "f", "--model", "letters:model").out == "Write about wasps\n"


def test_a_request_is_also_taken_as_json_and_from_stdin(written: Shell) -> None:
    for number, (word, given) in enumerate(((OTHER, {}), ("-", {"stdin": OTHER}))):
        made = fork(written, "--request", word, "--no-pause", "--run-id", f"f{number}", **given)
        assert (made.code, made.out) == (0, "Write about wasps\n"), made.err


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("{not json", "--request is not JSON"),
        ("nowhere.json", "--request nowhere.json: "),
        ("empty.json", "--request empty.json is not JSON"),
        ("[1]", "--request [1]: "),
        ("{}", "messages"),
        ('{"messages": [], "temperature": 1}', "temperature"),
        ('{"messages": [{"role": "king", "content": "Write"}]}', "role"),
        ('{"messages": [{"ref": "0123456789abcdef"}]}', "0123456789abcdef"),
        ('{"messages": 7}', "messages"),
    ],
)
def test_a_request_that_cannot_be_sent_is_refused_and_makes_no_fork(written: Shell, request_: str, said: str) -> None:
    (written.place / "empty.json").write_text("")
    refused = fork(written, "--request", request_, "--run-id", "f")
    assert refused.code in (1, 2), refused.err
    assert said in refused.err
    assert "Traceback" not in refused.err
    assert written("show", "f").code == 4


@pytest.mark.parametrize("at", ["1", "2"])
def test_a_record_without_a_request_is_named(written: Shell, at: str) -> None:
    refused, shown = fork(written, "--request", OTHER, at=at), written("show", "r", "--at", at, "--request")
    for one in (refused, shown):
        assert one.code in (1, 2)
        assert f"record {at}" in one.err
        assert "model" in one.err


def test_a_request_without_its_record_says_which_option_is_missing(written: Shell) -> None:
    shown = written("show", "r", "--request")
    assert shown.code == 2
    assert "--at SEQ" in shown.err
