"""Events of a run under the names of Embedia, a publish-subscribe agent framework, in its order.

    ToolStart, AgentStart, [ChatLLMInit, ChatLLMStart, ChatLLMEnd] ..., ToolStart, ToolEnd, AgentStep, ...,
    AgentEnd, ToolEnd

The events follow from the journal alone, so they are the same live and later. The publisher of an event is the
run's id for the agent itself, the activation for an agent inside it, and the effect's key for a model or tool call.

`executor.events(style="embedia")` loads this module through `orchestrator._lazy`; no other module imports it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any, TypeAlias

from orchestrator.graph.model import GraphDefinition
from orchestrator.kernel import records as r
from orchestrator.kernel.question import Question, parts_of
from orchestrator.kernel.requests import Requests
from orchestrator.nodes.steps import Step
from orchestrator.values import utc
from orchestrator.views.events import Event

EMBEDIA_TYPES = (
    "AgentStart",
    "AgentStep",
    "AgentTimeout",
    "AgentEnd",
    "ChatLLMInit",
    "ChatLLMStart",
    "ChatLLMEnd",
    "ToolStart",
    "ToolEnd",
    "ToolDenied",
)
"""Every `type` that an event of this style can have."""

Tokenizer: TypeAlias = Callable[[str], int | Sized]
"""A function that returns the tokens of a text, or their number."""
_Published: TypeAlias = Iterator[tuple[str, str, dict[str, Any]]]
"""(publisher, name, data) of events."""

_STEP = frozenset(Step.model_fields) - {"ended"}


class EmbediaEvent(Event):
    """An event with a publisher. `seq` is that of its record; a record can result in several events."""

    id: str
    """Its publisher."""

    @property
    def event(self) -> str:
        """The event's name."""
        return self.type

    @property
    def timestamp(self) -> str:
        """The event's time as ISO 8601 in UTC."""
        return utc(self.ts).isoformat()

    def to_json(self) -> dict[str, object]:
        """Return `timestamp, id, event, data`, and the record's `seq`."""
        return {
            "timestamp": self.timestamp,
            "id": self.id,
            "event": self.type,
            "seq": self.seq,
            "data": self.data,
        }


