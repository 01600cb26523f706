"""What a person needs beside a question about a call: what the model said before it, and what the call may be given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.kernel import records as r


@dataclass(frozen=True, slots=True)
class ApprovalContext:
    """What surrounds a question."""

    seq: int
    """The record that asked it; 0: none did."""
    text: str = ""
    """What the model said when it asked for the call; empty: nothing, or no model did."""
    schema: Mapping[str, object] | None = None
    """JSON Schema of the tool's arguments, as the model saw it; None: no model was offered the tool."""


def context_of(records: Sequence[r.Record], question: str, call: Mapping[str, object]) -> ApprovalContext:
    """What surrounds a question in a journal.

    Args:
        records: the journal of the run.
        question: the id of an open question of it.
        call: the call that it is about, see `parts_of`.
    """
    at = next((n for n, one in enumerate(records) if isinstance(one, r.Asked) and one.question.id == question), None)
    if at is None:
        return ApprovalContext(0)
    tool, call_id = call.get("tool"), call.get("call_id")
    text, schema = "", None
    for record in reversed(records[:at]):
        if isinstance(record, r.EffectSettled) and not text:
            text = _said(record.result, call_id)
        elif isinstance(record, r.EffectIntended) and record.kind == "model" and schema is None and tool is not None:
            schema = _schema(record.request.get("tools"), tool)
        if (text or not call_id) and (schema is not None or tool is None):
            break
    return ApprovalContext(records[at].seq, text, schema)


def _said(reply: object, call_id: object) -> str:
    """The text of a model's reply that has this call; empty if it has not."""
    if not isinstance(reply, Mapping):
        return ""
    calls, text = reply.get("tool_calls"), reply.get("text")
    found = isinstance(calls, list) and any(isinstance(one, Mapping) and one.get("id") == call_id for one in calls)
    return text.strip() if found and isinstance(text, str) else ""


def _schema(offered: object, tool: object) -> Mapping[str, object] | None:
    """The schema of a tool among those that a model was offered."""
    for one in offered if isinstance(offered, list) else ():
        inner = one.get("function", one) if isinstance(one, Mapping) else None
        if isinstance(inner, Mapping) and inner.get("name") == tool:
            found = inner.get("parameters") or inner.get("input_schema") or inner.get("schema")
            return found if isinstance(found, Mapping) else None
    return None
