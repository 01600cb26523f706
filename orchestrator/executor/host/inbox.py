"""The inbox of a run in the store: commands that other processes left for the process that drives it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import ValidationError

from orchestrator.errors import EncryptionKeyMissing, InvalidValue, RunError
from orchestrator.executor.commands import command_of
from orchestrator.executor.effects.limits import Spend
from orchestrator.stores.base import Message, Store
from orchestrator.stores.codec import encoded_in, key_of
from orchestrator.stores.rows import MARK, NOTICE

if TYPE_CHECKING:
    from orchestrator.executor.drive.drive import Drive

POLL = 0.25
"""Seconds between two looks into the inbox."""

log = logging.getLogger("orchestrator")


async def take_messages(drive: Drive) -> None:
    """Handle what lies in the inbox of one run."""
    store = drive.log.journal.store
    messages = await store.inbox([drive.run_id])
    for message in messages:
        text = encoded_in(message.body)
        if text is not None:  # the run is left to an executor that can read what was said to it
            raise EncryptionKeyMissing(f"a message for run {drive.run_id!r}", key_of(text))
    await handle(store, {drive.run_id: drive}, messages)


async def handle(store: Store, lives: Mapping[str, Drive], messages: list[Message]) -> None:
    """Give messages to the runs that they are for. What does not fit any more is dropped."""
    dropped: list[int] = []
    for message in messages:
        live = lives.get(message.run_id)
        if message.body.get("type") == NOTICE:
            continue  # it is for observers
        if MARK in message.body:
            continue  # it is for an executor that has its key
        if live is None or message.id in live.seen or (live.log.closing and live.machine.ended is None):
            continue
        live.seen.add(message.id)
        try:
            command = Spend.of(message.body) or command_of(message.body)
            taken = False
            if command is not None and live.machine.ended is None:
                command = command.checked(live.machine, live.resources.tools_for_answers, live.resources.clock.now())
                taken = command.apply(live.log, message.id)
        except (RunError, InvalidValue, ValidationError) as error:
            log.info("run %s: message %d is dropped: %s", message.run_id, message.id, error)
            taken = False
        if not taken:
            dropped.append(message.id)
    if dropped:
        await store.discard(dropped)
