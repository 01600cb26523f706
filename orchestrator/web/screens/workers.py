"""The list of workers: a row for each, and one for each parked run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from orchestrator.web.screens.runs import lasting
from orchestrator.web.screens.shell import key_of

if TYPE_CHECKING:
    from orchestrator.web.documents import RunRow, WorkerList, WorkerRow

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
    """After how long without a heartbeat it lapses, as text; empty: it is not alive."""


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


def working_of(row: WorkerRow) -> Working:
    """A worker as a row of the table."""
    held = f"{row.held:,}" if row.slots is None else f"{row.held:,} of {row.slots:,}"
    return Working(
        key=key_of(row.id),
        version=key_of(repr(row.model_copy(update={"heartbeat": 0.0}))),
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
    """The query that lists the runs of a graph. What an address cannot hold is replaced."""
    return urlencode({"graph": graph}, errors="replace")


def parked_of(row: RunRow) -> Parked:
    """A parked run as a row of the table."""
    return Parked(
        key=key_of(row.run_id),
        version=key_of(f"{row.head} {row.deaths} {row.fault}"),
        id=row.run_id,
        input=row.input,
        graph=row.graph,
        query=query_of(row.graph),
        fault=row.fault,
        deaths=row.deaths,
    )


def _short(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else lasting(seconds).removesuffix(" 0 s")


def summary_of(found: WorkerList) -> str:
    """Count the workers in each state; empty: none."""
    states = [one.state for one in found.workers if one.worker]
    parts = [f"{states.count(name)} {name}" for name in _SAYS if name in states]
    others = sum(not one.worker for one in found.workers)
    if others:
        parts.append(f"{others} {'other holds' if others == 1 else 'others hold'} runs")
    if found.more_workers:
        parts.append(f"{found.more_workers:,} more are not shown")
    return ", ".join(parts)
