"""What the shape of a graph proves, with a witness where it does not."""

from __future__ import annotations

from pydantic import BaseModel

from orchestrator.graph import Graph, Limits, Node, Proof
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
        Proof("every way to act passes a confirm", True),
        BOUNDED,
    ]


def test_a_way_around_the_confirm_is_shown() -> None:
    edges = """
        START -> think -> sure, again
        sure -> act : approved
        sure -> END : denied
        again -> act -> END
    """
    claim = "every way to act passes a confirm"
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
        Proof("every way to sub passes a confirm", False, ("START", "sub")),
        BOUNDED,
    ]


def test_a_cycle_that_spends_no_limit_is_shown() -> None:
    edges = "START -> a -> b -> a\na -> END : error"
    free = Limits(steps=None)
    assert proofs(edges, free, a=think, b=think) == [Proof("every cycle spends a limit", False, ("a", "b", "a"))]
    assert proofs(edges, Limits(steps=None, visits={"b": 3}), a=think, b=think) == [BOUNDED]
