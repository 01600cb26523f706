"""Calculations as plans: the tool for each operation and its arguments, the steps, and the progress made so far.

Tools are chosen by their descriptions. A plan is written before anything is calculated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, cast

from msgspec import Struct

from orchestrator.models.messages import ToolCall
from orchestrator.models.offline.arithmetic import (
    SIGNS,
    Negative,
    NoArithmetic,
    Number,
    Operation,
    OperationName,
    Term,
    Unanswerable,
    advanced,
    contains,
    exact,
    first_operation,
    near,
    number_in,
    read,
    ready,
    replaced,
    shown,
    value_of,
    written,
)
from orchestrator.models.text.code import function_names


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


_reference = re.compile(r"#E(\d{1,9})")


class ToolOffer(Struct, frozen=True):
    """A tool as a request offers it. `parameters` is None if the request does not contain them."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None


def missing(operation: Operation, offers: Iterable[ToolOffer]) -> str:
    """Return a sentence about a missing tool for an operation."""
    names = ", ".join(offer.name for offer in offers) or "none"
    return (
        f"I only do arithmetic with the tools that I get: for {written(operation)} I need one that "
        f"{_PHRASE[operation.name]} numbers: it takes two, and its description has words such as "
        f"'{operation.name}' and 'number'; the tools are: {names}."
    )


def choose(term: Term, operation: Operation, offers: Iterable[ToolOffer]) -> ToolOffer | None:
    """Return the tool for an operation, else one that computes whole expressions; None if there is neither."""
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
    """Return the member of an enum that means an operation: `+`, `add`, `multiplication`."""
    for member in schema.get("enum") or ():
        if isinstance(member, str) and (
            member == SIGNS[name] or (name == "power" and member == "^") or set(_words(member)) & _WORDS[name]
        ):
            return member
    return None


def _kind(schema: Any, root: Mapping[str, Any]) -> str:
    """Return the JSON type of a parameter that decides its use: a number's before a string's."""
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


def plan_steps(question: str) -> str:
    """Return a numbered list with a self-contained question for each operation, in which earlier results are used."""
    term = read(question)
    lines: list[str] = []
    while (operation := first_operation(term)) is not None:
        lines.append(written(operation))
        try:
            term = all_equal(term, operation, Number(value_of(operation)))
        except Unanswerable:
            break  # the step itself will find out
    asked = "\n".join(f"{number}. What is {text}?" for number, text in enumerate(lines or [written(term)], 1))
    return f"Plan:\n{asked}\n<END_OF_PLAN>"


def plan_calls(question: str, offers: Sequence[ToolOffer]) -> str:
    """Return a blueprint: a call for each operation, with `#E1` in place of the result of call 1."""
    term = _unsigned(read(question))
    if first_operation(term) is None:
        return f"Plan: It is a number already.\n#E1 = {written(term)}"
    blanks = _Blanks(term)
    lines: list[str] = []
    while (operation := first_operation(term)) is not None:
        offer = choose(term, operation, offers)
        given = arguments(term, operation, offer) if offer is not None else None
        if offer is None or given is None:
            return blanks.named(missing(operation, offers))
        whole = written(term) in given.values()
        task = written(term if whole else operation)
        call = f"{blanks.next} = {offer.name}[{blanks.input(given, offer)}]"
        lines.append(f"Plan: Work out {blanks.named(task)}.\n{call}")
        found = blanks.new()
        term = found if whole else all_equal(term, operation, found)
    return "\n".join(lines)


def plan_code(question: str, offers: Sequence[ToolOffer]) -> str:
    """Return Python code with a call for each operation, which prints the last result."""
    term = _unsigned(read(question))
    value_of(term)
    names = function_names(offer.name for offer in offers)
    blanks = _Blanks(term)
    lines: list[str] = []
    last = ""
    while (operation := first_operation(term)) is not None:
        offer = choose(term, operation, offers)
        given = arguments(term, operation, offer) if offer is not None else None
        if offer is None or given is None:
            return missing(operation, offers)
        whole = written(term) in given.values()
        last = f"e{len(lines) + 1}"
        passed = ", ".join(f"{name}={blanks.in_code(value)}" for name, value in given.items())
        lines.append(f"{last} = {names[offer.name]}({passed})")
        found = blanks.new()
        term = found if whole else all_equal(term, operation, found)
    code = "\n".join([*lines, f"print({last})"])
    return f"I work out {question.strip()}\n```python\n{code}\n```"


def solve(facts: Mapping[str, Any]) -> str:
    """Return the answer to a question, from the calls of its plan and their results."""
    term = _unsigned(read(str(facts["question"])))
    steps = facts.get("steps") or ()
    value = _followed(term, steps)
    if value is not None:
        return shown(value)
    try:
        for step in steps:
            term = _after(term, step, found_in(term, step))
    except Stuck as why:
        return f"{why}."
    if first_operation(term) is not None:
        return f"The plan does not finish: {written(term)} is left."
    return shown(value_of(term))


def _followed(term: Term, steps: Sequence[Mapping[str, Any]]) -> Fraction | None:
    """Return the value that the calls of `plan_calls` computed; None if the calls are others, or one failed.

    The ids of the calls identify the operations. Their numbers do not: `(2 - 2) * 7 + 0 * 7` has two calls `0 * 7`.
    """
    called = {f"#{step.get('id')}": step for step in steps}
    blanks, values = _Blanks(term), dict[Term, Term]()
    found: Fraction | None = None
    while (operation := first_operation(term)) is not None:
        step = called.pop(blanks.next, None)
        numbers = [values.get(side, side) for side in (operation.left, operation.right)]
        if step is None or given_to(step.get("args") or {}) not in (numbers, numbers[::-1]):
            return None
        try:
            found = found_in(term, step)
        except Stuck:
            return None
        blank = blanks.new()
        values[blank] = Number(found)
        term = all_equal(term, operation, blank)
    return None if called else found


