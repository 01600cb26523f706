"""Runs whose calls return what is refused: `orchestrator worker --app tests.executor.refusing_program:app`.

`Errand.calls` says for each call by which door it is made, and how it ends. Each call writes a line to the file that
the environment variable `DIARY` names, before it ends: the run that made it, and the call.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel, SecretStr

from orchestrator import Context, Graph, Outcome, Retry, ToolResult, Update, node, tool
from orchestrator.executor import App
from orchestrator.values import MAX_BYTES
from tests.executor.work_program import note

DOORS = ("effect", "tool", "node")
REFUSED = ("wrong", "deep", "secret", "large")
OWN_ENDS = ("cancels itself", "exits")
"""Ends of a call by its own doing that leave its outcome open."""
KINDS = ("fits", "raises after", *REFUSED, *OWN_ENDS)
TRIES = Retry(attempts=2, wait=0, jitter=0, on=("Exception",))


class Errand(BaseModel):
    """What a run does: `calls` in their order, each a door and a kind."""

    name: str = ""
    calls: list[tuple[str, str]] = []
    i: int = 0
    said: str = ""


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else []


def made(run_id: str, name: str, i: int, kind: str) -> Any:
    """Do something outside, and return what the kind says."""
    note(f"{run_id} {name} {i}")
    if kind == "cancels itself":
        raise asyncio.CancelledError
    if kind == "exits":
        raise SystemExit(3)
    return {"wrong": 5, "deep": nested(200), "secret": SecretStr("hush"), "large": "x" * (MAX_BYTES + 1)}.get(
        kind, "ok"
    )


def ended(state: Errand, ctx: Context, said: str) -> Update:
    """The update after a call; the node may fail behind it."""
    if state.calls[state.i][1] == "raises after" and ctx.attempt == 1:
        raise RuntimeError("after the call")
    return {"i": state.i + 1, "said": said}


@tool(risk="none", effect="irreversible")
def pay(name: str, i: int, kind: str, ctx: Context) -> Any:
    """Pay."""
    found = made(ctx.run_id, name, i, kind)
    return ToolResult(output=nested(120)) if kind in ("wrong", "large") else found  # what is large is cut


async def by_effect(state: Errand, ctx: Context) -> Update:
    args = (state.name, state.i, state.calls[state.i][1])
    # The run is no argument: in a fork this is the same call.
    paid = await ctx.effect("pay", partial(made, ctx.run_id), *args, returns=str, effect="irreversible")
    return ended(state, ctx, paid)


async def by_tool(state: Errand, ctx: Context) -> Update:
    found = await ctx.tool("pay", check=True, name=state.name, i=state.i, kind=state.calls[state.i][1])
    return ended(state, ctx, found.text)


def by_node(state: Errand, ctx: Context) -> Any:
    found = made(ctx.run_id, state.name, state.i, state.calls[state.i][1])
    return {"i": state.i + 1, "said": found} if found != 5 else {"idd": 5}


@node(effect="pure")
def choose(state: Errand) -> Outcome[Literal["effect", "tool", "node", "over"]]:
    """Go to the next call's door."""
    return Outcome("over" if state.i == len(state.calls) else state.calls[state.i][0])  # type: ignore[arg-type]


def errands(name: str, retry: Retry | None) -> Graph:
    calls = {
        "effect": node(retry=retry)(by_effect),
        "tool": node(retry=retry)(by_tool),
        "node": node(retry=retry, effect="irreversible")(by_node),
    }
    lines = [f"choose -> {door} : {door}\n{door} -> choose" for door in DOORS]
    return Graph(
        name=name, state=Errand, nodes={"choose": choose, **calls}, output="i",
        edges="\n".join(["START -> choose", *lines, "choose -> END : over"]),
    )  # fmt: skip


plain, retried = errands("plain", None), errands("retried", TRIES)
app = App(graphs=[plain, retried], tools=[pay])
