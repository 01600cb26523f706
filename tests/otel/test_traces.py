"""Traces and metrics of runs: `Executor(tracing=OpenTelemetry())`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, use_span
from pydantic import BaseModel

from orchestrator import Approve, Context, Executor, Graph, OpenAIModel, Update, node, tool
from orchestrator.errors import ToolError
from orchestrator.executor.step_tasks import StepTasks, run_step
from orchestrator.models.prices import Price
from orchestrator.nodes import Ask, Complete, Plan, Subgraph
from orchestrator.otel import OpenTelemetry, names
from orchestrator.redaction import BLANK
from orchestrator.stores.memory import MemoryStore
from orchestrator.testing import ScriptedModel
from orchestrator.tools.mcp import McpToolbox
from tests.support.executors import Log, chain, says, single
from tests.support.wire import said, served, told

pytestmark = pytest.mark.anyio


class Traces:
    """What an SDK in this process was given."""

    def __init__(self) -> None:
        self.exporter, self.provider, self.reader = InMemorySpanExporter(), TracerProvider(), InMemoryMetricReader()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters: MeterProvider = SdkMeterProvider([self.reader])

    def tracing(self, **options: Any) -> OpenTelemetry:
        return OpenTelemetry(tracer_provider=self.provider, meter_provider=self.meters, **options)

    @property
    def spans(self) -> list[ReadableSpan]:
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def one(self, name: str) -> ReadableSpan:
        """The only span with a name."""
        (found,) = (span for span in self.spans if span.name == name)
        return found

    def above(self, span: ReadableSpan) -> list[str]:
        """The names of the spans above a span, the nearest first."""
        known = {one.context.span_id: one for one in self.spans if one.context is not None}
        found = []
        while span.parent is not None and span.parent.span_id in known:
            span = known[span.parent.span_id]
            found.append(span.name)
        return found

    @property
    def ids(self) -> set[int]:
        return {span.context.trace_id for span in self.spans if span.context is not None}

    def metrics(self) -> dict[str, Any]:
        data = self.reader.get_metrics_data()
        scopes = [scope for resource in (data.resource_metrics if data else ()) for scope in resource.scope_metrics]
        return {metric.name: metric.data.data_points[0] for scope in scopes for metric in scope.metrics}


@pytest.fixture
def traces() -> Iterator[Traces]:
    found = Traces()
    yield found
    found.provider.shutdown()
    found.reader.shutdown()


class Line(BaseModel):
    item: str = ""
    text: str = ""


class Sale(BaseModel):
    question: str
    items: list[str] = ["tea", "bread"]
    lines: list[str] = []
    text: str = ""
    answer: str = ""


def agent() -> Graph:
    """A graph whose node asks a model."""
    return Graph(
        name="agent", state=Line, nodes={"write": Complete(prompt="{item}", result="text")},
        edges="START -> write -> END", output="text",
    )  # fmt: skip


def with_agent() -> Graph:
    """A graph with an agent inside, and a question to a person behind it."""
    return Graph(
        name="sale", state=Sale, input="question", output="answer",
        nodes={
            "describe": Subgraph(agent(), inputs={"item": "question"}, outputs={"text": "text"}),
            "ask": Ask(prompt="Fine?", answer="answer"),
        },
        edges="START -> describe -> ask -> END",
    )  # fmt: skip


# -- names -----------------------------------------------------------------------------------------------------------


def test_every_name_is_one_of_the_release() -> None:
    lines = Path(__file__).with_name("names_v0_1_0.txt").read_text().splitlines()
    known = {line for line in lines if line and not line.startswith("#")}
    ours = {*names.OPERATIONS, *names.ATTRIBUTES, *names.GENERAL, *names.METRICS}
    assert ours == known
    assert names.RELEASE == "0.1.0"


def test_no_other_name_is_written_anywhere() -> None:
    """All names of the conventions come from the table."""
    place = Path(names.__file__).parent
    assert [path.name for path in place.glob("*.py") if "gen_ai." in path.read_text()] == ["names.py"]


# -- spans -----------------------------------------------------------------------------------------------------------


async def test_a_run_is_a_tree_of_its_steps_graphs_and_calls(traces: Traces) -> None:
    model = ScriptedModel(["Good tea."])
    async with Executor(model=model, tracing=traces.tracing()) as executor:
        run = await executor.start(with_agent(), "tea", run_id="r")
    assert run.status == "paused"
    assert len(traces.ids) == 1
    chat = traces.one(f"chat {model.name}")
    assert traces.above(chat) == ["step write", "invoke_agent agent", "invoke_workflow sale", "start sale"]
    root = traces.one("invoke_workflow sale")
    assert [event.name for event in root.events] == ["started", "paused", "checkpointed"]
    assert root.attributes is not None
    assert root.attributes["orchestrator.run.status"] == "paused"
    assert root.events[1].attributes["orchestrator.checkpoint.id"] == f"r@{run.seq}"  # type: ignore[index]


async def test_a_plan_is_an_operation_of_its_own(traces: Traces) -> None:
    graph = Graph(
        name="planner", state=Plan.State, input="question",  # type: ignore[attr-defined]
        nodes={"plan": Plan()}, edges="START -> plan -> END",
    )  # fmt: skip
    async with Executor(model=ScriptedModel(['{"steps": ["think"]}']), tracing=traces.tracing()) as executor:
        await executor.start(graph, "tea?")
    attributes = traces.one("plan planner").attributes
    assert attributes is not None
    assert attributes["gen_ai.operation.name"] == "plan"


async def test_a_run_that_pauses_goes_on_in_its_trace_in_another_executor(traces: Traces) -> None:
    store, graph, model = MemoryStore(), with_agent(), ScriptedModel(["Good tea."])
    async with Executor(store, model=model, tracing=traces.tracing()) as executor:
        run = await executor.start(graph, "tea", run_id="r")
    other = Traces()
    async with Executor(store, graphs=[graph], model=model, tracing=other.tracing()) as executor:
        run = await executor.answer("r", run.waiting[0].id, "yes")
    assert run.status == "completed"
    assert other.ids == traces.ids
    start, resumed = traces.one("start sale"), other.one("invoke_workflow sale")
    assert start.context is not None
    assert resumed.parent is not None
    assert resumed.parent.span_id == start.context.span_id == resumed.links[0].context.span_id
    assert resumed.links[0].attributes == {"orchestrator.link": "resumed"}
    assert [event.name for event in resumed.events] == ["resumed", "checkpointed"]


async def test_a_graph_inside_that_pauses_has_a_span_in_each_process(traces: Traces) -> None:
    inner = Graph(name="inner", state=Sale, nodes={"ask": Ask(prompt="Fine?", answer="answer")},
                  edges="START -> ask -> END", input="question", output="answer")  # fmt: skip
    graph = Graph(
        name="outer", state=Sale, input="question", output="answer",
        nodes={"inside": Subgraph(inner, inputs={"question": "question"}, outputs={"answer": "answer"})},
        edges="START -> inside -> END",
    )  # fmt: skip
    store = MemoryStore()
    async with Executor(store, tracing=traces.tracing()) as executor:
        run = await executor.start(graph, "tea?", run_id="r")
    async with Executor(store, graphs=[graph], tracing=traces.tracing()) as executor:
        run = await executor.answer("r", run.waiting[0].id, "yes")
    assert run.status == "completed"
    assert len(traces.ids) == 1
    again = [span for span in traces.spans if span.name == "step ask"][-1]
    assert traces.above(again) == ["step inside", "invoke_workflow outer", "start outer"]
    assert len([span for span in traces.spans if span.name == "step inside"]) == 2


async def test_a_state_of_the_trace_that_is_too_long_for_a_label_is_left_out(traces: Traces) -> None:
    for count, kept in ((1, True), (10, False)):
        state = TraceState([(f"k{number}", "v" * 200) for number in range(count)])
        outer = SpanContext(5 << 64, 7, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED), trace_state=state)
        async with Executor(tracing=traces.tracing()) as executor:
            with use_span(NonRecordingSpan(outer)):
                run = await executor.start(chain(says("a")), "x")
        assert ("tracestate" in run.labels) is kept
        assert run.labels["traceparent"].split("-")[1] == f"{outer.trace_id:032x}"


async def test_an_enqueued_run_is_in_the_trace_of_who_enqueued_it(traces: Traces) -> None:
    store, graph = MemoryStore(), chain(says("a"))
    async with Executor(store, tracing=traces.tracing()) as executor:
        with traces.provider.get_tracer("app").start_as_current_span("request"):
            await executor.enqueue(graph, "x", run_id="r")
    async with Executor(store, graphs=[graph], tracing=traces.tracing()) as executor:
        await executor.resume("r")
    assert traces.above(traces.one("step n0")) == ["invoke_workflow chain", "enqueue chain", "request"]
    assert [event.name for event in traces.one("invoke_workflow chain").events] == ["started", "checkpointed"]


async def test_forks_and_replays_have_traces_of_their_own_linked_to_the_original(traces: Traces) -> None:
    async with Executor(tracing=traces.tracing()) as executor:
        await executor.start(chain(says("a"), says("b")), "x", run_id="r")
        await executor.fork("r", at=2, run_id="f")
        await executor.fork("r", at=2, run_id="f")  # the same fork: its other trace is no other fork
        await executor.replay("r", replay_id="p")
        await executor.replay("r", replay_id="p")
    original = traces.one("start chain").context
    assert original is not None
    for verb in ("fork", "replay"):
        first = next(span for span in traces.spans if span.name == f"{verb} chain")
        assert first.context is not None
        assert first.parent is None
        assert first.context.trace_id != original.trace_id
        assert [(one.context.span_id, one.attributes) for one in first.links] == [
            (original.span_id, {"orchestrator.link": verb})
        ]
    drives = [span for span in traces.spans if span.name == "invoke_workflow chain"]
    assert len({span.context.trace_id for span in drives if span.context is not None}) == 3


async def test_a_run_that_was_begun_without_traces_has_one_trace_nevertheless(traces: Traces) -> None:
    store, graph = MemoryStore(), single(asks_twice)
    async with Executor(store) as executor:
        run = await executor.start(graph, "x", run_id="r")
    for answer in ("one", "two"):
        async with Executor(store, graphs=[graph], tracing=traces.tracing()) as executor:
            run = await executor.answer("r", run.waiting[0].id, answer)
    assert run.status == "completed"
    assert len(traces.ids) == 1


async def asks_twice(state: Log, ctx: Context) -> Update:
    first = await ctx.ask("input", prompt="first?")
    return {"log": f"{first} {await ctx.ask('input', prompt='second?')}"}


async def test_labels_of_a_client_that_are_no_context_are_labels(traces: Traces) -> None:
    async with Executor(tracing=traces.tracing()) as executor:
        run = await executor.start(chain(says("a")), "x", labels={"traceparent": "00-ff-ff-01", "tracestate": "\u202e"})
    assert run.status == "completed"
    assert len(traces.ids) == 1


async def test_a_failed_step_is_an_error_without_its_message(traces: Traces) -> None:
    @node
    async def fails(state: Log) -> Update:
        raise LookupError("private words")

    async with Executor(tracing=traces.tracing()) as executor:
        run = await executor.start(chain(fails), "x")
    assert run.status == "failed"
    for name in ("step n0", "invoke_workflow chain"):
        span = traces.one(name)
        assert not span.status.is_ok
        assert "private" not in span.to_json()
        assert span.attributes is not None
        assert span.attributes["error.type"] == "LookupError"


# -- calls -----------------------------------------------------------------------------------------------------------


async def test_the_span_of_a_tool_is_current_in_its_thread_and_in_what_it_calls(traces: Traces) -> None:
    seen: list[Any] = []

    @tool
    def inner() -> str:
        """Look at the current span."""
        seen.append(
            (threading.current_thread() is threading.main_thread(), trace.get_current_span().get_span_context())
        )
        return "done"

    @tool
    async def outer(ctx: Context) -> str:
        """Call the other tool."""
        seen.append(trace.get_current_span().get_span_context())
        return str((await ctx.tool("inner")).output)

    @node(tools=["outer", "inner"])
    async def calls(state: Log, ctx: Context) -> Update:
        await ctx.tool("outer")
        return {}

    async with Executor(tools=[outer, inner], tracing=traces.tracing()) as executor:
        await executor.start(chain(calls), "x")
    assert seen[0] == traces.one("execute_tool outer").context
    assert seen[1] == (False, traces.one("execute_tool inner").context)
    assert traces.above(traces.one("execute_tool inner"))[:2] == ["execute_tool outer", "step n0"]
    assert traces.metrics()["gen_ai.execute_tool.duration"].count == 1


async def test_a_tool_that_fails_is_an_error(traces: Traces) -> None:
    @tool
    def breaks() -> str:
        """Fail."""
        raise ToolError("private words")

    @node(tools=["breaks"])
    async def calls(state: Log, ctx: Context) -> Update:
        await ctx.tool("breaks")
        return {}

    async with Executor(tools=[breaks], tracing=traces.tracing()) as executor:
        await executor.start(chain(calls), "x")
    span = traces.one("execute_tool breaks")
    assert not span.status.is_ok
    assert "private" not in span.to_json()


@pytest.mark.parametrize("way", ["whole", "watched", "streamed"])
async def test_a_call_of_a_model_has_tokens_cost_and_headers(traces: Traces, way: str) -> None:
    @node
    async def asks(state: Log, ctx: Context) -> Update:
        if way != "streamed":
            return {"log": (await ctx.model.complete("Tea?", temperature=0.5)).text}
        events = [event async for event in ctx.model.stream("Tea?", temperature=0.5)]
        return {"log": next(event.reply.text for event in events if event.reply)}

    details = {"prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}}
    usage = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15, **details}
    whole = said("Good tea.", usage=usage)
    with served(lambda seen: told("Good tea.") if seen.body.get("stream") else whole) as wire:
        model = OpenAIModel("m", base_url=wire.url, api_key="k", price=Price(input=1.0, output=2.0))
        streams: Any = "always" if way == "watched" else "watched"
        async with model, Executor(model=model, streams=streams, tracing=traces.tracing()) as executor:
            run = await executor.start(single(asks), "x")
    assert run.output == ["Good tea."]
    span = traces.one("chat m")
    assert span.context is not None
    assert span.attributes is not None
    assert dict(wire.seen[0].headers)["traceparent"].split("-")[1:3] == [
        format(span.context.trace_id, "032x"), format(span.context.span_id, "016x"),
    ]  # fmt: skip
    assert span.attributes["gen_ai.provider.name"] == "openai"
    assert span.attributes["gen_ai.request.temperature"] == 0.5
    assert span.attributes["server.address"] == "127.0.0.1"
    assert span.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    found = traces.metrics()
    assert found["gen_ai.client.inference.duration"].count == 1
    assert found["gen_ai.client.inference.duration"].attributes["gen_ai.request.model"] == "m"
    if way == "whole":
        assert span.attributes["gen_ai.usage.input_tokens"] == 12
        assert span.attributes["gen_ai.usage.cache_read.input_tokens"] == 4
        assert span.attributes["orchestrator.cost"] == pytest.approx(18e-6)
        assert span.attributes["gen_ai.usage.reasoning.output_tokens"] == 2
        assert found["gen_ai.client.inference.usage.input_tokens"].value == 12
        assert found["gen_ai.client.inference.usage.reasoning.output_tokens"].value == 2
        assert found["gen_ai.client.inference.usage.cache_read.input_tokens"].value == 4
    else:
        assert span.attributes["gen_ai.request.stream"] is True
        assert found["gen_ai.client.inference.time_to_first_chunk"].count == 1
        assert (
            found["gen_ai.client.inference.usage.output_tokens"].value == span.attributes["gen_ai.usage.output_tokens"]
        )


async def test_a_node_may_stop_reading_a_reply(traces: Traces) -> None:
    @node
    async def asks(state: Log, ctx: Context) -> Update:
        async for event in ctx.model.stream("Tea?"):
            return {"log": event.text}
        return {}

    async with Executor(model=ScriptedModel(["Good tea."]), tracing=traces.tracing()) as executor:
        run = await executor.start(single(asks), "x")
    assert run.status == "completed"
    (chat,) = (span for span in traces.spans if span.name.startswith("chat"))
    assert traces.above(chat)[0] == "step work"


async def test_a_server_of_tools_gets_the_trace(traces: Traces) -> None:
    @node(tools=["trace_id"])
    async def calls(state: Log, ctx: Context) -> Update:
        return {"log": str((await ctx.tool("trace_id", check=True)).output)}

    server = McpToolbox.stdio(sys.executable, "-m", "tests.otel.tracing_server", cwd=str(Path(__file__).parents[2]))
    async with Executor(tools=[server], tracing=traces.tracing()) as executor:
        run = await executor.start(single(calls), "x")
    (trace_id,) = traces.ids
    assert run.output == [format(trace_id, "032x")]


async def test_results_that_are_reused_are_events(traces: Traces) -> None:
    @node
    async def asks(state: Log, ctx: Context) -> Update:
        text = (await ctx.model.complete("Tea?")).text
        return {"log": f"{text} {await ctx.ask('input', prompt='really?')}"}

    async with Executor(model=ScriptedModel(["Good tea."]), tracing=traces.tracing()) as executor:
        run = await executor.start(single(asks), "x", run_id="r")
        await executor.answer("r", run.waiting[0].id, "yes")
    assert len([span for span in traces.spans if span.name.startswith("chat")]) == 1
    again = [span for span in traces.spans if span.name == "step work"][-1]
    assert "result reused" in [event.name for event in again.events]


# -- content ---------------------------------------------------------------------------------------------------------

SECRET = "sk-abcdefghijklmnop1234567890"


def talks() -> Graph:
    @node(tools=["post"])
    async def work(state: Log, ctx: Context) -> Update:
        await ctx.model.complete(f"Tea with {SECRET}?")
        await ctx.tool("post", text=f"milk {SECRET}")
        return {}

    return single(work)


@tool
def post(text: str) -> str:
    """Post a text."""
    return f"posted {text}"


async def test_content_is_recorded_only_if_asked_for_and_then_redacted(traces: Traces) -> None:
    for content in (False, True):
        traces.exporter.clear()
        async with Executor(
            model=ScriptedModel(["Good biscuits."]), tools=[post], tracing=traces.tracing(content=content)
        ) as executor:
            await executor.start(talks(), "x")
        text = "\n".join(span.to_json() for span in traces.spans)
        assert SECRET not in text
        for word in ("Tea with", "biscuits", "milk", "posted"):
            assert (word in text) is content
        assert (BLANK in text) is content
    attributes = next(span for span in traces.spans if span.name.startswith("chat")).attributes
    assert attributes is not None
    assert json.loads(str(attributes["gen_ai.output.messages"])) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "Good biscuits."}], "finish_reason": "stop"}
    ]


async def test_content_of_any_size_is_cut(traces: Traces) -> None:
    @node
    async def work(state: Log, ctx: Context) -> Update:
        await ctx.model.complete("word " * 400_000)
        return {}

    tracing = traces.tracing(content=True)
    async with Executor(model=ScriptedModel(["yes"]), tracing=tracing) as executor:
        await executor.start(single(work), "x")
    attributes = next(span for span in traces.spans if span.name.startswith("chat")).attributes
    assert attributes is not None
    assert 1000 < len(str(attributes["gen_ai.input.messages"])) < 200_000


@pytest.mark.parametrize("at", [24_990, 99_980])
async def test_a_secret_that_a_cut_goes_through_is_not_shown_in_part(traces: Traces, at: int) -> None:
    key = f"sk-{'ABCDEFGHIJ' * 4}"
    text = f"{'word ' * (at // 5)}{key}{' word' * 1000}"

    @tool
    def show(text: str) -> str:
        """Show a text."""
        return text

    @node
    async def work(state: Log, ctx: Context) -> Update:
        await ctx.model.complete(text)
        await ctx.tool("show", text=text)
        raise LookupError(text)

    async with Executor(model=ScriptedModel(["yes"]), tools=[show], tracing=traces.tracing(content=True)) as executor:
        await executor.start(single(work), "x")
    said = [f"{span.attributes} {span.status.description}" for span in traces.spans]
    assert sum("word word" in one for one in said) >= 3
    assert not any("sk-AB" in one for one in said)


async def test_the_message_of_an_error_is_redacted_like_other_content(traces: Traces) -> None:
    @node
    async def fails(state: Log) -> Update:
        raise LookupError(f"the key {SECRET} does not open it")

    async with Executor(tracing=traces.tracing(content=True)) as executor:
        await executor.start(chain(fails), "x")
    for name in ("step n0", "invoke_workflow chain"):
        assert traces.one(name).status.description == f"the key {BLANK} does not open it"


# -- faults, and no traces ---------------------------------------------------------------------------------------------


class Broken(SpanProcessor):
    """A processor that fails wherever it can."""

    def on_start(self, span: Span, parent_context: Any = None) -> None:
        raise RuntimeError("broken")

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("broken")


async def test_an_sdk_that_fails_leaves_runs_unhurt() -> None:
    provider = TracerProvider()
    provider.add_span_processor(Broken())
    async with Executor(
        model=ScriptedModel(["Good tea."]), tools=[post], tracing=OpenTelemetry(tracer_provider=provider)
    ) as executor:
        run = await executor.start(talks(), "x")
    assert run.status == "completed"


async def test_without_an_sdk_nothing_is_recorded() -> None:
    async with Executor(model=ScriptedModel(["Good tea."]), tools=[post], tracing=OpenTelemetry()) as executor:
        run = await executor.start(talks(), "x")
    assert run.status == "completed"
    assert run.labels == {}


async def test_without_traces_a_step_runs_the_same_code_as_ever(
    monkeypatch: pytest.MonkeyPatch, traces: Traces
) -> None:
    """Whether runs are traced is decided once for each drive: a step has no instruction for it."""
    found: list[Any] = []
    begin = StepTasks.open

    def note(self: StepTasks, *given: Any) -> None:
        found.append(self._step)
        begin(self, *given)

    monkeypatch.setattr(StepTasks, "open", note)
    async with Executor() as executor:
        await executor.start(chain(says("a")), "x")
    async with Executor(tracing=traces.tracing()) as executor:
        await executor.start(chain(says("a")), "x")
    plain, traced = found
    assert plain.func is run_step
    assert traced.func is not run_step
    assert "tracing" not in {*run_step.__code__.co_names, *StepTasks._run.__code__.co_names}


async def test_without_traces_no_instruction_of_them_runs(traces: Traces) -> None:
    """Counted by Python's own tracing, in all threads' frames of this task."""
    counts: dict[str, int] = {}
    place = str(Path(names.__file__).parents[1])

    def watch(frame: Any, event: str, given: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith((f"{place}/otel/", f"{place}/executor/tracing.py")):
            return None
        frame.f_trace_opcodes = True
        counts[file] = counts.get(file, 0) + (event == "opcode")
        return watch

    for tracing, expected in ((None, False), (traces.tracing(), True)):
        counts.clear()
        async with Executor(model=ScriptedModel(["Good tea."]), tools=[post], tracing=tracing) as executor:
            before = sys.gettrace()
            sys.settrace(watch)
            try:
                await executor.start(talks(), "x")
            finally:
                sys.settrace(before)
        assert bool(sum(counts.values())) is expected


def test_a_process_without_traces_loads_nothing_of_them() -> None:
    code = """
