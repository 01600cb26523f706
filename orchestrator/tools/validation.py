"""JSON Schemas that tools may have, and validation of values against them.

The keywords are those of JSON Schema 2020-12, except dynamic references (`$dynamicRef`) and `unevaluated...`; other
keywords are annotations. Schemas of users and of servers are judged by one check (`schema_faults`): an unknown type, or
a bound that is not a number, would accept every value.

`Tool.validate` checks the arguments of a call. Each check has a budget of steps (`Budget`), and patterns are matched by
an engine with linear time.
"""

from __future__ import annotations

import ast
import json
import logging
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeGuard

from pydantic_core import SchemaError, SchemaValidator, core_schema

from orchestrator.json import canonical

BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose value maps names to schemas."""
INNER = frozenset({"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"})
"""Keywords whose value is a schema."""
LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
"""Keywords whose value is a list of schemas."""
KINDS = ("string", "integer", "number", "boolean", "array", "object", "null")
"""Types that the keyword `type` names."""
_CHECKED = frozenset(
    {
        "type",
        "enum",
        "const",
        "$ref",
        "required",
        "minLength",
        "maxLength",
        "pattern",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minItems",
        "maxItems",
        "uniqueItems",
        "minContains",
        "maxContains",
        "minProperties",
        "maxProperties",
        "dependentRequired",
    }
)
_NOTES = frozenset(
    {
        "title",
        "description",
        "default",
        "examples",
        "example",
        "deprecated",
        "readOnly",
        "writeOnly",
        "format",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "discriminator",
        "nullable",
        "$schema",
        "$id",
        "$anchor",
        "$comment",
        "$vocabulary",
    }
)
"""Keywords that describe a value. `default` and `nullable` allow a value that the other keywords refuse."""
KEYWORDS = BY_NAME | INNER | LISTS | _CHECKED | _NOTES
_ELSEWHERE = {
    "additionalItems": "in JSON Schema 2020-12 it is 'items', next to 'prefixItems'",
    "dependencies": "in JSON Schema 2020-12 it is 'dependentRequired' or 'dependentSchemas'",
    "id": "in JSON Schema 2020-12 it is '$id'",
    "unevaluatedItems": "it is not supported: use 'items'",
    "unevaluatedProperties": "it is not supported: use 'additionalProperties'",
}
"""Keywords of other versions, with their replacements."""
_MEANT = {
    "ge": "minimum",
    "min": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "max": "maximum",
    "lt": "exclusiveMaximum",
    "regex": "pattern",
    "property": "properties",
}
"""Words for keywords in other languages of schemas."""
_SPELLED = {keyword.lower().removeprefix("$"): keyword for keyword in sorted(KEYWORDS)}
_NEAR = 0.82
"""Similarity of a misspelt keyword: `minimun` is one, `enumNames` is a keyword of its own."""
_TYPES = {
    word: kind
    for kind, words in {
        "string": "str text char date datetime time uuid uri url email file path enum bytes",
        "integer": "int long short int32 int64",
        "number": "float double decimal numeric",
        "boolean": "bool",
        "array": "list tuple set sequence",
        "object": "dict map mapping record struct json",
        "null": "none nil nonetype undefined",
    }.items()
    for word in (kind, *words.split())
}
"""Words for types in other languages."""
_ANY = ("any", "mixed", "unknown", "*")


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_names_by_name(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_is_names, value.values()))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def is_number(value: object) -> TypeGuard[int | float]:
    return math.isfinite(value) if isinstance(value, float) else type(value) is int


NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}) | {
    bound + part for bound in ("min", "max") for part in ("Length", "Items", "Properties", "Contains")
}
"""Keywords whose value is a number."""
_SHAPES: Mapping[str, tuple[Callable[[object], bool], str]] = {
    **dict.fromkeys(BY_NAME, (lambda value: isinstance(value, Mapping), "an object with schemas")),
    **dict.fromkeys(LISTS, (lambda value: isinstance(value, list) and bool(value), "a list of schemas")),
    **dict.fromkeys(INNER, (lambda value: isinstance(value, Mapping | bool), "a schema")),
    **dict.fromkeys(NUMBERS, (is_number, "a number")),
    **dict.fromkeys(("$ref", "pattern", "description"), (_is_text, "a string")),
    "required": (_is_names, "a list of names"),
    "dependentRequired": (_is_names_by_name, "an object with lists of names"),
    "enum": (lambda value: isinstance(value, list), "a list"),
    "nullable": (lambda value: isinstance(value, bool), "true or false"),
}
"""Keywords whose value is checked, with the words for what it has to be."""


def schema_faults(schema: Mapping[str, Any], *, own: bool = True) -> list[str]:
    """Return the faults of a schema, each once: unknown types, malformed keywords, endless references.

    Unknown keywords are annotations, except for those that are probably a misspelt keyword.

    Args:
        own: whether the schema is the user's, who can correct it. In the schema of a server, a misspelt keyword and a
            reference that leads nowhere are no faults: the server checks its arguments.
    """
    found: dict[str, None] = {}
    for one in schemas_in(schema):
        for keyword, value in one.items():
            fits, wanted = _SHAPES.get(keyword, (None, ""))
            if keyword == "type":
                found |= dict.fromkeys(_type_faults(value))
            elif keyword == "items" and isinstance(value, list):
                found["has 'items' with a list; in JSON Schema 2020-12 it is 'prefixItems'"] = None
            elif fits is not None and not fits(value):
                advice = "; list required properties in 'required' of their object" if keyword == "required" else ""
                found[f"has {keyword!r} with {_shown(value)}, which is not {wanted}{advice}"] = None
            elif keyword in BY_NAME or keyword in LISTS:
                parts = value.values() if isinstance(value, Mapping) else value
                wrong = [part for part in parts if not isinstance(part, Mapping | bool)]
                found |= {f"has {_shown(part)} in {keyword!r} instead of a schema": None for part in wrong}
            elif own and keyword == "$ref" and target_of(value, schema) is None:
                found[f"refers to {value!r}, which is not in it: write '#/$defs/NAME', and define NAME in $defs"] = None
            elif own and keyword not in KEYWORDS and (advice := _instead(keyword)):
                found[f"has the unknown keyword {keyword!r}: {advice}"] = None
    if not found and _is_endless(schema):
        found["refers to itself without end: put what it refers to into a property or an item"] = None
    return list(found)


def _type_faults(value: object) -> Iterator[str]:
    kinds = value if isinstance(value, list) else [value]
    if not kinds:
        yield "has 'type' with [], which names no type: leave 'type' out to accept every value"
    for kind in kinds:
        if kind in KINDS:
            continue
        word = str(kind).lower().partition("[")[0].strip()
        close = _TYPES.get(word) or next(iter(get_close_matches(word, KINDS, n=1)), None)
        hint = f"did you mean {close!r}?" if close else f"use {', '.join(KINDS)}"
        if word in _ANY:
            hint = "leave 'type' out to accept every value"
        yield f"has the type {_shown(kind)}, which does not exist; {hint}"


def _is_endless(schema: Mapping[str, Any]) -> bool:
    """Return True if checking a value would check it against the same part of the schema again."""
    done: set[int] = set()
    for start in schemas_in(schema):
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
                stack += [(part, False) for part in for_same_value(one, schema) if isinstance(part, Mapping)]
    return False


def for_same_value(schema: Mapping[str, Any], root: Mapping[str, Any]) -> list[Any]:
    """Return the parts of a schema that check the same value."""
    found: list[Any] = [referred(schema["$ref"], root)] if "$ref" in schema else []
    found += [part for name in ("anyOf", "oneOf", "allOf") for part in schema.get(name, ())]
    found += [schema[name] for name in ("not", "if", "then", "else") if name in schema]
    return [*found, *schema.get("dependentSchemas", {}).values()]


def schemas_in(schema: object) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and all schemas inside it; other values are skipped."""
    todo: list[Any] = [schema]
    while todo:
        one = todo.pop()
        if not isinstance(one, Mapping):
            continue
        yield one
        for keyword, value in one.items():
            if keyword in INNER:
                todo.append(value)
            elif keyword in BY_NAME and isinstance(value, Mapping):
                todo += value.values()
            elif keyword in LISTS and isinstance(value, list):
                todo += value


