"""JSON as written by a model, read to the letter: nothing is repaired, and nothing is guessed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from json import JSONDecodeError, JSONDecoder
from typing import Any, NoReturn

from orchestrator.json import deeper_than
from orchestrator.models.messages import ToolCall
from orchestrator.models.text.forms import OfferedTool, Unread, offered, short
from orchestrator.values import FOREIGN_DEPTH

DEEPEST = FOREIGN_DEPTH
"""Levels of lists and objects in a call. A bound of our own: Python's depends on who calls."""
_NAMES = ("name", "tool")
_ARGUMENTS = ("arguments", "parameters", "args")
_BESIDE = {"id", "type", "index"}
_SPACE = " \t\n\r"


def json_at(text: str, start: int = 0) -> tuple[Any, int]:
    """The JSON value that begins at a place, and where it ends.

    Raises:
        Unread: there is none.
    """
    try:
        value, end = _decoder.raw_decode(text, start)
    except JSONDecodeError as error:
        raise Unread(f"not JSON: {error.msg} at character {error.pos}") from None
    except ValueError as error:
        raise Unread(f"not JSON: {error}") from None
    except RecursionError:
        raise Unread(_TOO_DEEP) from None
    if deeper_than(value, DEEPEST):
        raise Unread(_TOO_DEEP)
    return value, end


def json_of(text: str) -> Any:
    """The JSON value that a text is, but for white space around it.

    Raises:
        Unread: it is none.
    """
    bare = text.strip(_SPACE)
    value, end = json_at(bare)
    if end < len(bare):
        raise Unread(f"not JSON: more text after the value, {short(bare[end:])}")
    return value


def calls_in(value: Any, offers: Sequence[OfferedTool], *, marked: bool) -> tuple[ToolCall, ...]:
    """The calls that a JSON value says: one, a list of them, or `{"tool_calls": [...]}`.

    Args:
        marked: a marker says that these are calls. Else the value could be an answer, or tell what tools there are,
            so it must be calls and nothing beside them, each with its arguments.

    Raises:
        Unread: it is something else, or one of them cannot be read.
    """
    if isinstance(value, dict) and "tool_calls" in value:
        _nothing_else(value, {"tool_calls"}, marked)
        value = value["tool_calls"]
    calls = value if isinstance(value, list) else [value]
    if not calls:
        raise Unread("an empty list of calls")
    return tuple(_call(call, offers, marked) for call in calls)


def like_calls(value: Any, offers: Sequence[OfferedTool]) -> bool:
    """Whether a JSON value is so much like calls that it deserves a reason why it is none."""
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
    """JSON in which no marker can stand: `<|` is written with an escape."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which no request can carry
        text = json.dumps(value)
    return text.replace("<|", "\\u003c|")


def said(call: ToolCall) -> dict[str, Any]:
    """The arguments of a call that was made."""
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
    if arguments not in function and not marked:
        raise Unread(f"a call of {offer.name!r} without arguments")
    given, raw = _arguments(function.get(arguments), offer)
    identity = item.get("id")
    try:
        return ToolCall(id=identity if isinstance(identity, str) else "", name=offer.name, arguments=given, raw=raw)
    except (ValueError, RecursionError):
        raise Unread(f"the arguments of {offer.name!r} are not plain JSON") from None


def _arguments(given: Any, offer: OfferedTool) -> tuple[dict[str, Any], str]:
    raw = given if isinstance(given, str) else ""
    if given is None or given == "":
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


_TOO_DEEP = f"JSON of more than {DEEPEST} levels"


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):  # readers differ in which one counts
        raise ValueError("an object has a key twice")
    return found


_decoder = JSONDecoder(parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_once)