class Embedia:
    """Converts the records of one run, in order, to events.

    Args:
        graph: the run's graph, which names the field of the question.
        tokenizer: returns the tokens of a text, or their number. Without it, only replies have counts, which the
            provider reports.
        run_id: the run; needed for a fork, whose first records are those of another run.
    """

    def __init__(
        self,
        graph: GraphDefinition | None = None,
        tokenizer: Tokenizer | None = None,
        run_id: str = "",
    ) -> None:
        self._graph = graph
        self._count = tokenizer
        self._run_id, self._name = run_id, ""
        self._started: dict[str, float] = {}
        """Publisher of an active agent -> its start."""
        self._agents: dict[str, tuple[str, str]] = {}
        """Path of an open inner graph -> (activation, its node's name)."""
        self._steps: dict[str, list[object]] = {}
        """Publisher -> its steps so far."""
        self._calls: dict[str, r.EffectIntended] = {}
        self._requests = Requests()
        self._questions: dict[str, Question] = {}

    def events_of(self, record: r.Record) -> list[EmbediaEvent]:
        """Return the events of a record, often none."""
        handler = _HANDLERS.get(record.type)
        if handler is None:
            return []
        return [
            EmbediaEvent(type=name, seq=record.seq, ts=record.ts, run_id=self._run_id, id=publisher, data=data)
            for publisher, name, data in handler(self, record)
        ]

    # -- agents ------------------------------------------------------------------------------------------------

    def _run_started(self, record: r.RunStarted) -> _Published:
        self._run_id, self._name = self._run_id or record.run_id, record.graph
        self._started[self._run_id] = record.ts
        yield from self._opened(self._run_id, record.graph, record.values, self._graph)

    def _graph_opened(self, record: r.GraphOpened) -> _Published:
        path = f"{record.path}/{record.node}" if record.path else record.node
        self._agents[path] = (record.activation, record.node)
        self._started[record.activation] = record.ts
        yield from self._opened(record.activation, record.node, record.values, None)

    def _opened(
        self, publisher: str, name: str, values: Mapping[str, object], graph: GraphDefinition | None
    ) -> _Published:
        field = graph.input if graph is not None and isinstance(graph.input, str) else "question"
        given = [values[field]] if field in values else []
        yield publisher, "ToolStart", {"name": name, "args": given, "kwargs": {} if given else dict(values)}
        yield publisher, "AgentStart", {"question": given[0] if given else dict(values)}

    def _closed(
        self, publisher: str, name: str, ts: float, status: str, output: object, error: r.Failure | None
    ) -> _Published:
        steps, started = self._steps.pop(publisher, []), self._started.pop(publisher, ts)
        if status == "completed":
            yield publisher, "AgentEnd", {"answer": output}
        elif status == "exhausted":
            # Published at the end: spent steps or visits follow from the journal and have no record.
            spent = {"step_history": steps, "duration": f"{ts - started:.2f}s", "num_steps": len(steps)}
            yield publisher, "AgentTimeout", spent
        else:
            output = str(error) if error is not None else status
            yield publisher, "AgentEnd", {"answer": None, "error": output}
        yield publisher, "ToolEnd", {"name": name, "exit_code": int(status != "completed"), "output": output}

    def _ended(self, record: r.Ended) -> _Published:
        # Agents that have not ended, such as those in other branches; the innermost ends first.
        status = "cancelled" if record.status == "completed" else record.status
        for path in sorted(self._agents, key=len, reverse=True):
            publisher, name = self._agents.pop(path)
            yield from self._closed(publisher, name, record.ts, status, None, record.error)
        yield from self._closed(self._run_id, self._name, record.ts, record.status, record.output, record.error)

    def _step_done(self, record: r.StepDone) -> _Published:
        for step in _steps_in(record.update):
            publisher = self._agent_at(record.path)
            self._steps.setdefault(publisher, []).append(step)
            yield publisher, "AgentStep", dict(step)
        status = {"error": "failed", "exhausted": "exhausted"}.get(record.outcome, "completed")
        if status == "completed" and record.error is not None:
            status = "exhausted"  # the agent spent its own limits, and no edge leads on from that
        given = list(record.update.values())
        output = given[0] if len(given) == 1 else dict(record.update)
        yield from self._left(record, status, output, record.error)

    def _step_failed(self, record: r.StepFailed) -> _Published:
        yield from self._left(record, "failed", None, record.error)

    def _left(
        self, record: r.StepDone | r.StepFailed, status: str, output: object, error: r.Failure | None
    ) -> _Published:
        path = f"{record.path}/{record.node}" if record.path else record.node
        if self._agents.get(path, ("", ""))[0] == record.activation:
            publisher, name = self._agents.pop(path)
            yield from self._closed(publisher, name, record.ts, status, output, error)

    def _agent_at(self, path: str) -> str:
        """Return the publisher of the innermost agent around a path."""
        inside = [opened for opened in self._agents if path == opened or path.startswith((f"{opened}/", f"{opened}."))]
        return self._agents[max(inside, key=len)][0] if inside else self._run_id

    # -- calls -------------------------------------------------------------------------------------------------

    def _intended(self, record: r.EffectIntended) -> _Published:
        self._requests.add(record)
        known = record.key in self._calls
        self._calls[record.key] = record
        if known:  # made again after a crash: the same call, published only once
            return
        if record.kind == "tool":
            kwargs = record.request.get("args", {})
            yield record.key, "ToolStart", {"name": record.name, "args": [], "kwargs": kwargs}
        elif record.kind == "model":
            messages = self._requests.whole(record).get("messages", ())
            for message in messages:
                if message.get("role") == "system":
                    yield record.key, "ChatLLMInit", self._said("system", message.get("content", ""))
            if messages and messages[-1].get("role") != "system":
                last = messages[-1]
                yield record.key, "ChatLLMStart", self._said(last.get("role", "user"), last.get("content", ""))

    def _settled(self, record: r.EffectSettled) -> _Published:
        call = self._calls.pop(record.key, None)
        if call is None:
            return
        result = record.result if isinstance(record.result, Mapping) else {}
        if call.kind == "tool":
            failure = result.get("error") or (None if record.ok else str(record.error))
            code = result.get("exit_code", int(failure is not None))
            output = result.get("output") if failure is None else failure
            yield record.key, "ToolEnd", {"name": call.name, "exit_code": code, "output": output}
        elif call.kind == "model" and record.ok:
            said = self._said("assistant", result.get("text", ""))
            if record.usage is not None and self._count is None:
                said |= {"tokens": record.usage.output_tokens, "input_tokens": record.usage.input_tokens}
            yield record.key, "ChatLLMEnd", said

    def _said(self, role: str, content: str) -> dict[str, object]:
        return {
            "role": role,
            "tokens": None if self._count is None else _number(self._count(content)),
            "content": content,
        }

    # -- questions ---------------------------------------------------------------------------------------------

    def _asked(self, record: r.Asked) -> _Published:
        self._questions[record.question.id] = record.question
        yield from ()

    def _answered(self, record: r.Answered) -> _Published:
        question = self._questions.pop(record.question, None)
        if question is not None and record.answer.type == "deny" and parts_of(question.kind, question.payload).call:
            called = {"tool": question.payload["tool"], "args": question.payload.get("args", {})}
            yield self._agent_at(question.path), "ToolDenied", {**called, "reason": record.answer.reason}


def embedia(
    records: Iterable[r.Record], graph: GraphDefinition | None = None, tokenizer: Tokenizer | None = None
) -> Iterator[EmbediaEvent]:
    """Yield all events of a journal, or of its first records. See `Embedia` for the arguments."""
    records = list(records)
    forks = [record for record in records if isinstance(record, r.Forked)]
    style = Embedia(graph, tokenizer, forks[-1].run_id if forks else "")
    for record in records:
        yield from style.events_of(record)


def _number(tokens: int | Sized) -> int:
    if isinstance(tokens, Sized) and not isinstance(tokens, str):
        return len(tokens)
    try:
        return operator.index(tokens)  # type: ignore[arg-type]  # what a tokenizer returns is not checked by its type
    except TypeError:
        raise TypeError(f"tokenizer= returned {tokens!r:.60}: return the tokens of the text, or their number") from None


_HANDLERS: Mapping[str, Callable[[Embedia, Any], _Published]] = {
    "run_started": Embedia._run_started,
    "graph_opened": Embedia._graph_opened,
    "step_done": Embedia._step_done,
    "step_failed": Embedia._step_failed,
    "effect_intended": Embedia._intended,
    "effect_settled": Embedia._settled,
    "asked": Embedia._asked,
    "answered": Embedia._answered,
    "ended": Embedia._ended,
}


def _steps_in(update: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """Yield the steps of a strategy in an update: values, or items of lists, with the fields of `nodes.steps.Step`."""
    for value in update.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Mapping) and item.keys() - {"ended"} == _STEP:
                yield {name: item[name] for name in item if name != "ended"}
