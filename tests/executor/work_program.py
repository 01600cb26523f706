"""Runs for worker processes: `orchestrator worker --app tests.executor.work_program:app`.

Calls outside write a line each to the file that the environment variable `DIARY` names.
"""

from __future__ import annotations

import os
from pathlib import Path

import anyio
from pydantic import BaseModel

from orchestrator import Context, Graph, Update, node
from orchestrator.executor import App


def note(what: str) -> None:
    """One line, in one write."""
    file = os.open(os.environ["DIARY"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, f"{what}\n".encode())
    finally:
        os.close(file)


class Parcel(BaseModel):
    number: int = 0
    rounds: int = 0


@node
async def move(state: Parcel, ctx: Context) -> Update:
    """One call outside, known by its key, and a short wait."""

    async def call() -> str:
        note(f"{ctx.run_id} {state.rounds}")
        await anyio.sleep(0.1)
        return "moved"

    await ctx.effect("move", call, returns=str)
    await anyio.sleep(0.1)
    return {"rounds": state.rounds + 1}


@node
async def deadly(state: Parcel) -> Update:
    """End the process, unless a person put an antidote there."""
    note("deadly")
    if not Path(os.environ["DIARY"]).with_name("antidote").exists():
        os._exit(1)
    return {"rounds": 1}


moves = Graph(
    name="moves", state=Parcel, input="number", output="rounds",
    nodes={"one": move, "two": move, "three": move}, edges="START -> one -> two -> three -> END",
)  # fmt: skip
poison = Graph(
    name="poison", state=Parcel, input="number", output="rounds", nodes={"deadly": deadly},
    edges="START -> deadly -> END",
)  # fmt: skip
app = App(graphs=[moves, poison])
