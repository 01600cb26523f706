"""Models behind a server, from the command line: each fault in one line with its mend, and a run that can go on."""

from __future__ import annotations

from typing import Any

from tests.support.shell import Shell
from tests.support.wire import Raw, Seen, refused, said, served, told

KEY = "sk-not-a-real-key-42"
LOADS = ("httpcore2", "httpx2", "openai.resources.chat.completions")
"""What a model behind a server needs, and takes long to load."""
ASK = ("run", "tool_user", "How much is 2 + 3?", "--model", "openai:m", "--run-id", "r", "--json")

FAULTS: list[tuple[list[Any], str]] = [
    ([refused(401, f"Incorrect API key provided: {KEY}")], "HTTP 401: the key is wrong or missing: set OPENAI_API_KEY"),
    (
        [refused(404, "The model `m` does not exist", "model_not_found")],
        "HTTP 404: the model does not exist, or",
    ),
    ([Raw(b"<!doctype html>", headers={"Content-Type": "text/html"})], "a web page; is base_url its API root"),
]


def test_a_fault_of_the_surroundings_is_told_in_one_line_and_the_run_goes_on_when_it_is_mended(shell: Shell) -> None:
    for place, (answers, words) in enumerate(FAULTS):
        name = f"r{place}"
        left = [*answers, "add"]

        def answer(seen: Seen, left: list[Any] = left) -> Any:
            one = left.pop(0) if left else refused(500, "no answer is left")
            if not isinstance(one, str):
                return one
            return told(one) if seen.body.get("stream") else said(one)  # whoever is quick asks before he is watched

        with served(answer) as wire:
            env = {"OPENAI_BASE_URL": wire.url, "OPENAI_API_KEY": KEY}
            ask = [*ASK[:6], name, "--json"]
            with shell.begin(*ask, env=env, loads=LOADS) as process:
                done = process.end()
            assert done.code == 1
            (line,) = [line for line in done.err.splitlines() if line.startswith("error: ")]
            assert words in line
            assert KEY not in done.err + done.out
            assert done.json["status"] == "interrupted"
            assert words in done.json["error"]["message"]
            assert f"{name} was interrupted; to continue:" in done.err
            if place:
                continue
            assert shell("show", name, "--json").json["status"] == "interrupted"
            with shell.begin(
                "resume", name, "--json", env={**env, "OPENAI_API_KEY": "sk-another-one"}, loads=LOADS
            ) as process:
                resumed = process.end()
        # The tool is chosen now; nothing answers the next question, so that the run is interrupted there.
        assert resumed.code == 1, resumed.err
        assert "no answer is left" in resumed.err, resumed.err
        assert [point["node"] for point in shell("show", name, "--json").json["history"]] == ["choose_tool"]


def test_no_key_and_no_network(shell: Shell) -> None:
    with shell.begin(*ASK, loads=LOADS) as process:
        done = process.end()
    assert (done.code, done.json["status"]) == (1, "interrupted")
    assert "error: model 'm' has no key: set the environment variable OPENAI_API_KEY" in done.err
    with shell.begin("resume", "r", "--json", env={"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}, loads=LOADS) as process:
        done = process.end()
    assert (done.code, done.json["status"]) == (1, "interrupted")
    assert done.err.count("the server cannot be reached") >= 3  # each try is seen, and the end
    assert "is it running?" in done.err


def test_tokens_are_seen_as_they_come(shell: Shell) -> None:
    with served(told("add"), *[refused(400, "enough")] * 3) as wire:
        url = {"OPENAI_BASE_URL": wire.url}
        with shell.begin(*ASK[:7], "--events", env=url, loads=LOADS) as process:
            done = process.end()
    tokens = [event["text"] for event in done.lines if event.get("type") == "token"]
    assert (tokens, done.code) == (["a", "d", "d"], 1)
    assert done.lines[-1]["status"] == "failed"
