"""Check values against a JSON Schema, and read texts as the types that it wants. `Tool.validate` does so for a call.

The keywords are those of JSON Schema 2020-12, except dynamic references (`$dynamicRef`) and `unevaluated...`. A tool
whose schema has another keyword, a reference out of the schema, or a bound that is not a number is refused with its
name (`schema_faults`), because it would accept every value.

Schemas may come from servers, and values from models. So each check has a budget of steps, which grows with the value
and not with the ways in which the schema could fit it, and patterns are tried by an engine that takes linear time.
"""

from __future__ import annotations

import ast
import json
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from fractions import Fraction
from typing import Any, TypeGuard

from orchestrator.jsontypes import canonical
from orchestrator.tools.patterns import linear

_LONGEST = 10_000
"""Characters of a text that are looked at for a value of another type."""
_DEEPEST = 50
_STEPS = 50_000
"""Schemas that are looked at to check any value."""
_STEPS_EACH = 25
"""How many more for each part of a large value."""
_MATCHED = 100_000
"""Characters of the longest text on which a pattern is tried; a longer one passes."""
_BOUNDS: tuple[tuple[str, Callable[[float, float], bool], str], ...] = (
    ("minimum", operator.ge, "at least"),
    ("maximum", operator.le, "at most"),
    ("exclusiveMinimum", operator.gt, "more than"),
    ("exclusiveMaximum", operator.lt, "less than"),
)


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
            elif keyword == "$ref" and _target(value, schema) is None:
                found[f"refers to {value!r}, which is not in it: write '#/$defs/NAME', and define NAME in $defs"] = None
            elif keyword in _NUMBERS and not _is_number(value):
                found[f"has {keyword!r} with {_json(value)}, which is not a number"] = None
            elif keyword not in KEYWORDS and not keyword.startswith("x-"):
                found[f"has the keyword {keyword!r}, which checks no argument; {_instead(keyword)}"] = None
    return list(found)


def _instead(keyword: str) -> str:
    if keyword in _ELSEWHERE:
        return _ELSEWHERE[keyword]
    close = get_close_matches(keyword, KEYWORDS, n=1)
    return f"did you mean {close[0]!r}?" if close else "leave it out, or begin its name with 'x-'"


def _is_number(value: object) -> TypeGuard[int | float]:
    return math.isfinite(value) if isinstance(value, float) else type(value) is int


def _is_multiple(value: float, step: float) -> bool:
    """Whether a number is a multiple of a step, by their decimal digits: 0.3 is one of 0.1."""
    if isinstance(value, float) and not math.isfinite(value):
        return False
    number, each = (Fraction(one if isinstance(one, int) else repr(one)) for one in (value, step))
    return number % each == 0


class _Exhausted(Exception):
    """The budget of a check is spent."""


class _Budget:
    """The schema that references lead into, and the steps that are left to check a value."""

    def __init__(self, root: Mapping[str, Any], value: Any) -> None:
        self.root = root
        self._value = value
        self._left = _STEPS
        self._extended = False

    def spend(self, steps: int = 1) -> None:
        """
        Raises:
            _Exhausted: there are fewer left.
        """
        self._left -= steps
        if self._left < 0 and not self._extended:  # most values are small, and never counted
            self._extended = True
            self._left += _STEPS_EACH * _size(self._value)
        if self._left < 0:
            raise _Exhausted


