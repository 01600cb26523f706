"""The transcript of a run as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.redaction import redacted
from orchestrator.render.terminal.texts import compact, counted, duration, fitting
from orchestrator.visible import barred, line, narrow

if TYPE_CHECKING:
    from orchestrator.views.transcript import Entry

_WIDTH = 120
"""Cells of a line without a terminal."""


def transcript_text(entries: Sequence[Entry], *, width: int | None = None) -> str:
    """Return the entries with their numbers, records and nodes. Replies and what people said are whole.

    System messages, results of tools and summaries are cut to one line.

    Args:
        entries: the entries.
        width: cells in a line of the terminal; None: not a terminal.
    """
    room = (width or _WIDTH) - 4
    return "\n".join(text for entry in entries for text in _entry(entry, room)) or "Nothing was said yet."


def _entry(entry: Entry, room: int) -> Iterator[str]:
    said = redacted(entry.to_json())
    assert isinstance(said, dict)
    place = f"{entry.path}/{entry.node}" if entry.path else entry.node
    yield f"{entry.seq:>5}  {line(place)}  {', '.join(filter(None, _head(said)))}"
    for text, whole in _body(said):
        if text:
            yield barred(text, "       | ") if whole else barred(fitting(narrow(text), room - 5), "       | ")


def _head(said: Mapping[str, Any]) -> Iterator[str]:
    """Yield what an entry is, and the facts about it."""
    match said["kind"]:
        case "message":
            yield "summary of earlier messages" if said.get("summary") else line(said.get("role", ""))
        case "turn":
            usage = said.get("usage", {})
            yield line(said["model"])
            yield f"{usage.get('input_tokens', 0):,} in, {usage.get('output_tokens', 0):,} out" if usage else ""
            yield f"cost {usage['cost']:.6g}" if usage.get("cost") else ""
            yield duration(said["seconds"]) if "seconds" in said else ""
            yield line(f"ended by {said['finish']}") if "finish" in said else ""
        case "tool":
            yield f"{line(said['tool'])} {said['state']}"
        case "question":
            answer = said.get("answer")
            yield f"asked: {said['question']}"
            yield "open" if answer is None else _ANSWERS.get(answer["type"], "answered")
            yield "by a rule" if said.get("policy") else line(f"by {said['by']}") if "by" in said else ""
        case _:
            count = said.get("replaced", 0)
            yield counted(count, "message") + " replaced" if count else "messages shortened"
            yield f"--at {said['at']} has them"


def _json(value: object) -> str:
    return value if isinstance(value, str) else compact(value)


_ANSWERS = {"approve": "approved", "deny": "denied"}


def _body(said: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the texts of an entry, each with whether it is shown whole."""
    folded = said.get("role") in ("system", "tool") or bool(said.get("summary"))
    yield f"thoughts: {said['thoughts']}" if "thoughts" in said else "", False
    yield str(said.get("text", "")), not folded
    yield str(said.get("prompt", "")), True
    asked = said.get("call") or ({"tool": said["tool"], "args": said.get("args", {})} if "tool" in said else None)
    for call in said.get("calls", ()):
        yield f"-> {call['name']} {_json(call['args'])}", True
    if asked:
        yield f"{asked.get('tool', '')} {_json(asked.get('args', {}))}", True
    yield f"= {_json(said['result'])}" if "result" in said else "", False
    for name in said.get("pictures", ()):
        yield f"picture: {name}", False
    answer = said.get("answer") or {}
    yield _json(answer.get("value") or answer.get("reason") or ""), True
    yield f"error: {said['error']}" if "error" in said else "", True
