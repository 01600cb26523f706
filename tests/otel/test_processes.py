"""Runs that go on in other processes, as one trace; and collectors that hang or refuse."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator import Executor, Run
from orchestrator.executor import run_sync
from tests.otel.collector import collecting
from tests.otel.orders import PLACE, orders
from tests.support.programs import PATIENCE, Piped
from tests.support.wire import Raw, said, served


def until(condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Wait until a condition holds, at most as long as a process may take, in seconds."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def environment(endpoint: str, model: str) -> Mapping[str, str]:
    """The environment of a command whose runs are traced."""
    return {
        **os.environ, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100",
        "OPENAI_BASE_URL": model, "OPENAI_API_KEY": "k",
    }  # fmt: skip


@contextmanager
def working(store: str, env: Mapping[str, str]) -> Iterator[Piped]:
    """A worker of the example, as a process."""
    worker = Piped(["worker", "--app", "orders.py:app", "--store", store], cwd=PLACE, env=env)
    try:
        yield worker
    finally:
        worker.close()


def loaded(store: str) -> Run:
    """The run of the example, as its store has it."""

    async def load() -> Run:
        async with Executor(store, graphs=[orders().order]) as looking:
            return await looking.load("order-1")

    return run_sync(load)


def over_processes(endpoint: str, place: Path, exported: Callable[[], bool]) -> str:
    """Run the example: enqueued by one process, paused in a second that is killed, answered by a third, ended by a
    fourth.

    Args:
        endpoint: where the processes send their spans.
        place: a directory for the store.
        exported: whether the spans of the second process have arrived.

    Returns:
        The id of the trace that the run's labels name.
    """
    store = f"sqlite:///{place}/runs.db"
    with served(lambda seen: said("Good.", usage={"prompt_tokens": 1200, "completion_tokens": 300})) as wire:
        env = environment(endpoint, wire.url)

        def command(*words: str) -> None:
            done = Piped([*words, "--store", store], cwd=PLACE, env=env)
            text = done.read()
            assert done.wait() == 0, text

        command("enqueue", "orders.py:order", "tea, bread", "--run-id", "order-1", "--tools",
                f"mcp:{sys.executable} stock.py")  # fmt: skip
        with working(store, env) as worker:
            until(exported)
            (question,) = loaded(store).waiting
            worker.signal(signal.SIGKILL)
            worker.wait()
        command("approve", "order-1", "--question", question.id, "--no-resume")
        with working(store, env) as worker:
            until(lambda: loaded(store).status == "completed")
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0
        return loaded(store).labels["traceparent"].split("-")[1]


def test_a_run_that_is_killed_while_it_waits_and_ends_in_another_process_is_one_trace(tmp_path: Path) -> None:
    with collecting() as collector:
        workflow = "invoke_workflow order"
        trace = over_processes(f"{collector.url}/v1/traces", tmp_path, lambda: bool(collector.named(workflow)))
    spans = [span for span in collector.spans if span.name.split()[0] not in ("MCP",)]
    assert {span.trace_id.hex() for span in spans} == {trace}
    first, second = collector.named(workflow)
    (enqueued,) = collector.named("enqueue order")
    assert first.parent_span_id == second.parent_span_id == enqueued.span_id
    assert [link.span_id for link in second.links] == [enqueued.span_id]
    assert len(collector.named("chat gpt-4o-mini")) == 2
    calls = [span for span in collector.spans if span.name == "MCP send tools/call in_stock"]
    assert {span.trace_id.hex() for span in calls} == {trace}


def test_a_process_that_is_killed_in_a_call_leaves_the_trace_to_the_next_one(tmp_path: Path) -> None:
    store, hangs = f"sqlite:///{tmp_path}/runs.db", [True]
    with collecting() as collector, served(lambda _: Raw(hangs=True) if hangs else said("Good.")) as wire:
        env = environment(f"{collector.url}/v1/traces", wire.url)
        words = ["enqueue", "orders.py:order", "tea", "--run-id", "order-1", "--store", store]
        added = Piped([*words, "--tools", f"mcp:{sys.executable} stock.py"], cwd=PLACE, env=env)
        added.read()
        assert added.wait() == 0
        with working(store, env) as worker:
            until(lambda: bool(wire.seen) and bool(collector.named("step look_up")))
            worker.signal(signal.SIGKILL)
            worker.wait()
        hangs.clear()
        with working(store, env):
            until(lambda: bool(collector.named("invoke_workflow order")))
    (enqueued,) = collector.named("enqueue order")
    (drive,) = collector.named("invoke_workflow order")  # that of the killed process is lost with it
    assert drive.parent_span_id == drive.links[0].span_id == enqueued.span_id
    assert [event.name for event in drive.events] == ["resumed", "paused", "checkpointed"]
    steps = [*collector.named("step look_up"), *collector.named("chat gpt-4o-mini")]
    assert {span.trace_id for span in steps} == {enqueued.trace_id}


def ran(env: Mapping[str, str], place: Path) -> str:
    """The output of a command that runs a graph with these variables."""
    words = ["run", "tool_user", "What is 20+(2*4)?", "--approve", "dangerous", "--store", f"sqlite:///{place}/runs.db"]
    run = Piped([*words, "--model", "offline", "--tools", "arithmetic"], env=env)
    out, err = run.read()
    assert run.wait() == 0, err
    return out + err


@pytest.mark.parametrize("how", ["hangs", "refuses"])
def test_a_collector_that_hangs_or_refuses_leaves_runs_unhurt(how: str, tmp_path: Path) -> None:
    with collecting(how) as collector:  # type: ignore[arg-type]
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "10"}
        assert "28" in ran({**os.environ, **variables}, tmp_path)
        assert collector.asked.is_set()


def test_a_collector_that_is_not_there_leaves_runs_unhurt(tmp_path: Path) -> None:
    with collecting() as gone:
        url = gone.url
    assert "28" in ran({**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": url}, tmp_path)


def test_a_command_exports_its_last_spans(tmp_path: Path) -> None:
    with collecting() as collector:
        ran({**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}, tmp_path)
    assert len(collector.named("start tool_user")) == 1
    assert len(collector.named("invoke_workflow tool_user")) == 1


@pytest.mark.parametrize("off", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}], ids=str)
def test_traces_are_turned_off_by_the_standard_variables(off: Mapping[str, str], tmp_path: Path) -> None:
    with collecting() as collector:
        ran({**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **off}, tmp_path)
    assert not collector.asked.is_set()


def test_an_sdk_that_cannot_be_set_up_is_a_line_and_no_error(tmp_path: Path) -> None:
    said = ran({**os.environ, "OTEL_TRACES_EXPORTER": "no-such-exporter"}, tmp_path)
    assert "runs are not traced" in said


def test_the_first_program_of_the_page_gives_a_trace(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "traces.md").read_text(encoding="utf-8")
    code = page.partition("```python\n")[2].partition("```")[0]
    assert len([line for line in code.splitlines() if line]) < 20
    with collecting() as collector, served(lambda _: said("4 times 3 is 12. Answer: 12")) as wire:
        program = tmp_path / "program.py"
        program.write_text(code.replace("http://127.0.0.1:6006", collector.url), encoding="utf-8")
        env = {**os.environ, "OPENAI_BASE_URL": wire.url, "OPENAI_API_KEY": "none"}
        done = subprocess.run([sys.executable, program], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "12\n"), done.stderr
    assert len(collector.named("invoke_workflow plan_and_solve_prompt")) == 1
    assert collector.named("chat gpt-5-mini")
