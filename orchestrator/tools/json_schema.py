"""The JSON Schemas that tools may have: their keywords, and the places to which their references lead.

The keywords are those of JSON Schema 2020-12, except dynamic references (`$dynamicRef`) and `unevaluated...`. A tool
whose schema has another keyword, a reference out of the schema, or a bound that is not a number is refused with its
name (`schema_faults`), because it would accept every value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypeGuard, cast

BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose value is schemas by name."""
INNER = frozenset({"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"})
"""Keywords whose value is a schema."""
LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
"""Keywords whose value is a list of schemas."""
KINDS = ("string", "integer", "number", "boolean", "array", "object", "null")
"""Types that the keyword `type` names."""
_SAME_VALUE = ("anyOf", "oneOf", "allOf")
"""Lists of schemas for the value itself, not for parts of it."""
_CHECKED = frozenset(
    {
        "type", "enum", "const", "$ref", "required", "minLength", "maxLength", "pattern", "minimum", "maximum",
        "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems", "minContains",
        "maxContains", "minProperties", "maxProperties", "dependentRequired",
    }
)  # fmt: skip
_NOTES = frozenset(
    {
        "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "format",
        "contentEncoding", "contentMediaType", "contentSchema", "discriminator", "nullable", "$schema", "$id",
        "$anchor", "$comment", "$vocabulary",
    }
)  # fmt: skip
"""Keywords that describe a value, and accept every value."""
KEYWORDS = BY_NAME | INNER | LISTS | _CHECKED | _NOTES
_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_ELSEWHERE = {
    "additionalItems": "in JSON Schema 2020-12 it is 'items', beside 'prefixItems'",
    "dependencies": "in JSON Schema 2020-12 it is 'dependentRequired' or 'dependentSchemas'",
    "id": "in JSON Schema 2020-12 it is '$id'",
    "unevaluatedItems": "it is not supported: use 'items'",
    "unevaluatedProperties": "it is not supported: use 'additionalProperties'",
}
"""Keywords of other versions, and what to write in their place."""


def schema_faults(schema: Mapping[str, Any]) -> list[str]:
    """Return the parts of a schema that check no value, each fault once. Keywords with the prefix `x-` are notes."""
    found: dict[str, None] = {}
    todo: list[Any] = [schema]
    while todo:
        one = todo.pop()
        if not isinstance(one, Mapping):
            continue
        for keyword, value in one.items():
            if keyword in BY_NAME and isinstance(value, Mapping):
                todo += value.values()
            elif keyword in LISTS and isinstance(value, list):
                todo += value
            elif keyword in INNER:
                todo.append(value)
            elif keyword == "$ref" and target_of(value, schema) is None:
                found[f"refers to {value!r}, which is not in it: write '#/$defs/NAME', and define NAME in $defs"] = None
            elif keyword in _NUMBERS and not is_number(value):
                found[f"has {keyword!r} with {as_json(value)}, which is not a number"] = None
            elif keyword not in KEYWORDS and not keyword.startswith("x-"):
                found[f"has the keyword {keyword!r}, which checks no argument; {_instead(keyword)}"] = None
    return list(found)


def shape_faults(schema: Mapping[str, Any]) -> list[str]:
    """Return what makes a schema no JSON Schema: unknown types, keywords of another shape, references without end."""
    found: dict[str, None] = {}
    todo: list[object] = [schema]
    while todo:
        one = todo.pop()
        if not isinstance(one, Mapping):
            if not isinstance(one, bool):
                found[f"has {as_json(one)} where a schema stands"] = None
            continue
        for keyword, value in cast("Mapping[str, object]", one).items():
            shape = BY_NAME if keyword in BY_NAME else LISTS if keyword in LISTS else None
            if keyword == "type":
                kinds = value if isinstance(value, list) and value else [value]
                for kind in kinds:
                    if kind not in KINDS:
                        close = get_close_matches(str(kind), KINDS, n=1)
                        hint = f"did you mean {close[0]!r}?" if close else f"use {', '.join(KINDS)}"
                        found[f"has the type {as_json(kind)}, which does not exist; {hint}"] = None
            elif shape is BY_NAME and isinstance(value, Mapping):
                todo += value.values()
            elif shape is LISTS and isinstance(value, list) and value:
                todo += value
            elif keyword in INNER:
                todo.append(value)
            elif shape is not None:
                wanted = "schemas by name" if shape is BY_NAME else "a list of schemas"
                found[f"has {keyword!r} with {as_json(value)}, which is not {wanted}"] = None
            elif keyword == "required" and not (isinstance(value, list) and all(isinstance(n, str) for n in value)):
                found[f"has 'required' with {as_json(value)}, which is not a list of names"] = None
    if not found and _is_endless(schema):
        found["refers to itself without end: put what it refers to into a property or an item"] = None
    return list(found)


def _is_endless(schema: Mapping[str, Any]) -> bool:
    """True if checking a value would check it against the same part of the schema again."""
    done: set[int] = set()
    for start in _all_in(schema):
        under_way: set[int] = set()
        stack: list[tuple[Mapping[str, Any], bool]] = [(start, False)]
        while stack:
            one, left = stack.pop()
            if left:
                under_way.discard(id(one))
                done.add(id(one))
            elif id(one) in under_way:
                return True
            elif id(one) not in done:
                under_way.add(id(one))
                stack.append((one, True))
                same: list[Any] = [part for name in _SAME_VALUE for part in one.get(name, ())]
                same += [one.get(name) for name in ("not", "if", "then", "else")]
                same.append(target_of(one.get("$ref"), schema))
                stack += [(part, False) for part in same if isinstance(part, Mapping)]
    return False


def _all_in(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    todo: list[Any] = [schema]
    while todo:
        one = todo.pop()
        if isinstance(one, Mapping):
            found.append(one)
            for keyword, value in one.items():
                todo += value.values() if keyword in BY_NAME else value if keyword in LISTS else ()
                todo += [value] if keyword in INNER else ()
    return found


def _instead(keyword: str) -> str:
    if keyword in _ELSEWHERE:
        return _ELSEWHERE[keyword]
    close = get_close_matches(keyword, KEYWORDS, n=1)
    return f"did you mean {close[0]!r}?" if close else "leave it out, or begin its name with 'x-'"


def is_number(value: object) -> TypeGuard[int | float]:
    return math.isfinite(value) if isinstance(value, float) else type(value) is int


def kinds_of(schema: Any) -> tuple[str, ...]:
    kinds = schema.get("type", ())
    return (kinds,) if isinstance(kinds, str) else tuple(kinds)


def is_of_kind(value: object, kind: str) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            return (isinstance(value, int) and not isinstance(value, bool)) or (
                isinstance(value, float) and value.is_integer()
            )
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case "null":
            return value is None
        case _:
            return True


def referred(ref: object, root: Mapping[str, object]) -> Any:
    """Return the schema that `#/$defs/Name` names; True, which accepts every value, if there is none."""
    found = target_of(ref, root)
    return True if found is None else found


def target_of(ref: object, root: Mapping[str, object]) -> object:
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        return None
    found: object = root
    for part in ref.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def as_json(value: object) -> str:
    """A value as messages quote it."""
    return json.dumps(value, ensure_ascii=False)
