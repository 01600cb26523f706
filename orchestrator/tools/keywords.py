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
from typing import Any, TypeGuard

BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose value is schemas by name."""
INNER = frozenset({"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"})
"""Keywords whose value is a schema."""
LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
"""Keywords whose value is a list of schemas."""
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
"""Keywords that say something of a value, and accept every value."""
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
    """Return what in a schema would check no value, each fault once. Keywords that begin with `x-` are notes."""
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
