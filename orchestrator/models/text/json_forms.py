"""Forms whose calls are JSON: alone (`json`), in blocks between tokens (`plugin`), and after a separator (`separator`).

JSON is read exactly as the model wrote it: nothing is repaired or guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from json import JSONDecodeError
from typing import Any

from orchestrator.json import deeper_than
from orchestrator.models.messages import ToolCall
from orchestrator.models.reading import one_reading
from orchestrator.models.text.forms import (
    TOO_DEEP,
    Form,
    OfferedTool,
    Parsed,
    Unread,
    last_line,
    names_broken,
    offered,
    partial,
    short,
)
from orchestrator.values import FOREIGN_DEPTH

_FENCE = "```"
_fences = re.compile(r"^ {0,3}```([^\n]*)$", re.MULTILINE)
_named = re.compile(r'"(?:name|tool|function|tool_calls)"\s*:')
_given = re.compile(r'"(?:arguments|parameters|args)"\s*:')
_word = re.compile(r"[\w-]*[ \t]*\r?")
_fence_opening = re.compile(r"^ {0,3}```json", re.MULTILINE | re.IGNORECASE)
_fence_beginning = re.compile(r" {0,3}(?:`(?:`(?:`(?:j(?:s(?:o)?)?)?)?)?)?", re.IGNORECASE)


class JsonForm(Form):
    """Calls as one JSON object, or a list of them."""

    name = "json"
    how = (
        "To call a tool, make your whole reply one JSON object, with no other text:\n"
        '{"name": "tool", "arguments": {"parameter": "value"}}'
    )
    several = "To make several calls at once, reply with a JSON list of such objects."

    def read(self, text: str, offers: Sequence[OfferedTool], ended: bool) -> Parsed:
        """See `Form.parse`."""
        begin, written = _block(text)
        if begin is None:
            return Parsed(text)
        try:
            value: object = json_of(written)
        except Unread:
            if _named.search(written):
                raise
            return Parsed(text)
        if not like_calls(value, offers):
            return Parsed(text)
        return Parsed(text[:begin].rstrip(), calls_in(value, offers, marked=False))

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        """See `Form.render`."""
        items = [{"name": call.name, "arguments": said(call)} for call in calls]
        written = dumped(items[0] if len(items) == 1 else items)
        return f"{content}\n{_FENCE}json\n{written}\n{_FENCE}" if content.strip() else written

    def edge(self, text: str, start: int) -> tuple[int, bool]:
        """See `Form.edge`."""
        bare = text.lstrip() if start == 0 else ""
        if bare.startswith(("{", "[", _FENCE)):
            return 0, True
        found = _fence_opening.search(text, start)
        if found is not None:
            return found.start(), True
        begin = last_line(text, start)
        if bare in ("`", "``"):
            return 0, False
        whole = begin is not None and _fence_beginning.fullmatch(text, begin) is not None
        return (begin if whole and begin is not None else len(text)), False

    def defused(self, text: str, offers: Sequence[OfferedTool]) -> str:
        """See `Form.defused`. Fences are kept: without the name of a tool they contain no call."""
        return names_broken(super().defused(text, offers), (offer.name for offer in offers))


def _block(text: str) -> tuple[int | None, str]:
    """Return the position and text, without a fence, of the part that may be calls; position None if there is none.

    Raises:
        Unread: text that looks like calls has other text around it.
    """
    bare = text.strip()
    if bare.startswith(("{", "[")):
        return 0, bare
    fences = list(_fences.finditer(text))
    first = fences[0] if fences else None
    why = "JSON with other text around it"
    if first is not None:
        whole, closed = not text[: first.start()].strip(), len(text.rstrip())
        if first[1].strip().lower() == "json" or (whole and _word.fullmatch(first[1])):
            ends = bare.endswith(_FENCE) and first.end() < closed
            inner = [fence for fence in fences[1:] if fence.end() < closed]
            if ends and not inner:
                return (0 if whole else first.start()), text[first.end() : closed - len(_FENCE)]
            why = "more than one fenced block" if ends else "a fenced block that does not end the reply"
    if _named.search(text) and _given.search(text):
        raise Unread(why)
    return None, ""


START, PLUGIN, END, STOP = "<|action_start|>", "<|plugin|>", "<|action_end|>", "<|im_end|>"
_NO_MORE = ("", STOP)
_block_opening = re.compile(rf"\s*{re.escape(START)}\s*{re.escape(PLUGIN)}\s*")
_block_closing = re.compile(rf"\s*{re.escape(END)}")


class PluginForm(Form):
    """Writes blocks between tokens, one call in each, one block after the other."""

    name = "plugin"
    how = (
        "To call a tool, end your reply with a block of this form, and write nothing behind it:\n"
        f'{START}{PLUGIN}\n{{"name": "tool", "parameters": {{"parameter": "value"}}}}{END}'
    )
    several = "To make several calls at once, write one block behind the other."

    def read(self, text: str, offers: Sequence[OfferedTool], ended: bool) -> Parsed:
        """See `Form.parse`. Text after the last block is cut, even if it could contain a call."""
        begin = text.find(START)
        if begin < 0:
            return Parsed(text)
        calls: list[ToolCall] = []
        at = begin
        while opening := _block_opening.match(text, at):
            value, at = json_at(text, opening.end())
            closing = _block_closing.match(text, at)
            if closing is None and not (ended and text[at:].strip() in _NO_MORE):
                raise Unread(f"a block does not end with {END}" + ("" if ended else ", as the reply was cut"))
            at = at if closing is None else closing.end()
            if not isinstance(value, dict):
                raise Unread("a block that is not a JSON object")
            calls.extend(calls_in(value, offers, marked=True))
        if not calls:
            raise Unread(f"{START} without {PLUGIN}")
        rest = text[at:].strip()
        return Parsed(text[:begin].rstrip(), tuple(calls), cut="" if rest in _NO_MORE else rest)

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        """See `Form.render`."""
        blocks = (f"{START}{PLUGIN}\n{dumped({'name': c.name, 'parameters': said(c)})}{END}" for c in calls)
        return content + "".join(blocks)

    def edge(self, text: str, start: int) -> tuple[int, bool]:
        """See `Form.edge`."""
        found = text.find(START, start)
        return (found, True) if found >= 0 else (partial(text, start, START), False)


SEPARATOR = "<|tool_calls|>"
_space = re.compile(r"[ \t\r\n]*")
_stop_token = re.compile(r"(?:<\|\w{1,40}\|>)?")  # ends a reply; some servers do not remove it


class SeparatorForm(Form):
    """Writes content first, then the separator, then a JSON list of calls."""

    name = "separator"
    how = (
        f"To call tools, end your reply with {SEPARATOR} and a JSON list of the calls, and write nothing behind it:\n"
        f'{SEPARATOR}[{{"name": "tool", "arguments": {{"parameter": "value"}}}}]'
    )
    several = "Several calls can stand in the list."

    def read(self, text: str, offers: Sequence[OfferedTool], ended: bool) -> Parsed:
        """See `Form.parse`. The first separator counts: a later one can be part of an argument.

        If no calls follow the first one, as in a text about it, the last one counts.
        """
        begin, last = text.find(SEPARATOR), text.rfind(SEPARATOR)
        if begin < 0:
            return Parsed(text)
        try:
            return self._calls(text, begin, offers)
        except Unread:
            if last == begin:
                raise
        return self._calls(text, last, offers)

    def _calls(self, text: str, begin: int, offers: Sequence[OfferedTool]) -> Parsed:
        space = _space.match(text, begin + len(SEPARATOR))
        value, end = json_at(text, space.end() if space else len(text))
        if not _stop_token.fullmatch(text[end:].strip()):
            raise Unread(f"more text after the list of calls: {short(text[end:])}")
        return Parsed(text[:begin].rstrip(), calls_in(value, offers, marked=True))

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        """See `Form.render`."""
        return content + SEPARATOR + dumped([{"name": call.name, "arguments": said(call)} for call in calls])

    def edge(self, text: str, start: int) -> tuple[int, bool]:
        """See `Form.edge`."""
        found = text.find(SEPARATOR, start)
        return (found, True) if found >= 0 else (partial(text, start, SEPARATOR), False)


_NAMES = ("name", "tool")
_ARGUMENTS = ("arguments", "parameters", "args")
_BESIDE = {"id", "type", "index"}
_SPACE = " \t\n\r"


def json_at(text: str, start: int = 0) -> tuple[Any, int]:
    """Return the JSON value that starts at a position, and where it ends.

    Raises:
        Unread: there is no JSON value.
    """
    try:
        value, end = one_reading.raw_decode(text, start)
    except JSONDecodeError as error:
        raise Unread(f"not JSON: {error.msg} at character {error.pos}") from None
    except ValueError as error:
        raise Unread(f"not JSON: {error}") from None
    except RecursionError:
        raise Unread(TOO_DEEP) from None
    if deeper_than(value, FOREIGN_DEPTH):
        raise Unread(TOO_DEEP)
    return value, end


def json_of(text: str) -> Any:
    """Return the JSON value that a text represents, apart from surrounding white space.

    Raises:
        Unread: the text is not JSON.
    """
    bare = text.strip(_SPACE)
    value, end = json_at(bare)
    if end < len(bare):
        raise Unread(f"not JSON: more text after the value, {short(bare[end:])}")
    return value


def calls_in(value: Any, offers: Sequence[OfferedTool], *, marked: bool) -> tuple[ToolCall, ...]:
    """Return the calls in a JSON value: one, a list of them, or `{"tool_calls": [...]}`.

    Args:
        marked: whether a marker introduces the calls. Otherwise the value could be an answer, or a list of tools, so it
            must contain only calls, each with its arguments.

    Raises:
        Unread: it is something else, or one of the calls cannot be read.
    """
    if isinstance(value, dict) and "tool_calls" in value:
        _nothing_else(value, {"tool_calls"}, marked)
        value = value["tool_calls"]
    calls = value if isinstance(value, list) else [value]
    if not calls:
        raise Unread("an empty list of calls")
    return tuple(_call(call, offers, marked) for call in calls)


def like_calls(value: Any, offers: Sequence[OfferedTool]) -> bool:
    """Return True if a JSON value resembles calls so closely that the reply should say why it is not one."""
    if isinstance(value, list):
        return any(like_calls(one, offers) for one in value if isinstance(one, dict))
    if not isinstance(value, dict):
        return False
    if "tool_calls" in value or isinstance(value.get("function"), dict):
        return True
    names = [value[key] for key in _NAMES if key in value]
    known = {offer.name for offer in offers if offer.name}
    return bool(names) and (
        any(key in value for key in _ARGUMENTS) or any(isinstance(n, str) and n in known for n in names)
    )


def dumped(value: Any) -> str:
    """Return JSON that cannot contain a marker: `<|` is written with an escape."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which no request can contain
        text = json.dumps(value)
    return text.replace("<|", "\\u003c|")


