"""The inbox: a card for each open question of every run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from orchestrator.json import PIECE, in_pieces, is_small
from orchestrator.kernel.question import parts_of
from orchestrator.redaction import redact
from orchestrator.render.terminal.texts import short
from orchestrator.views.call_questions import outcome_title
from orchestrator.visible import narrow
from orchestrator.web.screens.runs import lasting
from orchestrator.web.screens.shell import key_of

if TYPE_CHECKING:
    from orchestrator.views.call_questions import ApprovalContext
    from orchestrator.web.documents import AskedDocument
    from orchestrator.web.requests import QuestionsQuery

_LONG = 60
"""Characters from which on an argument has a block of its own."""
_TITLES = {
    "input": "A run asks",
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
    """Text of the model's reply that asked for the call."""
    input: str
    place: str
    asked: float
    deadline: float | None
    arguments: Sequence[Argument]
    facts: Sequence[Argument]
    """Other facts of the question about the call."""
    shown: Sequence[Argument]
    """Fields of the state that are shown next to the call."""
    source: Mapping[str, object]
    """Data of the form: `args`, each as JSON text, `schema`, `choices`, `outcomes`. JavaScript rounds large
    numbers, so their digits go through a browser as text."""

    def waits(self, now: float) -> str:
        """Time that it has waited, as text."""
        return lasting(max(0.0, now - self.asked))


def card_of(asked: AskedDocument, question_of_run: str, context: ApprovalContext) -> Card:
    """The card of an open question.

    Args:
        asked: the question, as the API lists it.
        question_of_run: the first line of the run's input.
        context: what surrounds it in the journal.
    """
    question = asked.question
    call, shown = parts_of(question.kind, question.payload)
    given = call.get("args")
    said = {"tool", "args", "risk", "effect", *(("why",) if question.outcomes else ())}  # the prompt says why
    args = given if isinstance(given, Mapping) else {} if given is None else {"args": given}
    args = _in_order(args, context.schema)
    return Card(
        key=key_of(f"{asked.run_id} {question.id}"),
        run_id=asked.run_id,
        question=question.id,
        digest=question.digest,
        seq=context.seq,
        kind=question.kind,
        title=narrow(_title(question.kind, call)),  # a notification shows it, too
        risk=str(call.get("risk", "")),
        effect=str(call.get("effect", "")),
        prompt=question.prompt,
        led=short(redact(context.text), 4000),
        input=short(question_of_run, 160),
        place=" / ".join(part for part in (asked.graph, question.path, question.node) if part),
        asked=asked.asked,
        deadline=question.deadline,
        arguments=_listed(args),
        facts=_listed({name: value for name, value in call.items() if name not in said}),
        shown=_listed(shown),
        source={
            "args": {str(name): _json(value) for name, value in args.items()},
            "schema": context.schema if question.kind == "approval" else question.schema_,
            "choices": question.choices,
            "outcomes": [asdict(one) for one in question.outcomes],
        },
    )


@dataclass(frozen=True, slots=True)
class InboxAddress:
    """The address of a part of the inbox: its query, with another place in it."""

    root: str
    query: Sequence[tuple[str, str]]

    @property
    def oldest(self) -> str:
        """The address of the oldest questions."""
        kept = self._kept()
        return f"{self.root}/inbox{'?' if kept else ''}{urlencode(kept)}"

    def page(self, cursor: str | None) -> str:
        """The address of the questions after a cursor; empty without one."""
        return f"{self.root}/inbox?{urlencode([*self._kept(), ('after', cursor)])}" if cursor else ""

    def changes(self, query: QuestionsQuery) -> str:
        """The path below `/api` of the stream that has the same questions."""
        others = [pair for pair in self.query if pair[0] not in ("kind", "limit")]
        kinds = [("kind", kind) for kind in query.kind]
        return f"/questions?{urlencode([*others, *kinds, ('limit', str(query.limit))])}"

    def _kept(self) -> list[tuple[str, str]]:
        return [(name, value) for name, value in self.query if name != "after"]


def summary_of(shown: int, waiting: str, after: str | None) -> str:
    """Word how many questions wait, and which of them are shown.

    Args:
        shown: how many cards there are.
        waiting: how many questions wait, as text; empty: none.
        after: the cursor behind which they are; None: they are the oldest.
    """
    if not waiting:
        return ""
    said = f"{waiting} {'question waits' if waiting == '1' else 'questions wait'}"
    if after is not None:
        return f"{said}; these are later ones"
    return f"{said}, the oldest first" if waiting == str(shown) else f"{said}; these are the {shown} oldest"


def _in_order(args: Mapping[str, object], parameters: Mapping[str, object] | None) -> Mapping[str, object]:
    """The arguments in the order in which the tool declares them."""
    declared = (parameters or {}).get("properties")
    names = [name for name in declared if name in args] if isinstance(declared, Mapping) else []
    return {name: args[name] for name in dict.fromkeys([*names, *args])}


def _title(kind: str, payload: Mapping[str, object]) -> str:
    tool = payload.get("tool")
    if kind == "unknown_outcome":
        return outcome_title(payload)
    return str(tool) if kind == "approval" and tool else _TITLES.get(kind, "Approval" if kind == "approval" else kind)


def _listed(fields: Mapping[str, object]) -> list[Argument]:
    return [_argument(str(name), value) for name, value in fields.items()]


def _argument(name: str, value: object) -> Argument:
    text = value if isinstance(value, str) else _json(value)
    return Argument(name, text, len(text) > _LONG or "\n" in text)  # all of it: what is approved is what is shown


def _json(value: object) -> str:
    if isinstance(value, dict | list) and is_small(value, PIECE):
        return json.dumps(value, ensure_ascii=False, indent=2)
    return "".join(in_pieces(value))
