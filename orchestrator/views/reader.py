"""The reader of journals: it folds a run's records once, for any number of views.

    causes, rows = Causes(), Rows()
    read(plan, records, causes, rows)

A view is a `Fold`. It is called before a record is folded (`applying`), for each action of the fold (the other methods
of `Observer`), and afterwards (`applied`). Live events, which are not journaled, reach it through `live_event`.
"""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.kernel.fold import apply_stored
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.records import Record
from orchestrator.kernel.run_state import Delta, Observer, RunState
from orchestrator.views.events import Event, record_of


class Fold(Observer):
    """A view that is folded from a run's records.

    Attributes:
        run: The run's state, which the reader sets and changes. Read-only.
    """

    run: RunState

    def applied(self, record: Record, delta: Delta) -> None:
        """Called after a record was folded in."""

    def live_event(self, event: Event) -> None:
        """Called for a live event, which is about a running step and not part of the journal."""

    def finish(self) -> None:
        """Called after the last record."""


class Reader:
    """Reads the records of one run, from its first one.

    Args:
        plan: The plan of the run's graph; its code is not needed.
        folds: Views, each of which may use the ones before it.

    Attributes:
        run: The run's state after the last record.
    """

    def __init__(self, plan: Plan, *folds: Fold) -> None:
        self._folds = folds
        self.run = RunState(plan, folds)
        for fold in folds:
            fold.run = self.run

    def read(self, record: Record) -> None:
        """Fold one record in.

        Raises:
            StoreCorrupt: the record does not follow the ones before it; nothing was changed.
        """
        delta = apply_stored(self.run, record)
        for fold in self._folds:
            fold.applied(record, delta)

    def take(self, event: Event) -> None:
        """Fold in the record of an event, or pass on a live event.

        Raises:
            ValueError: the event has another style.
            StoreCorrupt: its record does not follow the ones before it; nothing was changed.
        """
        record = record_of(event)
        if record is not None:
            self.read(record)
            return
        for fold in self._folds:
            fold.live_event(event)


def read(plan: Plan, records: Iterable[Record], *folds: Fold) -> RunState:
    """Read all records of a run, from its first one, and finish the views.

    Returns:
        The run's state after the last record.

    Raises:
        StoreCorrupt: the records do not follow each other.
    """
    reader = Reader(plan, *folds)
    for record in records:
        reader.read(record)
    for fold in folds:
        fold.finish()
    return reader.run
