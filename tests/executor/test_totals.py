"""What rows say that runs spent is what their journals say: in forks, retries, cancellations, replays, after kills."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest
from pydantic_core import from_json, to_json

from orchestrator import Approve, Context, Executor, OfflineModel, Retry, Update, node, tool
from orchestrator.errors import InvalidValue, OrchestratorError, StoreError, ToolError
from orchestrator.executor.journal import questions_of, totals_of
from orchestrator.kernel.fold import apply
from orchestrator.kernel.records import EffectIntended, EffectSettled, Forked, Record, StepDone, StepFailed
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.snapshot import dump, load
from orchestrator.nodes import Ask
from orchestrator.stores.copying import copy_store
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.requests import Append, RunQuery, StatsQuery
from orchestrator.stores.rows import RunTotals
from orchestrator.stores.sqlite import SQLiteStore
from orchestrator.stores.statistics import percentile
from tests.executor.test_deleting import family
from tests.executor.test_forks_everywhere import TOOLS, to_the_end
from tests.frozen.strategies import MAKERS, SUM, bye
from tests.support.executors import chain, says, single
from tests.support.programs import run as run_program
from tests.support.sizes import quick_on, sized
from tests.testing.acting import KINDS, drawn_graph, said
from tests.testing.acting import tools as acting_tools
from tests.testing.shop import Echo

pytestmark = pytest.mark.anyio
BY: tuple[tuple[str, ...], ...] = ((), ("day", "graph"), ("model",), ("tool",), ("node",), ("graph", "node", "model"))


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"


def sums(totals: RunTotals) -> dict[str, object]:
    kinds = {kind: totals.calls(kind) for kind in ("model", "tool", "effect", "step")}
    tokens = [sum(getattr(row, name) for row in totals.rows) for name in ("input_tokens", "output_tokens")]
    failed = Counter(row.name for row in totals.rows for _ in range(row.failed) if row.kind == "tool")
    return {**kinds, "tokens": tokens, "failed": dict(failed)}


def told(records: Sequence[Record]) -> dict[str, object]:
    """The same, read off a journal: what comes after its last fork."""
    forks = [number for number, record in enumerate(records) if isinstance(record, Forked)]
    own = records[forks[-1] + 1 if forks else 0 :]
    calls: dict[str, EffectIntended] = {}
    failed: dict[str, bool] = {}
    kinds = {"model": 0, "tool": 0, "effect": 0, "step": 0}
    tokens = [0, 0]
    for record in own:
        if isinstance(record, EffectIntended) and record.taken is None:
            kinds[record.kind] += record.key not in calls
            calls[record.key] = record
        elif isinstance(record, EffectSettled) and record.key in calls:
            if record.usage is not None:
                tokens = [tokens[0] + record.usage.input_tokens, tokens[1] + record.usage.output_tokens]
            if record.next_at is None and (
                record.error is None or record.error.type not in ("Cancelled", "NotMade", "Suspended")
            ):
                result = record.result if isinstance(record.result, dict) else {}
                failed[record.key] = not record.ok or bool(result.get("error") or result.get("exit_code"))
        elif isinstance(record, StepDone | StepFailed):
            kinds["step"] += 1
    bad = Counter(calls[key].name for key, one in failed.items() if one and calls[key].kind == "tool")
    return {**kinds, "tokens": tokens, "failed": dict(bad)}


async def all_exact(executor: Executor) -> int:
    """Compare every run's totals and open questions with its journal, and with those of a fold from a snapshot."""
    store, count, cursor = executor.store, 0, None
    while True:
        page = await store.runs(RunQuery(after=cursor, limit=100))
        for info in page.runs:
            count += 1
            records = await store.read(info.run_id)
            machine = RunState(await executor._host.loader.plan_of(info, records))
            middle = random.Random(info.run_id).randrange(len(records))
            for number, record in enumerate(records):
                apply(machine, record)
                if number == middle and len(machine.lineage) == 1:
                    restored = load(machine.plan, from_json(to_json(dump(machine))))
                    assert totals_of(restored) == totals_of(machine)
                    assert questions_of(restored) == questions_of(machine)
                    restored.first, restored.later = machine.first, machine.later
                    machine = restored
            totals = await store.totals(info.run_id)
            assert totals == totals_of(machine), info.run_id
            assert await store.open_questions(info.run_id) == questions_of(machine)
            assert sums(totals) == told(records), info.run_id
            assert all(row.seconds >= 0 and row.failed <= row.calls for row in totals.rows)
        cursor = page.cursor
        if cursor is None:
            break
    other = MemoryStore()
    await copy_store(store, other)
    for by in BY:
        assert await other.stats(StatsQuery(by=by)) == await executor.stats(by)
    return count


