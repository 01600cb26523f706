"""The form of ReAct (https://arxiv.org/abs/2210.03629): a line `Action: tool[input]`.

Several actions can follow one label. `Action: tool` with `Action Input: input` on the next line, as in LangChain's
agents, is also read, as are `Action: tool(input)` and a reply that consists of `tool[input]`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.models.messages import ToolCall
from orchestrator.models.text.forms import (
    ANY,
    Form,
    OfferedTool,
    Parsed,
    Unread,
    brackets_broken,
    cut_at_commas,
    last_line,
    lines_broken,
    offered,
    short,
)
from orchestrator.models.text.json_forms import dumped, json_at, said

# Every repetition is bounded, so that matching is fast for every text.
_colon = r"[ \t]{0,8}(?:\*\*)?[ \t]{0,8}[:：](?:[ \t]{0,8}\*\*)?[ \t]{0,8}"
_number = r"(?:[ \t]{0,8}\d{1,6})?"
_action = re.compile(rf"^[ \t]{{0,8}}(?:\*\*)?Action{_number}{_colon}", re.MULTILINE | re.IGNORECASE)
_numbered = re.compile(r"^[ \t]{0,8}(?:\*\*)?Action[ \t]{0,8}([0-9]{1,6})", re.MULTILINE | re.IGNORECASE)
_gap = re.compile(r"[\s`*•-]{0,99}")
_name = re.compile(r"[^\[\](){}*`:\n]{1,200}")
_bare = re.compile(r"[\s`*]{0,99}(?P<name>[^\s\[\](){}*`:]{1,200})[ \t]{0,8}(?=\[)")
_another = re.compile(
    r"[ \t`*]{0,16}(?:[,;&+](?:[ \t]{0,8}and\b)?|and\b|(?=\r?\n))[\s`*•-]{0,16}"
    r"(?P<name>[^\[\](){}*`:\n]{1,200})(?=\[)",
    re.IGNORECASE,
)
_input = re.compile(
    rf"[ \t]{{0,8}}(?:\*\*)?[ \t]{{0,8}}\r?\n\s{{0,16}}(?:\*\*)?Action[ \t]{{1,8}}Input{_number}{_colon}", re.IGNORECASE
)
_other = r"^[ \t]{0,8}(?:\*\*)?(?:Action|Observation|Thought|Final[ \t]Answer)[^\n:：]{0,20}[:：]"
_stop = re.compile(_other, re.MULTILINE | re.IGNORECASE)
_bracket_or_stop = {
    "]": re.compile(rf"[\[\]]|{_other}", re.MULTILINE | re.IGNORECASE),
    ")": re.compile(rf"[()]|{_other}", re.MULTILINE | re.IGNORECASE),
}
_not_blank = re.compile(r"\S")
_close = re.compile(r"\s{0,99}\]")
_quoted = re.compile(r"'([^'\n]*)'\s{0,99}\]")
_end_of_line = re.compile(r"[ \t*.;`]{0,16}(?:\r?\n|\Z)")
_aside = re.compile(r"[ \t*`.,;:–—-][^\[\]\n]*(?:\n|\Z)")
"""Text that may follow a call on its line: words without a bracket that would make them another call."""
_keyword = re.compile(r"\s{0,16}(\w{1,200})\s{0,16}=(?!=)")
_beginning = re.compile(
    r"[ \t]{0,8}\*{0,2}(?:a(?:c(?:t(?:i(?:o(?:n[ \t]{0,8}\d{0,6}[ \t]{0,8}\*{0,2}[ \t]{0,8})?)?)?)?)?)?", re.IGNORECASE
)
_bare_beginning = re.compile(r"[\s`*]{0,99}[^\s\[\](){}*`:]{0,200}[ \t]{0,8}")
_MOST_WORDS = 3
"""Maximum number of words in the name of an unknown tool: more words are a sentence."""


class BracketForm(Form):
    """Writes thought, action and observation, one after the other."""

    name = "bracket"
    how = (
        "To call a tool, end your reply with one line of this form, and write nothing behind it:\n"
        'Action: tool[{"parameter": "value"}]\n'
        "Before it you can write your thoughts. You are then told the result as an Observation; never write one "
        "yourself."
    )

    stop = ("\nObservation",)

    def read(self, text: str, offers: Sequence[OfferedTool], ended: bool) -> Parsed:
        """See `Form.parse`. The actions after the first label count; later text is cut off.

        That text was written without the results, or imitates a result.
        """
        action = _action.search(text)
        if action is None:
            return _alone(text, offers)
        calls, end = _calls(text, _past(_gap, text, action.end()), offers, ended)
        content = text[: action.start()].rstrip()
        return Parsed(content, calls, cut=text[end:].strip(), words=text[len(content) : end].rstrip())

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        """See `Form.render`."""
        number = [""] if len(calls) == 1 else [f" {n}" for n in range(1, len(calls) + 1)]
        lines = [f"Action{n}: {c.name}[{dumped(said(c))}]" for n, c in zip(number, calls, strict=True)]
        return "\n".join([content, *lines] if content else lines)

    def edge(self, text: str, start: int) -> tuple[int, bool]:
        """See `Form.edge`."""
        bare = _bare_beginning.match(text) if start == 0 else None
        if bare is not None and text.startswith("[", bare.end()):
            return 0, True  # checked first, because later pieces cannot change it
        found = _action.search(text, start)
        if found is not None:
            return found.start(), True
        if bare is not None and bare.end() == len(text):
            return 0, False
        begin = last_line(text, start)
        held = begin is not None and _beginning.fullmatch(text, begin) is not None
        return (begin if held and begin is not None else len(text)), False

    def defused(self, text: str, offers: Sequence[OfferedTool]) -> str:
        """See `Form.defused`."""
        names = [offer.name for offer in offers]
        return brackets_broken(lines_broken(super().defused(text, offers), names), names)

    def number_in(self, words: str) -> int | None:
        """See `Form.number_in`."""
        label = _numbered.search(words)
        return None if label is None else int(label[1])

    def result(self, name: str, number: int | None, content: str) -> str:
        """See `Form.result`."""
        return f"Observation{'' if number is None else f' {number}'}: {content}"


def _calls(text: str, at: int, offers: Sequence[OfferedTool], ended: bool) -> tuple[tuple[ToolCall, ...], int]:
    """Return the calls that start at a position, and where they end."""
    named = _name.match(text, at)
    if named is None or not named[0].strip():
        raise Unread("an action that names no tool")
    lines = _input.match(text, named.end())
    sign = text[named.end() : named.end() + 1]
    if lines is None and sign not in ("[", "("):
        raise Unread(f"an action without [input]: {short(text[at : named.end() + 40])}")
    name = named[0].strip()
    like_a_name = len(name.split()) <= _MOST_WORDS if sign == "[" else " " not in named[0].lstrip()
    offer = offered(name, offers if like_a_name else _known(offers))
    if lines is not None:
        arguments, end = _in_lines(text, lines.end(), offer, ended)
        return (ToolCall(id="", name=offer.name, arguments=arguments),), end
    read = _in_brackets if sign == "[" else _in_parentheses
    arguments, end = read(text, named.end() + 1, offer)
    calls = [ToolCall(id="", name=offer.name, arguments=arguments)]
    while (further := _another.match(text, end)) is not None:
        try:
            offer = offered(further["name"].strip(), _known(offers))
        except Unread:
            break
        arguments, end = _in_brackets(text, further.end() + 1, offer)
        calls.append(ToolCall(id="", name=offer.name, arguments=arguments))
    line = _end_of_line.match(text, end)
    if line is None and _aside.match(text, end) is None:
        raise Unread(f"more text after the call on its line: {short(text[end:])}")
    return tuple(calls), end if line is None else line.end()


def _known(offers: Sequence[OfferedTool]) -> list[OfferedTool]:
    return [offer for offer in offers if offer is not ANY]


def _alone(text: str, offers: Sequence[OfferedTool]) -> Parsed:
    """Parse a reply that consists of an action, or continues with a made-up result; any other reply is text."""
    begin = _bare.match(text)
    if begin is None or not any(offer.name.lower() == begin["name"].lower() for offer in _known(offers)):
        return Parsed(text)
    try:
        calls, end = _calls(text, begin.start("name"), _known(offers), True)
    except Unread:
        return Parsed(text)
    rest = text[end:].strip(" \t\r\n`*.")
    if rest and not _stop.match(rest):
        return Parsed(text)
    return Parsed("", calls, cut=rest, words=text[:end].rstrip())


def _in_brackets(text: str, start: int, offer: OfferedTool) -> tuple[dict[str, Any], int]:
    """Return the arguments after a bracket, and the position after its end."""
    at = _dark(text, start)
    if text.startswith("{", at):
        arguments, at = json_at(text, at)
    elif text.startswith('"', at) and (found := _json_text(text, at)) is not None:
        words, end = found
        arguments, at = arguments_of(offer, text[at:end], words), end
    elif single := _quoted.match(text, at):
        arguments, at = arguments_of(offer, f"'{single[1]}'", single[1]), single.end(1) + 1
    else:
        end = _balanced(text, start, "[", "]")
        arguments, at = arguments_of(offer, text[start:end].strip()), end
    close = _close.match(text, at)
    if close is None:
        raise Unread(f"the input of {offer.name!r} does not end with ]")
    return arguments, close.end()


def _in_parentheses(text: str, start: int, offer: OfferedTool) -> tuple[dict[str, Any], int]:
    """Like `_in_brackets` for `(`, as in a program: quotes around the whole input are not part of it."""
    end = _balanced(text, start, "(", ")")
    words = text[start:end].strip()
    if words.startswith("{"):
        arguments, stop = json_at(text, _dark(text, start))
        if text[stop:end].strip():
            raise Unread(f"the input of {offer.name!r} does not end with )")
        return arguments, end + 1
    if _keyword.match(words):
        raise Unread(f"arguments by name: write {offer.name}[{{...}}] with a JSON object")
    return arguments_of(offer, _unquoted(words)), end + 1


def _in_lines(text: str, start: int, offer: OfferedTool, ended: bool) -> tuple[dict[str, Any], int]:
    """Return the arguments after `Action Input:`, and where they end."""
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
    return arguments_of(offer, _unquoted(text[start:end].strip())), end


def _unquoted(words: str) -> str:
    """Return a text without a pair of quotes around all of it."""
    if len(words) > 1 and words[0] == words[-1] and words[0] in "'\"" and words[0] not in words[1:-1]:
        return words[1:-1]
    return words


def _dark(text: str, start: int) -> int:
    """Return the first position from `start` on that is not white space."""
    found = _not_blank.search(text, start)
    return len(text) if found is None else found.start()


def _past(pattern: re.Pattern[str], text: str, start: int) -> int:
    found = pattern.match(text, start)
    return start if found is None else found.end()


def _json_text(text: str, start: int) -> tuple[str, int] | None:
    """Return the JSON text if it is the whole input in brackets, and where it ends."""
    try:
        words, end = json_at(text, start)
    except Unread:
        return None
    return (words, end) if isinstance(words, str) and _close.match(text, end) else None


def _balanced(text: str, start: int, opening: str, closing: str) -> int:
    """Return the position of the bracket that closes the one before `start`."""
    depth = 1
    for found in _bracket_or_stop[closing].finditer(text, start):
        depth += {opening: 1, closing: -1}.get(found[0], -depth - 1)
        if depth == 0:
            return found.start()
        if depth < 0:
            break
    raise Unread("a bracket that is not closed")


_apart = re.compile(
    r"""
    "(?:[^"\\\n]|\\.){0,1000}+" | (?<![\w)\]])'[^'\n]{0,1000}+'(?=\s{0,99}(?:,|$))
  | (?P<open>[\[({]) | (?P<close>[\])}]) | (?P<comma>,)
    """,
    re.VERBOSE,
)
"""Commas outside of quotes and brackets, at which a list of values is split."""
_integer = re.compile(r"[+-]?\d{1,300}", re.ASCII)
_decimal = re.compile(r"[+-]?\d{1,300}(?:\.\d{1,300})?(?:e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)


def arguments_of(offer: OfferedTool, words: str, inside: str | None = None) -> dict[str, Any]:
    """Return arguments from a text: the value of the tool's only parameter, or of the first required one.

    If several are required, values separated by commas are assigned to them in order.

    Args:
        offer: the tool.
        words: the text.
        inside: the text within surrounding quotes, if there are any. A tool with one string parameter gets the quotes,
            too: a search for "to be" differs from a search for to be. Elsewhere they only delimit a string.

    Raises:
        Unread: no parameter accepts the text.
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
    quoted = inside is None or ("string" in _kinds(known[name]) and len(needed) < 2)
    return {name: _typed(words if quoted or inside is None else inside, known[name])}


def _placed(words: str, schema: object) -> Any:
    """Convert one of several values. JSON is decoded, unless the schema asks for a string; other text is converted by
    `_typed`."""
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
    """Convert a text to the type in a schema, unless that allows a string or the text cannot be read as the type."""
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
    """Return the types that a schema names, or that the members of its union name."""
    if not isinstance(schema, Mapping):
        return set()
    union = schema.get("anyOf")
    found: set[str] = set()
    for member in (schema, *(union if isinstance(union, list) else ())):
        kind = member.get("type") if isinstance(member, Mapping) else None
        found |= {one for one in (kind if isinstance(kind, list) else [kind]) if isinstance(one, str)}
    return found
