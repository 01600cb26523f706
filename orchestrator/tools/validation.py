"""Check values against a JSON Schema. `Tool.validate` does so for the arguments of a call.

Each check has a budget of steps (`Budget`), and patterns are tried by an engine that takes linear time.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from orchestrator.json import canonical
from orchestrator.tools.check_budget import DEEPEST, Budget, Exhausted
from orchestrator.tools.keywords import as_json, is_number, is_of_kind, kinds_of, referred
from orchestrator.tools.patterns import linear

_MATCHED = 100_000
"""Characters of the longest text on which a pattern is tried; a longer one passes."""
_BOUNDS: tuple[tuple[str, Callable[[float, float], bool], str], ...] = (
    ("minimum", operator.ge, "at least"),
    ("maximum", operator.le, "at most"),
    ("exclusiveMinimum", operator.gt, "more than"),
    ("exclusiveMaximum", operator.lt, "less than"),
)
_NAMES = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def faults(value: object, schema: object, root: Mapping[str, object], place: str = "") -> list[str]:
    """Everything that is wrong with a value, each fault beginning with its place.

    A value that cannot be checked within the budget has one fault that says so.
    """
    try:
        return list(_faults(value, schema, Budget(root, value), place, 0))
    except Exhausted:
        why = "takes too many steps to check, because its schema has too many alternatives: simplify it"
        return [f"{place or 'the value'} {why}"]


def _faults(value: Any, schema: Any, budget: Budget, place: str, depth: int) -> Iterator[str]:
    budget.spend()
    if schema is False:
        yield f"{place} is not allowed"
        return
    if schema is True or not schema or depth > DEEPEST:
        return
    if "$ref" in schema:
        yield from _faults(value, referred(schema["$ref"], budget.root), budget, place, depth + 1)
    kinds = kinds_of(schema)
    if kinds and not any(is_of_kind(value, kind) for kind in kinds):
        yield f"{place} must be {_words(kinds)}, not {_shown(value)}"
        return
    if "enum" in schema:
        budget.spend(len(schema["enum"]) // 8)
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        yield f"{place} must be one of {', '.join(map(as_json, schema['enum']))}, not {_shown(value)}"
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{place} must be {as_json(schema['const'])}, not {_shown(value)}"
    yield from _unions(value, schema, budget, place, depth)
    if isinstance(value, str):
        yield from _text(value, schema, place)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number(value, schema, place)
    elif isinstance(value, list):
        yield from _list(value, schema, budget, place, depth)
    elif isinstance(value, dict):
        yield from _object(value, schema, budget, place, depth)


def _unions(value: Any, schema: Any, budget: Budget, place: str, depth: int) -> Iterator[str]:
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
        yield f"{place} must not match {as_json(schema['not'])}"
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
            yield f"{place} must match {pattern!r}, not {_shown(value)}"


def _number(value: float, schema: Any, place: str) -> Iterator[str]:
    for keyword, fits, words in _BOUNDS:
        bound = schema.get(keyword)
        if is_number(bound) and not fits(value, bound):
            yield f"{place} must be {words} {as_json(bound)}, not {_shown(value)}"
    step = schema.get("multipleOf")
    if is_number(step) and step > 0 and not _is_multiple(value, step):
        yield f"{place} must be a multiple of {as_json(step)}, not {_shown(value)}"


def _list(value: list[Any], schema: Any, budget: Budget, place: str, depth: int) -> Iterator[str]:
    if len(value) < schema.get("minItems", 0):
        yield f"{place} must have at least {schema['minItems']} items, not {len(value)}"
    if len(value) > schema.get("maxItems", math.inf):
        yield f"{place} must have at most {schema['maxItems']} items, not {len(value)}"
    if schema.get("uniqueItems") and len({_key(item) for item in value}) < len(value):
        yield f"{place} must not have the same item twice"
    if "contains" in schema:
        inside = sum(not any(_faults(item, schema["contains"], budget, place, depth + 1)) for item in value)
        if not schema.get("minContains", 1) <= inside <= schema.get("maxContains", math.inf):
            yield f"{place} has {inside} items that match {as_json(schema['contains'])}: too few or too many"
    first = schema.get("prefixItems", [])
    for number, item in enumerate(value):
        inner = first[number] if number < len(first) else schema.get("items", True)
        yield from _faults(item, inner, budget, f"{place}[{number}]", depth + 1)


def _object(value: dict[str, Any], schema: Any, budget: Budget, place: str, depth: int) -> Iterator[str]:
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


def _is_multiple(value: float, step: float) -> bool:
    """Whether a number is a multiple of a step, by their decimal digits: 0.3 is one of 0.1."""
    if isinstance(value, float) and not math.isfinite(value):
        return False
    number, each = (Fraction(one if isinstance(one, int) else repr(one)) for one in (value, step))
    return number % each == 0


def _same(one: object, other: object) -> bool:
    """Equality as JSON sees it: true is not 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _key(value: object) -> object:
    """Something that can be looked up, and is the same for values that are."""
    return canonical(value) if isinstance(value, list | dict) else (isinstance(value, bool), value)


def _words(kinds: tuple[str, ...]) -> str:
    return " or ".join(_NAMES.get(kind, kind) for kind in kinds)


def _shown(value: object) -> str:
    """A value as an error message quotes it: not too long."""
    text = as_json(value)
    return text if len(text) <= 80 else text[:77] + "..."
