"""Reducers of every kind, over values of every kind."""

from __future__ import annotations

import datetime as dt
import decimal
import pathlib
from functools import partial
from typing import Annotated, Any, TypeVar

import pytest
from pydantic import (
    BaseModel,
    RootModel,
    create_model,
)

from orchestrator import Executor, Graph, Run, add, append, extend, local, merge, node, replace, union
from orchestrator.errors import GraphError
from orchestrator.nodes import Ask
from tests.contract.sample import Color, Sub

pytestmark = pytest.mark.anyio


T = TypeVar("T")


class Numbers(RootModel[list[int]]):
    pass


async def told(url: str, graph: Graph, given: Any = None) -> Run:
    """Run a graph, and see that whoever reads it, with its code or without, sees the same."""
    async with Executor(url, graphs=[graph]) as ex:
        run = await ex.start(graph, given)
        loaded = await ex.load(run.run_id)
        assert loaded.values == run.values
        history = [point.values for point in await ex.history(run.run_id) if point.outcome]
    async with Executor(url) as ex:
        without = await ex.load(run.run_id)
        assert without.values == run.values
        assert [point.values for point in await ex.history(run.run_id) if point.outcome] == history
        assert without.state is not None
    return run


def chain(state: type[BaseModel], *updates: Any) -> Graph:
    nodes = {
        f"n{place}": node(effect="pure")(update if callable(update) else lambda state, update=update: update)
        for place, update in enumerate(updates)
    }
    return Graph(name="g", state=state, nodes=nodes, edges=f"START -> {' -> '.join(nodes)} -> END")


