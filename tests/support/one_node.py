"""Graphs of one node, and what comes of running them."""

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
    """START -> it -> END."""
    return Graph(name="one", state=state, nodes={"it": node}, edges="START -> it -> END", **options)


def of_calls(**options: Any) -> Graph:
    """A graph that makes the calls of its field `pending`; a call that fails is an observation like others."""
    calls = Execute(calls="pending", results="observations", on_failure="observe", **options)
    return Graph(
        name="calls", state=Execute.ListState, nodes={"x": calls}, edges="START -> x -> END", output="observations"
    )


@asynccontextmanager
async def executing(
    replies: Any = (), tools: Sequence[Tool] = (), store: str = "memory://", **options: Any
) -> AsyncIterator[tuple[Executor, ScriptedModel]]:
    """An executor with a scripted model whose script has to be used up."""
    with ScriptedModel(replies if isinstance(replies, dict) or callable(replies) else list(replies)) as model:
        async with Executor(store, model=model, tools=tools, **options) as executor:
            yield executor, model


async def run(
    node: Node, state: type[BaseModel], given: object = None, replies: Any = (), tools: Sequence[Tool] = ()
) -> Run:
    """A run of one node, from these values."""
    async with executing(replies, tools) as (executor, _):
        return await executor.start(of_one(node, state), {} if given is None else given)


def error_of(run: Run) -> tuple[str, str]:
    """Type and message of what a run failed of."""
    assert run.status == "failed", run
    assert run.error is not None
    return run.error.type, run.error.message
