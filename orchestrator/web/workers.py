"""The workers of the store and its parked runs: a list, a stream of changes, and a screen."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import anyio
from starlette.responses import Response

from orchestrator.errors import RunUnknown
from orchestrator.stores.base import Changing
from orchestrator.tasks import away
from orchestrator.web import documents, questions, requests, streams
from orchestrator.web.endpoint import Call
from orchestrator.web.screens import shell

if TYPE_CHECKING:
    from starlette.types import ASGIApp


_RUNS = 5
"""Maximum number of runs listed for each worker: `authorize` is called for each."""


async def listing(call: Call[requests.WorkersQuery]) -> documents.WorkerList | ASGIApp:
    """Return the workers and the parked runs.

    If the client accepts a stream: an event whenever they, or the number of open questions, change.
    """
    if streams.MEDIA in call.request.headers.get("accept", ""):
        return call.stream(_changes(call))
    return await list_of(call)


async def list_of(call: Call[requests.WorkersQuery]) -> documents.WorkerList:
    """Return the workers and the parked runs, whatever media type the client accepts."""
    limit = call.query.limit
    found = await call.executor.workers.list()
    parked = await call.executor.workers.parked(limit=limit + 1)
    named = [(one, await _named(call, one.runs)) for one in found[:limit]]
    return documents.WorkerList(
        workers=await away(lambda: [documents.worker_of(*one) for one in named], named),
        more_workers=max(0, len(found) - limit),
        parked=await documents.rows_of([info for info in parked[:limit] if await call.may_see(info)]),
        more_parked=len(parked) > limit,
    )


async def _named(call: Call[requests.WorkersQuery], run_ids: Sequence[str]) -> list[str]:
    """Return the first of some runs, without those that the principal may not see."""
    if call.settings.authorize is None:
        return [*run_ids[:_RUNS]]
    named = []
    for run_id in run_ids[:_RUNS]:
        try:
            info = await call.executor.store.info(run_id)
        except RunUnknown:  # it was deleted meanwhile
            continue
        if await call.may_see(info):
            named.append(run_id)
    return named


async def _changes(call: Call[requests.WorkersQuery]) -> AsyncIterator[str]:
    store = call.executor.store
    known: documents.WorkerList | None = None
    asked, counted, written = 0, 0, None
    while True:  # a worker that lapses or dies writes nothing, so every iteration reads
        now = await list_of(call)
        changes = store.changes() if isinstance(store, Changing) else None
        if changes is None or changes != written:
            written, counted = changes, await questions.waiting_for_people(call)
        if known is None:
            yield streams.event_text(documents.WorkersEvent(type="ready"))
        elif _differs(known, now) or counted != asked:
            yield streams.event_text(documents.WorkersEvent(type="changed"))
        known, asked = now, counted
        await anyio.sleep(call.settings.poll)


def _differs(before: documents.WorkerList, now: documents.WorkerList) -> bool:
    """Return True if something changed. The age of a heartbeat does not count."""
    beats = [(then.heartbeat, one.heartbeat) for then, one in zip(before.workers, now.workers, strict=False)]
    return any(one < then for then, one in beats) or _without_ages(before) != _without_ages(now)


def _without_ages(found: documents.WorkerList) -> documents.WorkerList:
    return found.model_copy(update={"workers": [one.model_copy(update={"heartbeat": 0.0}) for one in found.workers]})


_SAYS = {
    "alive": "Its heartbeat is not overdue.",
    "draining": "It was asked to stop, and takes no more runs.",
    "lapsed": "It was stopped, or is cut off from the store. Other workers take its runs over.",
    "dead": "Its process has ended. Other workers take its runs over.",
}


@dataclass(frozen=True, slots=True)
class Working:
    """A worker in the list."""

    key: str
    version: str
    id: str
    state: str
    says: str
    """Meaning of the state."""
    place: str
    """Its machine and process."""
    release: str
    graphs: Sequence[tuple[str, str]]
    """Names of graphs, each with the query of its runs."""
    more_graphs: int
    worker: bool
    held: str
    """Number of runs that it holds, and of its slots."""
    runs: Sequence[str]
    more_runs: int
    heartbeat: float
    """Its age in seconds."""
    heard: str
    """The age as text."""
    lapses: str
    """Time without a heartbeat after which it lapses, as text; empty: it is not alive."""


@dataclass(frozen=True, slots=True)
class Parked:
    """A parked run in the list."""

    key: str
    version: str
    id: str
    input: str
    graph: str
    query: str
    """The query of the graph's runs."""
    fault: str
    deaths: int


def working_of(row: documents.WorkerRow) -> Working:
    """Return a worker as a row of the table."""
    held = f"{row.held:,}" if row.slots is None else f"{row.held:,} of {row.slots:,}"
    return Working(
        key=shell.key_of(row.id),
        version=shell.key_of(repr(row.model_copy(update={"heartbeat": 0.0}))),
        id=row.id,
        state=row.state,
        says=_SAYS[row.state],
        place=f"{row.host or 'unknown machine'}{'' if row.pid is None else f', process {row.pid}'}",
        release=row.version,
        graphs=[(name, query_of(name)) for name in row.graphs],
        more_graphs=row.more_graphs,
        worker=row.worker,
        held=held,
        runs=row.runs,
        more_runs=row.held - len(row.runs),
        heartbeat=round(row.heartbeat, 1),
        heard=f"{_short(row.heartbeat)} ago",
        lapses=_short(row.ttl) if row.state in ("alive", "draining") else "",
    )


def query_of(graph: str) -> str:
    """Return the query that lists the runs of a graph. Characters that a URL cannot contain are replaced."""
    return urlencode({"graph": graph}, errors="replace")


def parked_of(row: documents.RunRow) -> Parked:
    """Return a parked run as a row of the table."""
    return Parked(
        key=shell.key_of(row.run_id),
        version=shell.key_of(f"{row.head} {row.deaths} {row.fault}"),
        id=row.run_id,
        input=row.input,
        graph=row.graph,
        query=query_of(row.graph),
        fault=row.fault,
        deaths=row.deaths,
    )


def _short(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else shell.lasting(seconds).removesuffix(" 0 s")


def summary_of(found: documents.WorkerList) -> str:
    """Count the workers in each state; empty: none."""
    states = [one.state for one in found.workers if one.worker]
    parts = [f"{states.count(name)} {name}" for name in _SAYS if name in states]
    others = sum(not one.worker for one in found.workers)
    if others:
        parts.append(f"{others} {'other holds' if others == 1 else 'others hold'} runs")
    if found.more_workers:
        parts.append(f"{found.more_workers:,} more are not shown")
    return ", ".join(parts)


async def screen(call: Call[requests.WorkersQuery]) -> Response:
    """Show the workers of the store, and the parked runs."""
    found = await list_of(call)
    waiting = await questions.open_questions(call)
    return await shell.page(
        call,
        "workers",
        {
            "title": "Workers",
            "working": [working_of(one) for one in found.workers],
            "parked": [parked_of(one) for one in found.parked],
            "more_parked": found.more_parked,
            "summary": summary_of(found),
            "open_questions": waiting,
            "changes": f"/workers?{urlencode({'limit': call.query.limit})}",
        },
        root=shell.root_of(call),
        version=["workers", time.time()],  # ages change with each response
    )
