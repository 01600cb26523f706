"""Streams as different servers write them, and the one reply that each of them is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.support.wire import chunk


@dataclass(frozen=True)
class Recorded:
    """Chunks, and what they say."""

    chunks: tuple[dict[str, Any], ...]
    text: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    """(id or "", name, arguments as written)."""
    finish: str = "stop"
    extras: tuple[tuple[str, str], ...] = ()
    tokens: tuple[int, int] | None = None


def _usage(given: int, made: int) -> dict[str, Any]:
    return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}


def _call(index: int | None, identity: str | None = None, name: str | None = None, args: Any = None) -> dict[str, Any]:
    found: dict[str, Any] = {} if index is None else {"index": index}
    if identity is not None:
        found |= {"id": identity, "type": "function"}
    found["function"] = {key: value for key, value in (("name", name), ("arguments", args)) if value is not None}
    return {"tool_calls": [found]}


RECORDED = {
    "text, with usage behind": Recorded(
        (
            chunk({"role": "assistant", "content": "", "refusal": None}),
            *(chunk({"content": piece}) for piece in ("Gr", "üß", " Gott 🌍", ", A", "da.")),
            chunk(finish="stop"),
            {**chunk(), "choices": [], "usage": _usage(9, 6)},
        ),
        text="Grüß Gott 🌍, Ada.",
        tokens=(9, 6),
    ),
    "two calls, each by its index": Recorded(
        (
            chunk({"role": "assistant", "content": None}),
            chunk(_call(0, "call_a", "add", "")),
            chunk(_call(0, args='{"a"')),
            chunk(_call(0, args=": 1}")),
            chunk(_call(1, "call_b", "weather", "")),
            chunk(_call(1, args='{"city": "Os')),
            chunk(_call(1, args='lo"}')),
            chunk(finish="tool_calls"),
        ),
        calls=(("call_a", "add", '{"a": 1}'), ("call_b", "weather", '{"city": "Oslo"}')),
        finish="tool_calls",
    ),
    "pieces of two calls in turns": Recorded(
        (
            chunk(_call(0, "call_a", "add", "")),
            chunk(_call(1, "call_b", "weather", "")),
            chunk(_call(0, args='{"a"')),
            chunk(_call(1, args='{"city": ')),
            chunk(_call(0, args=": 1}")),
            chunk(_call(1, args='"Oslo"}')),
            chunk(finish="tool_calls"),
        ),
        calls=(("call_a", "add", '{"a": 1}'), ("call_b", "weather", '{"city": "Oslo"}')),
        finish="tool_calls",
    ),
    "several calls that all have index 0": Recorded(
        (
            chunk({"role": "assistant", "content": "I look."}),
            chunk(_call(0, "call_a", "weather", '{"city": "Oslo"}')),
            chunk(_call(0, "call_b", "weather", '{"city": ')),
            chunk(_call(0, "call_b", args='"Bergen"}')),
            chunk(_call(0, "call_c", "weather", '{"city": "Oslo"}')),
            chunk(finish="tool_calls"),
        ),
        text="I look.",
        calls=(
            ("call_a", "weather", '{"city": "Oslo"}'),
            ("call_b", "weather", '{"city": "Bergen"}'),
            ("call_c", "weather", '{"city": "Oslo"}'),
        ),
        finish="tool_calls",
    ),
    "whole calls without index or id": Recorded(
        (
            chunk(_call(None, name="add", args='{"a": 1}')),
            chunk(_call(None, name="add", args='{"a": 2}')),
            chunk(finish="tool_calls"),
        ),
        calls=(("", "add", '{"a": 1}'), ("", "add", '{"a": 2}')),
        finish="tool_calls",
    ),
    "the name and the id in every piece": Recorded(
        (
            chunk(_call(0, "call_a", "add", '{"a')),
            chunk(_call(0, "call_a", "add", '": 1')),
            chunk(_call(0, "call_a", "add", "}")),
            chunk(finish="tool_calls"),
        ),
        calls=(("call_a", "add", '{"a": 1}'),),
        finish="tool_calls",
    ),
    "a name in pieces": Recorded(
        (
            chunk(_call(0, "call_a", "wea")),
            chunk(_call(0, name="ther")),
            chunk(_call(0, args='{"city": "Oslo"}')),
            chunk(finish="tool_calls"),
        ),
        calls=(("call_a", "weather", '{"city": "Oslo"}'),),
        finish="tool_calls",
    ),
    "thoughts before the answer": Recorded(
        (
            chunk({"role": "assistant", "reasoning_content": "6 by "}),
            chunk({"reasoning_content": "7", "content": None}),
            chunk({"content": "42"}),
            chunk(finish="stop", usage=_usage(5, 7)),
        ),
        text="42",
        extras=(("reasoning_content", "6 by 7"),),
        tokens=(5, 7),
    ),
    "a filter's words before anything": Recorded(
        (
            {**chunk(), "choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
            chunk({"role": "assistant"}),
            chunk({"content": "Hi"}),
            chunk(finish="content_filter"),
        ),
        text="Hi",
        finish="content_filter",
    ),
    "a refusal": Recorded(
        (chunk({"role": "assistant", "refusal": "I will"}), chunk({"refusal": " not."}), chunk(finish="stop")),
        text="I will not.",
        finish="refusal",
    ),
    "two choices, of which the first counts": Recorded(
        (
            chunk({"content": "one"}),
            {**chunk(), "choices": [{"index": 1, "delta": {"content": "two"}, "finish_reason": "length"}]},
            chunk(finish="stop"),
        ),
        text="one",
    ),
    "odd pieces between": Recorded(
        (
            chunk({"content": "a"}),
            {**chunk(), "choices": None},
            {**chunk(), "choices": [None, 5]},
            {**chunk(), "choices": [{"index": 0, "delta": None, "finish_reason": None}]},
            chunk({"content": [{"type": "text", "text": "b"}], "tool_calls": ["none", {"function": None}][:1]}),
            chunk(finish="stop"),
        ),
        text="ab",
    ),
}
