"""pydantic-graph, which stores nothing by itself; its agent is Pydantic AI's."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_graph import BaseNode, End, GraphBuilder, GraphRunContext, StepContext, reduce_list_append

from tests.benchmarks.subjects import Figures, Workload, sizes
from tests.benchmarks.subjects.floor import imported
from tests.benchmarks.subjects.stopwatch import MARKS, Stopwatch, between, mark, repeated


class Message(BaseModel):
    role: str
    content: str


@dataclass
class Count:
    until: int
    n: int = 0
    messages: list[Message] = field(default_factory=list)


@dataclass
class Step(BaseNode[Count, None, int]):
    async def run(self, ctx: GraphRunContext[Count]) -> Step | End[int]:
        ctx.state.n += 1
        return Step() if ctx.state.n < ctx.state.until else End(ctx.state.n)


@dataclass
class Untouched(BaseNode[Count, None, int]):
    async def run(self, ctx: GraphRunContext[Count]) -> Untouched | End[int]:
        mark()
        ctx.state.n += 1
        return Untouched() if ctx.state.n < ctx.state.until else End(ctx.state.n)


@dataclass
class Touched(BaseNode[Count, None, int]):
    async def run(self, ctx: GraphRunContext[Count]) -> Touched | End[int]:
        mark()
        assert ctx.state.messages[-1].content
        ctx.state.n += 1
        return Touched() if ctx.state.n < ctx.state.until else End(ctx.state.n)


def counting(step: Any) -> Any:
    builder: Any = GraphBuilder(state_type=Count, input_type=step, output_type=int)
    builder.add(builder.node(step), builder.edge_from(builder.start_node).to(step))
    return builder.build()


def loop(steps: int, runs: int, folder: Path) -> Figures:
    graph = counting(Step)

    async def run() -> Stopwatch:
        with Stopwatch() as took:
            for _ in range(runs):
                assert await graph.run(state=Count(steps), inputs=Step()) == steps
        return took

    return asyncio.run(run()).figures("us", steps * runs)


def beside(step: Any, messages: int, steps: int, folder: Path) -> Figures:
    graph = counting(step)
    said = [Message(role="user", content=f"message {number}") for number in range(messages)]
    asyncio.run(graph.run(state=Count(steps, messages=said), inputs=step()))
    return between(MARKS)


def fan(items: list[Any], folder: Path) -> Figures:
    builder: Any = GraphBuilder(input_type=list[Any], output_type=list[int])

    @builder.step
    async def begin(ctx: StepContext[None, None, list[Any]]) -> list[Any]:
        return ctx.inputs

    @builder.step
    async def branch(ctx: StepContext[None, None, Any]) -> int:
        return (ctx.inputs["id"] if isinstance(ctx.inputs, dict) else ctx.inputs) + 1

    join = builder.join(reduce_list_append, initial_factory=list)
    builder.add(
        builder.edge_from(builder.start_node).to(begin),
        builder.edge_from(begin).map().to(branch),
        builder.edge_from(branch).to(join),
        builder.edge_from(join).to(builder.end_node),
    )
    graph = builder.build()

    async def run() -> Stopwatch:
        with Stopwatch() as took:
            assert len(await graph.run(inputs=items)) == len(items)
        return took

    return asyncio.run(run()).figures("us", len(items))


def chain(nodes: int) -> Any:
    """A chain of steps, and at its end a decision: once more, or the end."""
    builder: Any = GraphBuilder(state_type=Count, input_type=int, output_type=int)

    async def count(ctx: StepContext[Count, None, int]) -> int:
        return ctx.inputs + 1

    steps = [builder.step(count, node_id=f"n{number}") for number in range(nodes)]
    before = builder.start_node
    for step in steps:
        builder.add(builder.edge_from(before).to(step))
        before = step
    again = builder.match(int, matches=lambda n: n < 10).to(steps[0])
    builder.add(
        builder.edge_from(before).to(builder.decision().branch(again).branch(builder.match(int).to(builder.end_node)))
    )
    return builder.build()


def build(nodes: int, folder: Path) -> Figures:
    with Stopwatch() as took:
        chain(nodes)
    return took.figures("ms")


def draw(folder: Path) -> Figures:
    return repeated(chain(sizes.DRAWN).render, "mermaid_", 3)


def react(folder: Path) -> Figures:
    from pydantic_ai import Agent, UsageLimits
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from tests.benchmarks.subjects import loopback

    async def run(url: str) -> Stopwatch:
        agent = Agent(OpenAIChatModel("m", provider=OpenAIProvider(base_url=url, api_key="none")))

        @agent.tool_plain
        async def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        with Stopwatch() as took:
            done = await agent.run("Add.", usage_limits=UsageLimits(request_limit=None))
        assert done.output == "done"
        assert len(done.all_messages()) == 2 * sizes.CALLS + 2
        return took

    with loopback.serving() as url:
        return loopback.figures(asyncio.run(run(url)))


WORKLOADS: dict[str, Workload] = {
    "loop": partial(loop, sizes.LOOP, 1),
    "one_memory": partial(loop, 1, sizes.SINGLE),
    **{f"beside_{count}": partial(beside, Untouched, count, sizes.BESIDE) for count in sizes.MESSAGES},
    "touched_5000": partial(beside, Touched, sizes.MESSAGES[-1], sizes.TOUCHED),
    **{f"fan_{count}": partial(fan, list(range(count))) for count in sizes.FANS[:2]},
    **{f"map_{count}": partial(fan, [sizes.record(n) for n in range(count)]) for count in sizes.MAPS},
    "react": react,
    "import": partial(imported, "import pydantic_graph"),
    **{f"build_{nodes}": partial(build, nodes) for nodes in sizes.NODES},
    "draw": draw,
}
