"""The inbox of a run in the store: commands that other processes left for the process that drives it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import ValidationError

from orchestrator.errors import RunError
from orchestrator.executor.commands import command_of
from orchestrator.executor.effects.remote_callers import Spend

if TYPE_CHECKING:
    from orchestrator.executor.drive.drive import Drive
    from orchestrator.kernel.machine import Machine
    from orchestrator.sealing import Seal
    from orchestrator.stores.base import Message, Store

POLL = 0.25
"""Seconds between two looks into the inbox."""

log = logging.getLogger("orchestrator")


async def take_messages(drive: Drive) -> None:
    """Handle what lies in the inbox of one run."""
    store = drive.log.journal.store
    await handle(store, {drive.run_id: drive}, await store.inbox([drive.run_id]))


async def drop_unsealed(store: Store, seal: Seal, run_id: str, machine: Machine | None) -> None:
    """Drop the approvals that lay in a run's inbox before it was taken up, if this seal's key did not seal them.

    Who can write a store's file can lay them there; what comes while a run is driven comes from a process that works
    on the same store.

    Args:
        machine: the run; None for one that begins now, and cannot have been answered.
    """
    dropped = []
    for message in await store.inbox([run_id]):
        question = None if machine is None else machine.questions.get(str(message.body.get("question")))
        harmless = message.body.get("type") != "answer" or (question is not None and question.kind == "input")
        if machine is None or not (harmless or seal.sealed_message(run_id, message.body)):
            dropped.append(message.id)
    if dropped:
        log.warning("run %s: %d answers without a valid seal are dropped", run_id, len(dropped))
        await store.discard(dropped)


async def handle(store: Store, lives: Mapping[str, Drive], messages: list[Message]) -> None:
    """Give messages to the runs that they are for. What does not fit any more is dropped."""
    dropped: list[int] = []
    for message in messages:
        live = lives.get(message.run_id)
        if live is None or message.id in live.seen or (live.log.closing and live.machine.ended is None):
            continue
        live.seen.add(message.id)
        try:
            command = Spend.of(message.body) or command_of(message.body)
            taken = command is not None and live.machine.ended is None and command.apply(live.log, message.id)
        except (RunError, ValidationError) as error:
            log.info("run %s: message %d is dropped: %s", message.run_id, message.id, error)
            taken = False
        if not taken:
            dropped.append(message.id)
    if dropped:
        await store.discard(dropped)
