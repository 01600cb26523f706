"""Replays that are taken up get their tape: what they take from the run that they replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from orchestrator.executor.effects.callers import caller_of
from orchestrator.executor.host.loader import RunLoader
from orchestrator.stores.base import Store

if TYPE_CHECKING:
    from orchestrator.executor.drive.drive import Drive


async def attach(store: Store, loader: RunLoader, live: Mapping[str, Drive], drive: Drive) -> None:
    """Give a run that is about to be driven its tape, if it is a replay or was called by one.

    Args:
        store: the store of the run.
        loader: reads graphs.
        live: the runs that are driven here.
        drive: the run.

    Raises:
        GraphUnknown: a model that the replay was begun with is not there.
        StoreError: the store failed.
    """
    machine = drive.log.machine
    if drive.log.tape is not None or machine.ended is not None or (machine.fork is None and caller_of(machine) is None):
        return
    from orchestrator.executor.host.run_tape import attach_tape  # late: few runs are replays

    await attach_tape(store, loader, live, drive)
