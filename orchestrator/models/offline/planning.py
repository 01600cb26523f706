"""Calculations as plans, written before anything is worked out, and how far one has come by what was found."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from orchestrator.models.messages import ToolCall
from orchestrator.models.offline.arithmetic import (
    Negative,
    NoArithmetic,
    Number,
    Operation,
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
from orchestrator.models.offline.fitting import ToolOffer, arguments, choose, missing


def plan_steps(question: str) -> str:
    """A numbered list: a question for each operation, whole in itself, so with the numbers found before."""
    term = read(question)
    lines: list[str] = []
    while (operation := first_operation(term)) is not None:
        lines.append(written(operation))
        try:
            term = all_equal(term, operation, Number(value_of(operation)))
        except Unanswerable:
            break  # who works on it will find out
    asked = "\n".join(f"{number}. What is {text}?" for number, text in enumerate(lines or [written(term)], 1))
    return f"Plan:\n{asked}\n<END_OF_PLAN>"


def plan_calls(question: str, offers: Sequence[ToolOffer]) -> str:
    """A blueprint: a call for each operation, `#E1` in the place of what call 1 will give."""
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


def solve(facts: Mapping[str, Any]) -> str:
    """The answer to a question, from the calls of its plan and what each gave."""
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

    Their ids tell which call worked out what. Their numbers do not: `(2 - 2) * 7 + 0 * 7` has two calls `0 * 7`.
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
        return all_equal(term, first, Number(found))  # a plan works out once what stands in a term twice
    return done


def _unsigned(term: Term) -> Term:
    """The term with `0 - x` for `-x`, since a call can be made for that."""
    if isinstance(term, Negative):
        return Operation("subtract", Number(Fraction(0)), _unsigned(term.inner))
    if isinstance(term, Operation):
        return Operation(term.name, _unsigned(term.left), _unsigned(term.right))
    return term


class _Blanks:
    """Numbers that stand for what calls will give. They are longer than any that the term has."""

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
        """A text with the calls' names in place of the numbers."""
        for number in range(1, self._made + 1):
            text = re.sub(rf"(?<![\d.]){exact(Fraction(self._first + number))}(?![\d.])", f"#E{number}", text)
        return text

    def input(self, given: Mapping[str, Any], offer: ToolOffer) -> str:
        """Arguments as a blueprint writes them: by place where that is clear, else as JSON."""
        values = {name: self._value(value) for name, value in given.items()}
        properties: Mapping[str, Any] = (offer.parameters or {}).get("properties") or {}
        names = list(properties)[: len(values)]
        by_place = set(names) == set(values) and not any(isinstance(value, list) for value in values.values())
        if by_place and (len(values) == 1 or not any(_is_word(value) for value in values.values())):
            return ", ".join(str(values[name]) for name in names)
        return json.dumps(values)

    def _value(self, value: object) -> object:
        if isinstance(value, list):
            return [self._value(one) for one in value]
        if isinstance(value, str):
            return self.named(value)
        return self.named(str(value)) if isinstance(value, int) and value > self._first else value


def _is_word(value: object) -> bool:
    return isinstance(value, str) and not value.startswith("#E")


class Stuck(Exception):
    """Raised when what was found does not lead on; the message says why, as a sentence without its full stop."""


def after_steps(term: Term, question: str, steps: Iterable[Mapping[str, object]], *, related: bool = False) -> Term:
    """The term after steps that each answered a question.

    Args:
        question: what steps answered that do not say.
        related: leave out the steps that are about something that is not in the term.

    Raises:
        Stuck: a step failed, or did not find one number.
    """
    for step in steps:
        asked = readable(str(step.get("question") or question))
        if related and (asked is None or not contains(term, asked)):
            continue
        term = advanced(term, asked, found_in(term, step))
    return term


def found_in(term: Term, step: Mapping[str, object]) -> Fraction:
    """The number that a step found.

    Raises:
        Stuck: it failed, or did not find one number.
    """
    error = step.get("error")
    if error is not None:
        raise Stuck(f"I cannot work out {written(term)}: a tool failed: {line(error)}")
    found = number_in(step.get("output"))
    if found is None:
        raise Stuck(f"I cannot continue with {written(term)}: {line(step.get('output'))} is not one number")
    return found


def after_call(term: Term, call: ToolCall | None, found: Fraction) -> Term:
    """The term after a call: the operation on the call's numbers, if it is there, has this value."""
    numbers = given_to(call.arguments or {}) if call is not None else []
    for order in (numbers, numbers[::-1]):  # a tool may name the second number first, but most do not
        for operation in ready(term):
            if call is not None and order == [operation.left, operation.right]:
                offer = ToolOffer(call.name, "", None)
                if choose(term, operation, [offer]) is not None or len(list(ready(term))) == 1:
                    return all_equal(term, operation, Number(found))
    return advanced(term, None, found)


def given_to(args: Mapping[str, object]) -> list[Term]:
    """The numbers in the arguments of a call: each is one, or a single one is a list of them."""
    values = list(args.values())
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    return [Number(number) for number in map(number_in, values) if number is not None]


def all_equal(term: Term, operation: Operation, by: Number) -> Term:
    """The same operation on the same numbers has the same value everywhere in a term."""
    while contains(term, operation):
        term = replaced(term, operation, by)
    return term


def readable(question: str) -> Term | None:
    """The arithmetic in a question, None if there is none."""
    try:
        return read(question)
    except NoArithmetic:
        return None


def line(value: object) -> str:
    """A value in one line that is not too long."""
    text = " ".join((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).split())
    return text if len(text) <= 300 else text[:300] + "…"
