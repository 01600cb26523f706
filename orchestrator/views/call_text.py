"""Calls of a journal as lines of text: what was asked and what came back, for diffs of prompts.

Secrets are blanked before anything is cut, long texts are cut, and long lines are wrapped, so that a diff of two
prompts shows the sentence that differs.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff

from orchestrator.kernel.records import Diverged, EffectIntended, Record
from orchestrator.redaction import redacted
from orchestrator.views.safe_text import bare, cut, plain, told

LONGEST = 50_000
"""Characters of one call that are compared line by line."""
WIDTH = 160
"""Characters of a line; a longer one is wrapped."""
MOST_LINES = 60
"""Lines of one diff."""
_CONTEXT = 2
_MOST_COMPARED = 2_000
"""Lines of one call that are compared: the time that a diff takes grows faster than they do."""


def messages_of(records: Iterable[Record]) -> dict[str, Mapping[str, object]]:
    """Digest -> message, of all requests to models: a request refers to a message that the journal has already."""
    found: dict[str, Mapping[str, object]] = {}
    for record in records:
        if isinstance(record, EffectIntended | Diverged) and record.kind == "model":
            for message in _list(record.request.get("messages")):
                if isinstance(message, Mapping) and isinstance(message.get("digest"), str):
                    found.setdefault(str(message["digest"]), message)
    return found


def request_lines(intended: EffectIntended, messages: Mapping[str, Mapping[str, object]]) -> list[str]:
    """What a call asked, as lines.

    Args:
        intended: the call.
        messages: see `messages_of`.
    """
    request = dict(intended.request)
    lines = [f"{intended.kind} {intended.name}"]
    if intended.kind == "model":
        for one in _list(request.pop("messages", ())):
            message = one if isinstance(one, Mapping) else {}
            lines += _message_lines(messages.get(str(message.get("ref", "")), message))
        offered = [one for one in _list(request.pop("tools", ())) if isinstance(one, Mapping)]
        if offered:
            lines.append(f"tools: {', '.join(_name_of(one) for one in offered)}")
            lines += [line for one in offered for line in _json_lines(one)]
        request = {key: value for key, value in request.items() if value not in (None, {}, [])}
    lines += _json_lines(request)
    return _bounded(lines)


def value_lines(value: object) -> list[str]:
    """A value of a journal, as lines: a text as it is, anything else as JSON."""
    return _bounded(_json_lines(value))


def line_diff(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    """The lines that differ, with those around them: `-` of the first, `+` of the second, `@@` between two places."""
    found = list(unified_diff(one, other, n=_CONTEXT, lineterm=""))[2:]
    if not found:
        return ("they differ in what is not shown: a secret, or text behind the first characters",)
    if len(found) > MOST_LINES:
        return (*found[:MOST_LINES], f"… {len(found) - MOST_LINES} more lines")
    return tuple(found)


def short(value: object, limit: int = 200) -> str:
    """A value on one line, without secrets."""
    clean = redacted(value)
    return told(clean if isinstance(clean, str) else json.dumps(clean, ensure_ascii=False, sort_keys=True), limit)


def _message_lines(message: Mapping[str, object]) -> Iterator[str]:
    yield f"{message.get('role', 'message')}:"
    yield from _json_lines(message.get("content", ""))
    more = {
        key: value
        for key, value in message.items()
        if key not in ("role", "content", "digest", "ref") and value not in (None, {}, [], "")
    }
    if more:
        yield from _json_lines(more)


def _name_of(offered: Mapping[str, object]) -> str:
    inner = offered.get("function")
    return str((inner if isinstance(inner, Mapping) else offered).get("name", "?"))


def _json_lines(value: object) -> list[str]:
    value = redacted(value)
    if value in (None, {}, [], ""):
        return []
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True)
    return value.splitlines()


def _bounded(lines: Iterable[str]) -> list[str]:
    found: list[str] = []
    room = LONGEST
    for line in lines:
        if room <= 0 or len(found) >= _MOST_COMPARED:
            break
        text = plain(bare(cut(line, room)))
        room -= len(text) + 1
        found += textwrap.wrap(text, WIDTH, drop_whitespace=False, break_on_hyphens=False) or [""]
    return found


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()
