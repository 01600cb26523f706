"""One batch of runs comes to the same on one machine, with workers of a store, and with deliveries by an engine."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from orchestrator import Approve, Executor, Run
from orchestrator.engines import engine_at
from orchestrator.errors import RunError
from orchestrator.kernel.status import FINAL
from tests.engines.batch_program import app
from tests.engines.crew import Server
from tests.frozen.blanking import line_of
from tests.support.postgres import PostgresServer
from tests.support.programs import Piped, run
from tests.support.sizes import quick_on, sized

pytestmark = pytest.mark.peer

COUNT = sized(12, 200)
"""Runs of all graphs together."""
_APP = "tests.engines.batch_program"
_MESSAGE = re.compile(r'"message":\d+,')
"""An answer came as a message to the process that drove the run just then."""
_SECONDS = re.compile(r" #183; \d+(?:#46;\d+)? m?s\b")


def batch() -> dict[str, tuple[str, str]]:
    """Run -> its graph and question."""
    graphs = [one.name for one in app.graphs]
    return {f"r{n}": (graphs[n % len(graphs)], f"What is {n}+({n % 7}*{n % 5 + 2})?") for n in range(COUNT)}


def result_of(run: Run) -> tuple[object, ...]:
    """What must be the same: output, state, what was recorded, and the drawing. Without times, and by whom and how."""
    lines = [line_of(record).split(maxsplit=1)[1] for record in run.records() if record.type != "resumed"]
    transcript = sorted(_MESSAGE.sub("", line) for line in lines)
    return run.status, run.output, run.values, transcript, _SECONDS.sub("", run.to_mermaid())


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Executor]:
    """An executor that hands runs out, and reads what became of them."""
    async with app.executor(url) as executor:
        yield executor


@contextmanager
def workers(*options: object) -> Iterator[None]:
    """Two worker processes."""
    with ExitStack() as stack:
        for _ in range(2):
            begun = Piped(("worker", "--app", f"{_APP}:app", *options), loads=[_APP])
            stack.enter_context(closing(begun))
            begun.read_no_further(err=False)
            while "--engine" in options and "are registered" not in begun.line(err=True):
                pass
            begun.read_no_further(err=True)
        yield


async def on_one_machine(url: str) -> dict[str, tuple[object, ...]]:
    """Each run is driven here."""
    found = {}
    async with opened(url) as executor:
        for run_id, (graph, question) in batch().items():
            one = await executor.start(graph, question, run_id=run_id)
            while one.status == "paused":
                one = await executor.answer(run_id, one.waiting[0].id, Approve(), by="somebody")
            found[run_id] = result_of(one)
    return found


async def with_workers(url: str, engine_url: str | None) -> dict[str, tuple[object, ...]]:
    """Each run is enqueued, and submitted if there is an engine; so is each answer."""
    engine = None if engine_url is None else engine_at(engine_url)
    async with opened(url) as executor:
        for run_id, (graph, question) in batch().items():
            await executor.enqueue(graph, question, run_id=run_id)
            if engine is not None:
                await engine.submit(run_id)
        left = set(batch())
        with anyio.fail_after(sized(60, 600)):
            while left:
                heads = await executor.store.heads(left)
                left = {one for one in left if heads[one][1] not in FINAL}
                for info in (await executor.runs(waiting=True, limit=1000)).runs:
                    for question in (await executor.load(info.run_id)).waiting:
                        try:
                            await executor.answer(info.run_id, question.id, Approve(), resume=False, by="somebody")
                        except RunError:
                            continue  # its last answer is being acted on
                        if engine is not None:
                            await engine.submit(info.run_id)
                await anyio.sleep(0.05)
        if engine is not None:
            await engine.aclose()
        return {run_id: result_of(await executor.load(run_id)) for run_id in batch()}


@pytest.mark.anyio
@quick_on("asyncio")
async def test_a_batch_comes_to_the_same_everywhere(
    server: Server, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    alone = await on_one_machine(f"sqlite:///{tmp_path}/runs.db")
    assert {result[0] for result in alone.values()} == {"completed"}
    assert all(result[1] for result in alone.values())
    for name, options in (("workers", ()), ("engine", ("--engine", server.url))):
        database = f"batch_{name}_{uuid4().hex[:8]}"
        postgres_server.create_database(database)
        url = postgres_server.url(database)
        with workers("--store", url, *options):
            found = await with_workers(url, server.url if options else None)
        for run_id, result in found.items():
            assert result == alone[run_id], f"{run_id} with {name}"
        postgres_server.drop_database(database)


def test_commands_submit_answer_and_cancel_by_the_engine(server: Server, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"

    def command(*words: object, engine: str = server.url) -> str:
        done = run((*words, "--store", store, "--engine", engine), module="orchestrator", loads=[_APP])
        assert done.code == 0, done.err
        if engine == server.url:
            assert "not submitted" not in done.err
        return done.out + done.err

    def status(run_id: str) -> str:
        done = run(("show", run_id, "--json", "--store", store), module="orchestrator")
        return str(re.search(r'"status": "(\w+)"', done.out)[1])  # type: ignore[index]

    def until(run_id: str, wanted: str) -> None:
        for _ in range(300):
            if status(run_id) == wanted:
                return
        raise AssertionError(f"{run_id} is {status(run_id)}, and not {wanted}")

    with workers("--store", store, "--engine", server.url):
        command("enqueue", "tool_user", "What is 2+3?", "--run-id", "r")
        until("r", "paused")
        assert run(("show", "r", "--store", store), module="orchestrator").code == 0
        command("approve", "r", "--no-resume")
        until("r", "completed")
        command("enqueue", "tool_user", "What is 2+3?", "--run-id", "later", "--at", "2099-01-01")
        command("cancel", "later")
        assert status("later") == "cancelled"
    lost = command("enqueue", "tool_user", "What is 2+3?", "--run-id", "lost", engine="restate://127.0.0.1:1")
    assert "lost is in the store, and a worker will find it; it was not submitted" in lost
    with workers("--store", store, "--engine", server.url):
        until("lost", "paused")
