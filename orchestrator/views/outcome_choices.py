"""The answers to the question what became of a call, in words: every surface takes them from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from orchestrator.kernel.question import Question


@dataclass(frozen=True, slots=True)
class OutcomeChoice:
    """One of the answers."""

    choice: str
    """What the API, the command line and the journal call it."""
    label: str
    hint: str
    """What follows from it."""
    result: Literal["", "TEXT", "JSON"] = ""
    """The form of the call's result that is given with it; empty: none is."""
    dangerous: bool = False
    """Whether it makes a call that cannot be undone: never the first choice, and never in one step."""


_FAILED = OutcomeChoice("failed", "Fail the step", "The call counts as failed, and is not made.")
_UNKNOWN = (
    OutcomeChoice("happened", "It happened; its result is ...", "The step continues with this result."),
    _FAILED,
    OutcomeChoice("retry", "It did not happen: call it now", "If it did happen, it happens twice.", dangerous=True),
)
_REFUSED = (
    OutcomeChoice("happened", "Use this result instead ...", "The step continues with this result."),
    _FAILED,
    OutcomeChoice("retry", "Call it again", "It happened once, and happens twice.", dangerous=True),
)
_NO_RESULT = OutcomeChoice("happened", "It happened", "The step continues; the call returns nothing.")
CHOICES = tuple(one.choice for one in _UNKNOWN)


def outcome_title(payload: Mapping[str, object]) -> str:
    """The question in a few words."""
    tool = payload.get("tool", "")
    return (
        f"The result of {tool} was refused" if payload.get("why") == "refused" else f"What became of this call? {tool}"
    )


def outcome_choices(question: Question) -> tuple[OutcomeChoice, ...]:
    """The answers to a question of kind `unknown_outcome`, in the order to show them; of another kind none."""
    if question.kind != "unknown_outcome":
        return ()
    first, *others = _REFUSED if question.payload.get("why") == "refused" else _UNKNOWN
    kind = (question.schema_ or {}).get("type")
    if kind == "null":
        return (_NO_RESULT, *others)
    return (replace(first, result="TEXT" if kind == "string" else "JSON"), *others)
