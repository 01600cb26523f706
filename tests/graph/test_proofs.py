"""What the shape of a graph proves, with a witness where it does not."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import Context, Graph, tool
from orchestrator.graph import Limits, Node, Proof, node
from orchestrator.nodes import Confirm


class State(BaseModel):
    x: int = 0


class Act(Node):
    async def run(self, state: State, ctx: object) -> None: ...


class Inside(Node):
    graph: Graph

    @property
    def subgraph(self) -> Graph:
        return self.graph

    async def run(self, state: State, ctx: object) -> None: ...


act = Act(effect="irreversible")
think = Act(effect="pure")
confirm = Confirm()


def proofs(edges: str, limits: Limits | None = None, **nodes: Node) -> list[Proof]:
    graph = Graph(name="g", state=State, nodes=nodes, edges=edges, limits=limits)
    return list(graph.check(prove=True).proofs)


BOUNDED = Proof("every cycle spends a limit", True)


def test_nothing_is_proved_unasked() -> None:
    assert Graph(name="g", state=State, nodes={"a": act}, edges="START -> a -> END").check().proofs == ()


def test_every_way_to_a_node_that_acts_passes_a_confirm() -> None:
    edges = "START -> think -> sure\nsure -> act : approved\nsure -> think : denied\nact -> END"
    assert proofs(edges, think=think, sure=confirm, act=act) == [
        Proof("every path to act passes a confirmation", True),
        BOUNDED,
    ]


def test_a_way_around_the_confirm_is_shown() -> None:
    edges = """
        START -> think -> sure, again
        sure -> act : approved
        sure -> END : denied
        again -> act -> END
    """
    claim = "every path to act passes a confirmation"
    nodes = {"think": think, "sure": confirm, "again": think, "act": act.with_(join="each")}
    assert proofs(edges, **nodes)[0] == Proof(claim, False, ("START", "think", "again", "act"))


def test_a_denial_is_no_approval() -> None:
    edges = "START -> sure -> act -> END"  # the one edge is taken by a denial too
    assert proofs(edges, sure=confirm, act=act)[0].witness == ("START", "sure", "act")
    edges = "START -> sure\nsure -> act : denied\nsure -> END : approved\nact -> END"
    assert proofs(edges, sure=confirm, act=act)[0].witness == ("START", "sure", "act")


def test_a_subgraph_that_acts_unconfirmed_acts() -> None:
    inner = Graph(name="inner", state=State, nodes={"act": act}, edges="START -> act -> END")
    assert proofs("START -> sub -> END", sub=Inside(graph=inner)) == [
        Proof("every path to sub passes a confirmation", False, ("START", "sub")),
        BOUNDED,
    ]


def test_a_cycle_that_spends_no_limit_is_shown() -> None:
    edges = "START -> a -> b -> a\na -> END : error"
    free = Limits(steps=None)
    assert proofs(edges, free, a=think, b=think) == [Proof("every cycle spends a limit", False, ("a", "b", "a"))]
    assert proofs(edges, Limits(steps=None, visits={"b": 3}), a=think, b=think) == [BOUNDED]


@tool(risk="dangerous")
def wipe() -> str:
    """Delete everything."""
    return "gone"


@tool(risk="read", effect="read")
def look() -> str:
    """Look."""
    return "seen"


def calling(*tools: Any) -> Node:
    @node(tools=tools)
    async def call(state: State, ctx: Context[Any]) -> None: ...

    return call


@pytest.mark.parametrize("tools", [(wipe,), (look, wipe), ("by_name",)])
def test_a_function_that_is_given_tools_acts(tools: Any) -> None:
    found = proofs("START -> think -> work -> END", think=think, work=calling(*tools))
    assert found[0] == Proof("every path to work passes a confirmation", False, ("START", "think", "work"))
    edges = "START -> sure\nsure -> work : approved\nsure -> END : denied\nwork -> END"
    assert proofs(edges, sure=confirm, work=calling(*tools))[0].holds


@pytest.mark.parametrize("tools", [(), (look,)])
def test_a_function_whose_tools_change_nothing_makes_no_claim(tools: Any) -> None:
    assert proofs("START -> work -> END", work=calling(*tools)) == [BOUNDED]


def test_a_function_that_acts_inside_a_subgraph_acts() -> None:
    inner = Graph(name="inner", state=State, nodes={"work": calling(wipe)}, edges="START -> work -> END")
    assert not proofs("START -> sub -> END", sub=Inside(graph=inner))[0].holds


def test_a_kind_of_the_user_s_that_is_given_tools_acts_unless_it_says_otherwise() -> None:
    class Offers(Act):
        @property
        def calls_tools(self) -> bool:
            return False

    assert not proofs("START -> a -> END", a=Act(tools=(wipe,)))[0].holds
    assert proofs("START -> a -> END", a=Offers(tools=(wipe,))) == [BOUNDED]


def test_a_stored_function_keeps_its_claim() -> None:
    graph = Graph(name="g", state=State, nodes={"work": calling(wipe)}, edges="START -> work -> END")
    assert not Graph.from_data(graph.data()).check(prove=True).proofs[0].holds


def test_what_no_proof_covers_is_a_note() -> None:
    @node
    async def free(state: State, ctx: Context[Any]) -> None: ...

    @node
    async def closed(state: State) -> None: ...

    nodes = {"free": free, "closed": closed, "work": calling(wipe)}
    graph = Graph(name="g", state=State, nodes=nodes, edges="START -> free -> closed -> work -> END")
    note = "free may call any tool, so no proof covers it: name its tools, tools=[...]"
    assert graph.check(prove=True).notes == (note,)
    assert graph.check().notes == ()
