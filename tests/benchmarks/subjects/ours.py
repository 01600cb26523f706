"""This library."""

from __future__ import annotations

import gc
import os
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Limits, Outcome, Run, append, node
from orchestrator.nodes import Ask
from tests.benchmarks.subjects import Figures, Workload, sizes
from tests.benchmarks.subjects.floor import fresh, imported, stored_bytes


class Count(BaseModel):
    """A loop that counts."""

    n: int = 0
    until: int = 0
    answer: str = ""


class Log(BaseModel):
    """A loop that adds a kibibyte each time round."""

    lines: Annotated[list[str], append] = []
    until: int = 0


class Fan(BaseModel):
    """A map over numbers."""

    items: list[int] = []
    found: Annotated[list[int], append] = []


@node(effect="pure")
async def pure(state: Count) -> Outcome[Literal["again", "enough"]]:
    """One more."""
    return Outcome("again" if state.n + 1 < state.until else "enough", n=state.n + 1)


@node
async def default(state: Count) -> Outcome[Literal["again", "enough"]]:
    """One more, durable before the next."""
    return Outcome("again" if state.n + 1 < state.until else "enough", n=state.n + 1)


@node
async def write(state: Log, ctx: Context) -> Outcome[Literal["again", "enough"]]:
    """A kibibyte more."""
    return Outcome("again" if len(state.lines) + 1 < state.until else "enough", lines=sizes.line(len(state.lines)))


@node(effect="pure")
async def begin(state: Fan) -> None:
    """Where the map begins."""


@node(effect="pure")
async def branch(state: Fan, item: int) -> dict[str, int]:
    """One item."""
    return {"found": item + 1}


@node(effect="pure", join="all")
async def joined(state: Fan) -> None:
    """Where it ends."""


def _loop(name: str, state: type[BaseModel], step: object, output: str) -> Graph:
    edges = "START -> step\nstep -> step : again\nstep -> END : enough"
    return Graph(name=name, state=state, nodes={"step": step}, edges=edges, output=output, limits=Limits(steps=None))


PURE = _loop("pure", Count, pure, "n")
DEFAULT = _loop("default", Count, default, "n")
LOG = _loop("log", Log, write, "until")
FAN = Graph(
    name="fan", state=Fan, nodes={"begin": begin, "branch": branch, "join": joined},
    edges="START -> begin\nbegin -> branch : each items\nbranch -> join -> END", output="found",
    limits=Limits(steps=None),
)  # fmt: skip
ASKING = Graph(
    name="asking", state=Count, nodes={"step": pure, "ask": Ask(prompt="Go on?", answer="answer")},
    edges="START -> step\nstep -> step : again\nstep -> ask : enough\nask -> END", output="n",
    limits=Limits(steps=None),
)  # fmt: skip


def url(folder: Path) -> str:
    """The store of a workload."""
    return f"sqlite:///{folder}/ours.db"


async def _timed(graph: Graph, given: dict[str, object], store: str) -> tuple[float, Run]:
    async with Executor(store=store, graphs=[graph]) as executor:
        await executor.store.put_graph(graph.content, graph.data())  # makes the tables, as is done for all
        started = time.perf_counter()
        run = await executor.start(graph, given)
        seconds = time.perf_counter() - started
    assert run.status == "completed", run.error
    return seconds, run


def loop(graph: Graph, steps: int, store: str = "memory://") -> float:
    """Seconds for a run of `steps` steps."""
    return anyio.run(partial(_timed, graph, {"until": steps}, store))[0]


def in_memory(folder: Path) -> Figures:
    return {"us": loop(PURE, sizes.LOOP) / sizes.LOOP * 1e6}


def durable(graph: Graph, steps: int, folder: Path) -> Figures:
    seconds = loop(graph, steps, url(folder))
    return {"us": seconds / steps * 1e6, "bytes": stored_bytes(folder / "ours.db") / steps}


def history(steps: int, folder: Path) -> Figures:
    figures = durable(LOG, steps, folder)

    async def load() -> float:
        async with Executor(url(folder), graphs=[LOG]) as executor:
            (info,) = (await executor.runs()).runs
            started = time.perf_counter()
            assert len((await executor.load(info.run_id)).values["lines"]) == steps
            return time.perf_counter() - started

    return {**figures, "ms": anyio.run(load) * 1e3}


def fan(branches: int, folder: Path) -> Figures:
    seconds, run = anyio.run(partial(_timed, FAN, {"items": list(range(branches))}, "memory://"))
    assert len(run.output) == branches
    return {"us": seconds / branches * 1e6}


def concurrent(folder: Path) -> Figures:
    async def run() -> float:
        async with Executor(url(folder), graphs=[DEFAULT]) as executor:
            await executor.store.put_graph(DEFAULT.content, DEFAULT.data())
            started = time.perf_counter()
            async with anyio.create_task_group() as tasks:
                for _ in range(sizes.RUNS):
                    tasks.start_soon(executor.start, DEFAULT, {"until": sizes.RUN_STEPS})
            return time.perf_counter() - started

    steps = sizes.RUNS * sizes.RUN_STEPS
    return {"us": anyio.run(run) / steps * 1e6, "bytes": stored_bytes(folder / "ours.db") / steps}