import sys
from tests.support.executors import chain, says
from orchestrator import Executor
import anyio
async def main():
    async with Executor() as executor:
        await executor.start(chain(says("a")), "x")
anyio.run(main)
print([name for name in sys.modules if name.startswith(("opentelemetry", "orchestrator.otel"))])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("decision", ["approve"])
async def test_the_example_of_the_documentation_is_one_trace(traces: Traces, decision: str) -> None:
    from tests.otel.orders import orders

    module = orders()
    with served(lambda seen: said("Good.", usage={"prompt_tokens": 12, "completion_tokens": 3})) as wire:
        model = OpenAIModel("gpt-4o-mini", base_url=wire.url, api_key="k")
        app = type(module.app)(graphs=module.app.graphs, model=model, tools=module.app.tools)
        async with model, app.executor(tracing=traces.tracing()) as executor:
            run = await executor.start(module.order, "tea, bread", run_id="r")
            run = await executor.answer("r", run.waiting[0].id, Approve())
    assert run.output == ["Good.", "Good."]
    assert len({span.context.trace_id for span in traces.spans if span.context is not None}) == 1
    assert len([span for span in traces.spans if span.name == "invoke_agent describe"]) == 2
    assert len([span for span in traces.spans if span.name == "execute_tool in_stock"]) == 2
