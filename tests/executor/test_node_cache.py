"""Results of nodes with `cache=` stand for later steps that read the same."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest

from orchestrator import (
    Context,
    Executor,
    Graph,
    MemoryOptions,
    Outcome,
    Retry,
    Run,
    Toolbox,
    ToolResult,
    Update,
    node,
    tool,
)
from orchestrator.errors import GraphError, InvalidGraph, StoreUnavailable
from orchestrator.graph import Node
from orchestrator.nodes import Ask, Complete, Confirm, Sleep, Subgraph, Wait
from orchestrator.redaction import know
from orchestrator.stores.items import Area, Item
from orchestrator.stores.memory import MemoryStore
from orchestrator.testing import ScriptedModel, assert_crash_safe
from orchestrator.views.reader import read
from orchestrator.views.step_tree import StepTree
from tests.support.executors import Log, chain, single
from tests.support.programs import run as run_program

pytestmark = pytest.mark.anyio

made: list[str] = []
"""What steps really did."""
sample_prompts = ModuleType("sample_prompts")
sample_prompts.GREETING = "Hello"  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    made.clear()


class Replying(Log):
    """With the field of a reply."""

    reply: str = ""


@node(cache=3600)
async def search(state: Log) -> Update:
    """Do something that takes long."""
    made.append(state.question)
    return {"answer": f"about {state.question}", "log": "searched"}


SEARCH: Graph = Graph(
    name="search", state=Log, input="question", output="answer", nodes={"search": search},
    edges="START -> search -> END",
)  # fmt: skip


async def hits(executor: Executor, run: Run) -> list[str]:
    """The nodes whose results came from the cache."""
    return [point.node for point in await executor.history(run.run_id) if point.cached]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("effect", ["idempotent", "pure"])
async def test_a_step_that_reads_the_same_has_the_result_of_the_one_before(
    kind: str, effect: Any, tmp_path: Path
) -> None:
    graph = Graph(
        name="search", state=Log, input="question", output="answer",
        nodes={"search": search.with_(effect=effect)}, edges="START -> search -> END",
    )  # fmt: skip
    store = "memory://" if kind == "memory" else f"sqlite:///{tmp_path}/runs.db"
    async with Executor(store, graphs=[graph]) as executor:
        runs = [await executor.start(graph, question) for question in ("tea", "tea", "nuts", "tea")]
        assert [run.output for run in runs] == ["about tea", "about tea", "about nuts", "about tea"]
        assert [run.values["log"] for run in runs] == [["searched"]] * 4
        assert made == ["tea", "nuts"]
        assert [await hits(executor, run) for run in runs] == [[], ["search"], [], ["search"]]
        kept = await executor.cache.list()
        assert [(one.graph, one.node) for one in kept] == [("search", "search")] * 2
        assert (await executor.cache.list("search", "search", after=kept[0])) == kept[1:]
        assert (await executor.cache.usage()).items == 2
        assert await executor.cache.list("search", "other") == []
        assert await executor.cache.clear("search", "other") == 0
        assert await executor.cache.clear("search") == 2
        await executor.start(graph, "tea")
        assert made == ["tea", "nuts", "tea"]
        assert (await executor.check()).ok
        with pytest.raises(ValueError, match="name its graph"):
            await executor.cache.list(node="x")


async def test_results_expire_and_are_pruned() -> None:
    graph = single(search.fn, cache=1e-9)
    async with Executor(graphs=[graph, SEARCH]) as executor:
        for _ in range(2):
            await executor.start(graph, "tea")
        assert made == ["tea", "tea"]
        await executor.start(SEARCH, "tea")
        await executor.start(graph, "tea")
        assert (await executor.prune(keep=100)).items == 1
        assert [one.graph for one in await executor.cache.list()] == ["search"]
        assert await executor.cache.prune(older_than=timedelta(days=1)) == 0
        assert await executor.cache.prune(older_than=timedelta(0)) == 1
        with pytest.raises(ValueError, match="age"):
            await executor.cache.prune(older_than=timedelta(-1))


def made_of(text: str) -> Callable[..., Any]:
    async def work(state: Log) -> Update:
        made.append(text)
        return {"log": text}

    return work


PROMPT: object = "Say"
calls = 0


@node(cache=60)
async def prompted(state: Log) -> Update:
    global calls
    calls += 1
    made.append("prompted")
    return {"answer": ", ".join(f"{sample_prompts.GREETING} {one}" for one in [PROMPT])}


async def test_constants_of_modules_that_a_node_reads_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, here = single(prompted.fn, cache=60), sys.modules[__name__]
    async with Executor(graphs=[graph]) as executor:
        for prompt in ("Say", "Write", ("Say", 1), frozenset({"a", "b"})):
            monkeypatch.setattr(here, "PROMPT", prompt)
            await executor.start(graph, "tea")
            await executor.start(graph, "tea")  # what it counts itself is no constant
        assert len(made) == 4
        monkeypatch.setattr(sample_prompts, "GREETING", "Good day")
        await executor.start(graph, "tea")
        assert len(made) == 5
        monkeypatch.setattr(here, "PROMPT", [*"no constant"])
        await executor.start(graph, "tea")
        monkeypatch.setattr(here, "PROMPT", [])
        await executor.start(graph, "tea")
        assert len(made) == 6


async def work_one(state: Log) -> Update:
    made.append("one")
    return {"log": "x"}


async def work_two(state: Log) -> Update:
    made.append("two")
    return {"log": "x"}


async def test_the_key_is_of_what_is_read_and_of_the_nodes_own_content() -> None:
    class Wider(Log):
        more: int = 0

    variants: list[tuple[Graph, dict[str, Any]]] = [
        (single(work_one, cache=60), {"question": "a"}),
        (single(work_two, cache=60), {"question": "a"}),
        (single(made_of("x"), cache=60), {"question": "a"}),
        (single(made_of("y"), cache=60), {"question": "a"}),
        (single(work_one, cache=60, version="2"), {"question": "a"}),
        (single(work_one, cache=60), {"question": "b"}),
        (single(work_one, cache=60, reads={"question"}, takes=None), {"question": "a", "n": 1}),
    ]
    async with Executor() as executor:
        for graph, given in variants:
            before = len(made)
            for _ in range(2):
                assert (await executor.start(graph, given)).status == "completed"
            assert len(made) == before + 1, (graph, given)
        # Neither a field that is not read nor settings of when and how often a step runs change its result.
        again = single(work_one, cache=9, reads={"question"}, takes=None, retry=Retry(attempts=3), timeout=5)
        before = len(made)
        run = await executor.start(again, {"question": "a", "n": 2})
        assert (await hits(executor, run), len(made)) == (["work"], before)
        wider = Graph(
            name="single", state=Wider, nodes={"work": node(cache=60)(work_one)}, edges="START -> work -> END"
        )
        assert not await hits(executor, await executor.start(wider, {"question": "a"}))


async def test_items_of_maps_outcomes_and_failures_are_parts_of_it() -> None:
    @node(cache=60, outcomes=("odd", "even"), reads={"question"})
    async def judge(item: int) -> Outcome[Any]:
        made.append(str(item))
        return Outcome("odd" if item % 2 else "even", {"log": f"{item}"})

    graph = Graph(
        name="each", state=Log, output="log", nodes={"plan": chain(made_of("plan")).nodes["n0"], "judge": judge,
        "join": node(join="all")(made_of("join"))},
        edges="START -> plan\nplan -> judge : each items\njudge -> join : odd\njudge -> join : even\njoin -> END",
    )  # fmt: skip
    async with Executor() as executor:
        for _ in range(2):
            run = await executor.start(graph, {"items": [1, 2, 3]})
            assert run.output == ["plan", "1", "2", "3", "join"], run.error
        assert sorted(made) == ["1", "2", "3", "join", "join", "plan", "plan"]


async def test_models_and_tools_are_parts_of_it() -> None:
    graph = Graph(
        name="told", state=Replying, input="question", nodes={"ask": Complete(prompt="{question}", cache=60)},
        edges="START -> ask -> END",
    )  # fmt: skip
    store = MemoryStore()
    replies = [ScriptedModel(["one"], name="a"), ScriptedModel([], name="a"), ScriptedModel(["two"], name="b")]
    answers = []
    for model in replies:
        async with Executor(store, model=model) as executor:
            answers.append((await executor.start(graph, "?")).values["reply"])
        model.assert_done()
    assert answers == ["one", "one", "two"]


async def test_what_depends_on_the_run_is_not_kept() -> None:
    @tool(effect="irreversible", risk="none")
    def pay() -> str:
        """Pay."""
        return "paid"

    @tool(effect="read", risk="none")
    def fails() -> ToolResult:
        """Fail."""
        return ToolResult(error="no", exit_code=1)

    async def run_id(state: Log, ctx: Context) -> Update:
        return {"log": f"{bool(ctx.run_id)}"}

    async def labels(state: Log, ctx: Context) -> Update:
        return {"log": f"{len(ctx.labels)}"}

    async def of_context(state: Log, ctx: Context) -> Update:
        return {"log": f"{ctx.context}"}

    async def memory(state: Log, ctx: Context) -> Update:
        return {"log": f"{await ctx.memory.get(('a',), 'k')}"}

    async def pays(state: Log, ctx: Context) -> Update:
        return {"log": str((await ctx.tool("pay")).output)}

    async def calls(state: Log, ctx: Context) -> Update:
        return {"log": str((await ctx.tool("fails")).error)}

    async def sleeps(state: Log, ctx: Context) -> Update:
        await ctx.sleep(0)
        return {"log": "slept"}

    async with Executor(tools=Toolbox(pay, fails)) as executor:
        for work in (run_id, labels, of_context, memory, pays, calls, sleeps):
            graph = single(work, cache=60)
            for _ in range(2):
                run = await executor.start(graph, "?", approve="dangerous")
                assert run.status == "completed", (work, run.error)
                assert not await hits(executor, run), work
        assert await executor.cache.list() == []


async def test_failures_and_secrets_are_not_kept() -> None:
    secret = "a-known-secret-of-the-cache-77"
    know(secret)

    async def tells(state: Log) -> Update:
        return {"log": secret}

    async def fails(state: Log) -> Update:
        made.append("tried")
        if len(made) < 3:
            raise ValueError("not yet")
        return {"log": "ok"}

    async with Executor() as executor:
        await executor.start(single(tells, cache=60), "?")
        assert await executor.cache.list() == []
        graph = single(fails, cache=60)
        statuses = [(await executor.start(graph, "?")).status for _ in range(4)]
        assert statuses == ["failed", "failed", "completed", "completed"]
        assert len(made) == 3


async def test_a_hit_is_journaled_and_replays_and_forks_reuse_it() -> None:
    graph = chain(search.fn, work_one, name="two")
    graph = Graph(
        name="two", state=Log, input="question", nodes={"search": search, "last": node(work_one)},
        edges="START -> search -> last -> END",
    )  # fmt: skip
    async with Executor(graphs=[graph]) as executor:
        first = await executor.start(graph, "tea")
        second = await executor.start(graph, "tea")
        assert made == ["tea", "one", "one"]
        await executor.cache.clear()
        for run, cached in ((first, False), (second, True)):
            replay = await executor.replay(run.run_id)
            assert (replay.same, replay.diverged_at) == (True, None)
            assert await hits(executor, replay.run) == (["search"] if cached else [])
        assert (await executor.cache.usage()).items == 0, "replays write nothing"
        landed = [e.seq async for e in executor.events(second.run_id) if e.type == "step_done"]
        made.clear()
        fork = await executor.fork(second.run_id, at=landed[0])
        assert fork.status == "completed"
        assert made == ["one"]
        again = await executor.fork(second.run_id, at=1)
        assert again.status == "completed"
        assert made == ["one", "tea", "one"], "a fork of the beginning looks into the cache as any run does"


async def test_a_replay_in_another_version_diverges_nowhere_because_of_the_cache() -> None:
    def graph_of(work: Callable[..., Any]) -> Graph:
        return Graph(
            name="one", state=Log, input="question", nodes={"work": node(cache=60)(work)}, edges="START -> work -> END"
        )

    async with Executor(graphs=[graph_of(work_one)]) as executor:
        run = await executor.start(graph_of(work_one), "tea")
        replay = await executor.replay(run.run_id, graph=graph_of(work_two))
        assert replay.diverged_at is None
        assert made == ["one", "two"]


DYING = """
import os, signal, sys
import anyio
from orchestrator import Executor
from orchestrator.stores.sqlite import SQLiteStore
from tests.executor.test_node_cache import SEARCH