async def lived_through(executor: Executor, graph: Any, values: Any, answer: Any, dice: random.Random) -> None:
    """A run, some forks and a replay of it, some of them cancelled or left waiting."""
    run, _ = await to_the_end(executor, await executor.start(graph, values, run_id="r"), answer)
    records = await executor.store.read("r")
    for _ in range(2):
        try:
            fork = await executor.fork("r", at=dice.randrange(1, len(records) + 1))
        except OrchestratorError:  # such as of a run that is over
            continue
        if dice.random() < 0.3 and fork.waiting:
            await executor.cancel(fork.run_id)
        elif dice.random() < 0.7:
            await to_the_end(executor, fork, answer)
    if run.status == "completed":
        await executor.replay("r")


@pytest.mark.full
@quick_on("asyncio")
@pytest.mark.parametrize("name", MAKERS)
async def test_totals_of_every_strategy_and_of_its_forks_and_replays_are_those_of_the_journals(
    name: str, tmp_path: Path
) -> None:
    graph = MAKERS[name]()
    url = "memory://" if [*MAKERS].index(name) % 2 else f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url, graphs=[graph], model=OfflineModel(), tools=TOOLS, concurrency=1) as executor:
        await lived_through(executor, graph, SUM, bye, random.Random(name))
        assert await all_exact(executor) >= 2


@pytest.mark.full
@quick_on("trio")
@pytest.mark.parametrize("seed", range(sized(2, 16)))
@pytest.mark.parametrize("kind", KINDS)
async def test_totals_of_generated_graphs_that_retry_and_fail_are_those_of_the_journals(
    kind: str, seed: int, tmp_path: Path
) -> None:
    found = drawn_graph(kind, seed, fails=0.1 if seed % 2 else 0.0)
    url = "memory://" if seed % 4 > 1 else f"sqlite:///{tmp_path}/runs.db"
    if found is None:
        return
    graph, values = found
    async with Executor(url, graphs=[graph], model=Echo(), tools=acting_tools(), concurrency=1) as executor:
        await lived_through(executor, graph, values, said, random.Random(seed))
        assert await all_exact(executor)


async def test_failed_calls_and_tries_are_told_by_tool_and_found(url: str) -> None:
    count = 0

    @tool(effect="idempotent", retry=Retry(attempts=2, wait=0, on=("ToolError",)))
    async def flaky(fails: int) -> str:
        """Fails some times."""
        nonlocal count
        count += 1
        if count <= fails:
            raise ToolError("not now")
        return "done"

    async def work(ctx: Context[Any]) -> Update:
        nonlocal count
        said: list[str] = []
        for fails in (0, 1, 2, 5):
            count = 0
            said.append((await ctx.tool("flaky", fails=fails)).error or "")
        return {"log": str(said)}

    graph = single(work)
    async with Executor(url, graphs=[graph], tools=[flaky]) as executor:
        await executor.start(graph, run_id="r")
        await executor.start(chain(says("a")), run_id="none")
        totals = await executor.store.totals("r")
        assert totals is not None
        (row,) = [row for row in totals.rows if row.kind == "tool"]
        assert (row.node, row.name, row.calls, row.failed) == ("work", "flaky", 4, 2)
        for name in ("flaky", "*", ""):
            assert [info.run_id for info in (await executor.runs(failed_tool=name)).runs] == ["r"]
        assert (await executor.runs(failed_tool="other")).runs == ()
        (stats,) = await executor.stats("tool")
        assert (stats.group, stats.tool_calls, stats.failed_tool_rate) == ({"tool": "flaky"}, 4, 0.5)
        assert await all_exact(executor) == 2


