"""Which steps asked a model or a person, and which found that they need not.

A kind of node declares what its steps ask (`Node.asks`). A step of it may have nothing to ask: the risk of a call is
below what a person is asked about, or there is only one tool to choose.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from orchestrator.graph.model import Asked
from orchestrator.kernel import records as r
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.question import Approve

Unasked: TypeAlias = Literal["passed", "no call", ""]
"""What a step that ended without asking is called; empty: it asked, or its kind asks nothing."""
_WORDS: dict[Asked, Unasked] = {"person": "passed", "model": "no call"}
_BY_A_PERSON = ("approval", "input")
"""Kinds of questions that a node of a kind with `asks = "person"` asks."""


def asked_at(plan: Plan | None, node: str) -> Asked | None:
    """What the steps of a node ask; its code is not needed."""
    found = None if plan is None or plan.graph is None else plan.graph.nodes.get(node)
    return None if found is None else found._asks


class Askings:
    """What each step has asked, from its records: calls of models, and questions that no rule answered.

    A call that a crash cut off and that was made again is one call. Calls inside calls of tools are not the step's.
    """

    def __init__(self) -> None:
        self._found: dict[str, dict[Asked, set[str]]] = {}
        self._places: dict[str, tuple[str, str]] = {}
        self._asked: set[str] = set()
        """Steps that asked what their kind asks, also before they failed and were tried again."""
        self._askers: dict[str, str] = {}

    def note(self, record: r.Record) -> None:
        """Take a record into account."""
        if isinstance(record, r.EffectIntended):
            if record.kind == "model" and not record.inside and not record.again:
                self._add(record, "model", record.key)
        elif isinstance(record, r.Asked):
            if record.question.kind in _BY_A_PERSON:
                self._add(record, "person", record.question.id)
                self._askers[record.question.id] = record.activation
        elif isinstance(record, r.Answered):
            asker = self._askers.pop(record.question, None)
            if asker is not None and record.policy and isinstance(record.answer, Approve):
                self._found.get(asker, {}).get("person", set()).discard(record.question)

    def settle(self, activation: str, asks: Asked | None) -> int:
        """How much a step of a kind that asks this has asked since it began, or since this was last called."""
        found = self._found.pop(activation, {})
        self._places.pop(activation, None)
        asked = 0 if asks is None else len(found.get(asks, ()))
        if asked:
            self._asked.add(activation)
        return asked

    def unasked(self, activation: str, asks: Asked | None) -> Unasked:
        """What a step of a kind that asks this is called once it has ended."""
        self.settle(activation, asks)
        return "" if asks is None or activation in self._asked else _WORDS[asks]

    def open(self) -> list[tuple[str, tuple[str, str]]]:
        """The steps that asked and were not settled: activation, and its path and node."""
        return list(self._places.items())

    def _add(self, record: r.EffectIntended | r.Asked, asked: Asked, key: str) -> None:
        self._found.setdefault(record.activation, {}).setdefault(asked, set()).add(key)
        self._places[record.activation] = record.path, record.node