class Dying(SQLiteStore):
    async def put_item(self, *args, **more):
        await super().put_item(*args, **more)
        os.kill(os.getpid(), signal.SIGKILL)

async def begin():
    async with Executor(Dying(sys.argv[1]), graphs=[SEARCH]) as executor:
        await executor.start(SEARCH, "tea", run_id="r")

anyio.run(begin, backend=sys.argv[2])
"""


async def test_a_process_killed_after_it_kept_a_result_goes_on_with_its_own(
    tmp_path: Path, anyio_backend_name: str
) -> None:
    path = tmp_path / "runs.db"
    ended = run_program([DYING, path, anyio_backend_name])
    assert ended.code == -signal.SIGKILL, ended
    async with Executor(f"sqlite:///{path}", graphs=[SEARCH]) as executor:
        run = await executor.resume("r")
        assert (run.output, await hits(executor, run)) == ("about tea", [])
        assert await hits(executor, await executor.start(SEARCH, "tea"))
        assert (await executor.check()).ok


async def test_cached_steps_survive_a_stop_at_every_write() -> None:
    graph = Graph(
        name="twice", state=Log, input="question", output="log", nodes={"a": search, "b": search},
        edges="START -> a -> b -> END",
    )  # fmt: skip
    assert (await assert_crash_safe(graph, "tea")).stops > 4


async def test_concurrent_misses_compute_twice_and_leave_one_result() -> None:
    gate = anyio.Event()
    began = []

    @node(cache=60)
    async def slow(state: Log) -> Update:
        began.append(1)
        if len(began) == 2:
            gate.set()
        await gate.wait()
        return {"log": "slow"}

    # The event is not a part of any key: the version stands for the code.
    graph = single(slow.fn, cache=60, version="1")
    async with Executor(graphs=[graph]) as executor, anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(executor.start, graph, "?")
        await gate.wait()
    assert len(began) == 2


async def test_the_cache_has_a_size_and_a_store_that_fails_interrupts_the_run() -> None:
    class Failing(MemoryStore):
        works = False

        async def item(self, area: Area, namespace: tuple[str, ...], key: str) -> Item | None:
            if not self.works:
                raise StoreUnavailable("the store is busy")
            return await super().item(area, namespace, key)

    store = Failing()
    async with Executor(store, graphs=[SEARCH], memory=MemoryOptions(max_cache=300)) as executor:
        with pytest.raises(StoreUnavailable):
            await executor.start(SEARCH, "tea", run_id="r")
        store.works = True
        assert (await executor.resume("r")).status == "completed"
        for number in range(5):
            await executor.start(SEARCH, f"question {number}")
        usage = await executor.cache.usage()
        assert 0 < usage.bytes <= 300
        assert await hits(executor, await executor.start(SEARCH, "question 4"))
        for _ in range(2):
            assert not await hits(executor, await executor.start(SEARCH, "x" * 400))


class Custom(Node, kind="custom_cached"):
    """A kind of the user's."""

    text: str = "a"

    async def run(self, state: Any, ctx: Any) -> object:
        made.append(self.text)
        return {"log": self.text}


