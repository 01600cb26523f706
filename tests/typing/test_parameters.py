"""Type parameters are for checkers: at run time they change no class, digest or file."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import Context, Graph, Limits, Run, Update, node
from orchestrator.errors import InvalidValue, RunFailed
from orchestrator.graph import FunctionNode


class Trip(BaseModel):
    """A state."""

    days: list[date] = []


@node
def plan(state: Trip) -> Update:
    return {"days": [date(2026, 1, 2), date(2026, 1, 3)]}


def graph(cls: Any = Graph, work: Any = plan, **fields: Any) -> Graph[Trip]:
    """The graph, made by a class, with a parameter or without."""
    made: Graph[Trip] = cls(
        name="trip", state=Trip, nodes={"plan": work}, edges="START -> plan -> END", output="days", **fields
    )
    return made


def test_a_graph_with_a_parameter_is_the_same_graph(tmp_path: Path) -> None:
    bare, typed = graph(), graph(Graph[Trip])
    assert Graph[Trip] is Graph
    assert type(typed) is Graph
    assert typed == bare
    assert (typed.structure, typed.content, typed.data()) == (bare.structure, bare.content, bare.data())
    typed.save(tmp_path / "trip.yaml")
    assert Graph[Trip].load(tmp_path / "trip.yaml") == bare


def test_a_class_of_graphs_can_say_its_parameter() -> None:
    class TripGraph(Graph[Trip]):
        """Graphs of trips."""

    assert type(graph(TripGraph).with_limits(steps=3)) is TripGraph


def test_a_node_with_parameters_is_no_kind_of_its_own() -> None:
    assert FunctionNode[..., Any] is FunctionNode
    assert plan.kind == "function"
    assert plan(Trip()) == {"days": [date(2026, 1, 2), date(2026, 1, 3)]}


def test_a_context_without_a_parameter_is_injected_like_one_with() -> None:
    @node
    def bare(first: Context) -> Update:
        return {}

    @node
    def typed(first: Context[Trip]) -> Update:
        return {}

    assert bare.wanted == typed.wanted


def test_output_as_reads_the_output_as_a_type() -> None:
    run: Run[Trip] = graph().run_sync()
    assert run.output == ["2026-01-02", "2026-01-03"]
    assert run.output_as(list[date]) == run.state.days == [date(2026, 1, 2), date(2026, 1, 3)]
    assert run.output_as(tuple[str, str]) == ("2026-01-02", "2026-01-03")


def test_output_as_refuses_another_type() -> None:
    run = graph().run_sync(run_id="r")
    with pytest.raises(InvalidValue) as caught:
        run.output_as(list[int])
    assert str(caught.value).startswith("the output of run 'r': 0: ")
    assert caught.value.where == "output"


def test_output_as_wants_an_output() -> None:
    @node
    def fails(state: Trip) -> Update:
        raise ValueError("no")

    @node
    def goes_round(state: Trip) -> Update:
        return None

    with pytest.raises(RunFailed, match="ValueError: no"):
        graph(work=fails).run_sync().output_as(list[date])
    spent = Graph(
        name="spent", state=Trip, nodes={"plan": plan, "again": goes_round}, output="days", limits=Limits(steps=2),
        edges="START -> plan -> again -> plan, END",
    ).run_sync()  # fmt: skip
    assert spent.status == "exhausted"
    assert len(spent.output_as(list[date])) == 2
