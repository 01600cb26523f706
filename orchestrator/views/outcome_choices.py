"""Wording of the answers to "What became of this call?", shared by the page, the terminal and the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from orchestrator.kernel.question import Question


@dataclass(frozen=True, slots=True)
class OutcomeChoice:
    """One possible answer."""

    choice: str
    """Its name in the API, on the command line and in the journal."""
    label: str
    hint: str
    """Its consequence."""
    result: Literal["", "TEXT", "JSON"] = ""
    """Format of the result that this answer needs; empty if it needs none."""
    dangerous: bool = False
    """Whether it makes a call that cannot be undone. Such a choice is never first and takes a second step."""


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
_RETURNED = (OutcomeChoice("happened", "It is this call; its result is ...", _REFUSED[0].hint), *_REFUSED[1:])
_BY_WHY = {"refused": _REFUSED, "returned": _RETURNED}
_NO_RESULT = OutcomeChoice("happened", "It happened", "The step continues; the call returns nothing.")
CHOICES = tuple(one.choice for one in _UNKNOWN)


def outcome_title(payload: Mapping[str, object]) -> str:
    """Short form of the question."""
    tool = payload.get("tool", "")
    return (
        f"The result of {tool} was refused" if payload.get("why") == "refused" else f"What became of this call? {tool}"
    )


def outcome_choices(question: Question) -> tuple[OutcomeChoice, ...]:
    """Answers to a question of kind `unknown_outcome`, in display order; empty for other kinds."""
    if question.kind != "unknown_outcome":
        return ()
    first, *others = _BY_WHY.get(str(question.payload.get("why")), _UNKNOWN)
    kind = (question.schema_ or {}).get("type")
    if kind == "null":
        return (_NO_RESULT, *others)
    return (replace(first, result="TEXT" if kind == "string" else "JSON"), *others)