async def test_runs_of_graph_tools_and_what_a_fork_inherited_are_in_no_sum_twice(url: str) -> None:
    graph, tools = family()
    async with Executor(url, graphs=[graph], tools=tools) as executor:
        await executor.start(graph, "x", run_id="r")
        before = await executor.stats()
        assert (before[0].runs, before[0].tool_calls) == (5, 4)
        end = (await executor.store.info("r")).head
        fork = await executor.fork("r", at=end - 1)
        assert fork.status == "completed"
        after = await executor.stats()
        assert (after[0].runs, after[0].tool_calls) == (6, 4)
        assert await all_exact(executor) == 6


async def test_seconds_of_a_node_are_those_it_worked_and_not_those_it_waited(url: str) -> None:
    graph = chain(says("a"), Ask(prompt="Go on?", answer="question"), says("b"))
    async with Executor(url, graphs=[graph]) as executor:
        run = await executor.start(graph, run_id="r")
        waited = run.machine.asked[run.waiting[0].id]
        run = await executor.answer("r", run.waiting[0].id, "yes")
        totals = await executor.store.totals("r")
        assert totals is not None
        assert {row.node: row.calls for row in totals.rows} == {"n0": 1, "n1": 1, "n2": 1}
        assert sum(row.seconds for row in totals.rows) <= run.usage.seconds + 1e-6
        assert waited > 0
        assert await all_exact(executor) == 1


async def test_what_cannot_make_a_group_is_refused(url: str) -> None:
    async with Executor(url) as executor:
        assert await executor.stats() == []
        for by in ("hour", "label", "label:", "", ("model", "tool"), ("day", "day")):
            with pytest.raises(InvalidValue, match="by "):
                await executor.stats(by)


def test_percentiles_are_values_of_runs_by_the_nearest_rank() -> None:
    assert (percentile([], 50), percentile([3.0], 95)) == (None, 3.0)
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, part) for part in (1, 50, 95, 100)] == [1.0, 50.0, 95.0, 100.0]
    assert [percentile([1.0, 2.0, 3.0], part) for part in (50, 95)] == [2.0, 3.0]
    assert [percentile([1.0, 2.0], part) for part in (50, 51)] == [1.0, 2.0]


# ------------------------------------------------------------------------------------- questions


