"""Traces of runs: the implementation of `orchestrator.executor.tracing.Tracing`.

A trace begins with a short span, `start GRAPH`, `enqueue GRAPH`, `fork GRAPH` or `replay GRAPH`, whose context is a
label of the run. Each drive of the run, in any process, is a span below it: so a run is one trace, however long
it pauses, and however many processes drive it. Below a drive are its steps, and below them their calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from orchestrator import __version__
from orchestrator.executor.calls.effect import witness
from orchestrator.executor.run_log import RunLog
from orchestrator.executor.tracing import TRACE_LABELS, Callees, NewTrace
from orchestrator.graph.model import GraphDefinition, Node
from orchestrator.kernel.records import Failure, Record
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation
from orchestrator.models.base import trace_headers
from orchestrator.otel import names as n
from orchestrator.otel.calls import Meters, TracedCalls, words
from orchestrator.otel.spans import Attributes, OpenSpan, ignoring_faults
from orchestrator.values import MAX_LABEL

_SCOPE = "orchestrator"
"""Name of the tracer and the meter."""
_TRACE_CONTEXT = TraceContextTextMapPropagator()
_AS_LISTED = 20
"""Maximum number of questions that an event names."""


class OpenTelemetry:
    """Traces the runs of an executor: `Executor(tracing=OpenTelemetry())`.

    Spans and metrics go to the SDK that the program has set up. Without an SDK nothing is recorded. Errors of the SDK
    are logged and ignored.

    Args:
        tracer_provider: makes the tracer; None: the global one.
        meter_provider: makes the metrics; None: the global one.
        content: whether spans contain messages, arguments and results. They are redacted, and may still be private.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        content: bool = False,
    ) -> None:
        self._tracer = trace.get_tracer(_SCOPE, __version__, tracer_provider)
        self._meters = Meters(metrics.get_meter(_SCOPE, __version__, meter_provider))
        self._content = content
        self._drives: dict[RunLog, _Drive] = {}

    @contextmanager
    def received(self, headers: Mapping[str, str]) -> Iterator[None]:
        """See `Tracing.received`. A span of the program, such as that of an instrumentation, takes precedence."""
        caller = None
        with ignoring_faults():
            if not trace.get_current_span().get_span_context().is_valid:
                caller = _context_in(headers)
        if caller is None:
            yield
            return
        token = contexts.attach(trace.set_span_in_context(trace.get_current_span(caller)))
        try:
            yield
        finally:
            contexts.detach(token)

    def begin(
        self, verb: str, run_id: str, graph: str, labels: Mapping[str, str], origin: Mapping[str, str] | None = None
    ) -> NewTrace:
        """See `Tracing.begin`."""
        found = dict(labels)
        parent = _context_in(labels) or (Context() if origin is not None else None)
        links = [(_span_in(_context_in(origin)), verb)]
        span = OpenSpan(self._tracer, f"{verb} {graph}", {n.RUN: run_id, n.AGENT: graph}, parent=parent, links=links)
        with ignoring_faults():
            _TRACE_CONTEXT.inject(found, span.context)
            if len(found.get(TRACE_LABELS[1], "")) > MAX_LABEL:  # it may be left out, and labels are short
                del found[TRACE_LABELS[1]]
        return NewTrace(found, span.end)

    async def drive(self, log: RunLog, called: Callees, run: Callable[[], Awaitable[None]]) -> None:
        """See `Tracing.drive`."""
        calls = TracedCalls(self._tracer, self._meters, called, content=self._content)
        drive = self._drives[log] = _Drive(self._tracer, log, calls)
        try:
            with drive.span.active():
                await run()
        except Exception as error:
            drive.span.fail(type(error).__name__)
            raise
        finally:
            del self._drives[log]
            drive.end()

    async def step(
        self, log: RunLog, run: Callable[[Activation], Awaitable[Record | None]], activation: Activation
    ) -> Record | None:
        """See `Tracing.step`."""
        drive = self._drives.get(log)
        return await (run(activation) if drive is None else drive.step(run, activation))


