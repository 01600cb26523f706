"""Replays about to be driven: reads the recording of the replayed run from the store."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from orchestrator.errors import GraphUnknown, RunUnknown
from orchestrator.executor.loader import RunLoader
from orchestrator.executor.replay import DEFAULT
from orchestrator.executor.replay.running import Live, RecordedCall, Recording, recording_of, rename, running_replay
from orchestrator.executor.replay.steps import answer_as_recorded
from orchestrator.executor.resources import Resources
from orchestrator.kernel.records import Forked, Migrated, Record, RunStarted
from orchestrator.stores.base import Store
from orchestrator.views.superseded import VersionNames

if TYPE_CHECKING:
    from orchestrator.executor.drive import Drive


async def attach(store: Store, loader: RunLoader, live: Mapping[str, Drive], drive: Drive) -> None:
    """Attach a `RunningReplay` to a run that is a replay, or that a replay called, directly or through other runs.

    Args:
        store: the store of the run.
        loader: reads graphs.
        live: the runs driven here.
        drive: the run.

    Raises:
        GraphUnknown: a model with which the replay was started is missing.
        StoreError: the store failed.
    """
    log, machine = drive.log, drive.log.machine
    fork, caller = machine.fork, machine.caller
    mode: Live | None
    recording: Recording | None = None
    if fork is not None and fork.relation == "replay":
        mode = fork.live if fork.live != "" else "never"
        _check_models(drive.resources, fork)
        recording = await _recording(store, loader, fork, machine.structure)
    elif caller is not None:
        around = live.get(caller.run_id)
        if around is None:
            mode = await _mode_of(store, caller.run_id)
        else:
            mode = None if around.log.replay is None else around.log.replay.live
    else:
        return
    if mode is None:
        return
    own = [*await store.read(log.run_id, upto=log.journal.stored), *log.journal.buffer]
    models = {} if fork is None else fork.models
    plan = await loader.plan_of(await store.info(log.run_id), own)
    replay = log.replay = running_replay(mode, recording, models, plan, own)
    machine.observers = (*machine.observers, replay)
    for question in list(machine.questions.values()):
        asker = machine.askers.get(question.id)
        if asker is not None:
            answer_as_recorded(log, replay, asker, question)


def _check_models(resources: Resources, fork: Forked) -> None:
    for alias, name in fork.models.items():
        found = resources.model if alias == DEFAULT and alias not in resources.models else resources.models.get(alias)
        if found is None or found.name != name:
            where = "model=" if alias == DEFAULT else f"models={{{alias!r}: ...}}"
            raise GraphUnknown(f"replay {fork.run_id!r} was started with model {name!r}: add it, Executor({where})")


async def _recording(store: Store, loader: RunLoader, fork: Forked, structure: str) -> Recording:
    """Return the recording of the replayed run, with names of the replay's version; empty if that run is deleted."""
    try:
        info = await store.info(fork.parent)
        records = await store.read(fork.parent)
    except RunUnknown:
        return Recording()
    found = recording_of(await loader.plan_of(info, records), records, fork.at, fork.withdrawn)
    if any(isinstance(record, Migrated) for record in records):
        rename(found, VersionNames(records, structure))
    for call in found.all_calls():
        inner = _inner_run(call)
        if inner:
            with contextlib.suppress(RunUnknown):
                call.content = (await store.info(inner)).content
    return found


def _inner_run(call: RecordedCall) -> str:
    """Return the id of the run that a call of a graph started."""
    settled = call.result
    found = settled.result if settled is not None and call.intended.kind == "tool" else None
    metadata = found.get("metadata") if isinstance(found, Mapping) else None
    return str(metadata.get("run_id", "")) if isinstance(metadata, Mapping) else ""


async def _mode_of(store: Store, run_id: str) -> Live | None:
    """Return the `live` mode of a run that a replay called; None if no replay called it."""
    try:
        records: Sequence[Record] = await store.read(run_id)
    except RunUnknown:
        return None
    begun = next((record for record in reversed(records) if isinstance(record, Forked | RunStarted)), None)
    if isinstance(begun, Forked) and begun.relation == "replay":
        return begun.live or "never"
    return await _mode_of(store, begun.caller.run_id) if begun is not None and begun.caller is not None else None