def _size(value: object) -> int:
    """How many parts a value has."""
    count, level = 0, [value]
    while level:
        count += len(level)
        level = [
            inner
            for outer in level
            if isinstance(outer, list | dict)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return count


def faults(value: object, schema: object, root: Mapping[str, object], place: str = "") -> list[str]:
    """Everything that is wrong with a value, each fault beginning with its place.

    A value that cannot be checked within the budget has one fault that says so.
    """
    try:
        return list(_faults(value, schema, _Budget(root, value), place, 0))
    except _Exhausted:
        why = "takes too many steps to check, because its schema has too many alternatives: simplify it"
        return [f"{place or 'the value'} {why}"]


def _faults(value: Any, schema: Any, budget: _Budget, place: str, depth: int) -> Iterator[str]:
    budget.spend()
    if schema is False:
        yield f"{place} is not allowed"
        return
    if schema is True or not schema or depth > _DEEPEST:
        return
    if "$ref" in schema:
        yield from _faults(value, referred(schema["$ref"], budget.root), budget, place, depth + 1)
    kinds = _kinds(schema)
    if kinds and not any(_is(value, kind) for kind in kinds):
        yield f"{place} must be {_words(kinds)}, not {shown(value)}"
        return
    if "enum" in schema:
        budget.spend(len(schema["enum"]) // 8)
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        yield f"{place} must be one of {', '.join(map(_json, schema['enum']))}, not {shown(value)}"
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{place} must be {_json(schema['const'])}, not {shown(value)}"
    yield from _unions(value, schema, budget, place, depth)
    if isinstance(value, str):
        yield from _text(value, schema, place)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number(value, schema, place)
    elif isinstance(value, list):
        yield from _list(value, schema, budget, place, depth)
    elif isinstance(value, dict):
        yield from _object(value, schema, budget, place, depth)


def _unions(value: Any, schema: Any, budget: _Budget, place: str, depth: int) -> Iterator[str]:
    for part in schema.get("allOf", ()):
        yield from _faults(value, part, budget, place, depth + 1)
    for keyword in ("anyOf", "oneOf"):
        members = schema.get(keyword)
        if not members:
            continue
        tried = [list(_faults(value, member, budget, place, depth + 1)) for member in members]
        fits = sum(not found for found in tried)
        if not fits:
            yield (
                min(tried, key=len)[0]
                if len(tried) == 1
                else f"{place} matches none of its types: {'; '.join(t[0] for t in tried)}"
            )
        elif keyword == "oneOf" and fits > 1:
            yield f"{place} must match exactly one of its types, but matches {fits}"
    if "not" in schema and not any(_faults(value, schema["not"], budget, place, depth + 1)):
        yield f"{place} must not match {_json(schema['not'])}"
    if "if" in schema:
        branch = "else" if any(_faults(value, schema["if"], budget, place, depth + 1)) else "then"
        yield from _faults(value, schema.get(branch, True), budget, place, depth + 1)


def _text(value: str, schema: Any, place: str) -> Iterator[str]:
    if len(value) < schema.get("minLength", 0):
        yield f"{place} must have at least {schema['minLength']} characters, not {len(value)}"
    if len(value) > schema.get("maxLength", math.inf):
        yield f"{place} must have at most {schema['maxLength']} characters, not {len(value)}"
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        fits = linear(pattern) if len(value) <= _MATCHED else None
        if fits is not None and not fits(value):
            yield f"{place} must match {pattern!r}, not {shown(value)}"


def _number(value: float, schema: Any, place: str) -> Iterator[str]:
    for keyword, fits, words in _BOUNDS:
        bound = schema.get(keyword)
        if _is_number(bound) and not fits(value, bound):
            yield f"{place} must be {words} {_json(bound)}, not {shown(value)}"
    step = schema.get("multipleOf")
    if _is_number(step) and step > 0 and not _is_multiple(value, step):
        yield f"{place} must be a multiple of {_json(step)}, not {shown(value)}"


def _list(value: list[Any], schema: Any, budget: _Budget, place: str, depth: int) -> Iterator[str]:
    if len(value) < schema.get("minItems", 0):
        yield f"{place} must have at least {schema['minItems']} items, not {len(value)}"
    if len(value) > schema.get("maxItems", math.inf):
        yield f"{place} must have at most {schema['maxItems']} items, not {len(value)}"
    if schema.get("uniqueItems") and len({_key(item) for item in value}) < len(value):
        yield f"{place} must not have the same item twice"
    if "contains" in schema:
        inside = sum(not any(_faults(item, schema["contains"], budget, place, depth + 1)) for item in value)
        if not schema.get("minContains", 1) <= inside <= schema.get("maxContains", math.inf):
            yield f"{place} has {inside} items that match {_json(schema['contains'])}: too few or too many"
    first = schema.get("prefixItems", [])
    for number, item in enumerate(value):
        inner = first[number] if number < len(first) else schema.get("items", True)
        yield from _faults(item, inner, budget, f"{place}[{number}]", depth + 1)


def _object(value: dict[str, Any], schema: Any, budget: _Budget, place: str, depth: int) -> Iterator[str]:
    properties = schema.get("properties", {})
    budget.spend(len(schema.get("required", ())) // 8)
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{_at(place, name)} is missing"
    if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", math.inf):
        yield f"{place or 'the value'} has {len(value)} properties: too few or too many"
    for name in value.keys() & schema.get("dependentRequired", {}).keys():
        for other in schema["dependentRequired"][name]:
            if other not in value:
                yield f"{_at(place, other)} is missing, which {_at(place, name)} needs"
    for name in value.keys() & schema.get("dependentSchemas", {}).keys():
        yield from _faults(value, schema["dependentSchemas"][name], budget, place, depth + 1)
    others = schema.get("additionalProperties", True)
    patterns = [(fits, one) for text, one in schema.get("patternProperties", {}).items() if (fits := linear(text))]
    for name, item in value.items():
        if "propertyNames" in schema:
            yield from _faults(name, schema["propertyNames"], budget, f"the name {_at(place, name)}", depth + 1)
        matched = [one for fits, one in patterns if fits(name)]
        for inner in matched:
            yield from _faults(item, inner, budget, _at(place, name), depth + 1)
        if name in properties:
            yield from _faults(item, properties[name], budget, _at(place, name), depth + 1)
        elif matched:
            continue
        elif others is False:
            yield f"{_at(place, name)} is unknown"
        else:
            yield from _faults(item, others, budget, _at(place, name), depth + 1)


def _at(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


# -- reading texts -----------------------------------------------------------------------------------------------


def coerced(value: object, schema: object, root: Mapping[str, object]) -> Any:
    """The value, with texts read as the type that the schema wants where it wants none: `"60"` as 60.

    A text is read as JSON or as a Python literal; it is never evaluated. Where the schema takes a text, and where
    a text cannot be read, it stays as it is. Whole numbers such as 3.0 become 3 where an integer is wanted. So does
    a value for which the schema has too many ways to be read.
    """
    try:
        return _coerced(value, schema, _Budget(root, value), 0)
    except _Exhausted:
        return value


def _coerced(value: Any, schema: Any, budget: _Budget, depth: int) -> Any:
    if depth > _DEEPEST or not isinstance(schema, dict):
        return value
    members = list(_members(schema, budget))
    if isinstance(value, str):
        if any(_takes_text(member) for member in members):
            return value
        found = _read(value)
        if found is None or isinstance(found, str):
            nothing = found is None and value.strip() in ("null", "None")
            return None if nothing and any(not _kinds(m) or "null" in _kinds(m) for m in members) else value
        typed = [member for member in members if _kinds(member)]
        if typed and not any(_is(_whole(found, member), kind) for member in typed for kind in _kinds(member)):
            return value
        return _coerced(found, schema, budget, depth + 1)
    if isinstance(value, float) and not any("number" in _kinds(m) or not _kinds(m) for m in members):
        return next((whole for m in members if (whole := _whole(value, m)) is not value), value)
    if isinstance(value, list):
        inner = next((m for m in members if "array" in _kinds(m)), {})
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


def _members(schema: dict[str, Any], budget: _Budget, depth: int = 0) -> Iterator[dict[str, Any]]:
    """The schema, or the members of its union, with references followed."""
    budget.spend()
    if depth > _DEEPEST:
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
    return "string" in _kinds(member)


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
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63 and "integer" in _kinds(member):
        return int(value)
    return value


# -- words -------------------------------------------------------------------------------------------------------

_NAMES = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def _kinds(schema: Any) -> tuple[str, ...]:
    kinds = schema.get("type", ())
    return (kinds,) if isinstance(kinds, str) else tuple(kinds)


def _is(value: object, kind: str) -> bool:
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


def _same(one: object, other: object) -> bool:
    """Equality as JSON sees it: true is not 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _key(value: object) -> object:
    """Something that can be looked up, and is the same for values that are."""
    return canonical(value) if isinstance(value, list | dict) else (isinstance(value, bool), value)


def _words(kinds: tuple[str, ...]) -> str:
    return " or ".join(_NAMES.get(kind, kind) for kind in kinds)


def shown(value: object) -> str:
    """A value as an error message quotes it: not too long."""
    text = _json(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def referred(ref: object, root: Mapping[str, object]) -> Any:
    """Return the schema that `#/$defs/Name` names; True, which accepts every value, if there is none."""
    found = _target(ref, root)
    return True if found is None else found


def _target(ref: object, root: Mapping[str, object]) -> object:
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        return None
    found: object = root
    for part in ref.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