def resume(folder: Path) -> Figures:
    async def begin() -> None:
        async with Executor(url(folder)) as executor:
            await executor.start(ASKING, {"until": sizes.RESUMED}, run_id="r")

    async def go_on() -> float:
        async with Executor(url(folder), graphs=[ASKING]) as executor:
            started = time.perf_counter()
            (question,) = (await executor.load("r")).waiting
            run = await executor.answer("r", question.id, "yes")
            seconds = time.perf_counter() - started
        assert run.output == sizes.RESUMED
        return seconds

    anyio.run(begin)
    return {"ms": anyio.run(go_on) * 1e3}


def many(folder: Path) -> Figures:
    """A run opened and a page listed, among many runs and among few: milliseconds of each, and how they grow."""
    figures: dict[str, float] = {}

    async def measure(count: int) -> tuple[float, float]:
        async with Executor(f"sqlite:///{folder}/{count}.db", graphs=[ASKING]) as executor:
            await executor.start(ASKING, {"until": 3}, run_id="sample")
            await copied(executor, count)
            opened, listed = [], []
            for number in range(20):
                started = time.perf_counter()
                await executor.load(f"run-{number * (count // 20)}")
                opened.append(time.perf_counter() - started)
                started = time.perf_counter()
                assert len((await executor.runs(status="paused", limit=50)).runs) == 50
                listed.append(time.perf_counter() - started)
        return sorted(opened)[10], sorted(listed)[10]

    for name, count in zip(("few", "many"), sizes.LISTED, strict=True):
        opened, listed = anyio.run(measure, count)
        figures |= {f"open_{name}_ms": opened * 1e3, f"list_{name}_ms": listed * 1e3}
    return figures


async def copied(executor: Executor, count: int) -> None:
    """Fill the store with copies of the run `sample`."""
    from dataclasses import replace

    store = executor.store
    info, records = await store.info("sample"), await store.read("sample")

    async def some(first: int) -> None:
        for number in range(first, min(count, first + 100)):
            run_id = f"run-{number}"
            begun = [record.model_copy(update={"run_id": run_id} if record.seq == 1 else {}) for record in records]
            await store.create(replace(info, run_id=run_id, created=info.created + number), begun)

    for first in range(0, count, 10_000):
        async with anyio.create_task_group() as tasks:
            for part in range(first, min(count, first + 10_000), 100):
                tasks.start_soon(some, part)


def waiting(folder: Path) -> Figures:
    """Memory for each run that waits for an answer in this process, and what they cost while nothing happens."""

    async def run() -> Figures:
        async with Executor(url(folder), graphs=[ASKING]) as executor:
            await executor.start(ASKING, {"until": 3})
            gc.collect()
            before = _resident()

            async def some(first: int) -> None:
                for number in range(first, sizes.WAITING, 20):
                    assert (await executor.start(ASKING, {"until": 3}, run_id=f"r{number}")).status == "paused"

            async with anyio.create_task_group() as tasks:
                for first in range(20):
                    tasks.start_soon(some, first)
            gc.collect()
            kib = (_resident() - before) / sizes.WAITING / 1024
            used = _cpu()
            await anyio.sleep(3)
            return {"kib": kib, "cpu_percent": (_cpu() - used) / 3 * 100}

    return anyio.run(run)


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def build(nodes: int, folder: Path) -> Figures:
    """A chain with a loop, built, that is checked, too."""
    names = [f"n{number}" for number in range(nodes)]
    edges = f"START -> {' -> '.join(names)}\n{names[-1]} -> END : enough\n{names[-1]} -> {names[0]} : again"
    given = {name: pure if name == names[-1] else begun for name in names}
    started = time.perf_counter()
    graph = Graph(name="built", state=Count, nodes=given, edges=edges, limits=Limits(steps=None))
    seconds = time.perf_counter() - started
    assert len(graph.nodes) == nodes
    return {"ms": seconds * 1e3}


@node(effect="pure")
async def begun(state: Count) -> None:
    """A node of a graph that is built."""


def draw(folder: Path) -> Figures:
    names = [f"n{number}" for number in range(sizes.DRAWN)]
    chain = Graph(
        name="drawn", state=Count, nodes=dict.fromkeys(names, begun), edges=f"START -> {' -> '.join(names)} -> END",
        limits=Limits(steps=None),
    )  # fmt: skip
    started = time.perf_counter()
    assert chain.to_svg().count("<g") >= sizes.DRAWN
    first = time.perf_counter() - started
    started = time.perf_counter()
    chain.to_svg()
    return {"ms": first * 1e3, "again_ms": (time.perf_counter() - started) * 1e3}


def react(folder: Path) -> Figures:
    from tests.benchmarks.subjects import loopback

    return loopback.ours(url(folder))


def _each(function: Callable[[int, Path], Figures], name: str, values: tuple[int, ...]) -> dict[str, Any]:
    return {f"{name}_{value}": partial(function, value) for value in values}


WORKLOADS: dict[str, Workload] = {
    "loop": in_memory,
    "durable": partial(durable, DEFAULT, sizes.DURABLE),
    "durable_pure": partial(durable, PURE, sizes.DURABLE),
    **_each(history, "history", sizes.HISTORIES),
    **_each(fan, "fan", sizes.FANS),
    "concurrent": concurrent,
    "resume": resume,
    "many": many,
    "waiting": waiting,
    "react": react,
    "import": partial(imported, "import orchestrator"),
    "import_names": partial(imported, "from orchestrator import Graph, Executor, node"),
    "help": lambda folder: fresh("-m", "orchestrator", "--help"),
    **_each(build, "build", sizes.NODES),
    "draw": draw,
}