class _Drive:
    """The spans of one drive of a run."""

    def __init__(self, tracer: Tracer, log: RunLog, calls: TracedCalls) -> None:
        self._tracer, self._log, self._calls, self._content = tracer, log, calls, calls.content
        self._inside: dict[str, OpenSpan] = {}
        """Activation of a node with a graph inside -> its span, while that graph runs."""
        machine = log.machine
        parent, resumed = _context_of(machine), machine.head > machine.forked_at + 2
        links = [(_span_in(parent), n.RESUMED)] if resumed else []
        requester = _span_in(contexts.get_current())
        if requester.is_remote and requester.trace_id != _span_in(parent).trace_id:
            links.append((requester, n.REQUESTED))
        called = machine.caller is not None and _is_agent(machine.plan.graph)
        operation = n.INVOKE_AGENT if called else n.INVOKE_WORKFLOW
        self.span = OpenSpan(
            tracer,
            f"{operation} {_name_of(machine)}",
            {n.OPERATION: operation, n.AGENT: _name_of(machine), n.RUN: log.run_id},
            parent=parent,
            links=links,
        )
        self.span.event(n.RESUMED if resumed else n.STARTED, {n.CHECKPOINT: f"{log.run_id}@{machine.head}"})

    # -- steps ---------------------------------------------------------------------------------------------------

    async def step(
        self, run: Callable[[Activation], Awaitable[Record | None]], activation: Activation
    ) -> Record | None:
        """Run an attempt of a step in a span of its own. A node with a graph inside has one span for that graph."""
        if activation.node in activation.frame.plan.sub:
            return await self._graph_step(run, activation)
        span = self._opened(activation)
        calls, headers = witness.set(self._calls), trace_headers.set(_headers)
        try:
            with span.active():
                record = await run(activation)
            self._landed(span, record)
            return record
        except Exception as error:
            span.fail(type(error).__name__)
            raise
        finally:
            trace_headers.reset(headers)
            witness.reset(calls)
            span.end()

    async def _graph_step(
        self, run: Callable[[Activation], Awaitable[Record | None]], activation: Activation
    ) -> Record | None:
        span = self._around(activation)
        try:
            record = await run(activation)
        except BaseException:
            self._inside.pop(activation.key, span).end()
            raise
        if record is None or record.type != "graph_opened":
            self._landed(span, record)
            self._inside.pop(activation.key, span).end()
        return record

    def _around(self, activation: Activation) -> OpenSpan:
        """Return the span of the graph inside a node; a new one, if another process opened the graph."""
        span = self._inside.get(activation.key)
        if span is None:
            span = self._inside[activation.key] = self._opened(activation)
        return span

    def _opened(self, at: Activation) -> OpenSpan:
        outer = at.frame.parent
        around = self.span if outer is None else self._around(outer)
        graph = at.frame.plan.graph
        node: Node | None = None if graph is None else graph.nodes.get(at.node)
        name, about = f"step {at.node}", _about(at)
        if node is not None:
            about = {**about, n.NODE_KIND: node.kind}
            if node.subgraph is not None and _is_agent(node.subgraph):
                name = f"{n.INVOKE_AGENT} {node.subgraph.name}"
                about = {**about, n.OPERATION: n.INVOKE_AGENT, n.AGENT: node.subgraph.name}
            elif node.kind == "plan" and graph is not None:
                name = f"{n.PLAN} {graph.name}"
                about = {**about, n.OPERATION: n.PLAN, n.AGENT: graph.name}
        return OpenSpan(self._tracer, name, about, parent=around.context)

    def _landed(self, span: OpenSpan, record: Record | None) -> None:
        """Describe the end of an attempt."""
        with ignoring_faults():
            failure = getattr(record, "error", None)
            if record is not None and record.type == "step_done":
                span.set({n.OUTCOME: record.outcome})
            elif record is not None and record.type == "asked":
                span.event(n.PAUSED, {n.QUESTIONS: [record.question.id], "kind": str(record.question.kind)})
            if isinstance(failure, Failure):
                span.fail(failure.type, words(failure.message) if self._content else None)

    # -- the end -------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """End all spans of the drive."""
        for span in reversed(self._inside.values()):
            span.end()
        with ignoring_faults():
            self._concluded(self._log.machine)
        self.span.end()

    def _concluded(self, machine: RunState) -> None:
        stored = {n.CHECKPOINT: f"{self._log.run_id}@{self._log.journal.stored}"}
        if machine.status == "paused":
            waiting = list(machine.questions.values())
            kinds = sorted({str(question.kind) for question in waiting})
            about: Attributes = {n.QUESTIONS: [one.id for one in waiting[:_AS_LISTED]], "kind": ", ".join(kinds)}
            self.span.event(n.PAUSED, {**stored, **about})
        self.span.event(n.CHECKPOINTED, stored)
        self.span.set({n.RUN_STATUS: machine.status, n.RUN_COST: machine.usage.cost or None})
        error = None if machine.ended is None else machine.ended.error
        if machine.status == "failed":
            self.span.fail(error.type if error else "failed", words(error.message) if error and self._content else None)


def _about(at: Activation) -> Attributes:
    return {n.NODE: at.node, n.PATH: at.path or None, n.ACTIVATION: at.key, n.ATTEMPT: at.attempt}


def _name_of(machine: RunState) -> str:
    return "" if machine.started is None else machine.started.graph


def _is_agent(graph: GraphDefinition | None) -> bool:
    """Return True if a node of a graph, or of a graph inside it, can call a model."""
    return graph is not None and any(node.asks_model or _is_agent(node.subgraph) for node in graph.nodes.values())


def _headers() -> Mapping[str, str]:
    """Return the headers by which a server continues the trace of the current span."""
    found: dict[str, str] = {}
    with ignoring_faults():
        _TRACE_CONTEXT.inject(found)
    return found


def _span_in(context: Context | None) -> SpanContext:
    """Return the span of a context; an invalid one if there is none."""
    return trace.get_current_span(Context() if context is None else context).get_span_context()


def _context_in(labels: Mapping[str, str] | None) -> Context | None:
    """Return the context that labels of a run hold; None if they have none that can be read."""
    if not labels or TRACE_LABELS[0] not in labels:
        return None
    found = _TRACE_CONTEXT.extract(labels, Context())
    return found if _span_in(found).is_valid else None


def _context_of(machine: RunState) -> Context:
    """Return the context of a run's trace.

    A run that was begun without traces has no context in its labels, and a fork that was made without them has that of
    its parent. The ids of their traces then follow from their own ids, so that all processes find the same.
    """
    first = machine.started
    inherited = machine.fork is not None and first is not None and machine.labels == first.labels
    found = None if inherited else _context_in(machine.labels)
    if found is None and machine.caller is not None:  # it is called by a step of this process
        found = contexts.get_current()
    if found is None:
        digest = hashlib.sha256(machine.run_id.encode()).digest()
        ids = int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:24], "big")
        made = SpanContext(*ids, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
        found = trace.set_span_in_context(NonRecordingSpan(made), Context())
    return found
