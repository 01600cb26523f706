"""LangGraph with `AsyncSqliteSaver`, `durability="sync"`; and the same with its beta `DeltaChannel` for what grows."""

from __future__ import annotations

import asyncio
import operator
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from tests.benchmarks.subjects import Figures, Workload, sizes
from tests.benchmarks.subjects.floor import imported, stored_bytes


class Count(TypedDict):
    n: int
    until: int


class Log(TypedDict):
    lines: Annotated[list[str], operator.add]
    until: int


class Fan(TypedDict):
    items: list[int]
    found: Annotated[list[int], operator.add]


async def step(state: Count) -> dict[str, int]:
    return {"n": state["n"] + 1}


async def write(state):  # without hints: it writes to two kinds of state
    return {"lines": [sizes.line(len(state["lines"]))]}


async def branch(state: dict[str, int]) -> dict[str, list[int]]:
    return {"found": [state["item"] + 1]}


def counting() -> StateGraph:
    graph = StateGraph(Count)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda s: "step" if s["n"] < s["until"] else END, ["step", END])
    return graph


def logging(state: Any) -> StateGraph:
    graph = StateGraph(state)
    graph.add_node("write", write)
    graph.add_edge(START, "write")
    graph.add_conditional_edges("write", lambda s: "write" if len(s["lines"]) < s["until"] else END, ["write", END])
    return graph


def settings(run: str, steps: int) -> Any:
    return {"configurable": {"thread_id": run}, "recursion_limit": steps + 10}


def loop(folder: Path) -> Figures:
    async def run() -> float:
        graph = counting().compile()
        started = time.perf_counter()
        found = await graph.ainvoke({"n": 0, "until": sizes.LOOP}, settings("r", sizes.LOOP))
        assert found["n"] == sizes.LOOP
        return time.perf_counter() - started

    return {"us": asyncio.run(run()) / sizes.LOOP * 1e6}


def stored(graph: StateGraph, given: Any, steps: int, folder: Path) -> Figures:
    async def run() -> tuple[float, float]:
        async with AsyncSqliteSaver.from_conn_string(str(folder / "l.db")) as saver:
            await saver.setup()
            compiled = graph.compile(checkpointer=saver)
            started = time.perf_counter()
            await compiled.ainvoke(given, settings("r", steps), durability="sync")
            seconds = time.perf_counter() - started
            started = time.perf_counter()
            await compiled.aget_state(settings("r", steps))
            return seconds, time.perf_counter() - started

    seconds, load = asyncio.run(run())
    return {"us": seconds / steps * 1e6, "bytes": stored_bytes(folder / "l.db") / steps, "ms": load * 1e3}


def durable(folder: Path) -> Figures:
    return stored(counting(), {"n": 0, "until": sizes.DURABLE}, sizes.DURABLE, folder)


def history(state: Callable[[], Any], steps: int, folder: Path) -> Figures:
    return stored(logging(state()), {"lines": [], "until": steps}, steps, folder)


def delta_log() -> Any:
    """The state whose list is stored as what was added to it."""
    from langgraph.channels import DeltaChannel

    def extend(old: list[str], writes: list[list[str]]) -> list[str]:
        return [*old, *(line for lines in writes for line in lines)]

    return TypedDict("DeltaLog", {"lines": Annotated[list[str], DeltaChannel(extend)], "until": int})


def fan(branches: int, folder: Path) -> Figures:
    graph = StateGraph(Fan)
    graph.add_node("begin", lambda state: {})
    graph.add_node("branch", branch)
    graph.add_node("join", lambda state: {})
    graph.add_edge(START, "begin")
    graph.add_conditional_edges("begin", lambda s: [Send("branch", {"item": i}) for i in s["items"]], ["branch"])
    graph.add_edge("branch", "join")
    graph.add_edge("join", END)

    async def run() -> float:
        compiled = graph.compile()
        started = time.perf_counter()
        found = await compiled.ainvoke({"items": list(range(branches)), "found": []})
        assert len(found["found"]) == branches
        return time.perf_counter() - started

    return {"us": asyncio.run(run()) / branches * 1e6}


def concurrent(folder: Path) -> Figures:
    async def run() -> float:
        async with AsyncSqliteSaver.from_conn_string(str(folder / "l.db")) as saver:
            await saver.setup()
            graph = counting().compile(checkpointer=saver)
            started = time.perf_counter()
            given: Any = {"n": 0, "until": sizes.RUN_STEPS}
            runs = (
                graph.ainvoke(given, settings(f"r{n}", sizes.RUN_STEPS), durability="sync") for n in range(sizes.RUNS)
            )
            await asyncio.gather(*runs)
            return time.perf_counter() - started

    return {"us": asyncio.run(run()) / sizes.RUNS / sizes.RUN_STEPS * 1e6}


def build(nodes: int, folder: Path) -> Figures:
    started = time.perf_counter()
    graph = StateGraph(Count)
    for number in range(nodes):
        graph.add_node(f"n{number}", step)
        graph.add_edge(f"n{number - 1}" if number else START, f"n{number}")
    graph.add_conditional_edges(f"n{nodes - 1}", lambda s: "n0" if s["n"] < s["until"] else END, ["n0", END])
    graph.compile()
    return {"ms": (time.perf_counter() - started) * 1e3}


WORKLOADS: dict[str, Workload] = {
    "loop": loop,
    "durable": durable,
    **{f"history_{n}": partial(history, lambda: Log, n) for n in sizes.HISTORIES if n <= sizes.PEERS_HISTORY},
    **{f"fan_{n}": partial(fan, n) for n in sizes.FANS},
    "concurrent": concurrent,
    "import": partial(imported, "import langgraph.graph"),
    **{f"build_{n}": partial(build, n) for n in sizes.NODES},
}
DELTA: dict[str, Workload] = {
    f"history_{n}": partial(history, delta_log, n) for n in sizes.HISTORIES if n <= sizes.PEERS_HISTORY
}
