"""Runs compared with each other."""

from __future__ import annotations

from orchestrator.tasks import away
from orchestrator.web.documents import DiffDocument, blank
from orchestrator.web.endpoint import Call
from orchestrator.web.problems import fields_problem
from orchestrator.web.requests import DiffQuery

_MOST = 6


async def diff(call: Call[DiffQuery]) -> DiffDocument:
    """Compare runs with the first of them."""
    names = [name for name in call.query.runs.split(",") if name]
    if not 2 <= len(names) <= _MOST:
        raise fields_problem(
            [{"field": "runs", "message": f"name 2 to {_MOST} runs, with commas between them"}], "query"
        )
    for name in names:
        await call.seen(name)
    found = [await call.executor.diff(names[0], name) for name in names[1:]]
    figures = [found[0].figures[0], *(one.figures[1] for one in found)]
    return await away(
        lambda: DiffDocument(
            runs=[blank(one.to_json()) for one in figures], diffs=[blank(one.to_json()) for one in found]
        )
    )