async def test_kinds_of_ones_own_are_cached_by_their_fields() -> None:
    def graph_of(text: str) -> Graph:
        return Graph(name="c", state=Log, nodes={"c": Custom(text=text, cache=60)}, edges="START -> c -> END")

    async with Executor() as executor:
        for text in ("a", "a", "b", "b"):
            await executor.start(graph_of(text), {"question": "?"})
    assert made == ["a", "b"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (node(cache=60, effect="irreversible")(work_one), "w has cache=60, and is irreversible"),
        (Ask(prompt="?", cache=60), "asks a person"),
        (Confirm(cache=60), "asks a person"),
        (Sleep(seconds=1, cache=60), "only waits"),
        (Wait(event="e", cache=60), "only waits"),
        (Subgraph(graph=SEARCH, cache=60), "runs a graph: set cache= on nodes inside it instead"),
    ],
)
def test_nodes_whose_steps_cannot_be_left_out_are_refused(wrong: Node, said: str) -> None:
    ways = "\n".join(f"w -> END : {outcome}" for outcome in wrong.outcomes)
    with pytest.raises(InvalidGraph, match=said):
        Graph(name="g", state=Log, nodes={"w": wrong}, edges=f"START -> w\n{ways}")


def test_code_that_depends_on_an_object_without_a_json_form_needs_a_version() -> None:
    client = object()

    async def work(state: Log) -> Update:
        return {"log": str(client)}

    with pytest.raises(InvalidGraph, match=r"its code depends on 'client', of type object, which no key can contain"):
        single(work, cache=60)
    assert single(work, cache=60, version="1").nodes["work"].cache == 60


