"""The form of ReAct (https://arxiv.org/abs/2210.03629): a line `Action: tool[input]`.

Several actions can follow one label. `Action: tool` with `Action Input: input` on the next line, as in LangChain's
agents, is also read, as are `Action: tool(input)`, `Action: tool` of a tool that needs no input, and a reply that
consists of `tool[input]`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from orchestrator.models.messages import ToolCall
from orchestrator.models.text.forms import (
    ANY,
    TOO_DEEP,
    Form,
    OfferedTool,
    Parsed,
    Unread,
    brackets_broken,
    last_line,
    lines_broken,
    offered,
    short,
)
from orchestrator.models.text.inputs import fence, read_input, usage
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
    name = named[0].strip()
    if lines is None and sign not in ("[", "("):
        return _without_input(text, named, offers, ended)
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


def _without_input(
    text: str, named: re.Match[str], offers: Sequence[OfferedTool], ended: bool
) -> tuple[tuple[ToolCall, ...], int]:
    """Return the call of a tool that needs no input, named on a line of its own."""
    line = _end_of_line.match(text, named.end())
    name = named[0].strip(" \t.;")
    offer = next((one for one in _known(offers) if one.name.lower() == name.lower()), None)
    if line is None or offer is None or (line.end() == len(text) and not ended):
        raise Unread(f"an action without [input]: {short(text[named.start() : named.end() + 40])}")
    if offer.parameters.get("required"):
        raise Unread(f"the action {name!r} without its input: write it after the name: {usage(offer)}")
    return (ToolCall(id="", name=offer.name, arguments={}),), line.end()


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
    end = _end_of_value(text, at)
    if end is None or (text[at] != "{" and _close.match(text, end) is None):
        single = _quoted.match(text, at)
        end = single.end(1) + 1 if single is not None else _balanced(text, start, "[", "]")
    close = _close.match(text, end)
    if close is None:
        raise Unread(f"the input of {offer.name!r} does not end with ]")
    return read_input(offer, text[start:end]), close.end()


def _in_parentheses(text: str, start: int, offer: OfferedTool) -> tuple[dict[str, Any], int]:
    """Like `_in_brackets` for `(`, as in a program."""
    end = _balanced(text, start, "(", ")")
    keyword = _keyword.match(text, start, end)
    arguments = read_input(offer, text[start:end])
    if keyword is not None and keyword[1] not in arguments:
        raise Unread(f"{offer.name!r} takes no {keyword[1]!r}: write the input after the name: {usage(offer)}")
    return arguments, end + 1


def _in_lines(text: str, start: int, offer: OfferedTool, ended: bool) -> tuple[dict[str, Any], int]:
    """Return the arguments after `Action Input:`, and where they end."""
    stop = _stop.search(text, start)
    end = len(text) if stop is None else stop.start()
    at = _dark(text, start)
    value = _end_of_value(text, at) if at < end else None
    if value is not None:
        line = _end_of_line.match(text, value)
        if line is None and text[at] == "{":
            raise Unread(f"more text after the input on its line: {short(text[value:])}")
        if line is not None and not fence.search(text, value, end):
            return read_input(offer, text[at:value]), line.end()
    if stop is None and not ended:
        raise Unread("the reply was cut within the input")
    return read_input(offer, text[start:end]), end


def _end_of_value(text: str, at: int) -> int | None:
    """Return where the fence, the object, the list or the JSON text at a position ends; None if there is none."""
    if text.startswith(("```", "~~~"), at):
        closing = text.find(text[at : at + 3], at + 3)
        return None if closing < 0 else closing + 3
    if not text.startswith(("{", "[", '"'), at):
        return None
    try:
        return json_at(text, at)[1]
    except Unread as why:
        if str(why) == TOO_DEEP:
            raise
        return None


def _dark(text: str, start: int) -> int:
    """Return the first position from `start` on that is not white space."""
    found = _not_blank.search(text, start)
    return len(text) if found is None else found.start()


def _past(pattern: re.Pattern[str], text: str, start: int) -> int:
    found = pattern.match(text, start)
    return start if found is None else found.end()


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
