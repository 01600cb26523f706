"""Calls of graphs as tools in forks: the run that the call of another run began is forked, too.

The parent's journal says how far that run was when it was forked (`Spent.head`). Where it does not, because the run
made no call by then or an earlier version wrote the journal, or where that run is deleted, the call begins a new run.
"""

from __future__ import annotations

from typing import NamedTuple

from orchestrator.errors import InvalidValue, RunExists, RunUnknown, StoreCorrupt
from orchestrator.executor.host.forks import Order, draft_of
from orchestrator.executor.host.host import Host
from orchestrator.graph.definition import GraphDefinition
from orchestrator.kernel.ledger import EffectEntry
from orchestrator.kernel.records import Caller, EffectIntended, EffectSettled, Spent


class Origin(NamedTuple):
    """The run that the same call of another run began, and how far it was."""

    run_id: str
    head: int


async def forked_call(host: Host, graph: GraphDefinition, run_id: str, caller: Caller) -> bool:
    """Make the run of a call as a fork, unless it is there.

    Args:
        host: has the runs.
        graph: the graph that is called.
        run_id: the id of the run that the call begins.
        caller: the call, of a fork.

    Returns:
        Whether the run is a fork; False: the call begins a run as any other does.
    """
    store = host.store
    try:
        first = (await store.read(run_id, limit=1))[0]
    except RunUnknown:
        origin = await _origin(host, caller)
        if origin is None:
            return False
        try:
            info = await store.info(origin.run_id)
            order = Order(origin.run_id, at=min(origin.head, info.head), caller=caller)
            draft = await draft_of(host, order, run_id, start=False)
            await store.create(draft.info, draft.records)
        except RunExists:
            pass
        except (RunUnknown, StoreCorrupt, InvalidValue):
            return False  # it is gone, damaged or complete: the call is made again
    else:
        if getattr(first, "run_id", run_id) == run_id:
            return False
    host.resources.graphs.setdefault(graph.name, graph)
    host.resources.begun[graph.content] = graph
    return True


async def _origin(host: Host, caller: Caller) -> Origin | None:
    """The run that the call of the caller's parent began, if the caller is a fork and has copied that call."""
    records = await host.store.read(caller.run_id)
    live = host.live.get(caller.run_id)
    made = live.machine.ledger.entry(caller.key) if live is not None else None
    if live is None or made is None:
        return None
    wanted, copied = made.intended, records[: live.machine.forked_at]
    calls: dict[str, EffectEntry] = {}
    for record in copied:
        if isinstance(record, EffectIntended) and record.kind == "tool":
            same = (record.activation, record.name, record.digest, record.occurrence)
            if same == (wanted.activation, wanted.name, wanted.digest, wanted.occurrence):
                calls[record.key] = EffectEntry(record)
        elif isinstance(record, EffectSettled) and record.key in calls:
            calls[record.key].settled = record
    if not calls:
        return None
    key = list(calls)[-1]
    spent = [record for record in copied if isinstance(record, Spent) and record.key == key and record.head]
    return Origin(spent[-1].run, spent[-1].head) if spent else None
