"""How far a calculation has come, going by what was found on the way."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from fractions import Fraction

from orchestrator.models.messages import ToolCall
from orchestrator.models.offline.expression import Number, Operation, Term, advanced, contains, ready, replaced, written
from orchestrator.models.offline.fitting import ToolOffer, choose
from orchestrator.models.offline.reading import NoArithmetic, number_in, read


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
