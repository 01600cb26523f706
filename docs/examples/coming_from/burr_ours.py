"""A draft that is improved twice and then reviewed by a person: the program of burr_theirs.py."""

from typing import Literal

import anyio
from pydantic import BaseModel

from orchestrator import Executor, Graph, Outcome, Update, node
from orchestrator.nodes import Ask


class State(BaseModel):
    topic: str
    draft: str = ""
    rounds: int = 0
    verdict: str = ""


@node
def write(state: State) -> Update:
    return {"draft": f"About {state.topic}"}


@node
def improve(state: State) -> Outcome[Literal["again", "improved"]]:
    rounds = state.rounds + 1
    return Outcome("improved" if rounds == 2 else "again", draft=f"{state.draft}, better", rounds=rounds)


graph = Graph(
    name="draft",
    state=State,
    input="topic",
    nodes={"write": write, "improve": improve, "review": Ask(prompt="How is it?", show=("draft",), answer="verdict")},
    edges="""
        START -> write -> improve
        improve -> improve : again
        improve -> review : improved
        review -> END
    """,
    output=("verdict", "rounds"),
)


async def main() -> None:
    async with Executor("memory://", graphs=[graph]) as executor:
        run = await executor.start(graph, "tea", run_id="1")
        print("waits:", run.state.draft)
        run = await executor.answer("1", run.waiting[0].id, "fine")
        print("verdict:", run.state.verdict, "after", run.state.rounds, "rounds")


anyio.run(main)
