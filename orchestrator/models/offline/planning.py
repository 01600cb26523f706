"""Calculations as plans, written before anything is worked out, and answers from what came of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from orchestrator.models.messages import ToolCall
from orchestrator.models.offline.expression import (
    Negative,
    Number,
    Operation,
    Term,
    Unanswerable,
    exact,
    first_operation,
    near,
    replaced,
    shown,
    value_of,
    written,
)
from orchestrator.models.offline.fitting import ToolOffer, arguments, choose, missing
from orchestrator.models.offline.progress import Stuck, after_call, all_equal, found_in, given_to
from orchestrator.models.offline.reading import read


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
    """What the calls that `plan_calls` makes of a term came to; None if these are others, or one failed.

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
