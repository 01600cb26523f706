"""Conversion of JSON Schemas for the strict mode of providers, and of the values written in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NOTES = ("default", "title", "examples", "discriminator")
"""Keywords that restrict no value."""
_BOUNDS = (
    "format",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
)
_REFUSED = ("allOf", "not", "if", "patternProperties", "prefixItems", "dependentSchemas", "contains")
_PARTS = (*_REFUSED, "items", "additionalProperties", "then", "else", "propertyNames", "anyOf", "oneOf")
_NAMED_PARTS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords with a schema or a list of schemas, and those with schemas by name."""
_NULL = {"type": "null"}
_DEEPEST = 50


def strict_schema(
    schema: Mapping[str, object], *, nullable: bool = False, bounds: bool = False
) -> dict[str, Any] | None:
    """Return the schema with closed objects whose properties are all required; None if that is impossible.

    Args:
        nullable: whether properties that are not required may be null instead; see `without_nulls`.
        bounds: whether to keep bounds such as `maxLength`. OpenAI's strict mode supports only some of them.
    """
    dropped = _NOTES if bounds else (*_NOTES, *_BOUNDS)
    try:
        found = _strict(schema, nullable, dropped, 0)
    except RecursionError:
        return None
    return found if isinstance(found, dict) and found.get("type") == "object" else None


def _strict(schema: Any, nullable: bool, dropped: tuple[str, ...], depth: int) -> Any:
    """Return the schema for strict mode; None if strict mode cannot express it."""
    if not isinstance(schema, Mapping) or not schema or depth > _DEEPEST or any(key in schema for key in _REFUSED):
        return None
    found: dict[str, Any] = {key: value for key, value in schema.items() if key not in dropped}
    if "oneOf" in found:  # strict mode has only `anyOf`, which accepts all that `oneOf` accepts
        if "anyOf" in found:
            return None
        found["anyOf"] = found.pop("oneOf")
    for key in ("properties", "$defs"):
        if key in found:
            if not isinstance(found[key], Mapping):
                return None
            found[key] = {name: _strict(inner, nullable, dropped, depth + 1) for name, inner in found[key].items()}
            if None in found[key].values():
                return None
    if "items" in found:
        found["items"] = _strict(found["items"], nullable, dropped, depth + 1)
        if found["items"] is None:
            return None
    if "anyOf" in found:
        found["anyOf"] = [_strict(inner, nullable, dropped, depth + 1) for inner in found["anyOf"]]
        if None in found["anyOf"]:
            return None
    if found.get("type") == "array" and "items" not in found:
        return None
    if found.get("type") == "object":
        if not found.get("properties") or found.get("additionalProperties", False) is not False:
            return None
        if nullable:
            optional = found["properties"].keys() - set(found.get("required", ()))
            for name in optional:
                if not _takes_null(found["properties"][name]):
                    found["properties"][name] = {"anyOf": [found["properties"][name], _NULL]}
        found["required"] = list(found["properties"])
        found["additionalProperties"] = False
    return {"$ref": found["$ref"]} if "$ref" in found else found


def _takes_null(schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type")
    if kind == "null" or (isinstance(kind, list) and "null" in kind):
        return True
    if "enum" in schema:
        return None in schema["enum"]
    if "const" in schema:
        return schema["const"] is None
    return any(isinstance(inner, Mapping) and _takes_null(inner) for inner in schema.get("anyOf", ()))


def with_items(schema: Any) -> Any:
    """Return the schema with `items` in every array, without which OpenAI's servers refuse it.

    Elements that `prefixItems` describes are described by `items`, too, if there can be no others.
    """
    return _with_items(schema, 0) if "'array'" in repr(schema) else schema  # a fast search: most have no array


def _with_items(schema: Any, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return schema
    found = dict(schema)
    for key, value in schema.items():
        if key in _NAMED_PARTS and isinstance(value, Mapping):
            found[key] = {name: _with_items(inner, depth + 1) for name, inner in value.items()}
        elif key in _PARTS:
            several = isinstance(value, list)
            found[key] = [_with_items(one, depth + 1) for one in value] if several else _with_items(value, depth + 1)
    kinds = found.get("type")
    if (kinds == "array" or (isinstance(kinds, list) and "array" in kinds)) and not isinstance(
        found.get("items"), Mapping
    ):
        first = found.get("prefixItems") or []
        if found.get("items") is False:
            found.setdefault("maxItems", len(first))
        distinct = [one for place, one in enumerate(first) if one not in first[:place]]
        closed = distinct and found.get("maxItems", len(first) + 1) <= len(first)
        found["items"] = {} if not closed else distinct[0] if len(distinct) == 1 else {"anyOf": distinct}
    return found


def without_nulls(value: object, schema: object, root: Mapping[str, object] | None = None) -> Any:
    """Return a value written in strict mode, without the nulls that stand for omitted properties."""
    if not isinstance(schema, Mapping):
        return value
    root = schema if root is None else root
    schema = resolved(schema, root)
    ways = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if ways:
        return without_nulls(value, _fitting(value, [resolved(way, root) for way in ways]), root)
    if isinstance(value, list):
        return [without_nulls(item, schema.get("items"), root) for item in value]
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, Mapping):
        return value
    required = schema.get("required", ())
    return {
        name: without_nulls(item, properties.get(name), root)
        for name, item in value.items()
        if item is not None or name in required or name not in properties or _may_be_null(properties[name], root)
    }


def resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Resolve the references of a schema. A reference that leads nowhere, or in a circle, resolves to `{}`."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, Mapping):
            return {}
        ref = schema.get("$ref")
        if not isinstance(ref, str):
            return schema
        schema = root.get("$defs", {}).get(ref.removeprefix("#/$defs/"))
    return {}


def _fitting(value: Any, ways: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the schema among several by which a value was written, chosen by the names of its properties."""
    if isinstance(value, list):
        return next((way for way in ways if way.get("type") == "array"), {})
    if not isinstance(value, dict):
        return {}
    objects = [way for way in ways if isinstance(way.get("properties"), Mapping)]
    return max(objects, key=lambda way: _likeness(value, way["properties"]), default={})


def _likeness(value: Mapping[str, object], properties: Mapping[str, object]) -> tuple[int, int]:
    """Rate how well an object fits: matching constants first, then known names less unknown ones."""
    met = 0
    for name, schema in properties.items():
        if isinstance(schema, Mapping) and "const" in schema:
            met += 1 if value.get(name) == schema["const"] else -1
    return met, -len(value.keys() ^ properties.keys())


def _may_be_null(schema: object, root: Mapping[str, object]) -> bool:
    schema = resolved(schema, root)
    return not schema or _takes_null(schema) or any(_may_be_null(way, root) for way in schema.get("anyOf", ()))
