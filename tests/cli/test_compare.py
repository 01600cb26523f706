"""`orchestrator compare`."""

from __future__ import annotations

from tests.support.shell import Shell


def test_a_table_and_json_and_pictures(shell: Shell) -> None:
    text, made, paused, unknown = shell.all(
        ("compare", "What is 20+(2*4)?", "tool_user", "--approve", "none"),
        ("compare", "What is 20+(2*4)?", "tool_user", "tool_user", "--approve", "none", "--json", "-o", "out"),
        ("compare", "What is 20+(2*4)?", "tool_user"),
        ("compare", "What is 20+(2*4)?", "nothing"),
    )
    assert text.code == 0
    head, line = text.out.splitlines()
    assert head.startswith("GRAPH")
    assert line.split()[:3] == ["tool_user", "completed", "28"]
    assert made.code == 0
    assert [row["answer"] for row in made.json["rows"]] == ["28", "28"]
    assert {"model_calls", "rounds", "prompt_tokens", "completion_tokens", "tool_calls", "seconds"} <= set(
        made.json["rows"][0]
    )
    assert sorted(file.name for file in (shell.place / "out").iterdir()) == [
        "comparison.json", "tool_user-2.svg", "tool_user.svg",
    ]  # fmt: skip
    assert made.err.count("model: offline") == 1
    assert (paused.code, paused.out.splitlines()[1].split()[1]) == (1, "paused")
    assert unknown.code == 2
