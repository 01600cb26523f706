"""Short excerpts of the texts of steps and calls: one line, no terminal control sequences, secrets redacted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from orchestrator.kernel.records import failed_result
from orchestrator.redaction import redacted
from orchestrator.render.terminal.texts import duration, fitting
from orchestrator.views.safe_text import bare, plain, told

if TYPE_CHECKING:
    from orchestrator.views.events import Event
    from orchestrator.views.step_work import JournaledCall


_LONGEST = 160
_STRING, _ITEMS, _DEEP = 400, 6, 4
_BEHIND = 200
"""Characters after a cut that are redacted too: the patterns do not match half a secret."""


def update_text(update: Mapping[str, object], limit: int = _LONGEST) -> str:
    """Describe an update field by field: `multiply(a=2, b=4)`, `reply: 'The weather ...' (2 tool calls)`.

    Fields that became empty are left out if others did not.

    Args:
        update: the fields that a step wrote, as the journal has them.
        limit: maximum number of terminal cells.
    """
    found = _safe({name: _last(value) for name, value in update.items()})
    parts: list[str] = []
    tool, args = found.get("tool"), found.get("args")
    if isinstance(tool, str) and tool and isinstance(args, dict):
        parts.append(f"{tool}({_arguments(args)})")
        found = {name: value for name, value in found.items() if name not in ("tool", "args")}
    full = {name: value for name, value in found.items() if value not in ("", None, [], {})}
    parts += [_field(name, value) for name, value in (full or ({} if parts else found)).items()]
    return fitting(plain(", ".join(parts)), limit)


def value_text(value: object, limit: int = _LONGEST, *, name: str = "") -> str:
    """Describe a value in a few words.

    Args:
        value: plain JSON.
        limit: maximum number of terminal cells.
        name: name of its field, which may mark it as a secret.
    """
    return fitting(plain(_words(_safe({name: _last(value)})[name])), limit)


def _field(name: str, value: object) -> str:
    """Return a field and its value; a message names its role, and needs no field."""
    words = _words(value)
    if isinstance(value, _Last) or _is_message(value):
        return words
    return f"{name} {words}" if words.startswith("= ") else f"{name}: {words}"


class _Last:
    """The last message of a list, and how long the list is."""

    def __init__(self, count: int, message: object) -> None:
        self.count, self.message = count, message


def _last(value: object) -> object:
    """Return the last message of a list, which the step added or changed."""
    if isinstance(value, list | tuple) and value and all(_is_message(one) for one in value):
        return _Last(len(value), value[-1])
    return value


def _safe(found: Mapping[str, object]) -> dict[str, object]:
    """Return the values cut to the displayed length, without secrets."""
    small = {name: cut_value(value.message if isinstance(value, _Last) else value) for name, value in found.items()}
    clean = cast("dict[str, object]", redacted(small))  # a dict stays a dict
    return {
        name: _Last(value.count, shown) if isinstance(value, _Last) else shown
        for (name, value), shown in zip(found.items(), clean.values(), strict=True)
    }


def text_start(found: str, most: int) -> str:
    """Return the start of a text, redacted before it is cut."""
    return str(redacted(found[: most + _BEHIND]))[:most]


def cut_value(found: object, deep: int = _DEEP) -> object:
    """Return a value cut for display: a state can be large."""
    if isinstance(found, str):
        start = text_start(found, _STRING)
        return start if start.isprintable() else bare(start)
    if isinstance(found, dict):
        if deep == 0:
            return "{…}" if found else {}
        kept = list(found.items())[: 2 * _ITEMS]
        return {key: cut_value(part, deep - 1) for key, part in kept}
    if isinstance(found, list | tuple):
        if deep == 0:
            return "[…]" if found else []
        more = [f"… {len(found) - _ITEMS} more"] if len(found) > _ITEMS else []
        return [*(cut_value(part, deep - 1) for part in found[:_ITEMS]), *more]
    return found


def _words(value: object) -> str:
    if isinstance(value, _Last):
        more = f" (the last of {value.count} messages)" if value.count > 1 else ""
        return f"{_words(value.message)}{more}"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, dict):
        return _of_object(value)
    if isinstance(value, list):
        return ", ".join(_item(one) for one in value) or "none"
    return "none" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _of_object(value: dict[str, object]) -> str:
    if _is_message(value):
        said = _said(value.get("content"), value)
        name = value.get("name") or value.get("role")
        return f"{name} = {said}" if value.get("role") == "tool" else f"{value.get('role')}: {said}"
    if "text" in value and "tool_calls" in value:
        return _said(value.get("text"), value)
    if "output" in value and "error" in value:
        fault = failed_result(value)
        said = _words(value["output"] if fault is None else fault)
        return f"= {said}" if fault is None else f"failed: {said}"
    if isinstance(value.get("name"), str) and "arguments" in value:
        return f"{value['name']}({_arguments(value['arguments'])})"
    return _arguments(value) or "none"


def _said(text: object, value: Mapping[str, object]) -> str:
    """Return the text of a message or a reply, and the number of its calls."""
    calls = value.get("tool_calls")
    calls = calls if isinstance(calls, list) else []
    count = f"({len(calls)} tool call{'' if len(calls) == 1 else 's'})" if calls else ""
    said = _words(text) if text else ""
    return f"{said} {count}".strip() or "''"


def _arguments(args: object) -> str:
    if not isinstance(args, dict):
        return _words(args)
    return ", ".join(f"{name}={_item(part)}" for name, part in args.items())


def _item(value: object) -> str:
    """Return a nested value: an object by its name, else its fields in brackets."""
    if isinstance(value, dict):
        if _is_message(value) or "tool_calls" in value or "arguments" in value or "output" in value:
            return _of_object(value)
        name = next((value[key] for key in ("name", "title", "id") if isinstance(value.get(key), str)), None)
        return str(name) if name else f"({_arguments(value)})"
    if isinstance(value, list):
        return f"[{', '.join(_item(one) for one in value)}]"
    if isinstance(value, str) and value.startswith("… "):
        return value
    return _words(value)


def _quoted(text: str) -> str:
    """Quote a text if it has blanks or is empty, so that it cannot be mistaken for the report's own words."""
    return text if text and text.isprintable() and " " not in text and "," not in text else f"'{text}'"


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and "role" in value and "content" in value


