"""The events of a run that no step took, and the reason: most often a misspelt name."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from orchestrator.graph.model import GraphDefinition
from orchestrator.kernel import records as r
from orchestrator.kernel.event_queue import fits
from orchestrator.kernel.queries import open_questions
from orchestrator.kernel.question import Question
from orchestrator.kernel.run_state import Delta, RunState
from orchestrator.spelling import close_to
from orchestrator.views.safe_text import plain, told


@dataclass(frozen=True, slots=True)
class UntakenEvent:
    """An event that no step took."""

    seq: int
    """The record that contains it."""
    name: str
    why: str
    """Why no step took it, in one line."""

    @property
    def line(self) -> str:
        """The event and the reason, in one line."""
        return f"event {plain(self.name)} (record {self.seq}): {self.why}"


def unawaited(run: RunState, name: str) -> str:
    """Return that no node waits for events of this name, with the most similar name that one waits for.

    Empty if a node waits for it. Code that has a context may wait for any event: if the graph contains such code, the
    name counts as misspelt only if a similar one is known.
    """
    known = received_names(run)
    certain = run.plan.graph is not None and None not in _received(run.plan.graph)
    close = close_to(name, sorted(known))
    if name in known or not (certain or close):
        return ""
    if not certain:
        return f"no Wait node of graph {run.plan.name!r} waits for it, though code may: did you mean {close!r}?"
    hint = f"did you mean {close!r}?" if close else f"it waits for {', '.join(sorted(known)) or 'no event'}"
    return f"no node of graph {run.plan.name!r} waits for it: {hint}"


def not_taken(run: RunState, name: str, data: object) -> str:
    """Return why no step would take an event that arrives now, in one line; empty: one does, or one may later.

    An event whose data does not match is kept, as one that comes early: a later step may wait for it.
    """
    if said := unawaited(run, name):
        return said
    waits = [one for one in open_questions(run) if one.kind == "event" and one.event == name]
    return mismatch(waits[0]) if waits and not any(fits(data, one.match or {}) for one in waits) else ""


def mismatch(question: Question) -> str:
    """Return that data of an event is not what a question for an event of this name waits for."""
    return f"its data does not match: {plain(question.node)} waits for {told(question.prompt, 200)}"


def received_names(run: RunState) -> set[str]:
    """Return the names of the events that nodes of a run wait for, now or later; code may wait for others."""
    known = {question.event for question in run.questions.values() if question.event}
    return known.union(*(names or () for names in _received(run.plan.graph)))


def _received(graph: GraphDefinition | None) -> Iterator[Collection[str] | None]:
    for name, node in () if graph is None else graph.nodes.items():
        yield node._receives(name)
        yield from _received(node.subgraph)


class EventTracker:
    """Finds the events that no step took, while a journal is folded."""

    def __init__(self) -> None:
        self._kept: dict[int, r.EventReceived] = {}
        self._taken: dict[str, int] = {}
        """Name -> the record of the last event that a step took."""

    def note(self, record: r.Record, delta: Delta) -> None:
        """Note a record that was folded, and what it changed."""
        if isinstance(record, r.EventReceived):
            self._kept[record.seq] = record
        for _, _, answer in delta.moved:
            event = self._kept.pop(answer.seq, None)
            if event is not None:
                self._taken[event.name] = event.seq

    def untaken(self, run: RunState, *, ended: bool) -> tuple[UntakenEvent, ...]:
        """Return the events that no step took, in the order of their arrival.

        Args:
            run: the run after its last record.
            ended: whether it has ended.
        """
        return tuple(UntakenEvent(one.seq, one.name, self._why(run, one, ended)) for one in self._kept.values())

    def _why(self, run: RunState, event: r.EventReceived, ended: bool) -> str:
        first, taken = run.events.ids.get(event.id, event.seq), self._taken.get(event.name)
        if first != event.seq:
            return f"an event with the same id came first (record {first})"
        if said := unawaited(run, event.name):
            return said
        for question in open_questions(run):
            if question.event == event.name:
                return mismatch(question)
        if taken is not None and taken > event.seq:
            return f"its data did not match, and that of a later one did (record {taken})"
        if taken is not None:
            later = "the run ended" if ended else "no step waits for a further one now"
            return f"another one came first (record {taken}), and {later}"
        return "the run ended before a step took it" if ended else "no step waits for it yet"