async def test_open_questions_of_all_runs_are_listed_the_oldest_first(url: str) -> None:
    async def sure(ctx: Context[Any]) -> Update:
        answers = [await ctx.ask("input", prompt=f"{number}?") for number in range(2)]
        return {"log": str(len(answers))}

    asks, twice = chain(says("a"), Ask(prompt="Go on?", answer="question")), single(sure, name="twice")
    async with Executor(url, graphs=[asks, twice]) as executor:
        for number in range(4):
            graph = (asks, twice)[number % 2]
            await executor.start(graph, run_id=f"r{number}", labels={"half": str(number // 2)})
        page = await executor.questions()
        assert [one.run_id for one in page.questions] == ["r0", "r1", "r2", "r3"]
        for one in page.questions:
            run = await executor.load(one.run_id)
            assert (one.question, one.graph, dict(one.labels)) == (run.waiting[0], run.machine.plan.name, run.labels)
            assert one.asked == (await executor.store.read(one.run_id))[-1].ts
        asked = [one.asked for one in page.questions]
        assert asked == sorted(asked)
        first = await executor.questions(limit=2)
        await executor.answer("r0", page.questions[0].question.id, "yes")
        await executor.answer("r1", page.questions[1].question.id, "yes")
        behind = await executor.questions(limit=9, after=first.cursor)
        assert [one.run_id for one in behind.questions] == ["r2", "r3", "r1"]
        assert [one.run_id for one in (await executor.questions(graph="twice")).questions] == ["r3", "r1"]
        assert [one.run_id for one in (await executor.questions(labels={"half": "1"})).questions] == ["r2", "r3"]
        assert (await executor.questions(kinds=["approval", "timer"])).questions == ()
        await executor.cancel("r3")
        assert [one.run_id for one in (await executor.questions(kinds="input")).questions] == ["r2", "r1"]
        with pytest.raises(InvalidValue, match="not a kind"):
            await executor.questions(kinds=["question"])
        with pytest.raises(StoreError):
            await executor.questions(after="1_2")
        assert await all_exact(executor) == 4


async def test_questions_and_totals_of_runs_of_earlier_versions_come_with_the_first_list_and_with_repair(
    tmp_path: Path,
) -> None:
    graph = chain(says("a"), Ask(prompt="Go on?", answer="question"))
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url, graphs=[graph]) as executor:
        for number in range(3):
            run = await executor.start(graph, run_id=f"r{number}")
        await executor.answer("r2", run.waiting[0].id, "yes")
    with closing(connect(tmp_path / "runs.db", isolation_level=None)) as file:
        for table in ("run_parts", "run_totals", "questions"):
            file.execute(f"DELETE FROM {table}")
        file.execute("INSERT INTO unlisted SELECT id FROM runs WHERE waiting > 0")  # as a migration does
    async with Executor(url, graphs=[graph]) as executor:
        (everything,) = await executor.stats()
        assert (everything.runs, everything.uncounted, everything.p50) == (3, 3, None)
        assert [row.group for row in await executor.stats("node")] == [{"node": None}]
        page = await executor.questions(limit=1)
        assert ([one.run_id for one in page.questions], page.cursor is not None) == (["r0"], True)
        assert [one.run_id for one in (await executor.questions(after=page.cursor)).questions] == ["r1"]
        (everything,) = await executor.stats()
        assert everything.uncounted == 1
        found = await executor.check()
        assert [(one.run_id, one.note) for one in found.findings] == [("r2", True)]
        assert (await executor.check(repair=True)).ok
        assert (await executor.check()).findings == []
        assert await all_exact(executor) == 3


# ----------------------------------------------------------------------------------------- kills

KILLED = """
import sys
import anyio
from tests.executor.test_totals import die_at

anyio.run(die_at, sys.argv[1], int(sys.argv[2]))
"""


@tool(effect="idempotent")
async def fetch(page: int) -> str:
    """Fetch a page."""
    if page % 3 == 2:
        raise ToolError("no such page")
    return f"page {page}"


@node
async def fetches(ctx: Context[Any]) -> Update:
    """Fetches pages."""
    return {"log": str([(await ctx.tool("fetch", page=page)).error for page in range(4)])}


async def die_at(url: str, head: int) -> None:
    """Start a run, in a process that is killed once this record is durable."""

    class Deadly(SQLiteStore):
        async def append(self, append: Append) -> int:
            reached = await super().append(append)
            if reached >= head:
                os.kill(os.getpid(), signal.SIGKILL)
            return reached

    async with Executor(Deadly(url.removeprefix("sqlite:///")), tools=[fetch]) as executor:
        await executor.start(chain(fetches, fetches, name="killed"), run_id="r")


@quick_on("asyncio")
@pytest.mark.parametrize("head", [5, 13])
async def test_totals_are_exact_after_a_process_was_killed_and_its_run_went_on(head: int, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    ended = run_program([KILLED, url, head])
    assert ended.code == -signal.SIGKILL, ended
    graph = chain(fetches, fetches, name="killed")
    async with Executor(url, graphs=[graph], tools=[fetch]) as executor:
        run = await executor.resume("r")
        while run.waiting:  # whether a call happened may not be known
            run = await executor.answer("r", run.waiting[0].id, Approve())
        assert run.status == "completed"
        assert await all_exact(executor) == 1
        totals = await executor.store.totals("r")
        assert totals is not None
        assert sum(row.failed for row in totals.rows if row.kind == "tool") == 2
