"""Choice of the tool for an operation, and of its arguments, from the descriptions of tools."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

from orchestrator.models.offline.arithmetic import SIGNS, Number, Operation, OperationName, Term, exact, written


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_WORDS: Mapping[OperationName, frozenset[str]] = {
    "add": _set("add adds addition adding adder sum sums plus"),
    "subtract": _set("subtract subtracts subtraction subtracting sub minus difference"),
    "multiply": _set("multiply multiplies multiplication multiplying mul mult times product"),
    "divide": _set("divide divides division dividing div quotient"),
    "power": _set("power powers pow exponent exponentiate exponentiation raise raises"),
}
_CALCULATOR = _set(
    "calculator calculate calculates calc evaluate evaluates evaluator eval expression expressions arithmetic "
    "arithmetics math maths mathematical compute computes"
)
_NUMERIC = _set(
    "number numbers numeric integer integers int ints float floats decimal decimals value values factor factors "
    "term terms summand summands addend addends operand operands base exponent dividend divisor"
)
_NEUTRAL = _NUMERIC | _set("two tool function fn func op operation a b x y the of to by and with my do get run")
_SECOND = _set(
    "divisor denominator subtrahend exponent exp y b second right by rhs addend multiplier power n2 num2 num_2"
)
_FIRST = _set("dividend numerator minuend base a x first left lhs augend multiplicand n1 num1 num_1")

_PHRASE: Mapping[OperationName, str] = {
    "add": "adds", "subtract": "subtracts", "multiply": "multiplies", "divide": "divides", "power": "raises to a power",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """A tool as a request offers it. `parameters` is None where the request does not say."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None


def missing(operation: Operation, offers: Iterable[ToolOffer]) -> str:
    """A sentence: there is no tool for an operation."""
    names = ", ".join(offer.name for offer in offers) or "none"
    return (
        f"I only do arithmetic with the tools that I get: for {written(operation)} I need one that "
        f"{_PHRASE[operation.name]} numbers; the tools are: {names}."
    )


def choose(term: Term, operation: Operation, offers: Iterable[ToolOffer]) -> ToolOffer | None:
    """The tool for an operation, else one that works out whole expressions; None if there is neither."""
    offers = tuple(offers)
    for does in (operation.name, None):
        fitting = [offer for offer in offers if _does(offer, does)]
        if fitting and all(offer.parameters is not None for offer in fitting):
            fitting = [offer for offer in fitting if arguments(term, operation, offer) is not None]
        if fitting:
            return max(fitting, key=lambda offer: _likeness(offer, does))
    return None


def arguments(term: Term, operation: Operation, offer: ToolOffer) -> dict[str, Any] | None:
    """Return arguments with which a tool does the operation or computes the whole term; None if it cannot."""
    if not _does(offer, operation.name) and not _does(offer, None):
        return None
    parameters = offer.parameters or {}
    properties: Mapping[str, Any] = parameters.get("properties") or {}
    required = [name for name in parameters.get("required") or () if name in properties]
    names = required or list(properties)
    found: dict[str, Any] = {}
    for name in list(names):
        member = _operator(properties[name], operation.name)
        if member is not None:
            found[name] = member
            names.remove(name)
    chooses = bool(found)
    kinds = {name: _kind(properties[name], parameters) for name in names}
    if len(names) == 1 and kinds[names[0]] == "string" and not chooses and _does(offer, None):
        return {**found, names[0]: written(term)}
    if not chooses and not _does(offer, operation.name):
        return None
    numbers = [cast(Number, operation.left).value, cast(Number, operation.right).value]
    if len(names) == 1 and kinds[names[0]] == "array":
        return {**found, names[0]: [_plain(number) for number in numbers]}
    numeric = [name for name in properties if name not in found and _kind(properties[name], parameters) in _HOLDS]
    wanted = names if len(names) == 2 else numeric[:2] if set(names) <= set(numeric[:2]) else []
    if len(wanted) != 2 or any(_kind(properties[name], parameters) not in _HOLDS for name in wanted):
        return None
    if _role(wanted[0]) == 2 and _role(wanted[1]) == 1:
        wanted = wanted[::-1]
    for name, number in zip(wanted, numbers, strict=True):
        kind = _kind(properties[name], parameters)
        if kind == "integer" and number.denominator != 1:
            return None
        found[name] = exact(number) if kind == "string" else _plain(number)
    return found


_HOLDS = ("integer", "number", "string")


def _plain(number: Fraction) -> int | float:
    return number.numerator if number.denominator == 1 else float(number)


def _role(name: str) -> int:
    words = {name.lower(), *_words(name)}
    return 2 if words & _SECOND else 1 if words & _FIRST else 0


def _words(text: str) -> list[str]:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return [word.lower() for word in re.findall(r"[A-Za-z]+", spaced)]


def _does(offer: ToolOffer, name: OperationName | None) -> bool:
    """Return True if a tool's description names the operation; for operation None, if it computes expressions."""
    named, described = _words(offer.name), set(_words(offer.description))
    wanted = _CALCULATOR if name is None else _WORDS[name]
    if set(named) & wanted and set(named) <= wanted | _NEUTRAL | _CALCULATOR:
        return True
    others = [words for other, words in _WORDS.items() if other != name]
    if name is not None and any(set(named) & words for words in others):
        return False
    if name is None:
        return bool(described & _CALCULATOR and described & (_NUMERIC | {"expression", "arithmetic", "mathematical"}))
    return bool((set(named) | described) & wanted and described & _NUMERIC)


def _likeness(offer: ToolOffer, name: OperationName | None) -> int:
    wanted = _CALCULATOR if name is None else _WORDS[name]
    named, described = set(_words(offer.name)), set(_words(offer.description))
    return 4 * bool(named & wanted) + 2 * bool(described & wanted) + bool(described & _NUMERIC)


def _operator(schema: Mapping[str, Any], name: OperationName) -> str | None:
    """The member of an enum that means an operation: `+`, `add`, `multiplication`."""
    for member in schema.get("enum") or ():
        if isinstance(member, str) and (
            member == SIGNS[name] or (name == "power" and member == "^") or set(_words(member)) & _WORDS[name]
        ):
            return member
    return None


def _kind(schema: Any, root: Mapping[str, Any]) -> str:
    """The one JSON type that counts of a parameter: a number's before a text's."""
    if not isinstance(schema, Mapping):
        return ""
    if isinstance(schema.get("$ref"), str):
        name = schema["$ref"].rpartition("/")[2]
        return _kind((root.get("$defs") or {}).get(name), root)
    kinds = schema.get("type")
    found = {kinds} if isinstance(kinds, str) else set(kinds or ())
    for keyword in ("anyOf", "oneOf", "allOf"):
        found |= {_kind(inner, root) for inner in schema.get(keyword) or ()}
    return next((kind for kind in ("number", "integer", "array", "string") if kind in found), "")
