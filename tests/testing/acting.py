"""Generated graphs whose nodes really do things: tools of every effect class, a model, functions, questions, retries.

What a node does follows from a seed and from what it sees (`tests.kernel.behave.Seeded`), so two runs of one graph
differ only if the executor makes them differ.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping
from typing import Any

from orchestrator import Context, Executor, Graph, Limits, Outcome, Retry, tool
from orchestrator.errors import InvalidGraph, StepError
from orchestrator.executor.step_context import StepContext
from orchestrator.graph import Node
from orchestrator.kernel.question import Question
from orchestrator.nodes import Subgraph
from orchestrator.tools import Tool
from tests.kernel.behave import Seeded, Sight
from tests.kernel.build import State
from tests.kernel.sketches import Drawn, mutated, settle, structured, unstructured, values_for
from tests.testing.shop import Echo

KINDS = {"structured": structured, "unstructured": unstructured, "mutated": mutated}


class Acting(Drawn, kind="acting"):
    """A drawn node that acts out what its behaviour says."""

    seed: int = 0
    fails: float = 0.0

    async def run(self, state: Any, ctx: Context[Any]) -> Outcome[str]:
        assert isinstance(ctx, StepContext)
        behaviour = Seeded(self.seed, asks=0.1, retries=0.15, fails=self.fails)
        sight = Sight(ctx.node, state.model_dump(), ctx.item, tuple(ctx.items), ctx.attempt)
        act = behaviour(ctx.activation.frame.plan, sight)
        dice = random.Random(zlib.crc32(f"{self.seed} {ctx.node} {sight.visits} {ctx.item}".encode()))
        told = [await self._do(ctx, f"{sight.label}.{number}", dice) for number in range(dice.choice((0, 1, 1, 2)))]
        if ctx.attempt <= act.retries:
            raise StepError("drawn to fail")
        if act.fail is not None:
            raise ZeroDivisionError("drawn to fail permanently")
        for number in range(act.asks):
            told.append(str(await ctx.ask("input", prompt=f"{sight.label}?{number}")))
        update = {**act.update, **({"log": f"{sight.label}={'+'.join(told)}"} if told else {})}
        return Outcome(act.outcome, **{name: value for name, value in update.items() if name != "trail"})

    async def _do(self, ctx: Context[Any], what: str, dice: random.Random) -> str:
        kind = dice.choice(("look", "save", "pay", "model", "function"))
        if kind == "model":
            return (await ctx.model.complete(what)).text
        if kind == "function":
            return await ctx.effect("note", str.upper, what, returns=str)
        return str((await ctx.tool(kind, what=what)).output)


class Inside(Subgraph, kind="inside"):
    """A graph inside, whose log is one line of the log around it."""

    def outer_update(self, values: Mapping[str, object]) -> dict[str, object]:
        log = values["log"]
        assert isinstance(log, list)
        return {"log": f"[{' '.join(log)}]"} if log else {}


def tools() -> list[Tool]:
    """One of every effect class."""

    @tool(effect="read", risk="none")
    async def look(what: str) -> str:
        """Look."""
        return f"<{what}>"

    @tool(effect="idempotent", risk="none")
    def save(what: str) -> str:
        """Save."""
        return f"[{what}]"

    @tool(effect="irreversible", risk="none")
    async def pay(what: str) -> str:
        """Pay."""
        return f"${what}"

    return [look, save, pay]


def acted(graph: Graph, seed: int, fails: float = 0.0) -> Graph:
    """The same graph with nodes that act; `fails`: how likely a step fails permanently."""
    nodes: dict[str, Node] = {}
    for name, drawn in graph.nodes.items():
        assert isinstance(drawn, Drawn)
        if drawn.inner is not None and drawn.said == ("done",):
            nodes[name] = Inside(graph=acted(drawn.inner, seed, fails), inputs={"xs": "xs"}, join=drawn.join)
        else:
            retry = Retry(attempts=3, wait=0, on=("StepError",))
            nodes[name] = Acting(said=drawn.said, join=drawn.join, seed=seed, fails=fails, retry=retry)
    return Graph(name=graph.name, state=State, nodes=nodes, edges=graph.edges, limits=Limits(steps=25))


def said(question: Question) -> object:
    """An answer to a question of these graphs."""
    return f"!{question.prompt}" if question.kind == "input" else None


async def ends(graph: Graph, values: Mapping[str, Any]) -> bool:
    """Whether it comes to its end within its limits: where a limit cuts it off is a matter of timing."""
    async with Executor(graphs=[graph], model=Echo(), tools=tools()) as executor:
        run = await executor.start(graph, values)
        while run.waiting:
            run = await executor.answer(run.run_id, run.waiting[0].id, said(run.waiting[0]))
    return run.status != "exhausted"


def drawn_graph(kind: str, seed: int, fails: float = 0.0) -> tuple[Graph, Mapping[str, Any]] | None:
    """A graph and its input; None where the checks refuse it, or its outcome depends on timing."""
    sketch = settle(KINDS[kind](seed))
    if sketch.races:
        return None
    try:
        return acted(sketch.graph(), seed, fails), values_for(random.Random(f"{kind} {seed}"))
    except InvalidGraph:
        return None
