"""Trusted approvals: which tool calls of a run must be asked about again before they are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from orchestrator.errors import EffectFailed
from orchestrator.graph.model import GraphDefinition
from orchestrator.json import digest
from orchestrator.kernel.question import Answer, Approve, Question, parts_of
from orchestrator.kernel.records import Answered, Asked, EffectIntended, Forked, Record
from orchestrator.kernel.seals import Audit
from orchestrator.nodes.confirm import Confirm
from orchestrator.tools.result import Risk, risk_at_most
from orchestrator.tools.tool import Tool


class CallDenied(EffectFailed):
    """Raised in a step whose call a person denied in a fork."""

    def __init__(self, name: str, reason: str) -> None:
        self.words = f"the user denied this call{f': {reason}' if reason else ''}"
        super().__init__(f"{name}: {self.words}", type="UserDenied")


class TrustedApprovals:
    """The trusted, unused approvals of tool calls in one run, and the untrusted questions of its journal.

    A journal may contain a confirm that was passed. In a run with untrusted records, a call is made only if a trusted
    answer approved it; else the step that is about to make it asks.
    """

    def __init__(
        self,
        graph: GraphDefinition | None,
        audit: Audit,
        since: int = 0,
        *,
        ask_from: Risk | None = None,
        reviewed: bool = False,
    ) -> None:
        """
        Args:
            graph: the graph of the run.
            audit: the records of the run, and which of them are trusted.
            since: for a fork, the number of the last copied record: earlier approvals do not count.
            ask_from: lowest risk of calls that are asked about, as are all irreversible ones, regardless of
                the graph; None: only those that its confirms ask about.
            reviewed: True if all records are trusted, but a model may have approved calls: only dangerous calls are
                asked about, as only a person, or the run's policy, can approve those.
        """
        self.since = since
        self._ask_from: Risk | None = ask_from
        self._reviewed = reviewed
        reviews = graph is not None and graph.reviews
        self.why = (
            "No person has approved it in this fork"
            if since and reviews
            else f"It was approved in the run that this one was forked from (record {since} and before)"
            if since
            else "Its tool has risk dangerous, and no person has approved it"
            if reviewed
            else "No step before asked about this call"
            if ask_from is not None
            else "The journal says it was approved, and has no valid seal for that"
        )
        """Reason for asking again."""
        self._confirms = [] if graph is None else list(_confirms(graph))
        self._shown: dict[str, tuple[object, object]] = {}
        self._doubted: dict[str, Question] = {}
        """Untrusted questions of the journal, by their ids."""
        self._approved: Counter[str] = Counter()
        self._by_person: Counter[str] = Counter()
        self._intended: set[str] = set()
        for record in audit.records:
            self.note(record, believed=record.seq in audit.believed)

    def note(self, record: Record, *, believed: bool = True) -> None:
        """Process the next record."""
        if isinstance(record, Forked) and record.seq == self.since:
            self._answered(record.question, record.answer, believed=believed, policy=False)
        if record.seq <= self.since and not isinstance(record, Asked):
            return
        if isinstance(record, Asked):
            payload = record.question.payload
            if believed:
                self._doubted.pop(record.question.id, None)
            else:
                self._doubted[record.question.id] = record.question
            if record.question.kind == "approval" and "tool" in payload:
                self._shown[record.question.id] = payload["tool"], payload.get("args")
        elif isinstance(record, Answered):
            self._answered(record.question, record.answer, believed=believed, policy=record.policy)
        elif isinstance(record, EffectIntended):
            call = _call(record.name, record.request.get("args", record.request))
            if record.kind == "tool" and believed:
                self._intended.add(record.key)
            if not record.again:
                self._approved[call] -= record.kind == "tool"
                self._by_person[call] -= self._by_person[call] > 0

    def _answered(self, question: str, answer: Answer | None, *, believed: bool, policy: bool) -> None:
        tool, args = self._shown.get(question, (None, None))
        if believed and tool is not None and isinstance(answer, Approve):
            call = _call(tool, args if answer.args is None else answer.args)
            self._approved[call] += 1
            self._by_person[call] += not policy

    def showed(self, question: Question) -> bool:
        """Return True if the person who answered a question saw this content, and no other text under its id."""
        shown = self._doubted.get(question.id)
        return shown is None or _words(shown) == _words(question)

    def asks_about(self, tool: Tool, args: Mapping[str, object], key: str) -> bool:
        """Return True if a call has to be asked about: the graph requires it, and no trusted answer approved it.

        Args:
            key: key of the call, if it is journaled as intended.
        """
        if key in self._intended:
            return False
        if self._reviewed and tool.risk != "dangerous":
            return False
        asked = self._reviewed or any(confirm.asks_about(tool.risk) for confirm in self._confirms)
        if not asked and (self._ask_from is None or not self._is_risky(tool)):
            return False
        return self._approved[_call(tool.name, args)] <= 0

    def _is_risky(self, tool: Tool) -> bool:
        assert self._ask_from is not None
        return risk_at_most(self._ask_from, tool.risk) or (tool.effect == "irreversible" and tool.risk != "none")

    def approved_by_person(self, name: str, args: object) -> bool:
        """Return True if a person approved this very call, which was not made since."""
        return self._by_person[_call(name, args)] > 0


def asks_about(graph: GraphDefinition | None, risk: Risk) -> bool:
    """Return True if a confirm of a graph asks about calls of tools of a risk."""
    return graph is not None and any(confirm.asks_about(risk) for confirm in _confirms(graph))


def _confirms(graph: GraphDefinition) -> Iterable[Confirm]:
    for node in graph.nodes.values():
        if isinstance(node, Confirm) and node.confirms_calls:
            yield node
        if node.subgraph is not None:
            yield from _confirms(node.subgraph)


def _words(question: Question) -> tuple[object, ...]:
    return question.kind, question.prompt, parts_of(question.kind, question.payload), question.choices


def _call(tool: object, args: object) -> str:
    return digest([tool, args])
