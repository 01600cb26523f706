"""Journals of 300 generated graphs whose nodes write, ask, fail, are retried, and call models, tools and functions."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any

from orchestrator import Context, Graph, Limits, Outcome, Retry, Tool, tool
from orchestrator.errors import InvalidGraph, StepError
from orchestrator.graph import Node, Usage
from orchestrator.models import Reply
from orchestrator.nodes import Subgraph
from orchestrator.testing import ScriptedModel
from tests.frozen.staging import Piece, stage, turn
from tests.frozen.texts import Sections
from tests.kernel.behave import Seeded, Sight, way_out
from tests.kernel.build import State
from tests.kernel.sketches import Drawn, limited, mutated, settle, structured, unstructured, values_for

COUNT = 300
KINDS = {"structured": structured, "unstructured": unstructured, "mutated": mutated, "limited": limited}


class Player(Drawn, kind="frozen_player"):
    """A drawn node that does what its seed says."""

    seed: int = 0
    way: str = "done"
    """The outcome that leads to the end in the fewest steps."""

    async def run(self, state: Any, ctx: Context[Any]) -> Outcome[str]:
        async with turn():
            return await self._play(state, ctx)

    async def _play(self, state: Any, ctx: Context[Any]) -> Outcome[str]:
        behaviour = Seeded(self.seed, writes=0.02, asks=0.06, retries=0.1, fails=0.01, replaces=0.05)
        sight = Sight(ctx.node, state.model_dump(), ctx.item, tuple(ctx.items), ctx.attempt)
        plan: Any = SimpleNamespace(
            nodes={ctx.node: SimpleNamespace(outcomes=self.said)}, _way_out={ctx.node: self.way}
        )
        act = behaviour(plan, sight)
        dice = random.Random(zlib.crc32(f"{self.seed} {ctx.node} {sight.visits} {ctx.item}".encode()))
        told = [await self._do(ctx, f"{sight.label}.{number}", dice) for number in range(dice.choice((0, 0, 0, 1, 2)))]
        if ctx.attempt <= act.retries or act.fail is not None:
            raise StepError(act.fail or "drawn to fail")
        for number in range(act.asks):
            told.append((await ctx.ask("input", prompt=f"{sight.label}?{number}")).value)
        update = {**act.update, **({"log": f"{sight.label}={'+'.join(told)}"} if told else {})}
        return Outcome(act.outcome, **{name: value for name, value in update.items() if name != "trail"})

    async def _do(self, ctx: Context[Any], what: str, dice: random.Random) -> str:
        kind = dice.choice(("look", "save", "pay", "model", "function"))
        if kind == "model":
            return (await ctx.model.complete(what)).text
        if kind == "function":
            return await ctx.effect("note", str.upper, what, returns=str)
        return str((await ctx.tool(kind, what=what)).output)


@tool(effect="read", risk="none")
async def look(what: str) -> str:
    """Look."""
    return f"<{what}>"


@tool(effect="idempotent", risk="none")
async def save(what: str) -> str:
    """Save."""
    return f"[{what}]"


@tool(effect="irreversible", risk="none")
async def pay(what: str) -> str:
    """Pay."""
    return f"${what}"


TOOLS: list[Tool] = [look, save, pay]


def echo(request: Any) -> Reply:
    """What the model of these graphs replies."""
    return Reply(text=request.messages[-1].content.upper(), usage=Usage(input_tokens=3, output_tokens=2))


def playing(graph: Graph, seed: int) -> Graph:
    """The same graph with nodes that do something."""
    from orchestrator.kernel.plan import Plan

    ways = way_out(Plan.of(graph))
    nodes: dict[str, Node] = {}
    for name, drawn in graph.nodes.items():
        assert isinstance(drawn, Drawn)
        if drawn.inner is not None and drawn.said == ("done",):
            inner = playing(drawn.inner, seed)
            nodes[name] = Subgraph(inner, inputs={"xs": "xs"}, outputs={"total": "total"}, join=drawn.join)
        else:
            retry = Retry(attempts=3, wait=0, jitter=0.0, on=("StepError",))
            nodes[name] = Player(said=drawn.said, join=drawn.join, seed=seed, way=ways[name], retry=retry)
    limits = graph.limits if graph.limits.steps is not None else Limits(steps=40, visits=graph.limits.visits)
    return Graph(name=graph.name, state=State, nodes=nodes, edges=graph.edges, limits=limits)


def pieces() -> Iterator[Piece]:
    """Generated graphs that the checks accept, one kind after the other."""
    for seed in range(10_000):
        for kind, draw in KINDS.items():
            try:
                graph = playing(settle(draw(seed)).graph(), seed)
            except InvalidGraph:
                continue
            values = values_for(random.Random(f"{kind} {seed}"))
            options = {"model": ScriptedModel(echo), "tools": TOOLS}
            yield Piece(f"{kind}-{seed}", graph, values, options=options, brief=True)


def generated() -> Sections:
    """The journals."""
    return stage([*islice(pieces(), COUNT)])