def _instead(keyword: str) -> str:
    """Return what to write in place of an unknown keyword; empty if it resembles none."""
    if keyword in _ELSEWHERE:
        return _ELSEWHERE[keyword]
    plain = keyword.lower().replace("_", "").replace("-", "")
    close = [word for word in _SPELLED if sorted(word) == sorted(plain)]  # letters in another order
    close += get_close_matches(plain, _SPELLED, n=1, cutoff=_NEAR)
    meant = _MEANT.get(plain) or next((_SPELLED[word] for word in close), "")
    return f"did you mean {meant!r}?" if meant else ""


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
    """Return the schema that `#/$defs/Name` names; True, which accepts every value, if it does not exist."""
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
    """Return a value as messages quote it."""
    return json.dumps(value, ensure_ascii=False, default=repr)


DEEPEST = 50
"""Maximum depth of a value and its schema."""
_STEPS = 50_000
"""Schemas that may be visited to check any value."""
_STEPS_EACH = 25
"""Further steps for each part of a large value."""
log = logging.getLogger("orchestrator")
LONGEST = 500
"""Maximum length of a pattern."""
_MATCHED = 100_000
"""Maximum length of a string that a pattern is matched against; a longer one passes."""
_BOUNDS: tuple[tuple[str, Callable[[float, float], bool], str], ...] = (
    ("minimum", operator.ge, "at least"),
    ("maximum", operator.le, "at most"),
    ("exclusiveMinimum", operator.gt, "more than"),
    ("exclusiveMaximum", operator.lt, "less than"),
)
_NAMES = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_LONGEST = 10_000
"""Maximum length of a string that is parsed as a value of another type."""
_KNOWN = frozenset(KINDS)


