"""Questions about calls: context for a page, and the wording of the possible answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from orchestrator.kernel import records as r
from orchestrator.kernel.requests import Requests

if TYPE_CHECKING:
    from orchestrator.kernel.question import Question


@dataclass(frozen=True, slots=True)
class ApprovalContext:
    """What a page shows next to a question about a call, from the journal."""

    seq: int
    """The record of the question; 0 if there is none."""
    text: str = ""
    """Text of the model's reply that asked for the call; empty if there is none."""
    schema: Mapping[str, object] | None = None
    """JSON Schema of the tool's arguments, as sent to the model; None if the tool was not offered to a model."""


def context_of(records: Sequence[r.Record], question: str, call: Mapping[str, object]) -> ApprovalContext:
    """Find the context of a question in a journal.

    Args:
        records: the journal of the run.
        question: the id of one of its open questions.
        call: the call in question, see `parts_of`.
    """
    at = next((n for n, one in enumerate(records) if isinstance(one, r.Asked) and one.question.id == question), None)
    if at is None:
        return ApprovalContext(0)
    tool, call_id = call.get("tool"), call.get("call_id")
    text, schema = "", None
    requests = Requests(records[:at])
    for record in reversed(records[:at]):
        if isinstance(record, r.EffectSettled) and not text:
            text = _said(record.result, call_id)
        elif isinstance(record, r.EffectIntended) and record.kind == "model" and schema is None and tool is not None:
            schema = _schema(requests.offered(record), tool)
        if (text or not call_id) and (schema is not None or tool is None):
            break
    return ApprovalContext(records[at].seq, text, schema)


def _said(reply: object, call_id: object) -> str:
    """Return the text of a model's reply with this call; empty if it has no such call."""
    if not isinstance(reply, Mapping):
        return ""
    calls, text = reply.get("tool_calls"), reply.get("text")
    found = isinstance(calls, list) and any(isinstance(one, Mapping) and one.get("id") == call_id for one in calls)
    return text.strip() if found and isinstance(text, str) else ""


def _schema(offered: object, tool: object) -> Mapping[str, object] | None:
    """Return the schema of a tool among those offered to a model, if it is there."""
    for one in offered if isinstance(offered, list) else ():
        inner = one.get("function", one) if isinstance(one, Mapping) else None
        if isinstance(inner, Mapping) and inner.get("name") == tool:
            found = inner.get("parameters") or inner.get("input_schema") or inner.get("schema")
            return found if isinstance(found, Mapping) else None
    return None


@dataclass(frozen=True, slots=True)
class OutcomeChoice:
    """A possible answer to the question about the outcome of a call."""

    choice: str
    """Its name in the API, on the command line and in the journal."""
    label: str
    hint: str
    """Its consequence."""
    result: Literal["", "TEXT", "JSON"] = ""
    """Format of the result that this answer needs; empty if it needs none."""
    dangerous: bool = False
    """True if it makes a call that cannot be undone. Such a choice is never first and takes a second step."""


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
    """Return a title for the question about the outcome of a call."""
    tool = payload.get("tool", "")
    return (
        f"The result of {tool} was refused" if payload.get("why") == "refused" else f"What became of this call? {tool}"
    )


def outcome_choices(question: Question) -> tuple[OutcomeChoice, ...]:
    """Return answers to a question of kind `unknown_outcome`, in display order; empty for other kinds."""
    if question.kind != "unknown_outcome":
        return ()
    first, *others = _BY_WHY.get(str(question.payload.get("why")), _UNKNOWN)
    kind = (question.schema_ or {}).get("type")
    if kind == "null":
        return (_NO_RESULT, *others)
    return (replace(first, result="TEXT" if kind == "string" else "JSON"), *others)
