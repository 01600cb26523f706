"""Texts converted to the types that a JSON Schema names: `"60"` to the number 60."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

from orchestrator.tools.check_budget import DEEPEST, Budget, Exhausted
from orchestrator.tools.keywords import KINDS, is_of_kind, kinds_of, referred
from orchestrator.tools.patterns import linear

_LONGEST = 10_000
"""Longest text, in characters, that is parsed as a value of another type."""
_KNOWN = frozenset(KINDS)


def coerced(value: object, schema: object, root: Mapping[str, object]) -> Any:
    """Convert texts in a value to the types that the schema names: `"60"` to 60 for a number.

    A text is read as JSON or as a Python literal; it is never evaluated. It stays a text where the schema also takes
    texts, or names no type, and where it cannot be read as one of the named types. Whole numbers such as 3.0 become 3
    where an integer is wanted. A value for which the schema has too many ways to be read stays as it is.
    """
    try:
        return _coerced(value, schema, Budget(root, value), 0)
    except Exhausted:
        return value


def kinds_taken(schema: object, root: Mapping[str, object]) -> set[str]:
    """JSON types that a schema accepts; all types if it names none."""
    try:
        return set().union(*map(_kinds, _ways(schema, Budget(root, None), 0)))
    except Exhausted:
        return {*_KNOWN}


def _coerced(value: Any, schema: Any, budget: Budget, depth: int) -> Any:
    if depth > DEEPEST or not isinstance(schema, dict) or not isinstance(value, str | float | list | dict):
        return value
    ways = _ways(schema, budget, depth)
    kinds: set[str] = set().union(*map(_kinds, ways))
    if isinstance(value, str):
        if "string" in kinds:
            return value
        found = _whole(_read(value), kinds)
        if found is None:
            return None if "null" in kinds and value.strip() in ("null", "None") else value
        fits = not isinstance(found, str) and any(is_of_kind(found, kind) for kind in kinds)
        return _coerced(found, schema, budget, depth + 1) if fits else value
    if isinstance(value, float):
        return _whole(value, kinds)
    ways = [way for way in ways if ("array" if isinstance(value, list) else "object") in _kinds(way)]
    if isinstance(value, list):
        longest = max((len(schema.get("prefixItems", ())) for way in ways for schema in way), default=0)
        parts = [_part(ways, place, budget) for place in range(min(len(value), longest + 1))]
        return [_coerced(item, parts[min(at, longest)], budget, depth + 1) for at, item in enumerate(value)]
    ways = [way for way in ways if all(_may_fit(value, one) for one in way)] or ways
    return {key: _coerced(item, _part(ways, key, budget), budget, depth + 1) for key, item in value.items()}


def _ways(schema: Any, budget: Budget, depth: int) -> list[list[dict[str, Any]]]:
    """Alternatives of a schema, with references resolved. A value fits an alternative if it fits all its schemas."""
    budget.spend()
    if schema is False:
        return []
    if depth > DEEPEST or not isinstance(schema, dict):
        return [[]]
    same = [referred(schema["$ref"], budget.root)] if "$ref" in schema else []
    groups = [[one] for one in (*same, *schema.get("allOf", ()))]
    groups += [schema[union] for union in ("anyOf", "oneOf") if schema.get(union)]
    found = [[schema]]
    for group in groups:
        choices = [way for one in group for way in _ways(one, budget, depth + 1)]
        budget.spend(len(found) * len(choices))
        found = [[*left, *right] for left in found for right in choices]
    return found


def _kinds(way: list[dict[str, Any]]) -> set[str]:
    """JSON types that all schemas of an alternative accept."""
    kinds = {*_KNOWN}
    for schema in way:
        named = {*kinds_of(schema)}
        if named and named <= _KNOWN:
            kinds &= {*named, "integer"} if "number" in named else named
        if "enum" in schema or "const" in schema:
            values = schema.get("enum", [schema.get("const")])
            kinds &= {kind for kind in kinds for value in values if is_of_kind(value, kind)}
    return kinds


def _part(ways: list[list[dict[str, Any]]], place: int | str, budget: Budget) -> Any:
    """The schema of a list's item, or of an object's property."""
    budget.spend(len(ways))
    inside = _item if isinstance(place, int) else _property
    found = [[one for schema in way for one in inside(schema, place)] for way in ways]
    return found[0][0] if [len(parts) for parts in found] == [1] else {"anyOf": [{"allOf": parts} for parts in found]}


def _item(schema: dict[str, Any], place: Any) -> list[Any]:
    first = schema.get("prefixItems", ())
    return [first[place] if place < len(first) else schema.get("items", True)]


def _property(schema: dict[str, Any], name: Any) -> list[Any]:
    found = [schema["properties"][name]] if name in schema.get("properties", ()) else []
    patterns = schema.get("patternProperties", {}).items()
    found += [one for text, one in patterns if (fits := linear(text)) is not None and fits(name)]
    return found or [schema.get("additionalProperties", True)]


def _may_fit(value: dict[str, Any], schema: dict[str, Any]) -> bool:
    """Whether an object has the required properties, and tags that match the schema's."""
    properties = {name: one for name, one in schema.get("properties", {}).items() if isinstance(one, dict)}
    tags = {name: one.get("enum", [one["const"]] if "const" in one else []) for name, one in properties.items()}
    tagged = all(value[name] in tags[name] for name in tags if tags[name] and isinstance(value.get(name), str))
    return tagged and value.keys() >= set(schema.get("required", ()))


def _read(text: str) -> object:
    """The JSON value or Python literal that a text is; None if it is none."""
    if len(text) > _LONGEST:
        return None
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        try:
            found = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return None
    return _plain(found)


def _plain(value: object) -> object:
    """The value as JSON; None if JSON cannot say it."""
    if isinstance(value, tuple):
        value = list(value)
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None
    return json.loads(text)


def _whole(value: object, kinds: set[str]) -> object:
    if not isinstance(value, float) or "number" in kinds or "integer" not in kinds:
        return value
    return int(value) if value.is_integer() and abs(value) < 2**63 else value
