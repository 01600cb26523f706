"""Replays of many runs: the form that begins them, and the table of what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlencode

from pydantic import Field
from starlette.responses import Response

from orchestrator.web import replays
from orchestrator.web.documents import first_line
from orchestrator.web.endpoint import Call, Endpoint
from orchestrator.web.replays import BatchName, RunsToReplay
from orchestrator.web.requests import Name, Query
from orchestrator.web.screens.compare import runs_query
from orchestrator.web.screens.shell import key_of, open_questions, page, root_of

if TYPE_CHECKING:
    from orchestrator.web.replays import ReplayRow, ReplaysDocument

_LIVE = (
    ("never", "end the replay there: nothing is called"),
    ("ask", "ask a person before each call"),
    ("always", "make the calls; a person is asked about those that cannot be undone"),
)
_SAYS = {
    "absent": "not begun",
    "waiting": "waiting",
    "running": "running",
    "same": "same",
    "different": "different",
    "asks": "asks",
    "failed": "cannot be replayed",
    "stopped": "stopped",
    "interrupted": "interrupted",
}


class ReplayQuery(Query):
    """The runs, how they are replayed, and the name of the batch once it has begun."""

    runs: RunsToReplay
    batch: BatchName | None = None
    graph: Name | None = Field(None, description="Another graph of this server.")
    at: int | None = Field(None, ge=0, le=2**53, description="The record to replay from.")
    live: Literal["never", "ask", "always"] = "never"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A run that is to be replayed."""

    id: str
    input: str
    status: str
    graph: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """The replay of one run in the table."""

    key: str
    version: str
    row: ReplayRow
    says: str
    """The outcome in words."""
    compare: str
    """The address of the comparison of the run with its replay; empty: there is no replay."""


async def replay(call: Call[ReplayQuery]) -> Response:
    """The form; or, once the replays have begun, what came of them."""
    query, root = call.query, root_of(call)
    runs = replays.names_of(query.runs)
    waiting = await open_questions(call)
    given = _parameters(query)
    data: dict[str, object] = {
        "runs": runs,
        "graphs": sorted(await call.graphs()),
        "graph": query.graph or "",
        "at": query.at,
        "live": query.live,
        "ways": _LIVE,
        "open_questions": waiting,
        "given": {"runs": runs} | given,
        "again": f"{root}/replay?{urlencode([*runs_query(runs), *given.items()])}",
        "many": f"{len(runs)} run{'' if len(runs) == 1 else 's'}",
    }
    if query.batch is None:
        chosen = [await _chosen(call, run_id) for run_id in runs]
        data |= {"title": f"Replay {data['many']}", "chosen": chosen, "batch": ""}
        return await page(call, "replay", data, root=root, version=["replay", given, waiting, repr(chosen)])
    found = await replays.list_of(call, runs, query.batch)
    rows = [_row(row, root) for row in found.replays]
    data |= {
        "title": f"Replay of {data['many']}",
        "batch": query.batch,
        "rows": rows,
        "going": found.going,
        "summary": _summary(found),
        "left": sum(row.outcome in _LEFT for row in found.replays),
        "done": found.done,
        "total": len(rows),
        "changes": f"/replays?{urlencode([*runs_query(runs), ('batch', query.batch)])}",
    }
    return await page(
        call, "replay", data, root=root, version=["replay", given, waiting, found.model_dump(mode="json")]
    )


_LEFT = ("absent", "stopped", "interrupted")
"""Outcomes of replays that can be started or continued."""


def _parameters(query: ReplayQuery) -> dict[str, Any]:
    """Options of the replays, as parameters of an address."""
    given = {"graph": query.graph or None, "at": query.at, "live": query.live}
    return {name: value for name, value in given.items() if value is not None}


async def _chosen(call: Call[ReplayQuery], run_id: str) -> Chosen:
    info = await call.seen(run_id)
    return Chosen(run_id, first_line(info.input), info.status, info.graph)


def _row(row: ReplayRow, root: str) -> Replayed:
    shown = bool(row.status)
    step = {"step": row.step} if row.step else {}
    query = urlencode([*runs_query([row.run_id, row.replay_id]), *step.items()])
    return Replayed(
        key_of(row.replay_id),
        key_of(row.model_dump_json()),
        row,
        _SAYS[row.outcome],
        f"{root}/compare?{query}" if shown else "",
    )


def _summary(found: ReplaysDocument) -> str:
    """Describe the progress of the replays, and their results."""
    rows: Sequence[ReplayRow] = found.replays
    counts = {name: sum(row.outcome == name for row in rows) for name in _SAYS}
    parts = [f"{count:,} {_SAYS[name]}" for name, count in counts.items() if count]
    return f"{found.done:,} of {len(rows):,} are over: {', '.join(parts)}"


SCREENS = (
    Endpoint("GET", "/replay", "view_replays", replay, "Runs replayed.", None, query=ReplayQuery, media="text/html"),
)
"""The replays of many runs."""
