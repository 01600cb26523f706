"""Texts converted to the types that a JSON Schema wants: `"60"` to the number 60."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.tools.check_budget import DEEPEST, Budget, Exhausted
from orchestrator.tools.keywords import is_of_kind, kinds_of, referred

_LONGEST = 10_000
"""Characters of a text that are looked at for a value of another type."""


def coerced(value: object, schema: object, root: Mapping[str, object]) -> Any:
    """The value, with texts read as the type that the schema wants where it wants none: `"60"` as 60.

    A text is read as JSON or as a Python literal; it is never evaluated. Where the schema takes a text, and where
    a text cannot be read, it stays as it is. Whole numbers such as 3.0 become 3 where an integer is wanted. So does
    a value for which the schema has too many ways to be read.
    """
    try:
        return _coerced(value, schema, Budget(root, value), 0)
    except Exhausted:
        return value


def _coerced(value: Any, schema: Any, budget: Budget, depth: int) -> Any:
    if depth > DEEPEST or not isinstance(schema, dict):
        return value
    members = list(_members(schema, budget))
    if isinstance(value, str):
        if any(_takes_text(member) for member in members):
            return value
        found = _read(value)
        if found is None or isinstance(found, str):
            nothing = found is None and value.strip() in ("null", "None")
            return None if nothing and any(not kinds_of(m) or "null" in kinds_of(m) for m in members) else value
        typed = [member for member in members if kinds_of(member)]
        if typed and not any(is_of_kind(_whole(found, member), kind) for member in typed for kind in kinds_of(member)):
            return value
        return _coerced(found, schema, budget, depth + 1)
    if isinstance(value, float) and not any("number" in kinds_of(m) or not kinds_of(m) for m in members):
        return next((whole for m in members if (whole := _whole(value, m)) is not value), value)
    if isinstance(value, list):
        inner = next((m for m in members if "array" in kinds_of(m)), {})
        first = inner.get("prefixItems", [])
        return [
            _coerced(item, first[n] if n < len(first) else inner.get("items", True), budget, depth + 1)
            for n, item in enumerate(value)
        ]
    if isinstance(value, dict):
        fitting = [m for m in members if "properties" in m or isinstance(m.get("additionalProperties"), dict)]
        inner = next((m for m in fitting if set(m.get("required", ())) <= set(value)), {})
        properties, others = inner.get("properties", {}), inner.get("additionalProperties", True)
        return {key: _coerced(item, properties.get(key, others), budget, depth + 1) for key, item in value.items()}
    return value


def _members(schema: dict[str, Any], budget: Budget, depth: int = 0) -> Iterator[dict[str, Any]]:
    """The schema, or the members of its union, with references followed."""
    budget.spend()
    if depth > DEEPEST:
        return
    if "$ref" in schema:
        target = referred(schema["$ref"], budget.root)
        if isinstance(target, dict):
            yield from _members(target, budget, depth + 1)
        return
    parts = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    if not parts or "type" in schema:
        yield schema
        return
    for part in parts:
        if isinstance(part, dict):
            yield from _members(part, budget, depth + 1)


def _takes_text(member: dict[str, Any]) -> bool:
    if "enum" in member:
        return any(isinstance(one, str) for one in member["enum"])
    if "const" in member:
        return isinstance(member["const"], str)
    return "string" in kinds_of(member)


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


def _whole(value: object, member: dict[str, object]) -> object:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63 and "integer" in kinds_of(member):
        return int(value)
    return value
