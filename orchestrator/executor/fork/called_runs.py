"""Calls of graphs as tools in forks: the run that the call of another run began is forked, too.

The parent's journal says how far that run was when it was forked: `Spent.head`, or the question of that run that the
parent asked last, under an id that follows from the question's own. So an answer that the fork has is an answer to what
its call asks. Where the journal says neither, because the run made no call and asked nothing by then, or where that run
is deleted, the call begins a new run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from orchestrator.errors import InvalidValue, RunExists, RunUnknown, StoreCorrupt
from orchestrator.executor.effects.limits import child_id
from orchestrator.executor.effects.questions import was_passed_on
from orchestrator.executor.fork.making import draft_of
from orchestrator.executor.host import Host
from orchestrator.executor.options import ForkOptions
from orchestrator.graph.model import GraphDefinition
from orchestrator.kernel.records import Asked, Caller, EffectIntended, Forked, Record, Spent
from orchestrator.kernel.state import Activation
from orchestrator.stores.requests import NewRun


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
            options = ForkOptions(origin.run_id, at=min(origin.head, info.head), caller=caller)
            draft = await draft_of(host, options, run_id, start=False)
            await store.create(NewRun(draft.info, draft.records))
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
    call: EffectIntended | None = None
    for record in copied:
        if isinstance(record, EffectIntended) and record.kind == "tool":
            same = (record.activation, record.name, record.digest, record.occurrence)
            if same == (wanted.activation, wanted.name, wanted.digest, wanted.occurrence):
                call = record
    if call is None:
        return None
    spent = [record for record in copied if isinstance(record, Spent) and record.key == call.key and record.head]
    found = Origin(spent[-1].run, spent[-1].head) if spent else None
    step = live.machine.activation(call.activation)
    questions = {one.question.id for one in copied if isinstance(one, Asked) and one.activation == call.activation}
    asked = await _asked_last(host, records, call, step, questions) if questions and step is not None else None
    if asked is None or (found is not None and (found.run_id != asked.run_id or found.head > asked.head)):
        return found
    return asked


async def _asked_last(
    host: Host, records: Sequence[Record], call: EffectIntended, step: Activation, questions: Collection[str]
) -> Origin | None:
    """The run that a call began, as far as the last of its questions that the calling step asked.

    Args:
        host: has the runs.
        records: of the fork that makes the call again.
        call: the call, as it was copied.
        step: the step that makes it.
        questions: the ids of what the step had asked when its run was forked.
    """
    try:
        name = child_id(await _maker(host, records, call.seq), call.key)
        inside = await host.store.read(name)
    except (RunUnknown, StoreCorrupt):
        return None
    heads = [one.seq for one in inside if isinstance(one, Asked) and was_passed_on(step, one.question.id, questions)]
    return Origin(name, heads[-1]) if heads else None


async def _maker(host: Host, records: Sequence[Record], seq: int) -> str:
    """The run that wrote a record of which a fork has a copy.

    Args:
        host: has the runs.
        records: of the fork.
        seq: the number of the record.
    """
    parent = next(one.parent for one in records if isinstance(one, Forked) and one.seq > seq)
    before = await host.store.read(parent)
    copied = any(isinstance(one, Forked) and one.seq > seq for one in before)
    return await _maker(host, before, seq) if copied else parent