def said(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call that was made."""
    return {"not_a_json_object": call.raw} if call.arguments is None else dict(call.arguments)


def _call(item: Any, offers: Sequence[OfferedTool], marked: bool) -> ToolCall:
    if not isinstance(item, dict):
        raise Unread(f"a call is not a JSON object: {short(str(item))}")
    function = item
    if isinstance(item.get("function"), dict):
        function = item["function"]
        _nothing_else(item, {"function", *_BESIDE}, marked)
    name, arguments = _one_of(_NAMES, function), _one_of(_ARGUMENTS, function)
    _nothing_else(function, {*_NAMES, *_ARGUMENTS, *_BESIDE}, marked)
    offer = offered(function.get(name), offers)
    if arguments not in function and not marked and offer.parameters.get("properties"):
        raise Unread(f"a call of {offer.name!r} without arguments")
    given, raw = _arguments(function.get(arguments), offer)
    identity = item.get("id")
    try:
        return ToolCall(id=identity if isinstance(identity, str) else "", name=offer.name, arguments=given, raw=raw)
    except (ValueError, RecursionError):
        raise Unread(f"the arguments of {offer.name!r} are not plain JSON") from None


def _arguments(given: Any, offer: OfferedTool) -> tuple[dict[str, Any], str]:
    raw = given if isinstance(given, str) else ""
    if given in (None, "", []):
        return {}, ""
    if isinstance(given, str):
        try:
            given = json_of(given)
        except Unread as why:
            raise Unread(f"the arguments of {offer.name!r}: {why}") from None
    if not isinstance(given, dict):
        raise Unread(f"the arguments of {offer.name!r} are not a JSON object")
    return given, raw


def _one_of(keys: Sequence[str], item: Mapping[str, Any]) -> str:
    found = [key for key in keys if key in item]
    if len(found) > 1:
        raise Unread(f"a call has both {found[0]!r} and {found[1]!r}")
    return found[0] if found else keys[0]


def _nothing_else(item: Mapping[str, Any], known: set[str], marked: bool) -> None:
    other = next((key for key in item if key not in known), None)
    if other is not None and not marked:
        raise Unread(f"a call with the key {short(other)} beside it")
