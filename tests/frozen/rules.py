"""Journals of the examples of `docs/kernel.md`, and of the hard graphs of its cases, through the executor."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from orchestrator import Context, Graph, Limits, Outcome
from orchestrator.errors import InvalidGraph, StepError
from orchestrator.graph import Node
from orchestrator.graph.edges import Edge
from orchestrator.kernel.plan import Plan
from orchestrator.nodes import Subgraph
from orchestrator.testing import ScriptedModel
from tests.frozen.generated import TOOLS, echo, playing
from tests.frozen.staging import Piece, stage, turn
from tests.frozen.texts import Sections
from tests.kernel.behave import Sight
from tests.kernel.build import State, joins
from tests.kernel.sketches import HARD, Drawn, Sketch, values_for
from tests.kernel.test_rules_page import EXAMPLES, Does, Example, limits_of, plan_of, values_of

SEEDS = range(4)
CASES = (
    *HARD,
    "a -> b, c -> j",
    "a -> b, c; c -> x, y; b, x, y -> j",
    "a -> b, c, d; b, c -> j1; j1, d -> j2",
    "a -> d, b, c; b, c -> j1; j1, d -> j2",
    "p -> u : each xs; u -> v -> j",
    "p -> w : each xs; w -> s",
    "p -> w : each xs; w -> j -> s",
    "p -> w : each tasks; w -> s",
    "a -> b, c; c -> c : again; c -> j : ok; b -> j",
    "a -> b, c; b -> STOP; c -> d -> END",
    "a -> b, c; b -> STOP; c -> END",
    "a -> b, c, d -> j; * -> n : exhausted; n -> END",
    "a -> b, c; b -> e -> f; c -> g -> h; * -> n : exhausted",
    "a -> b, c; b -> END; c -> d -> e -> END",
    "p -> w : each tasks; w -> a, b; a, b -> k -> j",
    "t -> p, q -> c -> s -> b, d; b, d -> j; d -> t : redo; d -> j : ok",
    "a -> b : each xs; b -> c : each ys; c -> k -> j",
)
"""Beside the hard graphs those of the cases, with START and END where they are missing."""


class Actor(Drawn, kind="frozen_actor"):
    """A node of an example."""

    example: str = ""

    async def run(self, state: Any, ctx: Context[Any]) -> Outcome[str]:
        async with turn():
            sight = Sight(ctx.node, state.model_dump(), ctx.item, tuple(ctx.items), ctx.attempt)
            plan: Any = SimpleNamespace(nodes={ctx.node: SimpleNamespace(outcomes=self.said)})
            act = _DOES[self.example](plan, sight)
            if act.fail is not None:
                raise StepError(act.fail)
            return Outcome(act.outcome, **act.update)


_DOES = {example.name: Does(example) for example in EXAMPLES}


def _graph_of(plan: Plan, example: Example, limits: Limits) -> Graph:
    nodes: dict[str, Node] = {}
    for name, shape in plan.nodes.items():
        if name in plan.sub:
            inner = _graph_of(plan.sub[name], example, limits_of(example, "inside steps"))
            nodes[name] = Subgraph(inner, inputs={"xs": "xs", "ys": "ys"}, outputs={"total": "total"}, join=shape.join)
        else:
            nodes[name] = Actor(said=shape.outcomes, join=shape.join, example=example.name)
    edges = [Edge(edge.source, edge.target, edge.outcome, edge.each) for edge in plan.edges]
    return Graph(name="g", state=State, nodes=nodes, edges=edges, limits=limits)


def pieces() -> Iterator[Piece]:
    """All of them."""
    for example in EXAMPLES:
        if "rounds" in example.says or "overdue" in example.says:
            continue  # these are about a loop without an end, and about time
        graph = _graph_of(plan_of(example), example, limits_of(example, "steps"))
        yield Piece(example.name, graph, values_of(example), brief=True)
    for number, text in enumerate(CASES):
        for seed in SEEDS:
            try:
                graph = playing(Sketch.of(text, joins("j k m j1 j2")).graph(), seed)
            except InvalidGraph:
                continue
            values = values_for(random.Random(f"{number} {seed}"))
            options = {"model": ScriptedModel(echo), "tools": TOOLS}
            yield Piece(f"case-{number}-{seed}", graph, values, options=options, brief=True)


def rules() -> Sections:
    """The journals."""
    return stage([*pieces()])
