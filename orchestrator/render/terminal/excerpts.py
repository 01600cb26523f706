"""Short excerpts of what steps and calls said: one line, no terminal control sequences, secrets redacted."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, cast

from orchestrator.redaction import redacted
from orchestrator.render.terminal.texts import duration
from orchestrator.views.safe_text import bare, plain, told

if TYPE_CHECKING:
    from orchestrator.views.calls import JournaledCall
    from orchestrator.views.events import Event

_LONGEST, _NAME = 160, 40
_UNFINISHED = re.compile(r"\S+\Z")
_STRING, _ITEMS, _DEEP = 400, 6, 4
_BEHIND = 200
"""Characters behind a cut that are redacted too: the patterns do not match half a secret."""


def value(found: object, limit: int = _LONGEST) -> str:
    """A value: text unchanged, anything else as JSON."""
    small = redacted(_cut(found))
    text = small if isinstance(small, str) else json.dumps(small, ensure_ascii=False, default=str)
    return plain(text, limit)


def text(found: str, limit: int = _LONGEST) -> str:
    """Text from outside this library, on one line."""
    return told(_start(found, 4 * limit), limit)


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
    shown = cast("dict[str, object]", redacted(_cut(args)))  # a dict stays one
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
    return value(found)


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


def _start(found: str, most: int) -> str:
    return str(redacted(found[: most + _BEHIND]))[:most]


def _cut(found: object, deep: int = _DEEP) -> object:
    """A value cut to what can be shown: a state can be large."""
    if isinstance(found, str):
        start = _start(found, _STRING)
        return start if start.isprintable() else bare(start)
    if isinstance(found, dict):
        if deep == 0:
            return "{…}" if found else {}
        kept = list(found.items())[: 2 * _ITEMS]
        return {key: _cut(part, deep - 1) for key, part in kept}
    if isinstance(found, list | tuple):
        if deep == 0:
            return "[…]" if found else []
        more = [f"… {len(found) - _ITEMS} more"] if len(found) > _ITEMS else []
        return [*(_cut(part, deep - 1) for part in found[:_ITEMS]), *more]
    return found
