"""What steps wrote, in a few words: in `show`, in the tree, and in lines of progress."""

from __future__ import annotations

import pytest

from orchestrator.json import JsonObject
from orchestrator.render.terminal.excerpts import update_text, value_text
from orchestrator.render.terminal.run_report import with_colours

CALL = {"id": "call_1", "name": "weather", "arguments": {"city": "Oslo", "days": 2}, "raw": "{}"}
SAYS = {"role": "assistant", "content": "The weather, then.", "tool_calls": [CALL, CALL], "tool_call_id": None}
ASKS = {"role": "user", "content": "Is it warm?", "tool_calls": []}


@pytest.mark.parametrize(
    ("update", "words"),
    [
        ({"answer": "28"}, "answer: 28"),
        ({"answer": "It is warm."}, "answer: 'It is warm.'"),
        ({"tool": "add", "args": {"a": 2, "b": {"c": [1, None]}}}, "add(a=2, b=(c=[1, none]))"),
        ({"args": {"a": 2}}, "args: a=2"),
        ({"messages": [ASKS, SAYS]}, "assistant: 'The weather, then.' (2 tool calls) (the last of 2 messages)"),
        ({"messages": [SAYS], "pending": [CALL]},
         "assistant: 'The weather, then.' (2 tool calls), pending: weather(city=Oslo, days=2)"),
        ({"reply": {"text": "28", "tool_calls": [], "parsed": None, "usage": {"steps": 0}}}, "reply: 28"),
        ({"reply": {"text": "", "tool_calls": [CALL]}}, "reply: (1 tool call)"),
        ({"message": {"role": "tool", "name": "weather", "content": "cold", "tool_calls": []}}, "weather = cold"),
        ({"result": {"output": 8, "error": None, "exit_code": 0, "metadata": {}}}, "result = 8"),
        ({"result": {"output": None, "error": "no such city", "exit_code": 1}}, "result: failed: 'no such city'"),
        ({"steps": [{"id": "E1", "tool": "add"}, {"id": "E2"}], "drafts": [], "faults": []}, "steps: E1, E2"),
        ({"drafts": [], "note": ""}, "drafts: none, note: ''"),
        ({"cities": [f"c{n}" for n in range(9)]}, "cities: c0, c1, c2, c3, c4, c5, … 3 more"),
        ({"password": "hunter2222"}, "password: [redacted]"),
        ({"a": {"deep": {"token": "sk-ant-api03-" + "a" * 40}}}, "a: deep=(token=[redacted])"),
        ({"a": "x\x1b]0;owned\x07\u202ey\nz"}, "a: 'x\\u202ey z'"),
        ({}, ""),
    ],
)  # fmt: skip
def test_an_update_is_told_in_words_and_not_as_json(update: JsonObject, words: str) -> None:
    assert update_text(update) == words


@pytest.mark.full
def test_long_updates_are_cut_and_huge_ones_cost_little() -> None:
    text = update_text({"messages": [{"role": "user", "content": "word " * 1_000_000}] * 1000})
    assert text.startswith("user: 'word word ")
    assert text.endswith("word…")
    assert len(text) <= 160
    numbers = list(range(10_000))
    assert len(update_text({f"field{n}": numbers for n in range(10_000)}, 60)) <= 60


def test_a_value_of_a_state_is_told_in_words_and_its_name_may_hide_it() -> None:
    assert value_text([ASKS, SAYS]) == "assistant: 'The weather, then.' (2 tool calls) (the last of 2 messages)"
    assert (value_text(None), value_text([]), value_text({}), value_text(True)) == ("none", "none", "none", "true")
    assert value_text("hunter2222", name="password") == "[redacted]"


def test_only_our_headings_are_coloured() -> None:
    text = "r  g  failed  (record 2; 1 steps)\nquestion\n  | state\nhistory\n      4  failed  (state)"
    assert with_colours(text, "failed") == (
        "r  g  \x1b[31mfailed\x1b[0m  (record 2; 1 steps)\n\x1b[1mquestion\x1b[0m\n  | state\n\x1b[1mhistory\x1b[0m\n"
        "      4  failed  (state)"
    )
