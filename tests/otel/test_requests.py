"""Requests with a `traceparent`: a run that they start is part of the caller's trace. The SDK is a real one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from orchestrator import Executor
from orchestrator.otel import OpenTelemetry
from orchestrator.protocols import ui_app
from tests.protocols.served import mail, served
from tests.protocols.test_ui_stream import user
from tests.tools.mcp.serving import served as mcp_served
from tests.web.api import Api, api, letter, plain

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CALLER = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=value"}
OTHER = "1bf7651916cd43dd8448eb211c80319d"


class Spans:
    """What an SDK in this process was given."""

    def __init__(self) -> None:
        self.exporter, self.provider = InMemorySpanExporter(), TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = OpenTelemetry(tracer_provider=self.provider)

    def named(self, name: str) -> list[ReadableSpan]:
        found = [span for span in self.exporter.get_finished_spans() if span.name == name]
        return sorted(found, key=lambda span: span.start_time or 0)


@pytest.fixture
def spans() -> Iterator[Spans]:
    found = Spans()
    yield found
    found.provider.shutdown()


@contextmanager
def traced(spans: Spans) -> Iterator[Api]:
    with api(letter, plain, tracing=spans.tracing) as served:
        yield served


def ids(span: ReadableSpan) -> tuple[str, str]:
    """The trace of a span, and the span above it."""
    assert span.context is not None
    above = "" if span.parent is None else f"{span.parent.span_id:016x}"
    return f"{span.context.trace_id:032x}", above


def started(served: Api, run_id: str, headers: Any) -> Any:
    body = {"graph": "plain", "input": "tea", "run_id": run_id, "wait": True}
    assert served.client.post("/api/runs", json=body, headers=headers).status_code == 201
    return served.get(f"runs/{run_id}")


def test_a_run_that_a_request_starts_is_part_of_the_trace_of_the_caller(spans: Spans) -> None:
    with traced(spans) as served:
        run = started(served, "one", CALLER)
        (begun,) = spans.named("start plain")
        assert ids(begun) == (TRACE, SPAN)
        assert begun.context is not None
        assert begun.context.trace_state["vendor"] == "value"
        assert run["labels"]["traceparent"].split("-")[1] == TRACE
        (drive,) = spans.named("invoke_workflow plain")
        assert ids(drive)[0] == TRACE
        assert drive.links == ()
        started(served, "two", {})
        assert ids(spans.named("start plain")[1])[0] != TRACE


@pytest.mark.parametrize(
    "headers",
    [
        {"traceparent": "x"},
        {"traceparent": f"00-{'0' * 32}-{SPAN}-01"},
        {"traceparent": f"ff-{TRACE}-{SPAN}-01"},
        {"traceparent": f"00-{TRACE}-{SPAN}-01" + "-" + "x" * 10_000},
        {"tracestate": "vendor=value"},
        [("traceparent", CALLER["traceparent"]), ("traceparent", CALLER["traceparent"])],
    ],
)
def test_headers_that_are_not_valid_change_nothing(spans: Spans, headers: Any) -> None:
    with traced(spans) as served:
        run = started(served, "one", headers)
        (begun,) = spans.named("start plain")
        assert begun.parent is None
        assert run["status"] == "completed"


@pytest.mark.parametrize("state", ["=,;", "a=" + "b" * 600])
def test_a_state_that_is_not_valid_is_left_out(spans: Spans, state: str) -> None:
    with traced(spans) as served:
        run = started(served, "one", {**CALLER, "tracestate": state})
        assert ids(spans.named("start plain")[0]) == (TRACE, SPAN)
        assert "tracestate" not in run["labels"]


def test_an_answer_leaves_the_run_in_its_trace_and_links_its_drive_to_the_caller(spans: Spans) -> None:
    with traced(spans) as served:
        run = served.start("letter", run_id="one")
        (asked,) = run["waiting"]
        body = {"question": asked["id"], "digest": asked["digest"], "approve": True}
        answered = served.client.post("/api/runs/one/answer", json=body, headers=CALLER)
        assert answered.status_code == 200
        served.settled("one")
        first, second = spans.named("invoke_workflow letter")
        assert ids(second) == ids(first)
        assert ids(first)[0] != TRACE
        reasons = {link.attributes["orchestrator.link"]: link.context for link in second.links if link.attributes}
        assert f"{reasons['requested'].trace_id:032x}" == TRACE
        assert served.get("runs/one")["labels"]["traceparent"].split("-")[1] != TRACE


def test_labels_that_name_a_trace_take_precedence(spans: Spans) -> None:
    with traced(spans) as served:
        label = {"traceparent": f"00-{OTHER}-{SPAN}-01"}
        body = {"graph": "plain", "input": "tea", "run_id": "one", "wait": True, "labels": label}
        served.client.post("/api/runs", json=body, headers=CALLER)
        assert ids(spans.named("start plain")[0])[0] == OTHER


def test_a_span_of_the_program_takes_precedence(spans: Spans) -> None:
    tracer = spans.provider.get_tracer("server")
    with tracer.start_as_current_span("POST") as outer, Executor(tracing=spans.tracing).traced(CALLER):
        (own,) = [outer.get_span_context().trace_id]
        begun = spans.tracing.begin("start", "one", "plain", {})
        assert begun.labels["traceparent"].split("-")[1] == f"{own:032x}"


def test_without_traces_the_headers_are_not_read() -> None:
    with api(plain) as served:
        assert started(served, "one", CALLER)["labels"] == {}


def test_a_request_of_a_protocol_starts_a_run_in_the_trace_of_the_caller(spans: Spans) -> None:
    body = {"id": "mine", "trigger": "submit-message", "messages": [user()]}
    with served(lambda executor: ui_app(executor, mail), ["Hello."], tracing=spans.tracing) as server:
        assert server.client.post("/", json=body, headers=CALLER).status_code == 200
    assert ids(spans.named("start mail")[0]) == (TRACE, SPAN)


@pytest.mark.anyio
@pytest.mark.parametrize("meta", [CALLER, {"traceparent": 7, "tracestate": ["x"]}])
async def test_a_call_of_an_mcp_client_is_part_of_its_trace(spans: Spans, meta: Any) -> None:
    async with mcp_served(tracing=spans.tracing) as (client, _):
        found = await client.call_tool("doing-now", {"question": "it"}, meta=meta)
        assert not found.is_error
        (begun,) = spans.named("start doing-now")
        assert (ids(begun) == (TRACE, SPAN)) is (meta is CALLER)
