"""LangGraph with `AsyncSqliteSaver`, `durability="sync"`; and the same with its beta `DeltaChannel` for what grows."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel

from tests.benchmarks.subjects import Figures, Preparation, Workload, sizes
from tests.benchmarks.subjects.floor import imported, loaded, stored_bytes, to_load
from tests.benchmarks.subjects.idle import idle
from tests.benchmarks.subjects.stopwatch import MARKS, Stopwatch, between, mark, repeated, typical


class Count(TypedDict):
    n: int
    until: int


class Log(TypedDict):
    lines: Annotated[list[str], operator.add]
    until: int


class Message(BaseModel):
    role: str
    content: str


class Beside(TypedDict):
    n: int
    until: int
    messages: list[Message]


class Fan(TypedDict):
    items: list[Any]
    found: Annotated[list[int], operator.add]


async def step(state: Count) -> dict[str, int]:
    return {"n": state["n"] + 1}


async def untouched(state: Beside) -> dict[str, int]:
    mark()
    return {"n": state["n"] + 1}


async def touched(state: Beside) -> dict[str, int]:
    mark()
    assert state["messages"][-1].content
    return {"n": state["n"] + 1}


async def write(state):  # without hints: it writes to two kinds of state
    return {"lines": [sizes.line(len(state["lines"]))]}


async def ask(state: Count) -> dict[str, int]:
    assert interrupt("Go on?")
    return {"n": state["n"]}


async def branch(state: dict[str, Any]) -> dict[str, list[int]]:
    item = state["item"]
    return {"found": [(item["id"] if isinstance(item, dict) else item) + 1]}


def counting(state: Any = Count, body: Any = step) -> StateGraph:
    graph = StateGraph(state)
    graph.add_node("step", body)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda s: "step" if s["n"] < s["until"] else END, ["step", END])
    return graph


def asking() -> StateGraph:
    """A loop that counts and then waits for an answer."""
    graph = StateGraph(Count)
    graph.add_node("step", step)
    graph.add_node("ask", ask)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda s: "step" if s["n"] < s["until"] else "ask", ["step", "ask"])
    graph.add_edge("ask", END)
    return graph


def logging(state: Any) -> StateGraph:
    graph = StateGraph(state)
    graph.add_node("write", write)
    graph.add_edge(START, "write")
    graph.add_conditional_edges("write", lambda s: "write" if len(s["lines"]) < s["until"] else END, ["write", END])
    return graph


def settings(run: str, steps: int) -> Any:
    return {"configurable": {"thread_id": run}, "recursion_limit": steps + 10}


def loop(steps: int, runs: int, folder: Path) -> Figures:
    async def run() -> Stopwatch:
        graph = counting().compile()
        with Stopwatch() as took:
            for _ in range(runs):
                found = await graph.ainvoke({"n": 0, "until": steps}, settings("r", steps))
        assert found["n"] == steps
        return took

    return asyncio.run(run()).figures("us", steps * runs)


def beside(body: Any, messages: int, steps: int, folder: Path) -> Figures:
    said = [Message(role="user", content=f"message {number}") for number in range(messages)]
    graph = counting(Beside, body).compile()
    asyncio.run(graph.ainvoke({"n": 0, "until": steps, "messages": said}, settings("r", steps)))
    return between(MARKS)


def store(folder: Path) -> Any:
    return AsyncSqliteSaver.from_conn_string(str(folder / "l.db"))


def stored(graph: StateGraph, given: Any, steps: int, folder: Path) -> Figures:
    async def run() -> Stopwatch:
        async with store(folder) as saver:
            await saver.setup()
            compiled = graph.compile(checkpointer=saver)
            with Stopwatch() as took:
                await compiled.ainvoke(given, settings("r", steps), durability="sync")
        return took

    took = asyncio.run(run())
    return {**took.figures("us", steps), "bytes": stored_bytes(folder / "l.db") / steps}


def durable(folder: Path) -> Figures:
    return stored(counting(), {"n": 0, "until": sizes.DURABLE}, sizes.DURABLE, folder)


def one_sqlite(folder: Path) -> Figures:
    async def run() -> Stopwatch:
        async with store(folder) as saver:
            await saver.setup()
            graph = counting().compile(checkpointer=saver)
            with Stopwatch() as took:
                for number in range(sizes.SINGLE):
                    await graph.ainvoke({"n": 0, "until": 1}, settings(f"r{number}", 1), durability="sync")
        return took

    return asyncio.run(run()).figures("us", sizes.SINGLE)


def history(state: Callable[[], Any], steps: int, folder: Path) -> Figures:
    return stored(logging(state()), {"lines": [], "until": steps}, steps, folder)


def load(state: Callable[[], Any], steps: int, folder: Path) -> Figures:
    graph, again = logging(state()), []

    async def run() -> Figures:
        with Stopwatch() as first:
            opening = store(folder)
            saver = await opening.__aenter__()
            compiled = graph.compile(checkpointer=saver)
            assert len((await compiled.aget_state(settings("r", steps))).values["lines"]) == steps
        for _ in range(9):
            with Stopwatch() as took:
                await compiled.aget_state(settings("r", steps))
            again.append(took)
        await opening.__aexit__(None, None, None)
        return {**first.figures("ms"), **typical(again, "warm_")}

    return asyncio.run(run())


def delta_log() -> Any:
    """The state whose list is stored as what was added to it."""
    from langgraph.channels import DeltaChannel

    def extend(old: list[str], writes: list[list[str]]) -> list[str]:
        return [*old, *(line for lines in writes for line in lines)]

    return TypedDict("DeltaLog", {"lines": Annotated[list[str], DeltaChannel(extend)], "until": int})


def fan(items: list[Any], folder: Path) -> Figures:
    graph = StateGraph(Fan)
    graph.add_node("begin", lambda state: {})
    graph.add_node("branch", branch)
    graph.add_node("join", lambda state: {})
    graph.add_edge(START, "begin")
    graph.add_conditional_edges("begin", lambda s: [Send("branch", {"item": i}) for i in s["items"]], ["branch"])
    graph.add_edge("branch", "join")
    graph.add_edge("join", END)

    async def run() -> Stopwatch:
        compiled = graph.compile()
        with Stopwatch() as took:
            found = await compiled.ainvoke({"items": items, "found": []})
        assert len(found["found"]) == len(items)
        return took

    return asyncio.run(run()).figures("us", len(items))


def concurrent(folder: Path) -> Figures:
    async def run() -> Stopwatch:
        async with store(folder) as saver:
            await saver.setup()
            graph = counting().compile(checkpointer=saver)
            given: Any = {"n": 0, "until": sizes.RUN_STEPS}
            runs = (
                graph.ainvoke(given, settings(f"r{n}", sizes.RUN_STEPS), durability="sync") for n in range(sizes.RUNS)
            )
            with Stopwatch() as took:
                await asyncio.gather(*runs)
        return took

    return asyncio.run(run()).figures("us", sizes.RUNS * sizes.RUN_STEPS)


def to_resume(folder: Path) -> None:
    async def run() -> None:
        async with store(folder) as saver:
            await saver.setup()
            await saver.conn.execute("PRAGMA synchronous = OFF")  # nothing is measured
            graph = asking().compile(checkpointer=saver)
            await graph.ainvoke({"n": 0, "until": sizes.RESUMED}, settings("r", sizes.RESUMED), durability="sync")

    asyncio.run(run())


def resume(folder: Path) -> Figures:
    async def run() -> Stopwatch:
        with Stopwatch() as took:
            async with store(folder) as saver:
                graph = asking().compile(checkpointer=saver)
                found = await graph.ainvoke(Command(resume="yes"), settings("r", sizes.RESUMED), durability="sync")
        assert found["n"] == sizes.RESUMED
        return took

    return asyncio.run(run()).figures("ms")


def to_list(folder: Path) -> None:
    """One thread, and copies of its rows."""

    async def run(count: int) -> None:
        async with AsyncSqliteSaver.from_conn_string(str(folder / f"{count}.db")) as saver:
            await saver.setup()
            graph = asking().compile(checkpointer=saver)
            await graph.ainvoke({"n": 0, "until": 3}, settings("sample", 3), durability="sync")
            numbers = "WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?) "
            for table in ("checkpoints", "writes"):
                async with saver.conn.execute(f"SELECT name FROM pragma_table_info('{table}')") as cursor:
                    names = ", ".join([name async for (name,) in cursor if name != "thread_id"])
                await saver.conn.execute(
                    f"{numbers} INSERT INTO {table} (thread_id, {names}) SELECT 'run-' || n, {names} "
                    f"FROM {table}, numbers WHERE thread_id = 'sample'",
                    [count],
                )
            await saver.conn.commit()

    for count in sizes.LISTED:
        asyncio.run(run(count))


def many(folder: Path) -> Figures:
    """`aget_state`, and the newest checkpoints of all threads with `alist`: threads themselves are not listed."""
    figures: dict[str, float] = {}

    async def run(count: int) -> tuple[list[Stopwatch], list[Stopwatch]]:
        opened, listed = [], []
        async with AsyncSqliteSaver.from_conn_string(str(folder / f"{count}.db")) as saver:
            graph = asking().compile(checkpointer=saver)
            for number in range(10):
                with Stopwatch() as took:
                    assert (await graph.aget_state(settings(f"run-{number * (count // 20)}", 3))).values["n"] == 3
                opened.append(took)
                with Stopwatch() as took:
                    assert len([one async for one in saver.alist(None, limit=sizes.PAGE)]) == sizes.PAGE
                listed.append(took)
        return opened[1:], listed[1:]

    for name, count in zip(("few", "many"), sizes.LISTED, strict=True):
        opened, listed = asyncio.run(run(count))
        figures |= {**typical(opened, f"open_{name}_"), **typical(listed, f"list_{name}_")}
    return figures


def waiting(runs: int, folder: Path) -> Figures:
    """Interrupted threads."""

    async def run() -> Figures:
        async with store(folder) as saver:
            await saver.setup()
            graph = asking().compile(checkpointer=saver)

            async def start(first: int, last: int) -> None:
                for number in range(first, last):
                    given: Any = {"n": 0, "until": 3}
                    found = await graph.ainvoke(given, settings(f"r{number}", 3), durability="sync")
                    assert "__interrupt__" in found

            return await idle(start, runs)

    return asyncio.run(run())


def chain(nodes: int) -> Any:
    graph = StateGraph(Count)
    for number in range(nodes):
        graph.add_node(f"n{number}", step)
        graph.add_edge(f"n{number - 1}" if number else START, f"n{number}")
    graph.add_conditional_edges(f"n{nodes - 1}", lambda s: "n0" if s["n"] < s["until"] else END, ["n0", END])
    return graph.compile()


def build(nodes: int, folder: Path) -> Figures:
    with Stopwatch() as took:
        chain(nodes)
    return took.figures("ms")


def draw(folder: Path) -> Figures:
    graph = chain(sizes.DRAWN)
    return repeated(lambda: graph.get_graph().draw_mermaid(), "mermaid_", 3)


def react(folder: Path) -> Figures:
    """LangChain's `create_agent`, which is a LangGraph."""
    from langchain.agents import create_agent
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    from tests.benchmarks.subjects import loopback

    @tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def run(url: str) -> Stopwatch:
        async with store(folder) as saver:
            await saver.setup()
            agent = create_agent(ChatOpenAI(model="m", base_url=url, api_key="none"), [add], checkpointer=saver)
            with Stopwatch() as took:
                given: Any = {"messages": [{"role": "user", "content": "Add."}]}
                found = await agent.ainvoke(given, settings("r", 4 * sizes.CALLS), durability="sync")
            assert len(found["messages"]) == 2 * sizes.CALLS + 2
        return took

    with loopback.serving() as url:
        return loopback.figures(asyncio.run(run(url)))


