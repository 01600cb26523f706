"""Events from outside as a command to a run: what is accepted, and how it is journaled.

An event is kept by the run until a step takes it. One that bears the name of an `Ask` node is a message for that node:
if the run waits there it is the answer, else the node's `on_busy` decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.errors import RunBusy, RunEnded
from orchestrator.executor.answers import check_answer
from orchestrator.executor.run_log import RunLog, ToolsFor
from orchestrator.graph.codec import as_json
from orchestrator.graph.model import GraphDefinition
from orchestrator.kernel.question import Value
from orchestrator.kernel.records import EventReceived
from orchestrator.kernel.run_state import RunState
from orchestrator.nodes.ask import Ask
from orchestrator.values import FOREIGN_DEPTH, MAX_DEPTH, check_name, check_text

MAX_EVENT_BYTES = 1024 * 1024
"""UTF-8 bytes of the JSON of one event's data."""

MAX_KEPT = 10_000
"""How many events a run keeps that no step has taken."""

MAX_KEPT_BYTES = 64 * MAX_EVENT_BYTES
"""UTF-8 bytes of the JSON of all their data."""


@dataclass(frozen=True, slots=True)
class SendEvent:
    """Send an event to a run."""

    name: str
    data: object
    """Plain JSON."""
    id: str
    """Two events of one id are one event."""
    by: str = ""

    @classmethod
    def of(cls, body: Mapping[str, object]) -> SendEvent:
        """The event that a caller, or a message of a run's inbox, brings.

        Raises:
            InvalidValue: name or id is no name, or the data has no JSON form, or is too deep or too large.
            SecretInState: the data holds a secret.
        """
        data = as_json(body.get("data"), "the data of an event", inside=FOREIGN_DEPTH - MAX_DEPTH, size=MAX_EVENT_BYTES)
        return cls(
            check_name(body.get("name")), data, check_name(body.get("id"), "the id of an event"),
            check_text(body.get("by", ""), "by"),
        )  # fmt: skip

    def checked(self, machine: RunState, tools: ToolsFor, now: float) -> SendEvent:
        """See `Command.checked`.

        Raises:
            RunEnded: the run is at its end.
            RunBusy: the run keeps too many events, or the node that it is for takes none now.
            InvalidAnswer: the run waits at the node that it is for, and the data is no answer to its question.
        """
        if self.id in machine.events.ids:
            return self  # it is delivered again, maybe after the end
        if machine.ended is not None or machine.result is not None:
            result = machine.ended or machine.result
            assert result is not None
            raise RunEnded(machine.run_id, result.status)
        kept = machine.events
        if len(kept.kept) >= MAX_KEPT or kept.size >= MAX_KEPT_BYTES:
            most = f"{len(kept.kept):,} events ({kept.size:,} bytes)"
            raise RunBusy(machine.run_id, f"keeps {most} that no step has taken, and takes no more until one does")
        asked = asked_by(machine, self.name)
        for question in asked:
            check_answer(machine, question, Value(value=self.data), None, {}, now)
        modes = {ask.on_busy for ask in _asks(machine.plan.graph, self.name)}
        if not asked and modes == {"reject"}:
            raise RunBusy(
                machine.run_id,
                f"is busy: it does not wait at {self.name!r}, which takes a message only then (on_busy='reject'); "
                "send it again when the run pauses, or give the node on_busy='queue' or 'interrupt'",
            )
        return self

    def apply(self, log: RunLog, message: int | None = None) -> bool:
        """Journal it. False: the run has it already."""
        machine = log.machine
        if self.id in machine.events.ids:
            return False
        asked = asked_by(machine, self.name)
        record = EventReceived(
            **log.now(),
            name=self.name,
            data=self.data,
            id=self.id,
            by=self.by,
            questions=tuple(one for one in asked if not machine.questions[one].event),
            interrupts=None if asked else _interrupted(machine, self.name),
            message=message,
        )
        log.push(record, message)
        return True

    def body(self) -> dict[str, object]:
        """See `Command.body`."""
        return {"type": "event", "name": self.name, "data": self.data, "id": self.id, "by": self.by}


def asked_by(machine: RunState, node: str) -> list[str]:
    """The ids of the open questions of `Ask` nodes of this name."""
    found = []
    for name, asker in machine.askers.items():
        graph = asker.frame.plan.graph
        if asker.node == node and graph is not None and isinstance(graph.nodes[node], Ask):
            found.append(name)
    return found


def _interrupted(machine: RunState, node: str) -> str | None:
    """The path of the running graph that a message for this node interrupts, the outermost first; None: none."""
    for frame in machine.frames():
        graph = frame.plan.graph
        ask = None if graph is None else graph.nodes.get(node)
        if isinstance(ask, Ask) and ask.on_busy == "interrupt" and frame.result is None:
            return frame.path
    return None


def _asks(graph: GraphDefinition | None, name: str) -> Iterator[Ask]:
    """The `Ask` nodes of this name in a graph and those inside it."""
    for key, node in () if graph is None else graph.nodes.items():
        if key == name and isinstance(node, Ask):
            yield node
        yield from _asks(node.subgraph, name)
