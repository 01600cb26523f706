"""Trying a text: its graph is run in a store of its own, see `scratch`."""

from __future__ import annotations

from orchestrator.web.compose import checks
from orchestrator.web.compose.requests import TryBody
from orchestrator.web.documents import RunResult, result_of
from orchestrator.web.endpoint import Call
from orchestrator.web.requests import NoQuery


async def start(call: Call[NoQuery, TryBody]) -> RunResult:
    """Run the graph of a text; with `wait`, return when it ends or pauses, or after a while."""
    body, texts, scratch = call.body, call.service.texts, call.service.scratch
    assert scratch is not None
    if body.wait:
        call.service.streams.check()
    approve = call.risk(body.approve)
    graph = await texts.away(lambda: checks.sound(body.text, body.format, texts.code))
    await call.check_new(None, graph.name, body.labels)
    run = await scratch.start(
        graph, body.input, model=body.model, limits=None if body.limits is None else body.limits.limits(),
        approve=approve, labels=body.labels, principal=call.principal,
    )  # fmt: skip
    if body.wait:
        async with call.waiting():
            return await result_of(await scratch.executor.wait(run.run_id))
    return await result_of(run)