WORKLOADS: dict[str, Workload] = {
    "loop": partial(loop, sizes.LOOP, 1),
    "one_memory": partial(loop, 1, sizes.SINGLE),
    "durable": durable,
    "one_sqlite": one_sqlite,
    "concurrent": concurrent,
    **{f"history_{n}": partial(history, lambda: Log, n) for n in sizes.HISTORIES if n <= sizes.LONGEST_WHOLE},
    **{
        f"load_{n}": partial(loaded, partial(load, lambda: Log), n) for n in sizes.HISTORIES if n <= sizes.LONGEST_WHOLE
    },
    "resume": resume,
    "many": many,
    **{f"beside_{count}": partial(beside, untouched, count, sizes.BESIDE) for count in sizes.MESSAGES},
    "touched_5000": partial(beside, touched, sizes.MESSAGES[-1], sizes.TOUCHED),
    **{f"fan_{count}": partial(fan, list(range(count))) for count in sizes.FANS[:2]},
    **{f"map_{count}": partial(fan, [sizes.record(n) for n in range(count)]) for count in sizes.MAPS},
    f"waiting_{sizes.WAITING[0]}": partial(waiting, sizes.WAITING[0]),
    "react": react,
    "import": partial(imported, "import langgraph.graph"),
    **{f"build_{n}": partial(build, n) for n in sizes.NODES},
    "draw": draw,
}
PREPARED: dict[str, Preparation] = {
    **to_load(partial(history, lambda: Log)),
    "resume": to_resume,
    "many": to_list,
}
DELTA: dict[str, Workload] = {
    **{f"history_{n}": partial(history, delta_log, n) for n in sizes.HISTORIES},
    **{f"load_{n}": partial(loaded, partial(load, delta_log), n) for n in sizes.HISTORIES},
}
DELTA_PREPARED: dict[str, Preparation] = to_load(partial(history, delta_log))
