"""The form of ReAct (https://arxiv.org/abs/2210.03629): a line `Action: tool[input]`, one call in a reply.

`Action: tool` with `Action Input: input` on the next line is read too, as LangChain's agents write it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.models.messages import ToolCall
from orchestrator.models.text.defuse import lines_broken
from orchestrator.models.text.forms import Form, OfferedTool, Parsed, Unread, cut_at_commas, last_line, offered, short
from orchestrator.models.text.strict import dumped, json_at, said

# Every repetition has a bound, so that no text takes long.
_colon = r"[ \t]{0,8}(?:\*\*)?[ \t]{0,8}:(?:[ \t]{0,8}\*\*)?[ \t]{0,8}"
_number = r"(?:[ \t]{0,8}\d{1,6})?"
_action = re.compile(rf"^[ \t]{{0,8}}(?:\*\*)?Action{_number}{_colon}", re.MULTILINE | re.IGNORECASE)
_tool = re.compile(r"[^\s\[\]{}*`:]{1,200}")
_input = re.compile(
    rf"[ \t]{{0,8}}(?:\*\*)?[ \t]{{0,8}}\r?\n\s{{0,16}}(?:\*\*)?Action[ \t]{{1,8}}Input{_number}{_colon}", re.IGNORECASE
)
_other = r"^[ \t]{0,8}(?:\*\*)?(?:Action|Observation|Thought|Final[ \t]Answer)[^\n:]{0,20}:"
_stop = re.compile(_other, re.MULTILINE | re.IGNORECASE)
_bracket_or_stop = re.compile(rf"[\[\]]|{_other}", re.MULTILINE | re.IGNORECASE)
_not_blank = re.compile(r"\S")
_close = re.compile(r"\s{0,99}\]")
_quoted = re.compile(r"'([^'\n]*)'\s{0,99}\]")
_end_of_line = re.compile(r"[ \t*.;`]{0,16}(?:\r?\n|\Z)")
_beginning = re.compile(
    r"[ \t]{0,8}\*{0,2}(?:a(?:c(?:t(?:i(?:o(?:n[ \t]{0,8}\d{0,6}[ \t]{0,8}\*{0,2}[ \t]{0,8})?)?)?)?)?)?", re.IGNORECASE
)
_apart = re.compile(
    r"""
    "(?:[^"\\\n]|\\.){0,1000}+" | (?<![\w)\]])'[^'\n]{0,1000}+'(?=\s{0,99}(?:,|$))
  | (?P<open>[\[({]) | (?P<close>[\])}]) | (?P<comma>,)
    """,
    re.VERBOSE,
)
"""What a list of values is cut by: commas that are in no quotes and no brackets."""
_integer = re.compile(r"[+-]?\d{1,300}", re.ASCII)
_decimal = re.compile(r"[+-]?\d{1,300}(?:\.\d{1,300})?(?:e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)


class BracketForm(Form):
    """Thought, action, observation, one after the other."""

    name = "bracket"
    how = (
        "To call a tool, end your reply with one line of this form, and write nothing behind it:\n"
        'Action: tool[{"parameter": "value"}]\n'
        "Before it you can write your thoughts. You are then told the result as an Observation; never write one "
        "yourself."
    )

    def read(self, text: str, offers: Sequence[OfferedTool], ended: bool) -> Parsed:
        """See `Form.parse`. The first action counts, and what follows it is cut: results that no tool gave."""
        action = _action.search(text)
        if action is None:
            return Parsed(text)
        named = _tool.match(text, action.end())
        if named is None:
            raise Unread("an action that names no tool")
        lines = _input.match(text, named.end())
        if lines is None and not text.startswith("[", named.end()):
            raise Unread(f"an action without [input]: {short(text[named.start() : named.end() + 40])}")
        offer = offered(named[0], offers)
        if lines is None:
            arguments, end = _in_brackets(text, named.end() + 1, offer)
        else:
            arguments, end = _in_lines(text, lines.end(), offer, ended)
        call = ToolCall(id="", name=offer.name, arguments=arguments)
        return Parsed(text[: action.start()].rstrip(), (call,), cut=text[end:].strip())

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        """See `Form.render`."""
        number = [""] if len(calls) == 1 else [f" {n}" for n in range(1, len(calls) + 1)]
        lines = [f"Action{n}: {c.name}[{dumped(said(c))}]" for n, c in zip(number, calls, strict=True)]
        return "\n".join([content, *lines] if content else lines)

    def edge(self, text: str, start: int) -> tuple[int, bool]:
        """See `Form.edge`."""
        found = _action.search(text, start)
        if found is not None:
            return found.start(), True
        begin = last_line(text, start)
        held = begin is not None and _beginning.fullmatch(text, begin) is not None
        return (begin if held and begin is not None else len(text)), False

    def defused(self, text: str, offers: Sequence[OfferedTool]) -> str:
        """See `Form.defused`."""
        return lines_broken(super().defused(text, offers), (offer.name for offer in offers))

    def result(self, name: str, number: int | None, content: str) -> str:
        """See `Form.result`."""
        return f"Observation{'' if number is None else f' {number}'}: {content}"


def _in_brackets(text: str, start: int, offer: OfferedTool) -> tuple[dict[str, Any], int]:
    """The arguments that begin behind a bracket, and where the call's line ends."""
    at = _dark(text, start)
    if text.startswith("{", at):
        arguments, at = json_at(text, at)
    elif text.startswith('"', at) and (found := _json_text(text, at)) is not None:
        words, at = found
        arguments = _told(offer, words)
    elif single := _quoted.match(text, at):
        arguments, at = _told(offer, single[1]), single.end(1) + 1
    else:
        end = _balanced(text, start)
        arguments, at = _told(offer, text[start:end].strip()), end
    close = _close.match(text, at)
    if close is None:
        raise Unread(f"the input of {offer.name!r} does not end with ]")
    line = _end_of_line.match(text, close.end())
    if line is None:
        raise Unread(f"more text after the call on its line: {short(text[close.end() :])}")
    return arguments, line.end()


