"""Reads the input of a call `tool[input]`, as ReAct's actions and ReWOO's plans write it, by the schema of the tool.

`Encyclopedia[The Hennchata]` is the one text that the tool takes, `multiply[3, 4]` two numbers, and
`multiply[{"a": 3, "b": 4}]`, `multiply[a=3, b=4]` and the same in a Markdown fence are equal to it. Quotes around a
whole value are not part of it. An input with several readings, or none, is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orchestrator.json import deeper_than
from orchestrator.models.reading import NoReading, json_in, unfenced
from orchestrator.models.text.forms import TOO_DEEP, OfferedTool, Unread, cut_at_commas, short
from orchestrator.values import FOREIGN_DEPTH

_quotes = re.compile(r"'(?P<single>[^'\n]*)'|`(?P<tick>[^`\n]*)`")
_apart = re.compile(
    r"""
    "(?:[^"\\]|\\.){0,1000}+" | (?<![\w)\]])'[^'\n]{0,1000}+'(?=\s{0,99}(?:,|$))
  | (?P<open>[\[({]) | (?P<close>[\])}]) | (?P<comma>,)
    """,
    re.VERBOSE | re.DOTALL,
)
"""Commas outside of quotes and brackets, at which a list of values is split."""
_nothing = re.compile(r"(?:none|null|nil|n/?a|nothing|no input)\.?|[\s\"'`{}()\[\]-]{0,8}", re.IGNORECASE)
"""Input of a tool that takes none."""
fence = re.compile(r"```|~~~")
_object_in_fence = re.compile(r"(?:```|~~~)\w*\s*[\[{]")
_object = re.compile(r"\{\s*[\"'}]")
_MOST_SCHEMAS = 64
"""Maximum number of schemas that are searched for the types of one parameter."""
_integer = re.compile(r"[+-]?\d{1,300}", re.ASCII)
_string = re.compile(r'"(?:[^"\\]|\\.){0,10000}"', re.DOTALL)
_thousands = re.compile(r"[+-]?\d{1,3}(?:,\d{3}){1,100}(?:\.\d{0,300})?", re.ASCII)
_decimal = re.compile(r"[+-]?\d{1,300}(?:\.\d{1,300})?(?:e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)


def read_input(offer: OfferedTool, text: str, json_of: Callable[[str], str] = str) -> dict[str, Any]:
    """Return the arguments that an input gives. They are not validated yet.

    A tool that requires one parameter gets a plain text whole. If it requires several, or if the one cannot be a text
    or a list, values separated by commas are assigned in order, to the required parameters first.

    Args:
        offer: the tool.
        text: the input.
        json_of: makes JSON of a text that is JSON except for references to other results.

    Raises:
        Unread: the input has several readings, or none.
    """
    properties = offer.parameters.get("properties")
    known: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    required = offer.parameters.get("required")
    needed = [name for name in required if name in known] if isinstance(required, list | tuple) else []
    words = _bare(text.strip())
    given = _object_of(offer, json_of(words), known)
    if given is not None:
        return given
    if not words or (not known and _nothing.fullmatch(words)):
        return {}
    if not known:
        raise Unread(f"{offer.name!r} takes no input, and {short(words)} is given: leave its input empty")
    names = [*needed, *(name for name in known if name not in needed)]
    whole = len(needed) == 1 and not _is_values(words, known[names[0]], offer.parameters)
    only = names[0] if whole or len(names) == 1 else None
    listed = _listed(offer, json_of(words), names, only)
    if listed is not None:
        return listed
    parts = _named(words, names, only) or _placed(offer, words, names, only)
    return {name: _value(part, known[name], offer.parameters, json_of) for name, part in parts.items()}


def usage(offer: OfferedTool) -> str:
    """Return how the input of a tool is written, without the name of the tool: `[query]`.

    `Form.defused` changes a name with a bracket behind it, also in corrections, and a model would repeat the change.
    """
    required = offer.parameters.get("required")
    return f"[{', '.join(map(str, required)) if isinstance(required, list | tuple) else ''}]"


def _bare(words: str) -> str:
    """Return an input without the fence around all of it."""
    fences = len(fence.findall(words))
    whole = words.startswith(("```", "~~~")) and (fences == 1 or (fences == 2 and words.endswith(words[:3])))
    return (unfenced(words) if words.strip("`~\r\n ") else "") if whole else words


def _object_of(offer: OfferedTool, words: str, known: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments in an object, alone, in a list of one, or in a fence with words around it; else None."""
    fenced = _object_in_fence.search(words) is not None
    if not fenced and not _object.match(words) and not _is_list(words):
        return None
    try:
        value = json_in(words)
    except NoReading as why:
        if words.startswith("["):
            return None
        raise Unread(f"the input of {offer.name!r} {why}") from None
    if deeper_than(value, FOREIGN_DEPTH):
        raise Unread(TOO_DEEP)
    if isinstance(value, list) and any(isinstance(one, dict) and one and one.keys() <= known.keys() for one in value):
        if len(value) > 1:
            raise Unread(f"{len(value)} inputs for one call of {offer.name!r}: make one call for each")
        (value,) = value
    if isinstance(value, dict) and (fenced or words.endswith(("}", "]"))):
        return value
    if words.startswith("{"):
        raise Unread(f"the input of {offer.name!r} is not JSON alone: more text follows it")
    return None


