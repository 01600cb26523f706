"""Short excerpts of the texts of steps and calls: one line, no terminal control sequences, secrets redacted."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, cast

from orchestrator.redaction import redacted
from orchestrator.render.terminal.texts import duration
from orchestrator.render.terminal.wordings import cut_value, text_start, value_text
from orchestrator.views.safe_text import plain, told

if TYPE_CHECKING:
    from orchestrator.views.events import Event
    from orchestrator.views.step_work import JournaledCall

_LONGEST, _NAME = 160, 40
_UNFINISHED = re.compile(r"\S+\Z")


def value(found: object, limit: int = _LONGEST) -> str:
    """A value: text unchanged, anything else as JSON."""
    small = redacted(cut_value(found))
    text = small if isinstance(small, str) else json.dumps(small, ensure_ascii=False, default=str)
    return plain(text, limit)


def text(found: str, limit: int = _LONGEST) -> str:
    """Text from outside this library, on one line."""
    return told(text_start(found, 4 * limit), limit)


def tail(found: str, limit: int) -> str:
    """The end of a streamed text, without its last word, which may be the start of a secret."""
    whole = told(_UNFINISHED.sub("", found))
    return whole if len(whole) <= limit else f"…{whole[1 - limit :]}"


def call(made: JournaledCall) -> str:
    """A call's name and arguments."""
    intended = made.intended
    name, request = told(intended.name, 60), intended.request
    if intended.kind != "tool":
        return f"{intended.kind} {name}".strip()
    args = request.get("args", request) if isinstance(request, dict) else {}
    if not isinstance(args, dict):
        return f"{name}()"
    shown = cast("dict[str, object]", redacted(cut_value(args)))  # a dict stays one
    said = ", ".join(f"{key}={json.dumps(part, ensure_ascii=False, default=str)}" for key, part in shown.items())
    return f"{name}({plain(said, 100)})"


def result(made: JournaledCall) -> str:
    """A call's result; of a model its text, or the tools that it calls."""
    found = None if made.settled is None else made.settled.result
    if made.intended.kind == "model" and isinstance(found, dict):
        calls = found.get("tool_calls") or ()
        names = ", ".join(f"{one.get('name')}()" for one in calls if isinstance(one, dict))
        return value(found.get("text") or (f"calls {names}" if names else ""))
    if isinstance(found, dict) and "output" in found:
        found = found["output"]
    return value(found) if isinstance(found, str) else value_text(found)


def name_of(item: object) -> str:
    """The name of an item of a map: its `name`, `title` or `id` if it has one, else the item itself."""
    found = item if isinstance(item, dict) else getattr(item, "__dict__", None)
    if not isinstance(found, dict):
        return value(item, _NAME)
    return value(next((found[name] for name in ("name", "title", "id") if found.get(name)), found), _NAME)


def note(event: Event) -> str:
    """The progress of a step or a call, or what it emitted."""
    data = event.data
    if event.type != "progress":
        return f"{data.get('name', '')} {value(data.get('data', ''))}".strip()
    said = value(str(data.get("text") or "").strip().rpartition("\n")[2])
    done, total = data.get("done"), data.get("total")
    if not isinstance(done, int | float):
        return said
    if isinstance(total, int | float) and total > 0:
        return f"{min(1.0, max(0.0, done / total)):.0%} {said}".strip()
    return f"{done:g} {said}".strip()


def tokens(made: JournaledCall) -> str:
    """Input and output tokens; empty if there are none."""
    into, out = made.usage.input_tokens, made.usage.output_tokens
    return f"{into:,} → {out:,} tokens" if into or out else ""


def elapsed(seconds: float, *, over: bool) -> str:
    """A duration; while it grows (`over=False`) in whole seconds, and empty below one second."""
    seconds = max(0.0, seconds)
    return duration(seconds) if over or seconds >= 60 else f"{int(seconds)} s" if seconds >= 1 else ""