def _in_lines(text: str, start: int, offer: OfferedTool, ended: bool) -> tuple[dict[str, Any], int]:
    """The arguments behind `Action Input:`, and where they end."""
    stop = _stop.search(text, start)
    end = len(text) if stop is None else stop.start()
    at = _dark(text, start)
    if at < end and text[at] == "{":
        arguments, at = json_at(text, at)
        line = _end_of_line.match(text, at)
        if line is None:
            raise Unread(f"more text after the input on its line: {short(text[at:])}")
        return arguments, line.end()
    if stop is None and not ended:
        raise Unread("the reply was cut within the input")
    words = text[start:end].strip()
    if len(words) > 1 and words[0] == words[-1] and words[0] in "'\"" and words[0] not in words[1:-1]:
        words = words[1:-1]
    return _told(offer, words), end


def _dark(text: str, start: int) -> int:
    """The first place from `start` on that holds no white space."""
    found = _not_blank.search(text, start)
    return len(text) if found is None else found.start()


def _json_text(text: str, start: int) -> tuple[str, int] | None:
    """The JSON text that is all of the input in brackets, and where it ends."""
    try:
        words, end = json_at(text, start)
    except Unread:
        return None
    return (words, end) if isinstance(words, str) and _close.match(text, end) else None


def _balanced(text: str, start: int) -> int:
    """Where the bracket is that closes the one before `start`."""
    depth = 1
    for found in _bracket_or_stop.finditer(text, start):
        depth += {"[": 1, "]": -1}.get(found[0], -depth - 1)
        if depth == 0:
            return found.start()
        if depth < 0:
            break
    raise Unread("a bracket that is not closed")


def _told(offer: OfferedTool, words: str) -> dict[str, Any]:
    """Arguments from a text: it is the one parameter of the tool, or the first that is required.

    Where several are required values with commas between them are theirs, by place.
    """
    if not words:
        return {}
    properties = offer.parameters.get("properties")
    known: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    required = offer.parameters.get("required")
    needed = [name for name in required if name in known] if isinstance(required, list | tuple) else []
    parts = [part.strip() for part in cut_at_commas(words, _apart)] if len(needed) > 1 else []
    if len(parts) > 1:
        names = [*needed, *(name for name in known if name not in needed)]
        if len(parts) > len(names):
            raise Unread(f"{offer.name!r} takes {len(names)} inputs ({', '.join(names)}), and {len(parts)} are given")
        return {name: _placed(part, known[name]) for name, part in zip(names, parts, strict=False)}
    first = next(iter(needed), None)
    name = next(iter(known)) if len(known) == 1 else first
    if not isinstance(name, str):
        raise Unread(f"no parameter of {offer.name!r} is known to take the text {short(words)}")
    return {name: _typed(words, known[name])}


def _placed(words: str, schema: object) -> Any:
    """One of several values: JSON as what it says, but for what a schema wants as a text; else as `_typed` reads it."""
    if len(words) > 1 and words[0] == words[-1] == "'":
        return words[1:-1]
    if words[:1] in ('"', "[", "{"):
        try:
            value, end = json_at(words, 0)
        except Unread:
            return _typed(words, schema)
        if end == len(words) and (isinstance(value, str) or "string" not in _kinds(schema)):
            return value
    return _typed(words, schema)


def _typed(words: str, schema: object) -> str | int | float | bool:
    """A text as the type that a schema wants, if it wants no text and the words read as that type."""
    kinds = _kinds(schema)
    if "string" in kinds:
        return words
    if "boolean" in kinds and words.lower() in ("true", "false"):
        return words.lower() == "true"
    if kinds & {"integer", "number"} and _integer.fullmatch(words):
        return int(words)
    if "number" in kinds and _decimal.fullmatch(words) and math.isfinite(float(words)):
        return float(words)
    return words


def _kinds(schema: object) -> set[str]:
    """The types that a schema names, or that the members of its union name."""
    if not isinstance(schema, Mapping):
        return set()
    union = schema.get("anyOf")
    found: set[str] = set()
    for member in (schema, *(union if isinstance(union, list) else ())):
        kind = member.get("type") if isinstance(member, Mapping) else None
        found |= {one for one in (kind if isinstance(kind, list) else [kind]) if isinstance(one, str)}
    return found
