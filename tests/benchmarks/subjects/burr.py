"""Burr with `SQLitePersister`."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from burr.core import ApplicationBuilder, Condition, Result, State, action
from burr.core.persistence import SQLitePersister
from pydantic import BaseModel

from tests.benchmarks.subjects import Figures, Preparation, Workload, sizes
from tests.benchmarks.subjects.floor import imported, loaded, stored_bytes, to_load
from tests.benchmarks.subjects.idle import idle
from tests.benchmarks.subjects.stopwatch import MARKS, Stopwatch, between, mark, repeated


class Message(BaseModel):
    role: str
    content: str


@action(reads=["n"], writes=["n"])
async def step(state: State) -> State:
    return state.update(n=state["n"] + 1)


@action(reads=["n"], writes=["n"])
async def untouched(state: State) -> State:
    mark()
    return state.update(n=state["n"] + 1)


@action(reads=["n", "messages"], writes=["n"])
async def touched(state: State) -> State:
    mark()
    assert state["messages"][-1].content
    return state.update(n=state["n"] + 1)


@action(reads=["lines"], writes=["lines"])
async def write(state: State) -> State:
    return state.append(lines=sizes.line(len(state["lines"])))


@action(reads=["n"], writes=["answer"])
async def ask(state: State, answer: str) -> State:
    return state.update(answer=answer)


def application(name: str, body: Any, given: dict[str, Any], more: str, persister: Any = None, run: str = "r") -> Any:
    builder = (
        ApplicationBuilder()
        .with_actions(**{name: body, "end": Result(*given)})
        .with_transitions((name, name, Condition.expr(more)), (name, "end"))
        .with_state(**given)
        .with_entrypoint(name)
        .with_identifiers(app_id=run)
    )
    return builder.with_state_persister(persister) if persister is not None else builder


def asking(persister: SQLitePersister, run: str, until: int) -> Any:
    """A loop that counts and then waits for an answer; taken up where it was, if it is stored."""
    return (
        ApplicationBuilder()
        .with_actions(step=step, ask=ask, end=Result("n"))
        .with_transitions(("step", "step", Condition.expr(f"n < {until}")), ("step", "ask"), ("ask", "end"))
        .initialize_from(
            persister,
            resume_at_next_action=True,
            default_state={"n": 0},
            default_entrypoint="step",
        )
        .with_state_persister(persister)
        .with_identifiers(app_id=run)
        .build()
    )


def opened(path: Path) -> SQLitePersister:
    persister = SQLitePersister(db_path=str(path), table_name="state", connect_kwargs={"check_same_thread": False})
    persister.connection.execute("PRAGMA journal_mode = WAL")
    persister.connection.execute("PRAGMA synchronous = FULL")
    persister.initialize()
    return persister


def timed(*builders: Any) -> Stopwatch:
    async def run() -> Stopwatch:
        apps = [builder.build() for builder in builders]
        with Stopwatch() as took:
            for app in apps:
                await app.arun(halt_after=["end"])
        return took

    return asyncio.run(run())


def loop(folder: Path) -> Figures:
    return timed(application("step", step, {"n": 0}, f"n < {sizes.LOOP}")).figures("us", sizes.LOOP)


def singles(persister: SQLitePersister | None) -> Figures:
    """Runs of one step, each of an application that is built for it."""

    async def run() -> Stopwatch:
        with Stopwatch() as took:
            for number in range(sizes.SINGLE):
                app = application("step", step, {"n": 0}, "n < 1", persister, f"r{number}").build()
                await app.arun(halt_after=["end"])
        return took

    return asyncio.run(run()).figures("us", sizes.SINGLE)


def one_memory(folder: Path) -> Figures:
    return singles(None)


def one_sqlite(folder: Path) -> Figures:
    return singles(opened(folder / "b.db"))


def beside(body: Any, messages: int, steps: int, folder: Path) -> Figures:
    said = [Message(role="user", content=f"message {number}") for number in range(messages)]
    timed(application("step", body, {"n": 0, "messages": said}, f"n < {steps}"))
    return between(MARKS)


def durable(folder: Path) -> Figures:
    persister = opened(folder / "b.db")
    took = timed(application("step", step, {"n": 0}, f"n < {sizes.DURABLE}", persister))
    persister.connection.close()
    return {**took.figures("us", sizes.DURABLE), "bytes": stored_bytes(folder / "b.db") / sizes.DURABLE}


def history(steps: int, folder: Path) -> Figures:
    persister = opened(folder / "b.db")
    took = timed(application("write", write, {"lines": []}, f"len(lines) < {steps}", persister))
    persister.connection.close()
    return {**took.figures("us", steps), "bytes": stored_bytes(folder / "b.db") / steps}


def load(steps: int, folder: Path) -> Figures:
    def newest() -> int:
        found = persister.load(None, "r")
        assert found is not None
        return len(found["state"]["lines"])

    with Stopwatch() as took:
        persister = opened(folder / "b.db")
        assert newest() == steps
    figures = {**took.figures("ms"), **repeated(newest, "warm_")}
    persister.connection.close()
    return figures


def concurrent(folder: Path) -> Figures:
    persister = opened(folder / "b.db")
    more = f"n < {sizes.RUN_STEPS}"

    async def run() -> Stopwatch:
        apps = [application("step", step, {"n": 0}, more, persister, f"r{n}").build() for n in range(sizes.RUNS)]
        with Stopwatch() as took:
            await asyncio.gather(*(app.arun(halt_after=["end"]) for app in apps))
        return took

    return asyncio.run(run()).figures("us", sizes.RUNS * sizes.RUN_STEPS)


def to_resume(folder: Path) -> None:
    persister = opened(folder / "b.db")
    persister.connection.execute("PRAGMA synchronous = OFF")  # nothing is measured
    asyncio.run(asking(persister, "r", sizes.RESUMED).arun(halt_before=["ask"]))
    persister.connection.close()


def resume(folder: Path) -> Figures:
    async def run() -> Stopwatch:
        with Stopwatch() as took:
            app = asking(opened(folder / "b.db"), "r", sizes.RESUMED)
            _, _, state = await app.arun(halt_after=["end"], inputs={"answer": "yes"})
        assert state["n"] == sizes.RESUMED
        return took

    return asyncio.run(run()).figures("ms")


def to_list(folder: Path) -> None:
    """One run, and copies of its rows."""
    for count in sizes.LISTED:
        persister = opened(folder / f"{count}.db")
        asyncio.run(asking(persister, "sample", 3).arun(halt_before=["ask"]))
        persister.connection.execute(
            "WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?) "
            "INSERT INTO state SELECT partition_key, 'run-' || n, sequence_id, position, status, state, created_at "
            "FROM state, numbers WHERE app_id = 'sample'",
            [count],
        )
        persister.connection.commit()
        persister.connection.close()


def many(folder: Path) -> Figures:
    """`load`, and `list_app_ids`, which lists all: it has no pages."""
    figures: dict[str, float] = {}
    for name, count in zip(("few", "many"), sizes.LISTED, strict=True):
        persister = opened(folder / f"{count}.db")
        assert persister.load(None, f"run-{count // 2}") is not None
        figures |= repeated(lambda p=persister, n=count: p.load(None, f"run-{n // 2}"), f"open_{name}_")  # type: ignore[misc]
        assert len(persister.list_app_ids(None)) == count + 1
        figures |= repeated(lambda p=persister: p.list_app_ids(None), f"list_{name}_")  # type: ignore[misc]
        persister.connection.close()
    return figures


def waiting(runs: int, folder: Path) -> Figures:
    """Applications that halt before the action that needs an answer, and are kept."""
    persister, kept = opened(folder / "b.db"), []

    async def start(first: int, last: int) -> None:
        for number in range(first, last):
            kept.append(app := asking(persister, f"r{number}", 3))
            await app.arun(halt_before=["ask"])

    return asyncio.run(idle(start, runs))


def chain(nodes: int) -> Any:
    names = [f"n{number}" for number in range(nodes)]
    more = Condition.expr("n < 10")
    return (
        ApplicationBuilder()
        .with_actions(**dict.fromkeys(names, step), end=Result("n"))
        .with_transitions(*pairwise(names), (names[-1], names[0], more), (names[-1], "end"))
        .with_state(n=0)
        .with_entrypoint(names[0])
        .build()
    )


def build(nodes: int, folder: Path) -> Figures:
    with Stopwatch() as took:
        chain(nodes)
    return took.figures("ms")


def draw(folder: Path) -> Figures:
    """With Graphviz's `dot`."""
    app = chain(sizes.DRAWN)
    with Stopwatch() as took:
        app.visualize(str(folder / "drawn.svg"))
    assert (folder / "drawn.svg").read_text().count("<g") >= sizes.DRAWN
    return took.figures("ms", name="svg_")


WORKLOADS: dict[str, Workload] = {
    "loop": loop,
    "one_memory": one_memory,
    "durable": durable,
    "one_sqlite": one_sqlite,
    "concurrent": concurrent,
    **{f"history_{n}": partial(history, n) for n in sizes.HISTORIES if n <= sizes.LONGEST_WHOLE},
    **{f"load_{n}": partial(loaded, load, n) for n in sizes.HISTORIES if n <= sizes.LONGEST_WHOLE},
    "resume": resume,
    "many": many,
    **{f"beside_{count}": partial(beside, untouched, count, sizes.BESIDE) for count in sizes.MESSAGES},
    "touched_5000": partial(beside, touched, sizes.MESSAGES[-1], sizes.TOUCHED),
    f"waiting_{sizes.WAITING[0]}": partial(waiting, sizes.WAITING[0]),
    "import": partial(imported, "import burr.core"),
    **{f"build_{nodes}": partial(build, nodes) for nodes in sizes.NODES},
    "draw": draw,
}
PREPARED: dict[str, Preparation] = {**to_load(history), "resume": to_resume, "many": to_list}