def _after(term: Term, step: Mapping[str, Any], found: Fraction) -> Term:
    first = first_operation(term)
    if first is None:
        return term
    try:
        if near(found, value_of(term)):
            return Number(found)
    except Unanswerable:
        pass
    call = ToolCall(id="", name=str(step.get("tool") or ""), arguments=dict(step.get("args") or {}))
    done = after_call(term, call, found)
    if done == replaced(term, first, Number(found)):
        return all_equal(term, first, Number(found))  # a plan computes an operation that occurs twice only once
    return done


def _unsigned(term: Term) -> Term:
    """Return the term with `0 - x` for `-x`, since a call can be made for that."""
    if isinstance(term, Negative):
        return Operation("subtract", Number(Fraction(0)), _unsigned(term.inner))
    if isinstance(term, Operation):
        return Operation(term.name, _unsigned(term.left), _unsigned(term.right))
    return term


class _Blanks:
    """Placeholder numbers for the results of calls. They are longer than any number in the term."""

    def __init__(self, term: Term) -> None:
        self._first = 10 ** (len(written(term)) + 1)
        self._made = 0

    @property
    def next(self) -> str:
        return f"#E{self._made + 1}"

    def new(self) -> Number:
        self._made += 1
        return Number(Fraction(self._first + self._made))

    def named(self, text: str) -> str:
        """Return a text with the names of calls in place of their numbers."""
        for number in range(1, self._made + 1):
            text = re.sub(rf"(?<![\d.]){exact(Fraction(self._first + number))}(?![\d.])", f"#E{number}", text)
        return text

    def input(self, given: Mapping[str, Any], offer: ToolOffer) -> str:
        """Return arguments as a blueprint writes them: by position if that is clear, else as JSON."""
        values = {name: self._value(value) for name, value in given.items()}
        properties: Mapping[str, Any] = (offer.parameters or {}).get("properties") or {}
        names = list(properties)[: len(values)]
        by_place = set(names) == set(values) and not any(isinstance(value, list) for value in values.values())
        if by_place and (len(values) == 1 or not any(_is_word(value) for value in values.values())):
            return ", ".join(str(values[name]) for name in names)
        return json.dumps(values)

    def in_code(self, value: object) -> str:
        """Return an argument as code writes it, with the variable `e1` in place of the result of call 1."""
        if isinstance(value, list):
            return f"[{', '.join(map(self.in_code, value))}]"
        found = self._value(value)
        if isinstance(value, str) and isinstance(found, str):
            return repr(found) if found == value else 'f"' + _reference.sub(r"{e\1}", found) + '"'
        return _reference.sub(r"e\1", str(found))

    def _value(self, value: object) -> object:
        if isinstance(value, list):
            return [self._value(one) for one in value]
        if isinstance(value, str):
            return self.named(value)
        return self.named(str(value)) if isinstance(value, int) and value > self._first else value


def _is_word(value: object) -> bool:
    return isinstance(value, str) and not value.startswith("#E")


class Stuck(Exception):
    """Raised when the results are not sufficient; the message says why, as a sentence without its full stop."""


def after_steps(term: Term, question: str, steps: Iterable[Mapping[str, object]], *, related: bool = False) -> Term:
    """Return the term after steps that each answered a question.

    Args:
        question: the question for steps that do not contain one.
        related: leave out steps about operations that are not in the term.

    Raises:
        Stuck: a step failed, or did not find exactly one number.
    """
    for step in steps:
        asked = readable(str(step.get("question") or question))
        if related and (asked is None or not contains(term, asked)):
            continue
        term = advanced(term, asked, found_in(term, step))
    return term


def found_in(term: Term, step: Mapping[str, object]) -> Fraction:
    """Return the number that a step found.

    Raises:
        Stuck: the step failed, or did not find exactly one number.
    """
    error = step.get("error")
    if error is not None:
        raise Stuck(f"I cannot work out {written(term)}: a tool failed: {line(error)}")
    found = number_in(step.get("output"))
    if found is None:
        raise Stuck(f"I cannot continue with {written(term)}: {line(step.get('output'))} is not one number")
    return found


def after_call(term: Term, call: ToolCall | None, found: Fraction) -> Term:
    """Return the term after a call: the operation on the call's numbers, if it occurs, has this value."""
    numbers = given_to(call.arguments or {}) if call is not None else []
    for order in (numbers, numbers[::-1]):  # a tool may name the second number first, but most do not
        for operation in ready(term):
            if call is not None and order == [operation.left, operation.right]:
                offer = ToolOffer(call.name, "", None)
                if choose(term, operation, [offer]) is not None or len(list(ready(term))) == 1:
                    return all_equal(term, operation, Number(found))
    return advanced(term, None, found)


def given_to(args: Mapping[str, object]) -> list[Term]:
    """Return the numbers among the arguments of a call, or in the list that is its only argument."""
    values = list(args.values())
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    return [Number(number) for number in map(number_in, values) if number is not None]


def all_equal(term: Term, operation: Operation, by: Number) -> Term:
    """Replace all occurrences of an operation on the same numbers by its value."""
    while contains(term, operation):
        term = replaced(term, operation, by)
    return term


def readable(question: str) -> Term | None:
    """Return the arithmetic in a question; None if there is none."""
    try:
        return read(question)
    except NoArithmetic:
        return None


def line(value: object) -> str:
    """Return a value as one line of limited length."""
    text = " ".join((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).split())
    return text if len(text) <= 300 else text[:300] + "…"