def _is_list(words: str) -> bool:
    """Return True if the bracket at the start of a text is closed at its end."""
    depth = 0
    for match in _apart.finditer(words) if words.startswith("[") else ():
        depth += bool(match["open"]) - bool(match["close"])
        if depth == 0 and not match["comma"]:
            return match.end() == len(words)
    return False


def _is_values(words: str, schema: object, root: Mapping[str, Any]) -> bool:
    """Return True if a text is not one value of this schema but can be several: `1, 2` for a number."""
    one = kinds_in(schema, root) & {"string", "array", "object"} or _thousands.fullmatch(words)
    return not one and len(cut_at_commas(words.strip("[]"), _apart)) > 1


def _listed(offer: OfferedTool, words: str, names: Sequence[str], only: str | None) -> dict[str, Any] | None:
    """Return the arguments in a list of values in the order of the parameters; None if it is no such list."""
    if not _is_list(words):
        return None
    try:
        values = json_in(words)
    except NoReading:
        return None
    schema = offer.parameters["properties"][names[0]]
    if not isinstance(values, list) or "array" in kinds_in(schema, offer.parameters) - {"string"}:
        return None
    if only is not None:
        return {only: values[0]} if len(values) == 1 and isinstance(values[0], str) else None
    return dict(zip(names, _fitting(offer, values, names), strict=False))


def _named(words: str, names: Sequence[str], only: str | None) -> dict[str, str] | None:
    """Return `a=2, b=4`, or `2, b=4` if several are required, as a mapping; None if the text has another form.

    If one text is required, a value in front of the names has to be in quotes.
    """
    given = re.split(rf"(?:\A|,)\s{{0,99}}({'|'.join(map(re.escape, names))})\s{{0,99}}(?:=(?!=)|:)", words)
    first, named = given[0].strip(), dict(zip(given[1::2], given[2::2], strict=True))
    placeable = only is None or _string.fullmatch(first) is not None
    if not named or len(named) < len(given) // 2 or (first and (not placeable or first.count('"') % 2)):
        return None
    placed = cut_at_commas(first, _apart) if first else []
    front = dict(zip(names, placed, strict=False))
    return None if len(placed) > len(names) or front.keys() & named.keys() else {**front, **named}


def _placed(offer: OfferedTool, words: str, names: Sequence[str], only: str | None) -> dict[str, str]:
    """Return the parts of a text by position; the whole text, if the tool requires only one."""
    if only is not None:
        return {only: words}
    return dict(zip(names, _fitting(offer, cut_at_commas(words, _apart), names), strict=False))


def _fitting(offer: OfferedTool, values: list[Any], names: Sequence[str]) -> list[Any]:
    if len(values) > len(names):
        raise Unread(f"{offer.name!r} takes {len(names)} inputs ({', '.join(names)}), and {len(values)} are given")
    return values


def _value(text: str, schema: object, root: Mapping[str, Any], json_of: Callable[[str], str]) -> Any:
    """Return one value: a text without its quotes, or what the schema asks for."""
    text, kinds = text.strip(), kinds_in(schema, root)
    if text.startswith('"'):
        try:
            return _typed(str(json.loads(text, strict=False)), kinds)
        except ValueError:
            pass
    quoted = _quotes.fullmatch(text)
    if quoted is not None:
        return _typed(quoted["single"] or quoted["tick"] or "", kinds)
    if "string" in kinds:
        return text
    for written in (text, f"[{text.strip('()')}]") if "array" in kinds else (text,) if "object" in kinds else ():
        try:
            found = json_in(json_of(written))
        except NoReading:
            continue
        if isinstance(found, list | dict) and (written == text or len(found) > 1):
            return found
    return _typed(text, kinds)


def _typed(words: str, kinds: set[str]) -> str | int | float | bool:
    """Convert a text to one of the types, unless they include strings or it cannot be read as any."""
    if "string" in kinds:
        return words
    if "boolean" in kinds and words.lower() in ("true", "false"):
        return words.lower() == "true"
    if kinds & {"integer", "number"} and _integer.fullmatch(words):
        return int(words)
    if "number" in kinds and _decimal.fullmatch(words) and math.isfinite(float(words)):
        return float(words)
    return words


def kinds_in(schema: object, root: Mapping[str, Any]) -> set[str]:
    """Return the types that a schema names, or that the members of its unions name; `string` if there are none."""
    found, todo = set[str](), [schema]
    for _ in range(_MOST_SCHEMAS):
        one = todo.pop() if todo else None
        if not isinstance(one, Mapping):
            continue
        kind = one.get("type")
        found |= {name for name in (kind if isinstance(kind, list) else [kind]) if isinstance(name, str)}
        for union in ("anyOf", "oneOf", "allOf"):
            todo += one[union] if isinstance(one.get(union), list) else []
        name, home = str(one.get("$ref", "")).rpartition("/")[2], root.get("$defs")
        todo += [home[name]] if name and isinstance(home, Mapping) and name in home else []
    return found or {"string"}