_NAME = 40
_UNFINISHED = re.compile(r"\S+\Z")


def value(found: object, limit: int = _LONGEST) -> str:
    """Return a value on one line, redacted and cut: text unchanged, other values as JSON."""
    small = redacted(cut_value(found))
    text = small if isinstance(small, str) else json.dumps(small, ensure_ascii=False, default=str)
    return plain(text, limit)


def text(found: str, limit: int = _LONGEST) -> str:
    """Return an untrusted text on one line."""
    return told(text_start(found, 4 * limit), limit)


def tail(found: str, limit: int) -> str:
    """Return the end of a streamed text, without its last word, which may be the start of a secret."""
    whole = told(_UNFINISHED.sub("", found))
    return whole if len(whole) <= limit else f"…{whole[1 - limit :]}"


def call(made: JournaledCall) -> str:
    """Return a call's name and arguments."""
    intended = made.intended
    name, request = told(intended.name, 60), intended.request
    if intended.kind != "tool":
        return f"{intended.kind} {name}".strip()
    args = request.get("args", request) if isinstance(request, dict) else {}
    if not isinstance(args, dict):
        return f"{name}()"
    shown = cast("dict[str, object]", redacted(cut_value(args)))  # a dict stays a dict
    said = ", ".join(f"{key}={json.dumps(part, ensure_ascii=False, default=str)}" for key, part in shown.items())
    return f"{name}({plain(said, 100)})"


def result(made: JournaledCall) -> str:
    """Return a call's result; for a model its text, or the tools that it calls."""
    found = None if made.settled is None else made.settled.result
    if made.intended.kind == "model" and isinstance(found, dict):
        calls = found.get("tool_calls") or ()
        names = ", ".join(f"{one.get('name')}()" for one in calls if isinstance(one, dict))
        return value(found.get("text") or (f"calls {names}" if names else ""))
    if isinstance(found, dict) and "output" in found:
        found = found["output"]
    return value(found) if isinstance(found, str) else value_text(found)


def name_of(item: object) -> str:
    """Return the name of an item of a map: its `name`, `title` or `id` if it has one, else the item itself."""
    found = item if isinstance(item, dict) else getattr(item, "__dict__", None)
    if not isinstance(found, dict):
        return value(item, _NAME)
    return value(next((found[name] for name in ("name", "title", "id") if found.get(name)), found), _NAME)


def note(event: Event) -> str:
    """Return the progress of a step or a call, or the value that it emitted."""
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
    """Return input and output tokens; empty if there are none."""
    into, out = made.usage.input_tokens, made.usage.output_tokens
    return f"{into:,} → {out:,} tokens" if into or out else ""


def elapsed(seconds: float, *, over: bool) -> str:
    """Return a duration; while it grows (`over=False`) in whole seconds, and empty below one second."""
    seconds = max(0.0, seconds)
    return duration(seconds) if over or seconds >= 60 else f"{int(seconds)} s" if seconds >= 1 else ""
