"""JSON Schemas as providers' strict mode takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_DROPPED = (
    "default", "title", "examples", "format", "pattern", "minLength", "maxLength", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems", "minProperties",
    "maxProperties",
)  # fmt: skip
_REFUSED = ("allOf", "oneOf", "not", "if", "patternProperties", "prefixItems")


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema with closed objects all of whose properties are required, None if it cannot be written so.

    Bounds and defaults are left out, as providers differ in what they take: the reply is validated here anyway.
    """
    found = _strict(schema)
    return found if isinstance(found, dict) and found.get("type") == "object" else None


def _strict(schema: Any) -> Any:
    """None where strict mode has no words for it."""
    if not isinstance(schema, Mapping) or not schema or any(key in schema for key in _REFUSED):
        return None
    found: dict[str, Any] = {key: value for key, value in schema.items() if key not in _DROPPED}
    for key in ("properties", "$defs"):
        if key in found:
            found[key] = {name: _strict(inner) for name, inner in found[key].items()}
            if None in found[key].values():
                return None
    if "items" in found:
        found["items"] = _strict(found["items"])
        if found["items"] is None:
            return None
    if "anyOf" in found:
        found["anyOf"] = [_strict(inner) for inner in found["anyOf"]]
        if None in found["anyOf"]:
            return None
    if found.get("type") == "array" and "items" not in found:
        return None
    if found.get("type") == "object":
        if not found.get("properties") or found.get("additionalProperties", False) is not False:
            return None
        found["required"] = list(found["properties"])
        found["additionalProperties"] = False
    return {"$ref": found["$ref"]} if "$ref" in found else found
