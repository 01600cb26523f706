"""A program that has some turns of a chat, in one version of its graph, and ends.

`python -m tests.executor.chatting URL BACKEND VERSIONS TURNS [WHERE]`: the run is `r`; VERSIONS are names of
`VERSIONS` joined by commas, the newest first. With WHERE the process kills itself there, see `die_at`.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated, Any

import anyio
from pydantic import BaseModel

from orchestrator import Executor, Graph, Update, append, node
from orchestrator.graph import Migration
from orchestrator.nodes import Ask
from orchestrator.stores.requests import Append
from orchestrator.stores.sqlite import SQLiteStore, writes


class Talk(BaseModel):
    """What was said."""

    words: str = ""
    said: Annotated[list[str], append] = []


class Longer(Talk):
    """The same, and how often something was said."""

    turns: int = 0


@node
async def reply(state: Talk) -> Update:
    return {"said": f"{len(state.said)}: {state.words}"}


@node
async def counting(state: Longer) -> Update:
    return {"said": f"{len(state.said)}: {state.words}", "turns": state.turns + 1}


@node
async def polish(state: Talk) -> Update:
    return {}


@node
async def tidy(state: Talk) -> Update:
    return {}


def chat(asks: str, answers: Any, state: type[BaseModel], *later: Any) -> Graph:
    """A chat that asks at a node, replies, and does more after each reply."""
    names = [one.name for one in later]
    nodes = {asks: Ask(prompt="You?", answer="words"), "reply": answers, **dict(zip(names, later, strict=True))}
    edges = " -> ".join(("START", asks, "reply", *names, asks)) + f"\n{asks} -> END : error"
    return Graph(name="chat", state=state, nodes=nodes, edges=edges, output="said", limits={"steps": None})


VERSIONS = {
    "first": chat("you", reply, Talk, polish, tidy),
    "field": chat("you", counting, Longer, polish, tidy),
    "renamed": chat("person", counting, Longer, polish, tidy),
    "shorter": chat("person", counting, Longer, polish),
    "other": chat("human", counting, Longer),
}
MIGRATIONS = {"renamed": Migration(nodes={"you": "person"})}


def die_at(where: str) -> None:
    """Kill this process around the write of a migration: `before` it, `during` its transaction, or `after` it."""
    write, append = writes.append, SQLiteStore.append

    def dying_write(connection: Any, *args: Any, **options: Any) -> Any:
        migrates = b"migrated" in repr(args).encode()
        if migrates and where == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        done = write(connection, *args, **options)
        if migrates and where == "during":  # the transaction is not committed yet
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    async def dying_append(store: SQLiteStore, request: Append) -> int:
        done = await append(store, request)
        if where == "after" and any(record.type == "migrated" for record in request.records):
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    vars(writes)["append"] = dying_write
    setattr(SQLiteStore, "append", dying_append)  # noqa: B010


async def talk(url: str, versions: str, turns: int) -> None:
    """Have some turns."""
    names = versions.split(",")
    graphs = [VERSIONS[name] for name in names]
    async with Executor(url, graphs=graphs) as executor:
        if names == ["first"]:
            run = await executor.start(graphs[0], run_id="r")
        else:
            known = (await executor.load("r")).definition.structure
            migrate = MIGRATIONS.get(names[0]) if known == VERSIONS["field"].structure else None
            run = await executor.resume("r", migrate=migrate)
        for _ in range(turns):
            run = await executor.answer("r", run.waiting[0].id, f"word {len(run.values['said'])}")


if __name__ == "__main__":
    if len(sys.argv) > 5:
        die_at(sys.argv[5])
    from tests.executor import chatting  # the graphs' code, by the name that others know it by

    anyio.run(chatting.talk, sys.argv[1], sys.argv[3], int(sys.argv[4]), backend=sys.argv[2])
