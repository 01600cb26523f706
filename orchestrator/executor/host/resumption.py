"""What is journaled when a run is resumed, and the nodes at which a run pauses."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from orchestrator.errors import InvalidValue
from orchestrator.executor.host.manner import Manner
from orchestrator.graph.checks.edges import listed, mend_name
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.names import plain_name
from orchestrator.kernel.records import Resumed

if TYPE_CHECKING:
    from orchestrator.executor.drive.drive import Drive


def journal_resumed(live: Drive, holder: str, approve: str | None, *, unpause: bool) -> None:
    """Journal that a run is resumed, if there is anything left to do in it."""
    machine = live.machine
    if machine.ended is not None:
        return
    unpause = unpause and machine.paused
    changed = approve is not None and approve != machine.approve
    new = changed or live.changes is not None or live.stops is not None or live.refs is not None
    works = (bool(machine.running) or machine.result is not None) and not machine.is_held
    if works or unpause or new:
        graph = machine.plan.graph
        before, after = live.stops or (None, None)
        live.log.push(
            Resumed(
                **live.log.now(),
                holder=holder,
                content=graph.content if live.changes is not None and graph is not None else None,
                changes=live.changes or (),
                tools=live.tools,
                approve=approve if changed else None,
                unpause=unpause,
                pause_before=before,
                pause_after=after,
                refs=None if live.refs is None else dict(live.refs),
                by=live.by,
            )
        )
        live.changes = live.tools = live.stops = live.refs = None
        live.by = ""


def stops_of(how: Manner, graph: GraphDefinition) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None] | None:
    """The nodes before and after which a run is to pause from now on; None: no change.

    Raises:
        InvalidValue: see `nodes_of`.
    """
    if how.pause_before is None and how.pause_after is None:
        return None
    before = None if how.pause_before is None else nodes_of(graph, how.pause_before, "pause_before")
    after = None if how.pause_after is None else nodes_of(graph, how.pause_after, "pause_after")
    return before, after


def nodes_of(graph: GraphDefinition, names: Collection[str], argument: str) -> tuple[str, ...]:
    """The names of nodes, those inside of subgraphs by their path, in alphabetical order.

    Raises:
        InvalidValue: the graph has no such node.
    """
    if isinstance(names, str):
        raise InvalidValue(f"{argument}={names!r}: give a set of names of nodes, {{{names!r}}}", where=argument)
    if not names:
        return ()
    known = list(_places(graph))
    names = [name if name in known else plain_name(name) for name in names]
    for name in names:
        if name not in known:
            mend = mend_name(str(name), known, f"it has {listed(known)}")
            raise InvalidValue(f"{argument}: graph {graph.name!r} has no node {name!r}; {mend}", where=argument)
    return tuple(sorted(set(names)))


def _places(graph: GraphDefinition, around: str = "") -> Iterator[str]:
    for name, node in graph.nodes.items():
        yield f"{around}{name}"
        if node.subgraph is not None:
            yield from _places(node.subgraph, f"{around}{name}/")