def test_a_graph_file_says_for_how_long_results_are_kept(tmp_path: Path) -> None:
    def graph_of(cache: float | None) -> Graph:
        nodes: dict[str, Any] = {"search": search.with_(cache=cache), "ask": Complete(prompt="{question}", cache=cache)}
        return Graph(name="file", state=Replying, input="question", nodes=nodes, edges="START -> search -> ask -> END")

    path = tmp_path / "graph.yaml"
    graph = graph_of(7200)
    graph.save(path)
    assert path.read_text().count("cache: 7200") == 2
    loaded = Graph.load(path, trust=["tests.executor.test_node_cache"])
    assert [one.cache for one in loaded.nodes.values()] == [7200, 7200]
    assert loaded.content == graph.content
    other = graph_of(None)
    assert (other.structure == graph.structure, other.content == graph.content) == (True, False)
    path.write_text(path.read_text().replace("cache: 7200", "cache: -1"))
    with pytest.raises(GraphError, match="cache"):
        Graph.load(path, trust=["tests.executor.test_node_cache"])


async def test_views_say_what_came_from_the_cache() -> None:
    async with Executor(graphs=[SEARCH]) as executor:
        await executor.start(SEARCH, "tea")
        run = await executor.start(SEARCH, "tea")
        (point,) = await executor.history(run.run_id)
        assert point.to_json()["cached"] is True
        tree = StepTree()
        read(run.machine.plan, run.records(), tree)
        (step,) = tree.top.steps
        assert step.cached


@pytest.mark.parametrize("seconds", ["60", float("inf"), 1e300, 10**30, 0, True])
def test_a_lifetime_that_is_no_number_of_seconds_up_to_100_years_is_refused(seconds: Any) -> None:
    with pytest.raises(ValueError, match="cache"):
        Complete(prompt="x", result="found", cache=seconds)
    assert Complete(prompt="x", result="found", cache=60).cache == 60
