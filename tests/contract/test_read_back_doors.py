"""Every door through which a value enters a run refuses what would be read back as another value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, append, node, replace
from orchestrator.errors import OrchestratorError
from orchestrator.graph import Migration
from orchestrator.graph.reducers import extend
from orchestrator.nodes import Ask, Subgraph

pytestmark = pytest.mark.anyio


class Msg(BaseModel):
    text: str = ""


class ToolMsg(Msg):
    call_id: str = ""


class State(BaseModel):
    one: Msg | None = None
    log: Annotated[list[Msg], append] = []
    many: Annotated[list[Msg], extend] = []
    answer: Any = None


WRONG = ToolMsg(call_id="c1")
WORDS = "is read back as a Msg, not as a ToolMsg"
UPDATES: dict[str, Any] = {
    "a plain field": {"one": WRONG},
    "an item": {"log": WRONG},
    "a list": {"many": [Msg(), WRONG]},
    "several items": {"log": extend([Msg(), WRONG])},
    "a replaced list": {"log": replace([WRONG])},
}


def graph(update: Callable[..., Any], **more: Any) -> Graph[State]:
    return Graph(name="g", state=State, nodes={"a": node(update)}, edges="START -> a -> END", **more)


@pytest.mark.parametrize("what", UPDATES)
async def test_an_update_is_refused(what: str, tmp_path: Path) -> None:
    run = await graph(lambda state: UPDATES[what]).run(store=f"sqlite:///{tmp_path}/runs.db")
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == "InvalidUpdate"
    assert WORDS in run.error.message


async def test_the_input_is_refused() -> None:
    made = graph(lambda state: None)
    for given in ({"one": WRONG}, {"log": [WRONG]}, State(one=WRONG)):
        with pytest.raises(OrchestratorError, match=WORDS):
            await made.run(given)


async def test_an_update_of_a_fork_is_refused(tmp_path: Path) -> None:
    made = graph(lambda state: None)
    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[made]) as executor:
        run = await executor.start(made)
        with pytest.raises(OrchestratorError, match=WORDS):
            await executor.fork(run.run_id, at=1, update={"one": WRONG})


async def test_the_result_of_an_effect_is_refused() -> None:
    async def call(state: State, ctx: Context) -> dict[str, Any]:
        return {"one": await ctx.effect("make", lambda: WRONG, returns=Msg)}

    run = await graph(call).run()
    assert run.status != "completed"
    assert WORDS in str(run.error) + str(run.waiting)


async def test_inputs_and_outputs_of_a_graph_inside_are_refused() -> None:
    class Outer(BaseModel):
        one: Any = None
        back: Msg | None = None

    class Wide(BaseModel):
        one: ToolMsg | None = None

    @node
    def make(state: Wide) -> dict[str, Any]:
        return {"one": WRONG}

    wide = Graph(name="wide", state=Wide, nodes={"make": make}, edges="START -> make -> END", output="one")
    inner = Subgraph(wide, outputs={"back": "one"})
    run = await Graph(name="g", state=Outer, nodes={"in": inner}, edges="START -> in -> END").run()
    assert run.status == "failed"
    assert run.error is not None
    assert WORDS in run.error.message


async def test_a_value_of_a_migration_is_refused(tmp_path: Path) -> None:
    nodes: dict[str, Any] = {"ask": Ask(prompt="?", answer="answer"), "a": node(lambda state: None)}
    old = Graph(name="g", state=State, nodes=nodes, edges="START -> ask -> a -> END")

    class New(State):
        added: Msg | None = None

    new = Graph(name="g", state=New, nodes=nodes, edges="START -> ask -> a -> END")
    store = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(store, graphs=[old]) as executor:
        run = await executor.start(old)
    async with Executor(store, graphs=[new]) as executor:
        with pytest.raises(OrchestratorError, match=WORDS):
            await executor.resume(run.run_id, migrate=Migration(state={"added": lambda values: WRONG}))


# -- results of reducers ------------------------------------------------------------------------------------------


def forgets(old: list[int], new: list[int]) -> list[int]:
    old.extend(new)
    return None  # type: ignore[return-value]


def another(old: int, new: int) -> Any:
    return {"sum": old + new}


def subclass(old: Msg, new: Msg) -> Msg:
    return ToolMsg(text=old.text + new.text)


def only_alone(old: int, new: int) -> Any:
    return None if old else old + new


class Reduced(BaseModel):
    xs: Annotated[list[int], forgets] = []
    n: Annotated[int, another] = 0
    msg: Annotated[Msg, subclass] = Msg()
    alone: Annotated[int, only_alone] = 0


REDUCED: dict[str, tuple[Any, str]] = {
    "a forgotten return": ({"xs": [1]}, r"field 'xs': the result of its reducer .*forgets: .*got None"),
    "another type": ({"n": 1}, r"field 'n': the result of its reducer .*another: .*valid integer"),
    "a subclass": ({"msg": Msg(text="x")}, r"field 'msg': the result of its reducer .*subclass: .*not as a ToolMsg"),
}  # fmt: skip


@pytest.mark.parametrize("what", REDUCED)
async def test_what_a_reducer_returns_must_fit_its_field(what: str) -> None:
    update, words = REDUCED[what]
    nodes = {"a": node(lambda state: update)}
    run = await Graph(name="g", state=Reduced, nodes=nodes, edges="START -> a -> END").run()
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == "InvalidUpdate"
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(run.error.message)


@pytest.mark.parametrize("join", [True, False])
async def test_what_a_reducer_makes_of_several_branches_must_fit_its_field(join: bool) -> None:
    nodes: dict[str, Any] = {name: node(lambda state: {"alone": 1}) for name in ("a", "b")}
    nodes["s"] = nodes["j"] = node(lambda state: None)
    nodes["j"] = nodes["j"].with_(join="all")
    edges = "START -> s -> a, b\na, b -> j -> END" if join else "START -> s -> a, b\na, b -> END"
    made = {name: one for name, one in nodes.items() if join or name != "j"}
    run = await Graph(name="g", state=Reduced, nodes=made, edges=edges).run()
    assert run.status == "failed"
    assert run.error is not None
    assert "field 'alone': the result of its reducer" in run.error.message


@pytest.mark.parametrize(("kind", "number"), [(float, 1e308), (int, 9 * 10**4299)])
async def test_a_sum_that_json_cannot_say_fails_the_step(kind: type[Any], number: Any) -> None:
    from orchestrator import add

    state = type("Sum", (BaseModel,), {"__annotations__": {"n": Annotated[kind, add]}, "n": kind(0)})
    nodes: dict[str, Any] = {name: node(lambda state: {"n": number}) for name in ("a", "b")}
    run = await Graph(name="g", state=state, nodes=nodes, edges="START -> a -> b -> END").run()
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.node == "b"
    assert "field 'n': the sum that its reducer add made" in run.error.message
    nodes["s"] = node(lambda state: None)
    run = await Graph(name="g", state=state, nodes=nodes, edges="START -> s -> a, b\na, b -> END").run()
    assert run.status == "failed"
    assert run.error is not None
    assert "the sum that its reducer add made" in run.error.message
