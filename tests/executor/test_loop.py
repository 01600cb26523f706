"""The loop: what runs when, in how many tasks and threads, and what ends it."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, cast

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest
from pydantic import BaseModel, model_validator

from orchestrator import Context, Executor, Graph, Limits, Outcome, Retry, Update, append, node, tool
from orchestrator.errors import ModelUnavailable
from orchestrator.nodes import Subgraph
from orchestrator.stores.memory import MemoryStore
from tests.support.executors import Log, chain, counting, says, single
from tests.support.sizes import quick_on

pytestmark = pytest.mark.anyio


def stores(tmp_path: Path) -> list[str]:
    return ["memory://", f"sqlite:///{tmp_path}/runs.db"]


async def test_a_chain_runs_in_order_and_gives_its_output(tmp_path: Path) -> None:
    for store in stores(tmp_path):
        run = await chain(says("a"), says("b"), says("c")).run("?", store=store)
        assert run.status == "completed"
        assert run.output == ["a", "b", "c"]
        assert run.steps == 3
        assert run.seq == 5  # run_started, three steps, ended: a step without effects is one record
        assert run.values["question"] == "?"
        assert run.state.log == ["a", "b", "c"]
        assert run.branches == []


async def test_a_linear_chain_never_leaves_its_task() -> None:
    tasks: set[int] = set()

    @node(effect="pure")
    async def work(state: Log) -> Update:
        tasks.add(anyio.get_current_task().id)
        return {"n": state.n + 1}

    run = await chain(*[work] * 20).run()
    assert run.values["n"] == 20
    assert len(tasks) == 1


async def test_sync_nodes_run_in_threads_and_pure_ones_inline() -> None:
    threads: dict[str, int] = {}

    def default(state: Log) -> Update:
        threads["default"] = threading.get_ident()
        return None

    def pure(state: Log) -> Update:
        threads["pure"] = threading.get_ident()
        return None

    await chain(node(default), node(effect="pure")(pure)).run()
    assert threads["pure"] == threading.get_ident() != threads["default"]


@quick_on("asyncio")
async def test_a_long_loop_of_pure_steps_lets_others_in() -> None:
    worst, turns, over = 0.0, 0, False

    async def tick() -> None:
        nonlocal worst, turns
        while not over:
            before = time.thread_time()  # what other threads and processes do meanwhile does not count
            await anyio.lowlevel.checkpoint()
            worst = max(worst, time.thread_time() - before)
            turns += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        await counting().run({"until": 3000})
        over = True
    assert turns > 10
    assert worst < 0.3  # it is some 0.02; all 3000 steps in one are more than this


async def test_a_sync_node_that_blocks_does_not_block_the_loop(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def blocks(state: Log) -> Update:
        begun.set()
        return {"log": "let go" if go_on.wait(60) else "the loop stood still"}

    async def lets_go() -> None:
        while not begun.is_set():  # noqa: ASYNC110  a thread sets no event of the loop
            await anyio.sleep(0.01)
        go_on.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lets_go)
        run = await single(blocks).run(store=f"sqlite:///{tmp_path}/runs.db")
    assert run.output == ["let go"]


async def test_what_a_node_does_to_its_state_and_item_stays_with_it() -> None:
    class Nested(BaseModel):
        things: list[dict[str, list[int]]] = [{"a": [1]}]
        seen: Annotated[list[int], append] = []

    @node(effect="pure")
    def spoil(state: Nested, item: dict[str, list[int]]) -> Update:
        state.things[0]["a"].append(2)
        item["a"].append(3)
        return {"seen": len(item["a"])}

    graph = Graph(
        name="spoil", state=Nested, nodes={"a": node(effect="pure")(lambda state: None), "spoil": spoil},
        edges="START -> a\na -> spoil : each things\nspoil -> END",
    )  # fmt: skip
    run = await graph.run()
    assert run.values == {"things": [{"a": [1]}], "seen": [2]}


# -- failures ----------------------------------------------------------------------------------------------------------


async def test_a_failed_attempt_is_made_again_and_leaves_no_trace_in_the_state() -> None:
    attempts: list[int] = []

    async def flaky(state: Log, ctx: Context) -> Update:
        attempts.append(ctx.attempt)
        state.log.append("never")
        if ctx.attempt < 3:
            raise ConnectionError("gone")
        return {"log": "here"}

    async with Executor() as executor:
        run = await executor.start(single(flaky, retry=Retry(wait=0.01)))
        records = [event async for event in executor.events(run.run_id)]
    assert attempts == [1, 2, 3]
    assert run.output == ["here"]
    assert run.steps == 1
    assert [event.type for event in records] == ["run_started", "step_retried", "step_retried", "step_done", "ended"]
    given = records[1].data["error"]
    assert isinstance(given, dict)
    error = dict(given)
    assert "in flaky" in error.pop("traceback")
    assert error == {"type": "ConnectionError", "message": "gone", "node": "work"}


async def test_what_another_attempt_does_not_mend_fails_at_once() -> None:
    async def wrong(state: Log) -> Update:
        raise ValueError("no")

    run = await single(wrong, retry=Retry(wait=0.01)).run()
    assert run.status == "failed"
    assert str(run.error).startswith("ValueError: no (not retried: ")
    assert run.error is not None
    assert run.error.node == "work"
    assert run.output is None
    named = await single(wrong, retry=Retry(wait=0.01, on=("ValueError",), attempts=2)).run()
    assert named.status == "failed"


async def test_a_model_that_says_when_to_come_back_is_waited_for() -> None:
    async def busy(state: Log, ctx: Context) -> Update:
        if ctx.attempt == 1:
            raise ModelUnavailable("busy", retry_after=0.2)
        return {"log": "done"}

    started = time.perf_counter()
    run = await single(busy, retry=Retry(wait=0.0)).run()
    assert run.output == ["done"]
    assert time.perf_counter() - started >= 0.19


async def test_an_edge_takes_the_failure() -> None:
    async def wrong(state: Log) -> Update:
        raise ValueError("no")

    @node(effect="pure")
    def mend(state: Log, ctx: Context) -> Update:
        assert ctx.error is not None
        return {"log": f"{ctx.error.node}: {ctx.error}"}

    run = await single(
        wrong, edges="START -> work -> END\nwork -> mend : error\nmend -> END", nodes={"mend": mend}
    ).run()
    assert run.status == "completed"
    assert run.output == ["work: ValueError: no"]


@pytest.mark.parametrize("edge", ["work -> mend : timeout", "work -> mend : error", "* -> mend : timeout"])
async def test_a_step_that_takes_too_long_is_stopped(edge: str) -> None:
    async def hangs(state: Log) -> Update:
        await anyio.sleep(60)
        return None

    graph = single(
        hangs, timeout=0.05, edges=f"START -> work -> END\n{edge}\nmend -> END", nodes={"mend": says("late")}
    )
    run = await graph.run()
    assert run.output == ["late"]


async def test_a_timeout_without_an_edge_fails_and_may_be_tried_again() -> None:
    attempts: list[int] = []

    def sleeps(state: Log, ctx: Context) -> Update:
        attempts.append(ctx.attempt)
        time.sleep(0.9 if ctx.attempt == 1 else 0)
        return {"log": "woke"}

    run = await single(sleeps, timeout=0.5, retry=Retry(attempts=2, wait=0)).run()
    assert run.output == ["woke"]
    assert attempts == [1, 2]
    run = await single(sleeps, timeout=0.1).run()
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == "StepTimeout"


async def test_a_failure_stops_what_runs_beside_it() -> None:
    async def wrong(state: Log) -> Update:
        await anyio.sleep(0.05)
        raise ValueError("no")

    graph = Graph(
        name="beside",
        state=Log,
        nodes={"fork": says("fork"), "wrong": node(wrong), "slow": says("slow", anyio.sleep_forever)},
        edges="START -> fork -> wrong, slow\nwrong, slow -> END",
    )
    with anyio.fail_after(60):
        run = await graph.run()
    assert run.status == "failed"


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (Outcome("nowhere"), "InvalidOutcome: work returned outcome 'nowhere', which is not declared"),
        (Outcome("error"), "InvalidOutcome: work returned outcome 'error', which is reserved"),
        ({"lgo": "x"}, "there is no field 'lgo'"),
        ({"n": "many"}, "field 'n'"),
        ("text", "InvalidUpdate: work returned 'text': return a mapping of state fields"),
        (Log(), "InvalidUpdate: work returned a whole Log"),
    ],
)
async def test_a_result_that_does_not_fit_fails_the_step_and_says_why(result: Any, message: str) -> None:
    async def work(state: Log) -> Any:
        return result

    run = await single(work).run()
    assert run.status == "failed"
    assert message in str(run.error)


async def test_reads_and_writes_are_enforced() -> None:
    async def peeks(state: Log) -> Update:
        return {"log": state.question}

    run = await single(peeks, reads={"log"}).run("?")
    assert "reads log, not 'question'" in str(run.error)
    run = await single(peeks, writes={"n"}).run("?")
    assert "updates log, but declares that it writes only n" in str(run.error)


class OnlyN(TypedDict, total=False):
    n: int


async def test_a_return_type_is_enforced_like_writes() -> None:
    def lies(state: Log) -> OnlyN:
        return cast(OnlyN, {"log": "x"})

    def nothing(state: Log) -> None:
        return cast(None, {"log": "x"})

    def chooses(state: Log) -> Outcome[Literal["done"], OnlyN]:
        return cast("Outcome[Literal['done'], OnlyN]", Outcome("done", {"log": "x"}))

    for function, says_ in ((lies, "only n"), (chooses, "only n"), (nothing, "nothing")):
        run = await single(function).run("?")
        assert f"updates log, but declares that it writes {says_}" in str(run.error)


async def test_a_sync_function_cannot_call_a_tool_from_its_thread() -> None:
    made: list[str] = []

    @tool(risk="dangerous")
    def wipe() -> str:
        """Delete everything."""
        made.append("wiped")
        return "gone"

    def by_name(state: Log, ctx: Context[object]) -> None:
        anyio.from_thread.run(lambda: ctx.tool("wipe"))

    def by_box(state: Log, ctx: Context[object]) -> None:
        anyio.from_thread.run(lambda: ctx.tools.execute(name="wipe"))

    for function in (by_name, by_box):
        run = await single(function).run("?", tools=[wipe])
        assert "is a sync function and calls tool wipe: make it async def" in str(run.error)
    assert made == []


async def test_a_merged_and_a_final_state_are_validated_whole() -> None:
    class Pair(BaseModel):
        low: int = 0
        high: int = 10

        @model_validator(mode="after")
        def ordered(self) -> Pair:
            if self.low > self.high:
                raise ValueError("low is above high")
            return self

    def sets(**update: int) -> Any:
        return node(effect="pure")(lambda state: update)

    nodes = {"fork": sets(), "a": sets(low=7), "b": sets(high=5), "join": sets()}
    joined = Graph(
        name="joined", state=Pair, nodes={**nodes, "join": nodes["join"].with_(join="all")},
        edges="START -> fork -> a, b -> join -> END",
    )  # fmt: skip
    run = await joined.run()
    assert run.status == "failed"
    assert "low is above high" in str(run.error)
    at_the_end = Graph(
        name="ended", state=Pair, nodes={"fork": nodes["fork"], "a": nodes["a"], "b": nodes["b"]},
        edges="START -> fork -> a, b -> END",
    )  # fmt: skip
    run = await at_the_end.run()
    assert run.status == "failed"
    assert "low is above high" in str(run.error)


async def test_branches_that_write_one_plain_field_are_in_conflict() -> None:
    graph = Graph(
        name="conflict", state=Log,
        nodes={"fork": says("f"), "a": node(effect="pure")(lambda state: {"n": 1}),
               "b": node(effect="pure")(lambda state: {"n": 1}), "join": says("j", join="all")},
        edges="START -> fork -> a, b -> join -> END",
    )  # fmt: skip
    run = await graph.run()
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == "ConflictingUpdate"


# -- nested graphs and limits ------------------------------------------------------------------------------------------


async def test_a_subgraph_is_one_activation_outside() -> None:
    @node(effect="pure")
    async def inner(state: Log, ctx: Context) -> Update:
        return {"answer": f"{state.question}!", "log": ctx.path}

    class Outer(BaseModel):
        words: list[str] = ["a", "b", "c"]
        heard: Annotated[list[str], append] = []

    shout = Graph(name="shout", state=Log, nodes={"inner": inner}, edges="START -> inner -> END")
    graph = Graph(
        name="outer",
        state=Outer,
        nodes={
            "plan": node(effect="pure")(lambda state: None),
            "sub": Subgraph(shout, inputs={"question": "$item"}, outputs={"heard": "answer"}),
            "join": node(effect="pure", join="all")(lambda state: None),
        },
        edges="START -> plan\nplan -> sub : each words\nsub -> join -> END",
        output="heard",
    )
    async with Executor() as executor:
        run = await executor.start(graph)
        history = await executor.history(run.run_id)
    assert run.output == ["a!", "b!", "c!"]
    inner_paths = {point.path for point in history if point.node == "inner"}
    assert inner_paths == {"plan.0/sub", "plan.1/sub", "plan.2/sub"}
    # Branches end in any order: the history has that order, the output the order of the items.
    assert sorted(point.values["heard"] for point in history if point.node == "sub") == [["a!"], ["b!"], ["c!"]]


async def test_an_inner_failure_is_the_outer_steps() -> None:
    attempts: list[int] = []

    @node(effect="pure")
    async def wrong(state: Log) -> Update:
        attempts.append(1)
        raise ConnectionError("no")

    inner = Graph(name="inner", state=Log, nodes={"wrong": wrong}, edges="START -> wrong -> END")
    graph = Graph(name="outer", state=Log, nodes={"sub": Subgraph(inner)}, edges="START -> sub -> END")
    run = await graph.run()
    assert str(run.error) == "ConnectionError: no"
    assert run.error is not None
    assert (run.error.path, run.error.node) == ("sub", "wrong")
    retried = graph.replace(sub=Subgraph(inner, retry=Retry(attempts=2, wait=0)))
    attempts.clear()
    run = await retried.run()
    assert run.status == "failed"
    assert len(attempts) == 2


async def test_spent_steps_end_the_run_as_exhausted_with_what_it_made() -> None:
    run = await counting(steps=7).run({"until": 100})
    assert run.status == "exhausted"
    assert run.output == 7


async def test_an_exhausted_edge_is_taken_once() -> None:
    graph = single(
        lambda state: {"log": "w"}, effect="pure", limits=Limits(steps=3),
        edges="START -> work -> work2\nwork2 -> work\n* -> sum : exhausted\nsum -> END",
        nodes={"work2": says("w"), "sum": says("sum")},
    )  # fmt: skip
    run = await graph.run()
    assert run.status == "exhausted"
    assert run.output == ["w", "w", "w", "sum"]


async def test_seconds_stop_what_runs() -> None:
    graph = single(
        partial(_sleep, 3600), limits=Limits(seconds=0.2),
        edges="START -> work -> END\n* -> late : exhausted\nlate -> END", nodes={"late": says("late")},
    )  # fmt: skip
    with anyio.fail_after(60):
        run = await graph.run()
    assert run.status == "exhausted"
    assert run.output == ["late"]
    assert run.seconds >= 0.19


async def _sleep(seconds: float, state: Log) -> Update:
    await anyio.sleep(seconds)
    return None


async def test_what_is_left_of_the_limits_is_told() -> None:
    left: list[Any] = []

    @node(effect="pure")
    async def look(state: Log, ctx: Context) -> Outcome[Literal["again", "enough"]]:
        left.append(ctx.limits.steps)
        return Outcome("again" if len(left) < 3 else "enough")

    graph = Graph(
        name="look", state=Log, nodes={"look": look}, edges="START -> look\nlook -> look : again\nlook -> END : enough",
        limits=Limits(steps=5),
    )  # fmt: skip
    await graph.run()
    assert left == [4, 3, 2]


def test_an_executor_can_be_opened_again_in_another_event_loop(anyio_backend_name: str) -> None:
    """Before, and after, it ran something, and while what it noted for later was not written yet."""
    executor = Executor(MemoryStore())

    async def use(runs: int) -> None:
        async with executor:
            for _ in range(runs):
                assert (await executor.start(chain(says("a"), says("b")))).status == "completed"
            await anyio.sleep(0.01)  # so that what goes on beside runs waits for something

    for runs in (0, 2, 0, 1):
        anyio.run(use, runs, backend=anyio_backend_name)
