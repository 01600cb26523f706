"""`Plan(drafts=)` and `ReadPlan`: as a `Plan` alone, with each correction as a step of its own."""

from __future__ import annotations

from typing import Any, Literal

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator import Executor, Graph, Limits, Run, tool
from orchestrator.errors import InvalidGraph
from orchestrator.models import Reply
from orchestrator.nodes import Plan, ReadPlan
from orchestrator.strategies.orchestrator_workers import orchestrator_workers
from orchestrator.testing import ScriptedModel

pytestmark = pytest.mark.anyio
Form = Literal["steps", "blueprint"]


@tool(risk="none", effect="pure")
def search(query: str) -> str:
    """Search."""
    return f"about {query}"


class StepsState(Plan.State, ReadPlan.State):
    """A plan in words."""


class BlueprintState(Plan.BlueprintState, ReadPlan.State):
    """A plan of calls."""


STATES = {"steps": StepsState, "blueprint": BlueprintState}


def one_node(form: Form, retries: int) -> Graph:
    """A planner that reads its plans."""
    nodes = {"plan": Plan(form=form, retries=retries)}
    return Graph(name="g", state=STATES[form], nodes=nodes, edges="START -> plan -> END", output="steps")


def two_nodes(form: Form, retries: int) -> Graph:
    """A planner, and a node that reads its plans."""
    nodes = {
        "plan": Plan(form=form, drafts="drafts", faults="faults"),
        "read": ReadPlan(form=form, retries=retries),
    }
    edges = "START -> plan -> read -> END\n" + ("read -> plan : again" if retries else "")
    return Graph(name="g", state=STATES[form], nodes=nodes, edges=edges, output="steps")


async def made(graph: Graph, replies: list[Any]) -> tuple[Run, list[object]]:
    """A run with these replies, and empty ones behind them; and what the model was asked."""
    model = ScriptedModel([*replies, *[""] * 4])
    async with Executor(model=model, tools=[search]) as executor:
        run = await executor.start(graph, {"question": "Who?"})
    return run, [[(one.role, one.content, one.data) for one in request.messages] for request in model.requests]


REPLIES = st.sampled_from(
    [
        "",
        "1. Look.\n2. Answer.",
        "Plan: look\n#E1 = search[x]",
        "Plan: look\n#E1 = search[#E2]",
        "Plan: look\n#E1 = search[x",
        "I cannot plan.",
        Reply(text="No.", finish="refusal"),
        Reply(text="1.", finish="length"),
    ]
)


@pytest.mark.full
@settings(deadline=None)
@given(st.sampled_from(["steps", "blueprint"]), st.integers(0, 2), st.lists(REPLIES, min_size=1, max_size=4))
def test_two_nodes_plan_and_fail_as_one_does(form: Form, retries: int, replies: list[Any]) -> None:
    (one, first), (two, second) = (anyio.run(made, make(form, retries), replies) for make in (one_node, two_nodes))
    assert second == first
    assert (two.status, two.output) == (one.status, one.output)
    if one.error is None:
        assert (two.values["drafts"], two.values["faults"]) == ([], [])
    else:
        assert two.error is not None
        assert (two.error.type, two.error.message) == (one.error.type, one.error.message)


async def test_a_planner_that_a_spent_limit_led_to_begins_a_new_plan() -> None:
    nodes = {
        "plan": Plan(drafts="drafts", faults="faults"),
        "read": ReadPlan(),
        "last": Plan(drafts="drafts", faults="faults"),
        "close": ReadPlan(retries=0),
    }
    edges = "START -> plan -> read -> END\nread -> plan : again\n* -> last : exhausted\nlast -> close -> END"
    limits = Limits(visits={"plan": 1})
    graph = Graph(name="g", state=StepsState, nodes=nodes, edges=edges, output="steps", limits=limits)
    with ScriptedModel({"plan": [""], "last": ["1. Look."]}) as model:
        async with Executor(model=model) as executor:
            run = await executor.start(graph, {"question": "Who?"})
    assert (run.status, run.output) == ("exhausted", ["Look."])
    assert [len(request.messages) for request in model.requests] == [2, 2]


def test_mistakes_in_the_pair_are_found_when_the_graph_is_made() -> None:
    with pytest.raises(ValidationError, match="drafts= and faults= belong together"):
        Plan(drafts="drafts")
    with pytest.raises(InvalidGraph, match=r"read reads 'drafts', which no other node writes: place a Plan\(drafts="):
        Graph(
            name="g",
            state=StepsState,
            nodes={"plan": Plan(), "read": ReadPlan(retries=0)},
            edges="START -> plan -> read -> END",
        )


@pytest.mark.parametrize("kind", [Plan, ReadPlan])
def test_max_items_is_not_above_what_a_plan_may_have(kind: type[Plan | ReadPlan]) -> None:
    assert kind(max_items=300).max_items == 300
    with pytest.raises(ValidationError, match="max_items"):
        kind(max_items=301)
    with pytest.raises(ValueError, match="max_parts from 1 to 300"):
        orchestrator_workers(max_parts=301)
