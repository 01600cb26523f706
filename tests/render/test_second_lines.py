"""The second line of a node says what it does, in a few words, and follows its fields."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from pydantic import BaseModel

from orchestrator import Context, Graph, node
from orchestrator.graph import Node
from orchestrator.graph.topology import Topology
from orchestrator.nodes import (
    Ask,
    Call,
    CallModel,
    Classify,
    Complete,
    Confirm,
    Execute,
    Extract,
    Observe,
    Plan,
    ReadReply,
    Repeat,
    Route,
    Sleep,
    Wait,
)
from orchestrator.render.build import draw
from orchestrator.render.drawing import LONGEST_DOES, NodeMark
from tests.kinds.page import shown_node
from tests.kinds.shipped import shipped


class State(BaseModel):
    said: str = ""


class Bill(BaseModel):
    total: int = 0


class Weigh(Node, kind="weigh_sample"):
    """A kind of the user's that says nothing of what it does."""

    async def run(self, state: object, ctx: Context) -> None:
        return None


class Judge(Weigh, kind="judge_sample"):
    """One that asks a model."""

    asks = "model"


@node
def plain(state: State) -> None:
    return None


@node(model="large")
async def sums_up(state: State, ctx: Context) -> None:
    await ctx.model.complete("Sum it up.")


@node(tools=["look"])
async def looks(state: State, ctx: Context) -> None:
    return None


def drawn(found: Node, name: str = "it") -> NodeMark:
    """The node as it is drawn."""
    alone = SimpleNamespace(name="g", nodes={name: found}, edges=(), topology=Topology({}, ()))  # no check is wanted
    (mark,) = [mark for mark in draw(cast(Graph, alone)).nodes if not mark.terminal]
    return mark


@pytest.mark.parametrize("kind", sorted(shipped()))
def test_every_shipped_kind_says_what_it_does(kind: str) -> None:
    words = kind.replace("_", " ")
    assert shown_node(kind).does or shown_node(kind).subgraph
    for name in ("it", kind):
        mark = drawn(shown_node(kind), name)
        said = mark.detail.removesuffix(f" · {mark.join}")
        assert said, f"{shipped()[kind].__qualname__}.does says nothing: say what the node does, in a few words"
        assert said != words, f"{kind} / {said}: the second line repeats the first"
        assert len(said) <= LONGEST_DOES


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Ask(prompt="?"), "asks a person"),
        (Ask(prompt="?", choices=("a", "b")), "asks to choose one of 2"),
        (Call(ref="shop.cart:Cart.total"), "calls Cart.total"),
        (Classify(choices={"a": "x", "b": "y", "c": "z"}), "chooses one of 3"),
        (Complete(), "completes a text"),
        (Complete(output=Bill), "fills Bill"),
        (Confirm(prompt="Go on?"), "asks for approval"),
        (Confirm(tool="tool", args="args"), "asks about each call"),
        (Confirm(tool="tool", args="args", from_risk="write"), "asks from risk write"),
        (Confirm(tool="tool", args="args", above="read"), "asks above risk read"),
        (Execute(), "calls a tool"),
        (Execute(calls="pending", results="observations"), "calls tools"),
        (Extract(), "finds the answer"),
        (Extract(form="number"), "finds a number"),
        (Observe(), "sees the results"),
        (Observe(rounds="rounds", most=3), "sees the results, 3 rounds"),
        (CallModel(), "thinks, chooses calls"),
        (CallModel(tools_offered=False), "answers without tools"),
        (Plan(), "plans steps"),
        (Plan(form="blueprint"), "plans calls"),
        (ReadReply(), "reads the reply"),
        (Repeat(times=5), "counts to 5"),
        (Route(cases={"a": "kind == 'x'"}, default="b"), "by kind"),
        (Sleep(seconds=90), "sleeps 90 s"),
        (Wait(event="paid"), "waits for paid"),
        (plain, "runs code"),
        (looks, "calls tools"),
        (Judge(), "asks a model"),
        (Weigh(), "weigh sample"),
        (plain.with_(join="all"), "runs code · join all"),
    ],
)
def test_it_follows_the_fields(found: Node, said: str) -> None:
    assert drawn(found).detail == said


def test_a_long_one_is_cut() -> None:
    for found in (Wait(event="e" * 200), Call(ref=f"a:{'b' * 200}"), Complete(output={"title": "t" * 200})):
        assert len(drawn(found).detail) <= LONGEST_DOES


def test_a_users_kind_with_the_nodes_name_is_not_said_twice() -> None:
    assert drawn(Weigh(), "weigh_sample").detail == "runs code of its own"


def test_it_is_the_same_without_the_code_of_functions() -> None:
    for found in (plain, looks, sums_up, sums_up.with_(tools=("look",))):
        graph = Graph(name="g", state=State, nodes={"it": found}, edges="START -> it -> END")
        assert [(mark.detail, mark.look) for mark in draw(graph).nodes] == [
            (mark.detail, mark.look) for mark in draw(Graph.from_data(graph.data())).nodes
        ]


def test_what_a_kind_asks_decides_its_picture() -> None:
    assert (drawn(Judge()).look, drawn(Weigh()).look, drawn(Ask(prompt="?")).look) == ("model", "custom", "human")


def test_a_users_kind_that_names_a_model_is_drawn_as_one_that_asks_it() -> None:
    mark = drawn(Weigh(model="large"))
    assert (mark.look, mark.detail) == ("model", "asks a model")


@pytest.mark.parametrize(("tools", "said"), [(None, "asks a model"), (["look"], "asks a model, calls tools")])
def test_a_function_that_names_a_model_is_drawn_as_one_that_asks_it(tools: list[str] | None, said: str) -> None:
    @node(model="large", tools=tools)
    async def summarise(state: State, ctx: Context) -> None:
        await ctx.model.complete("Summarise.")

    drawn = draw(Graph(name="g", state=State, nodes={"summarise": summarise}, edges="START -> summarise -> END"))
    mark = next(mark for mark in drawn.nodes if mark.name == "summarise")
    assert (mark.look, mark.detail) == ("model", said)
