"""The contract of states: reducers, updates, validation."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, field_validator, model_validator

from orchestrator import Context, Executor, Graph, add, append, extend, local, merge, node, replace, union
from orchestrator.graph import Node
from tests.support.sizes import in_turn

pytestmark = pytest.mark.anyio


def longest(old: str, new: str) -> str:
    """A reducer of one's own."""
    return max(old, new, key=len)


class All(BaseModel):
    topic: str = ""
    drafts: Annotated[list[str], append] = []
    sum: Annotated[int, add] = 0
    words: Annotated[str, add] = ""
    facts: Annotated[dict[str, int], merge] = {}
    seen: Annotated[set[str], union] = set()
    order: Annotated[list[str], union] = []
    lot: Annotated[list[int], extend] = []
    own: Annotated[str, local] = "fork"
    best: Annotated[str, longest] = ""
    plain: int = 0


def gives(update: Any) -> Node:
    return node(effect="pure")(lambda state: update)


def chain(*updates: Any, state: type[BaseModel] = All) -> Graph:
    nodes = {f"n{place}": update if isinstance(update, Node) else gives(update) for place, update in enumerate(updates)}
    return Graph(name="g", state=state, nodes=nodes, edges=f"START -> {' -> '.join(nodes)} -> END")


def fork(*updates: Any, after: Any = None, state: type[BaseModel] = All) -> Graph:
    nodes = {f"b{place}": gives(update) for place, update in enumerate(updates)}
    names = ", ".join(nodes)
    join = after if isinstance(after, Node) else gives(after)
    nodes |= {"start": gives(None), "j": join.with_(join="all")}
    return Graph(name="g", state=state, nodes=nodes, edges=f"START -> start -> {names} -> j -> END")


REDUCED: dict[str, tuple[str, list[Any], Any]] = {
    "append takes one item": ("drafts", ["a", "b"], ["a", "b"]),
    "or extend a list": ("drafts", ["a", extend(["b", "c"])], ["a", "b", "c"]),
    "add": ("sum", [2, 3], 5),
    "add of texts": ("words", ["a", "b"], "ab"),
    "merge": ("facts", [{"a": 1, "b": 1}, {"b": 2}], {"a": 1, "b": 2}),
    "union of a set": ("seen", [{"b"}, {"a", "b"}], ["a", "b"]),
    "union of a list": ("order", [["b"], ["a", "b"]], ["b", "a"]),
    "extend as a reducer": ("lot", [[1], [2, 3]], [1, 2, 3]),
    "any function": ("best", ["abc", "ab", "abcd"], "abcd"),
    "plain: the last writer": ("plain", [1, 2], 2),
    "replace bypasses append": ("drafts", ["a", replace(["z"])], ["z"]),
    "replace bypasses add": ("sum", [2, replace(9), 1], 10),
    "replace bypasses merge": ("facts", [{"a": 1}, replace({"b": 2})], {"b": 2}),
    "replace bypasses union": ("seen", [{"a"}, replace({"c"})], ["c"]),
    "replace bypasses a function": ("best", ["long", replace("x")], "x"),
    "replace of a plain field": ("plain", [1, replace(5)], 5),
}


@pytest.mark.parametrize(("what", "store"), in_turn(REDUCED, ("memory", "sqlite")))
async def test_reducers(what: str, store: str, tmp_path: Any) -> None:
    field, updates, result = REDUCED[what]
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url) as ex:
        run = await ex.start(chain(*[{field: update} for update in updates]))
        assert run.status == "completed", run.error
        assert run.values[field] == result
        assert (await ex.load(run.run_id)).values == run.values


BRANCHES: dict[str, tuple[str, list[Any], Any]] = {
    "append": ("drafts", ["a", "b", "c"], ["a", "b", "c"]),
    "add": ("words", ["a", "b", "c"], "abc"),
    "merge": ("facts", [{"k": 1}, {"k": 2}], {"k": 2}),
    "union": ("order", [["b", "a"], ["a", "c"]], ["b", "a", "c"]),
    "a function": ("best", ["ab", "c"], "ab"),
    "local": ("own", ["b0", "b1"], "fork"),
}


@pytest.mark.parametrize("what", BRANCHES)
async def test_branches_are_merged_in_branch_order(what: str) -> None:
    field, updates, result = BRANCHES[what]
    run = await fork(*[{field: update} for update in updates]).run()
    assert run.status == "completed", run.error
    assert run.values[field] == result


@pytest.mark.parametrize("values", [(1, 2), (1, 1)])
async def test_a_plain_field_that_branches_wrote_is_a_conflict_always(values: tuple[int, int]) -> None:
    run = await fork({"plain": values[0]}, {"plain": values[1]}).run()
    assert run.status == "failed"
    assert run.error.type == "ConflictingUpdate"
    assert "b0" in run.error.message
    assert "b1" in run.error.message
    assert "'plain'" in run.error.message


async def test_local_is_a_branchs_own() -> None:
    seen: dict[str, str] = {}

    @node
    def look(state: All, ctx: Context) -> None:
        seen[ctx.node] = state.own

    graph = Graph(
        name="g", state=All,
        nodes={"s": gives(None), "a": gives({"own": "a"}), "b": gives({"own": "b"}), "la": look, "lb": look,
               "j": look.with_(join="all")},
        edges="START -> s -> a, b\na -> la\nb -> lb\nla, lb -> j -> END",
    )  # fmt: skip
    assert (await graph.run()).status == "completed"
    assert seen == {"la": "a", "lb": "b", "j": "fork"}


@pytest.mark.parametrize(
    ("update", "kind", "words"),
    [
        ({"nope": 1}, "InvalidUpdate", "no field 'nope'"),
        ({"plain": "many"}, "InvalidUpdate", "field 'plain'"),
        ({"drafts": ["a"]}, "InvalidUpdate", "field 'drafts'"),
        ({"sum": extend([1])}, "InvalidUpdate", "extend() is for fields with the reducer append or extend"),
        ({"plain": replace("x")}, "InvalidUpdate", "field 'plain'"),
    ],
)
async def test_updates_are_validated_field_by_field_before_they_are_journaled(
    update: Any, kind: str, words: str
) -> None:
    async with Executor() as ex:
        run = await ex.start(chain({"plain": 3}, update))
        assert run.status == "failed"
        assert (run.error.type, run.error.node) == (kind, "n1")
        assert words in run.error.message
        assert run.values["plain"] == 3
        assert [event.type async for event in ex.events(run.run_id)] == [
            "run_started",
            "step_done",
            "step_failed",
            "ended",
        ]


class Ordered(BaseModel):
    low: int = 0
    high: int = 10

    @model_validator(mode="after")
    def _order(self) -> Ordered:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self

    @field_validator("low")
    @classmethod
    def _low(cls, value: int) -> int:
        if value < 0:
            raise ValueError("low is below zero")
        return value


async def test_model_level_validators_run_at_joins_and_at_the_end_and_field_ones_at_each_step() -> None:
    assert (await chain({"low": 20}, {"high": 30}, state=Ordered).run()).status == "completed"
    at_the_end = await chain({"low": 20}, state=Ordered).run()
    assert at_the_end.status == "failed"
    assert "low is above high" in at_the_end.error.message
    at_the_join = await fork({"low": 20}, None, after={"high": 30}, state=Ordered).run()
    assert at_the_join.status == "failed"
    assert (at_the_join.error.node, at_the_join.error.type) == ("j", "InvalidUpdate")
    at_the_step = await chain({"low": -1}, state=Ordered).run()
    assert (at_the_step.error.node, at_the_step.error.type) == ("n0", "InvalidUpdate")
