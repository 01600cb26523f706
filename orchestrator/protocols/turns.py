"""The stored and live events of a run as turns of a conversation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, NamedTuple

import anyio

from orchestrator.executor.run_status import with_status
from orchestrator.kernel.records import Migrated
from orchestrator.protocols.conversation import Conversation, Part, TurnEnded
from orchestrator.tasks import away
from orchestrator.views.events import Event, record_of
from orchestrator.views.reader import Reader

if TYPE_CHECKING:
    from orchestrator.executor import Executor

_IDLE = 5.0
"""Seconds without an event after which a reader looks whether a process still drives the run."""
_LOOKS = 2
"""Number of such looks in a row that find the run interrupted before its turn ends."""


class Batch(NamedTuple):
    """What follows from one record or live event."""

    seq: int | None
    """The record's number; None for a live event."""
    parts: list[Part]


class Reading:
    """A run that is read as a conversation.

    Args:
        executor: the executor that has the run.
        run_id: the run.
        make: makes the conversation before the run.
    """

    def __init__(self, executor: Executor, run_id: str, make: Callable[[], Conversation]) -> None:
        self._executor, self.run_id, self._make = executor, run_id, make
        self.conversation = make()
        self.head = 0
        """Number of the last record that was read."""
        self._reader: Reader | None = None

    async def read(self, upto: int | None = None) -> Conversation:
        """Read the records up to a number, None: all, and return the conversation so far. Their parts are dropped.

        Raises:
            RunUnknown, StoreError: the records cannot be read.
        """
        run = await self._executor.load(self.run_id)
        records = [] if upto == 0 else await self._executor.store.read(self.run_id, upto=upto)

        def fold() -> None:
            self.conversation = self._make()
            self._reader = Reader(run.plan, self.conversation)
            for record in records:
                self._reader.read(record)
            self.conversation.parts()

        await away(fold, records)
        self.head = records[-1].seq if records else 0
        return self.conversation

    async def turn(self, least: int = 0) -> AsyncIterator[Batch]:
        """Yield what follows the records that were read, until the run rests. The last part is `TurnEnded`.

        Args:
            least: the record before which the turn does not end, such as that of an answer just given.
        """
        events, looks = self._executor.events(self.run_id, after=self.head, follow=True), 0
        while not (self._reader and self.head and self.head >= least and self.conversation.at_rest):
            event: Event | None = None
            with anyio.move_on_after(_IDLE) as waiting:
                event = await anext(events, None)
            if waiting.cancelled_caught:
                status = with_status(await self._executor.store.info(self.run_id)).status
                looks = looks + 1 if status == "interrupted" else 0
                if looks < _LOOKS:
                    continue
            if event is None:  # no process drives it
                yield Batch(None, [TurnEnded("interrupted", error="the run was interrupted: connect again later")])
                return
            looks = 0
            await self._take(event)
            yield Batch(event.seq, self.conversation.parts())
        yield Batch(None, [self.conversation.end()])

    async def _take(self, event: Event) -> None:
        if event.type == Migrated.type:  # the plan of its new graph is needed
            await self.read(event.seq)
            return

        def take() -> None:
            assert self._reader is not None
            record = record_of(event)
            if record is None:
                self.conversation.live_event(event)
            else:
                self._reader.read(record)

        await away(take, event.data)
        self.head = event.seq or self.head
