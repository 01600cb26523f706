"""The inbox: a card for each open question of every run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.redaction import redact
from orchestrator.render.terminal.texts import short
from orchestrator.web.screens.runs import lasting
from orchestrator.web.screens.shell import key_of

if TYPE_CHECKING:
    from orchestrator.views.approval_context import ApprovalContext
    from orchestrator.web.documents import AskedDocument

_LONG = 60
"""Characters from which on an argument has a block of its own."""
_TITLES = {
    "input": "A run asks",
    "unknown_outcome": "What became of this call?",
    "pause": "Paused",
    "event": "Waits for an event",
    "timer": "Sleeps",
    "limit": "A limit is reached",
}


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a call, or a field that a question shows."""

    name: str
    text: str
    long: bool


@dataclass(frozen=True, slots=True)
class Card:
    """A question in the inbox. Times are Unix seconds."""

    key: str
    run_id: str
    question: str
    digest: str
    seq: int
    kind: str
    title: str
    risk: str
    effect: str
    prompt: str
    led: str
    """What the model said when it asked for the call."""
    input: str
    place: str
    asked: float
    deadline: float | None
    arguments: Sequence[Argument]
    source: Mapping[str, object]
    """What the form is made from: `args`, `schema`, `choices`."""

    def waits(self, now: float) -> str:
        """How long it waits, as text."""
        return lasting(max(0.0, now - self.asked))


def card_of(asked: AskedDocument, question_of_run: str, context: ApprovalContext) -> Card:
    """The card of an open question.

    Args:
        asked: the question, as the API lists it.
        question_of_run: the first line of the run's input.
        context: what surrounds it in the journal.
    """
    question = asked.question
    payload = dict(question.payload)
    tool, given = payload.pop("tool", None), payload.pop("args", None)
    risk, effect = payload.pop("risk", ""), payload.pop("effect", "")
    for name in ("call_id", "key"):
        payload.pop(name, None)
    args = given if isinstance(given, Mapping) else {} if given is None else {"args": given}
    args = _in_order(args, context.schema)
    return Card(
        key=key_of(f"{asked.run_id} {question.id}"),
        run_id=asked.run_id,
        question=question.id,
        digest=question.digest,
        seq=context.seq,
        kind=question.kind,
        title=str(tool) if question.kind == "approval" and tool else _title(question.kind, tool),
        risk=str(risk),
        effect=str(effect),
        prompt=question.prompt,
        led=short(redact(context.text), 4000),
        input=short(question_of_run, 160),
        place=" / ".join(part for part in (asked.graph, question.path, question.node) if part),
        asked=asked.asked,
        deadline=question.deadline,
        arguments=[_argument(str(name), value) for name, value in {**args, **payload}.items()],
        source={
            "args": args,
            "schema": context.schema if question.kind == "approval" else question.schema_,
            "choices": question.choices,
        },
    )


def _in_order(args: Mapping[str, object], parameters: Mapping[str, object] | None) -> Mapping[str, object]:
    """The arguments in the order in which the tool declares them."""
    declared = (parameters or {}).get("properties")
    names = [name for name in declared if name in args] if isinstance(declared, Mapping) else []
    return {name: args[name] for name in dict.fromkeys([*names, *args])}


def _title(kind: str, tool: object) -> str:
    title = _TITLES.get(kind, "Approval" if kind == "approval" else kind)
    return f"{title} {tool}" if kind == "unknown_outcome" and tool else title


def _argument(name: str, value: object) -> Argument:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return Argument(name, text, len(text) > _LONG or "\n" in text)  # all of it: what is approved is what is shown