class Exhausted(Exception):
    """Raised when the budget of a check is spent."""


class Budget:
    """The root schema for references, and the number of steps left to check a value."""

    def __init__(self, root: Mapping[str, Any], value: Any) -> None:
        self.root = root
        self._value = value
        self._left = _STEPS
        self._extended = False

    def spend(self, steps: int = 1) -> None:
        """Count steps of a check against its limit.

        Raises:
            Exhausted: too few steps are left.
        """
        self._left -= steps
        if self._left < 0 and not self._extended:  # most values are small, and never counted
            self._extended = True
            self._left += _STEPS_EACH * _size(self._value)
        if self._left < 0:
            raise Exhausted


def _size(value: object) -> int:
    """Return the number of parts of a value."""
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


@lru_cache(maxsize=256)
def linear(pattern: str) -> Callable[[str], bool] | None:
    """Return a predicate that matches strings; None, with one line in the log, if the engine does not support the
    pattern."""
    if len(pattern) <= LONGEST:
        try:
            return SchemaValidator(core_schema.str_schema(pattern=pattern)).isinstance_python
        except SchemaError:
            pass
    log.warning("the pattern %.80r of a schema is not checked: matching it may take more than linear time", pattern)
    return None


def faults(value: object, schema: object, root: Mapping[str, object], place: str = "") -> list[str]:
    """Return all faults of a value, each starting with its place.

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
    if schema is True or not schema or depth > DEEPEST or _is_allowed(value, schema):
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


def _is_allowed(value: object, schema: Mapping[str, Any]) -> bool:
    """Return True for a schema's own default, and for null in a schema of OpenAPI 3.0 that is `nullable`."""
    if value is None and schema.get("nullable") is True:
        return True
    return "default" in schema and _same(value, schema["default"])


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
    """Return True if a number is a multiple of a step, by their decimal digits: 0.3 is a multiple of 0.1."""
    if isinstance(value, float) and not math.isfinite(value):
        return False
    number, each = (Fraction(one if isinstance(one, int) else repr(one)) for one in (value, step))
    return number % each == 0


def _same(one: object, other: object) -> bool:
    """Return True if two values are equal in JSON: true differs from 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _key(value: object) -> object:
    """Return a hashable key, equal for equal values."""
    return canonical(value) if isinstance(value, list | dict) else (isinstance(value, bool), value)


def _words(kinds: tuple[str, ...]) -> str:
    return " or ".join(_NAMES.get(kind, kind) for kind in kinds)


def _shown(value: object) -> str:
    """Return a value as an error message quotes it: not too long."""
    text = as_json(value)
    return text if len(text) <= 80 else text[:77] + "..."


def coerced(value: object, schema: object, root: Mapping[str, object]) -> Any:
    """Convert strings in a value to the types that the schema names: `"60"` to 60 for a number.

    A string is read as JSON or as a Python literal; it is never evaluated. It is kept if the schema also accepts
    strings or names no type, and if it cannot be read as one of the named types. Whole numbers such as 3.0 become 3 if
    an integer is required. A value is kept if the schema allows too many ways to read it.
    """
    try:
        return _coerced(value, schema, Budget(root, value), 0)
    except Exhausted:
        return value


def kinds_taken(schema: object, root: Mapping[str, object]) -> set[str]:
    """Return the JSON types that a schema accepts; all types if it names none."""
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
    """Return the alternatives of a schema, with references resolved. A value fits one if it fits all its schemas."""
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
    """Return the JSON types that all schemas of an alternative accept."""
    kinds = {*_KNOWN}
    for schema in way:
        named = {*kinds_of(schema)}
        null = {"null"} & kinds if schema.get("nullable") is True else set()
        if named and named <= _KNOWN:
            kinds &= {*named, "integer"} if "number" in named else named
        if "enum" in schema or "const" in schema:
            values = schema.get("enum", [schema.get("const")])
            kinds &= {kind for kind in kinds for value in values if is_of_kind(value, kind)}
        kinds |= null
    return kinds


def _part(ways: list[list[dict[str, Any]]], place: int | str, budget: Budget) -> Any:
    """Return the schema of a list's item, or of an object's property."""
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
    """Return True if an object has the required properties, and tags that match the schema's."""
    properties = {name: one for name, one in schema.get("properties", {}).items() if isinstance(one, dict)}
    tags = {name: one.get("enum", [one["const"]] if "const" in one else []) for name, one in properties.items()}
    tagged = all(value[name] in tags[name] for name in tags if tags[name] and isinstance(value.get(name), str))
    return tagged and value.keys() >= set(schema.get("required", ()))


def _read(text: str) -> object:
    """Return the value of a string that is JSON or a Python literal; None otherwise."""
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
    """Return the value as JSON; None if JSON cannot represent it."""
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