class Times:
    """A reducer that is an object."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, old: int, new: int) -> int:
        return old + self.factor * new


def scaled(factor: int, old: int, new: int) -> int:
    return old + factor * new


class Reduced(BaseModel):
    maybe: Annotated[list[str] | None, append] = None
    n: Annotated[int | None, add] = None
    facts: Annotated[dict[str, Sub] | None, merge] = None
    seen: Annotated[set[Color] | None, union] = None
    subs: Annotated[list[Sub], append] = []
    money: Annotated[decimal.Decimal, add] = decimal.Decimal(0)
    spent: Annotated[dt.timedelta, add] = dt.timedelta(0)
    most: Annotated[int, max] = 0
    least: Annotated[int, lambda old, new: min(old, new)] = 9
    part: Annotated[int, partial(scaled, 10)] = 0
    made: Annotated[int, Times(100)] = 0
    own: Annotated[str, local] = ""


async def test_reducers_of_every_kind(tmp_path: pathlib.Path) -> None:
    first = {
        "maybe": "a", "n": 2, "facts": {"x": {"a": "1"}}, "seen": {Color.RED}, "subs": Sub(a=1),
        "money": decimal.Decimal("0.1"), "spent": dt.timedelta(1), "most": 5, "least": 5, "part": 1, "made": 1,
    }  # fmt: skip
    second = {
        "maybe": extend(["b", "c"]), "n": 3, "facts": {"y": Sub(a=2)}, "seen": {Color.BLUE}, "subs": {"a": "2"},
        "money": "0.2", "spent": dt.timedelta(seconds=1), "most": 3, "least": 7, "part": 2, "made": replace(7),
    }  # fmt: skip
    run = await told(f"sqlite:///{tmp_path}/runs.db", chain(Reduced, first, second))
    assert run.status == "completed", run.error
    days: list[str] = []
    assert run.values == {
        "maybe": ["a", "b", "c"], "n": 5, "facts": {"x": {"a": 1, "days": days}, "y": {"a": 2, "days": days}},
        "seen": ["blue", "red"], "subs": [{"a": 1, "days": days}, {"a": 2, "days": days}], "money": "0.3",
        "spent": "P1DT1S", "most": 5, "least": 5, "part": 30, "made": 7, "own": "",
    }  # fmt: skip


@pytest.mark.parametrize("reducer", [lambda old: old, lambda: 0, lambda a, b, c: a])
async def test_a_reducer_that_does_not_take_two_is_refused_when_the_graph_is_built(reducer: Any) -> None:
    state = create_model("State", n=(Annotated[int, reducer], 0))
    with pytest.raises(GraphError, match=r"field 'n' of state State has the reducer .* f\(old, new\)"):
        chain(state, None)


async def test_a_root_model_is_no_state() -> None:
    with pytest.raises(GraphError, match="RootModel, which has no fields"):
        chain(Numbers, None)


def picky(old: str, new: str) -> str:
    if old and new == "b":
        raise ValueError("no b after something")
    return old + new


class Picky(BaseModel):
    x: Annotated[str, picky] = ""
    mixed: Annotated[int | str, add] = 0
    log: Annotated[list[str], append] = []


@pytest.mark.parametrize("edges", ["START -> s -> a, b -> j -> END", "START -> s -> a, b -> END"])
async def test_a_reducer_that_breaks_in_a_merge_fails_the_run_and_does_not_leave_it_behind(
    edges: str, tmp_path: pathlib.Path
) -> None:
    nodes: dict[str, Any] = {"s": lambda state: None, "a": lambda state: {"x": "a"}, "b": lambda state: {"x": "b"}}
    if "j" in edges:
        nodes["j"] = node(join="all")(lambda state: None)
    run = await told(f"sqlite:///{tmp_path}/runs.db", Graph(name="g", state=Picky, nodes=nodes, edges=edges))
    assert run.error is not None
    assert (run.status, run.error.type) == ("failed", "InvalidUpdate")
    assert "the update of b cannot be merged" in run.error.message
    assert "ValueError" in run.error.message


@pytest.mark.parametrize("edges", ["START -> s -> a, b -> j -> END", "START -> s -> a, b -> END"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"log": "a"}, {"log": replace(["R"])}),
        ({"log": replace(["R"])}, {"log": "b"}),
        ({"log": replace(["R"])}, {"log": replace(["R"])}),
        ({"mixed": replace("b")}, {"mixed": 1}),
    ],
)
async def test_replacing_a_value_beside_another_update_of_it_is_a_conflict(
    edges: str, first: Any, second: Any, tmp_path: pathlib.Path
) -> None:
    """Whichever branch comes first: an update would be lost, and where it is kept the order alone would decide."""
    nodes: dict[str, Any] = {"s": lambda state: {"log": "s"}, "a": lambda state: first, "b": lambda state: second}
    if "j" in edges:
        nodes["j"] = node(join="all")(lambda state: None)
    run = await told(f"sqlite:///{tmp_path}/runs.db", Graph(name="g", state=Picky, nodes=nodes, edges=edges))
    assert run.error is not None
    assert (run.status, run.error.type) == ("failed", "ConflictingUpdate")
    (field,) = first
    assert run.error.message.startswith(f"a and b both wrote '{field}' in concurrent branches")


TIMES = [2]
"""How many times the reducer below adds its item: its code, so to say."""


def several(old: list[int], new: int) -> list[int]:
    return [*old, *[new] * TIMES[0]]


class Several(BaseModel):
    xs: Annotated[list[int], several] = []
    reply: str = ""


@pytest.mark.parametrize("join", [{"xs": 9}, None])
async def test_what_a_reducer_made_holds_without_its_code_and_when_its_code_has_changed(
    join: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    nodes = {
        "s": lambda state: {"xs": 0}, "a": lambda state: {"xs": 1}, "b": lambda state: {"xs": 2},
        "j": node(join="all")(lambda state: join), "ask": Ask(prompt="?"), "end": lambda state: {"xs": 5},
    }  # fmt: skip
    graph = Graph(
        name="g", state=Several, nodes=nodes, edges="START -> s -> a, b -> j -> ask -> end -> END", output="xs"
    )
    run = await told(url, graph)
    made = [0, 0, 1, 1, 2, 2, *([9, 9] if join else [])]
    assert (run.status, run.values["xs"]) == ("paused", made)
    monkeypatch.setattr(f"{__name__}.TIMES", [3])
    async with Executor(url, graphs=[graph]) as ex:
        assert (await ex.load(run.run_id)).values["xs"] == made
        run = await ex.answer(run.run_id, run.waiting[0].id, "go on")
        assert run.output == [*made, 5, 5, 5]
