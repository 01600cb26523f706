"""A server's schema of arguments, as ours are: of known form, of bounded size, and quick to check values by."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.tools.keywords import BY_NAME, INNER, LISTS, referred
from orchestrator.tools.patterns import linear

_BYTES = 100_000
_DEEPEST = 40
_STEPS = 5_000
"""How many schemas may be looked at to check one value, not counting those of its parts."""
_DROPPED = frozenset({"$schema", "$id", "$comment", "title", "examples"})
"""Said to people. `title` goes as a keyword only, not as the name of a property."""
_NUMBERS = (
    "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains",
)  # fmt: skip
_KINDS = frozenset({"string", "integer", "number", "boolean", "array", "object", "null"})
_PATTERN = 500


def checked_schema(schema: object) -> dict[str, Any]:
    """The schema of an object, without what is of no use to a model.

    A pattern that cannot be tried in linear time stays in the description of its value only: the server checks it.

    Raises:
        ValueError: it is no schema, too big, too deep, or one by which checking could go on for ever.
    """
    try:
        size = len(json.dumps(schema, allow_nan=False))
    except (RecursionError, ValueError, TypeError):
        raise ValueError("its schema is nested too deeply, or is not JSON") from None
    if size > _BYTES:
        raise ValueError(f"its schema has {size:,} bytes, and the limit is {_BYTES:,}")
    found = _cleaned(schema, 0)
    if not isinstance(found, dict):
        raise ValueError("its schema is not an object")
    _check_steps(found)
    top = _target(found, found)
    if isinstance(top, dict) and top is not found:
        found = {**top, **{name: value for name, value in found.items() if name in ("$defs", "definitions")}}
    if found.setdefault("type", "object") != "object":
        raise ValueError(f"its schema is of {json.dumps(found['type'])}; arguments are an object")
    if "properties" not in found or any(keyword in found for keyword in LISTS):
        found.setdefault("additionalProperties", True)  # what is not named there is not refused here
    found.setdefault("properties", {})
    return found


def _cleaned(schema: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError(f"its schema is nested more than {_DEEPEST} deep")
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict):
        raise ValueError(f"its schema has {json.dumps(schema)[:40]} where a schema should be")
    found: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _DROPPED:
            continue
        if keyword in BY_NAME:
            found[keyword] = {name: _cleaned(one, depth + 1) for name, one in _is(dict, keyword, value).items()}
        elif keyword in LISTS:
            found[keyword] = [_cleaned(one, depth + 1) for one in _is(list, keyword, value)]
        elif keyword == "items" and isinstance(value, list):  # an older way to write prefixItems
            found["prefixItems"] = [_cleaned(one, depth + 1) for one in value]
        elif keyword in INNER:
            found[keyword] = _cleaned(value, depth + 1)
        elif keyword == "pattern" and not (isinstance(value, str) and linear(value)):
            found["description"] = f"{schema.get('description', '')} (pattern: {str(value)[:_PATTERN]})".strip()
        elif keyword != "description" or "description" not in found:
            found[keyword] = value
    _check_form(found)
    return found


def _check_form(schema: Mapping[str, Any]) -> None:
    kinds = schema.get("type", [])
    names = [kinds] if isinstance(kinds, str) else _is(list, "type", kinds)
    if not all(isinstance(one, str) and one in _KINDS for one in names):
        raise ValueError(f"its schema has an unknown type {json.dumps(kinds)[:40]}")
    for keyword in ("required", "enum"):
        values = _is(list, keyword, schema.get(keyword, []))
        if keyword == "required" and not all(isinstance(one, str) for one in values):
            raise ValueError("its schema has a 'required' that is not a list of names")
    for names in _is(dict, "dependentRequired", schema.get("dependentRequired", {})).values():
        if not all(isinstance(one, str) for one in _is(list, "dependentRequired", names)):
            raise ValueError("its schema has a 'dependentRequired' that is not a list of names")
    for keyword in _NUMBERS:
        number = schema.get(keyword, 0)
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError(f"its schema has a {keyword!r} that is not a number")
    if not isinstance(schema.get("$ref", ""), str) or not isinstance(schema.get("description", ""), str):
        raise ValueError("its schema has a '$ref' or 'description' that is not a text")


def _is(kind: type, keyword: str, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"its schema has a {keyword!r} that is not {'a list' if kind is list else 'an object'}")
    return value


# -- how long checking can take ------------------------------------------------------------------------------------


def _check_steps(root: Mapping[str, Any]) -> None:
    """Refuses schemas that lead to themselves before they have looked at a part of the value, or fan out too far."""
    known: dict[int, int] = {}
    under_way: set[int] = set()

    def steps(schema: Any) -> int:
        if not isinstance(schema, dict):
            return 1
        name = id(schema)
        if name in under_way:
            raise ValueError("its schema refers to itself in a circle")
        if name not in known:
            under_way.add(name)
            known[name] = min(1 + sum(map(steps, _beside(schema, root))), _STEPS + 1)
            under_way.discard(name)
        return known[name]

    for schema in _all(root):
        if steps(schema) > _STEPS:
            raise ValueError("its schema has too many alternatives")


def _beside(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Any]:
    """The schemas that look at the same value."""
    if "$ref" in schema:
        yield referred(schema["$ref"], root)
    for keyword in ("anyOf", "oneOf", "allOf"):
        yield from schema.get(keyword, ())
    for keyword in ("not", "if", "then", "else"):
        yield schema.get(keyword)
    yield from schema.get("dependentSchemas", {}).values()


def _all(schema: Any) -> Iterator[Any]:
    if not isinstance(schema, dict):
        return
    yield schema
    for keyword in BY_NAME:
        for one in schema.get(keyword, {}).values():
            yield from _all(one)
    for keyword in LISTS:
        for one in schema.get(keyword, ()):
            yield from _all(one)
    for keyword in INNER:
        yield from _all(schema.get(keyword))


def _target(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """What the schema at the top is, where it only refers to another; circles were refused before."""
    target = referred(schema["$ref"], root) if "$ref" in schema else None
    return _target(target, root) if isinstance(target, dict) else schema
