"""pydantic-graph; it stores nothing by itself."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic_graph import BaseNode, End, GraphBuilder, GraphRunContext, StepContext, reduce_list_append

from tests.benchmarks.subjects import Figures, Workload, sizes
from tests.benchmarks.subjects.floor import imported


@dataclass
class Count:
    n: int = 0


@dataclass
class Step(BaseNode[Count, None, int]):
    async def run(self, ctx: GraphRunContext[Count]) -> Step | End[int]:
        ctx.state.n += 1
        return Step() if ctx.state.n < sizes.LOOP else End(ctx.state.n)


def loop(folder: Path) -> Figures:
    builder: Any = GraphBuilder(state_type=Count, input_type=Step, output_type=int)
    builder.add(builder.node(Step), builder.edge_from(builder.start_node).to(Step))
    graph = builder.build()

    async def run() -> float:
        started = time.perf_counter()
        assert await graph.run(state=Count(), inputs=Step()) == sizes.LOOP
        return time.perf_counter() - started

    return {"us": asyncio.run(run()) / sizes.LOOP * 1e6}


def fan(branches: int, folder: Path) -> Figures:
    builder: Any = GraphBuilder(input_type=int, output_type=list[int])

    @builder.step
    async def begin(ctx: StepContext[None, None, int]) -> list[int]:
        return list(range(ctx.inputs))

    @builder.step
    async def branch(ctx: StepContext[None, None, int]) -> int:
        return ctx.inputs + 1

    join = builder.join(reduce_list_append, initial_factory=list)
    builder.add(
        builder.edge_from(builder.start_node).to(begin),
        builder.edge_from(begin).map().to(branch),
        builder.edge_from(branch).to(join),
        builder.edge_from(join).to(builder.end_node),
    )
    graph = builder.build()

    async def run() -> float:
        started = time.perf_counter()
        assert len(await graph.run(inputs=branches)) == branches
        return time.perf_counter() - started

    return {"us": asyncio.run(run()) / branches * 1e6}


WORKLOADS: dict[str, Workload] = {
    "loop": loop,
    **{f"fan_{n}": partial(fan, n) for n in sizes.FANS},
    "import": partial(imported, "import pydantic_graph"),
}
