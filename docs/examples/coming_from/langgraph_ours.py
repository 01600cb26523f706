"""A report on several topics, which a person approves: the program of langgraph_theirs.py."""

from typing import Annotated

import anyio
from pydantic import BaseModel

from orchestrator import Approve, Context, Executor, Graph, Update, append, node
from orchestrator.nodes import Confirm


class State(BaseModel):
    topics: list[str]
    notes: Annotated[list[str], append] = []
    report: str = ""


@node
def research(state: State, ctx: Context) -> Update:
    return {"notes": f"{ctx.item}: found"}


@node
def write(state: State) -> Update:
    return {"report": "; ".join(state.notes)}


graph = Graph(
    name="report",
    state=State,
    input="topics",
    nodes={"research": research, "approve": Confirm(prompt="Write it?", show=("notes",), join="all"), "write": write},
    edges="""
        START -> research : each topics
        research -> approve
        approve -> write : approved
        approve -> END : denied
        write -> END
    """,
    output="report",
)


async def main() -> None:
    async with Executor("memory://", graphs=[graph]) as executor:
        run = await executor.start(graph, ["tea", "bread"], run_id="1")
        print("waits:", *run.state.notes)
        run = await executor.answer("1", run.waiting[0].id, Approve())
        print("report:", run.output)


anyio.run(main)
