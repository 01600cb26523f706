"""The input of an action, a text, as the arguments of its tool."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from orchestrator.models.text.forms import OfferedTool, Unread, cut_at_commas, short
from orchestrator.models.text.strict import json_at

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


def arguments_of(offer: OfferedTool, words: str, inside: str | None = None) -> dict[str, Any]:
    """Arguments from a text: it is the one parameter of the tool, or the first that is required.

    Where several are required values with commas between them are theirs, by place.

    Args:
        offer: the tool.
        words: the text.
        inside: what stands in the quotes around it, if there are any. A tool that takes one text gets the quotes, too:
            a search for "to be" is another one than a search for to be. Elsewhere they only mark a text.

    Raises:
        Unread: no parameter takes the text.
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
