"""What a new version of a graph would do to the runs of a store, before it is deployed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.errors import OrchestratorError
from orchestrator.executor.host import Host
from orchestrator.executor.versions.comparison import Grade
from orchestrator.executor.versions.migrations import assess
from orchestrator.graph.model import GraphDefinition
from orchestrator.stores.base import RunInfo
from orchestrator.stores.requests import RunQuery

_PAGE = 200
_UNENDED = ("running", "paused")


@dataclass(frozen=True, slots=True)
class VersionCheck:
    """What a new version of its graph would do to one run."""

    run_id: str
    status: str
    grade: Grade
    """What the run needs to continue in the new version; `compatible` also if only content changed, or nothing."""
    at: Sequence[str] = ()
    """The nodes that it is at."""
    changes: Sequence[str] = ()
    """Every difference of structure, each with its grade."""
    options: Sequence[str] | None = None
    """Options of `orchestrator resume RUN` with which it continues; None: it needs none, or none are known."""
    guesses: Sequence[str] = ()
    """What these options take for granted, line by line: check it before you use them."""
    undecided: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """State fields that are gone, with the new fields that each may have become, where there are several."""
    fault: str = ""
    """Why the run could not be compared, if it could not."""
    refs: Mapping[str, object] = field(default_factory=dict)
    """The references to its code, as text."""
    root_id: str = ""
    """The id that its first record names: of a fork that of the run at the root of all forks."""

    @property
    def refused(self) -> bool:
        """Whether an executor with the new version alone would refuse the run."""
        return self.grade != "compatible"


async def check_against(host: Host, graph: GraphDefinition) -> list[VersionCheck]:
    """See `ExecutorGraphs.check_runs`."""
    found: list[VersionCheck] = []
    cursor: str | None = None
    while True:
        page = await host.store.runs(RunQuery(status=_UNENDED, graph=graph.name, after=cursor, limit=_PAGE))
        for info in page.runs:
            try:
                found.append(await _checked(host, info, graph))
            except OrchestratorError as error:
                found.append(VersionCheck(info.run_id, info.status, "compatible", fault=str(error)))
        cursor = page.cursor
        if cursor is None:
            return found


async def _checked(host: Host, info: RunInfo, graph: GraphDefinition) -> VersionCheck:
    machine = await host.loader.machine_of(info, await host.loader.stored_graph(info))
    at = sorted({token.node for token in machine.root.live.values()}) if machine.root is not None else []
    refs = machine.refs
    old = machine.plan.graph
    if old is None or machine.structure == graph.structure:
        return VersionCheck(info.run_id, machine.status, "compatible", at, refs=refs, root_id=machine.root_id)
    found = assess(machine, old, graph)
    remedy = found.remedy
    return VersionCheck(
        info.run_id, machine.status, found.grade, at, tuple(map(str, found.changes)),
        None if remedy is None else remedy.options, () if remedy is None else remedy.guesses, found.undecided,
        refs=refs, root_id=machine.root_id,
    )  # fmt: skip
