"""Graphs of one node, and functions that run them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pydantic import BaseModel

from orchestrator import Executor, Graph, Run, Tool
from orchestrator.graph import Node
from orchestrator.nodes import Execute
from orchestrator.testing import ScriptedModel


def of_one(node: Node, state: type[BaseModel], **options: Any) -> Graph:
    """Return the graph START -> it -> END."""
    return Graph(name="one", state=state, nodes={"it": node}, edges="START -> it -> END", **options)


def of_calls(**options: Any) -> Graph:
    """Return a graph that makes the calls of its field `pending`; a failed call is an observation like others."""
    calls = Execute(calls="pending", results="observations", on_failure="observe", **options)
    return Graph(
        name="calls", state=Execute.ListState, nodes={"x": calls}, edges="START -> x -> END", output="observations"
    )


@asynccontextmanager
async def executing(
    replies: Any = (), tools: Sequence[Tool] = (), store: str = "memory://", **options: Any
) -> AsyncIterator[tuple[Executor, ScriptedModel]]:
    """Open an executor with a scripted model, all of whose replies must be used."""
    with ScriptedModel(replies if isinstance(replies, dict) or callable(replies) else list(replies)) as model:
        async with Executor(store, model=model, tools=tools, **options) as executor:
            yield executor, model


async def run(
    node: Node, state: type[BaseModel], given: object = None, replies: Any = (), tools: Sequence[Tool] = ()
) -> Run:
    """Run one node, from these values, and return the run."""
    async with executing(replies, tools) as (executor, _):
        return await executor.start(of_one(node, state), {} if given is None else given)


def error_of(run: Run) -> tuple[str, str]:
    """Return the type and the message of the error of a failed run."""
    assert run.status == "failed", run
    assert run.error is not None
    return run.error.type, run.error.message
