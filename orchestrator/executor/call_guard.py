"""Tool calls of a run whose journal is not believed: those that its graph asks about are asked about once more.

A journal may say that a confirm was passed. In a run that has records which are not believed, a call is made only if
a believed answer approved it; else the step that is about to make it asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from orchestrator.jsontypes import digest
from orchestrator.kernel.question import Approve
from orchestrator.kernel.records import Answered, Asked, EffectIntended
from orchestrator.nodes.confirm import Confirm

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.graph.definition import GraphDefinition
    from orchestrator.kernel.question import Question
    from orchestrator.kernel.records import Record
    from orchestrator.sealing import Audit
    from orchestrator.tools.tool import Tool


class CallGuard:
    """The approvals of one run that are believed and not used yet, and what its journal says was asked."""

    def __init__(self, graph: GraphDefinition | None, audit: Audit) -> None:
        self._confirms = [] if graph is None else list(_confirms(graph))
        self._shown: dict[str, tuple[object, object]] = {}
        self._doubted: dict[str, Question] = {}
        """What the journal says was asked, by the questions' ids, where that is not believed."""
        self._approved: Counter[str] = Counter()
        self._intended: set[str] = set()
        for record in audit.records:
            self.note(record, believed=record.seq in audit.believed)

    def note(self, record: Record, *, believed: bool = True) -> None:
        """Take the next record into account."""
        if isinstance(record, Asked):
            payload = record.question.payload
            if believed:
                self._doubted.pop(record.question.id, None)
            else:
                self._doubted[record.question.id] = record.question
            if record.question.kind == "approval" and "tool" in payload:
                self._shown[record.question.id] = payload["tool"], payload.get("args")
        elif isinstance(record, Answered):
            tool, args = self._shown.get(record.question, (None, None))
            if believed and tool is not None and isinstance(record.answer, Approve):
                self._approved[_call(tool, args if record.answer.args is None else record.answer.args)] += 1
        elif isinstance(record, EffectIntended) and record.kind == "tool":
            if believed:
                self._intended.add(record.key)
            if not record.again:
                self._approved[_call(record.name, record.request.get("args"))] -= 1

    def showed(self, question: Question) -> bool:
        """Whether a person who answered a question saw what the step asks, and no other words under its id."""
        said = self._doubted.get(question.id)
        return said is None or _words(said) == _words(question)

    def asks_about(self, tool: Tool, args: Mapping[str, object], key: str) -> bool:
        """Whether a call has to be asked about: the graph would, and no believed answer approved it.

        Args:
            key: of the call, if the journal has it as intended.
        """
        if key in self._intended or not any(confirm.asks_about(tool.risk) for confirm in self._confirms):
            return False
        return self._approved[_call(tool.name, args)] <= 0


def _confirms(graph: GraphDefinition) -> Iterable[Confirm]:
    for node in graph.nodes.values():
        if isinstance(node, Confirm) and node.tool is not None:
            yield node
        if node.subgraph is not None:
            yield from _confirms(node.subgraph)


def _words(question: Question) -> tuple[object, ...]:
    return question.kind, question.prompt, question.payload, question.choices


def _call(tool: object, args: object) -> str:
    return digest([tool, args])
