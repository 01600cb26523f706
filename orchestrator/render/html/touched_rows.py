"""Which rows of a timeline a record may have changed."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.kernel import records as r
from orchestrator.kernel.run_state import Delta
from orchestrator.views.reader import Fold
from orchestrator.views.step_work import NO_USAGE
from orchestrator.views.timeline import Timeline

RESTARTS = (r.Migrated, r.Forked, r.Reopened)
"""Records that change what was before them: a run is read again from its beginning."""


class TouchedRows(Fold):
    """Remembers the rows that records changed, and adds up what graphs used.

    Args:
        rows: a fold that is read before this one.
    """

    def __init__(self, rows: Timeline) -> None:
        self._rows = rows
        self._keys: set[str] = set()
        self._askers: dict[str, str] = {}

    def applying(self, record: r.Record) -> None:
        """See `Observer.applying`."""
        if isinstance(record, r.Ended | r.Resumed | r.Cancelled):
            self._keys.update(self._rows.live)

    def applied(self, record: r.Record, delta: Delta) -> None:
        """See `Fold.applied`."""
        activation = getattr(record, "activation", "") or ""
        if isinstance(record, r.Asked | r.TimerSet):
            self._askers[record.question.id if isinstance(record, r.Asked) else record.name] = activation
        elif isinstance(record, r.Answered):
            self._keys.add(self._askers.get(record.question, ""))
        elif isinstance(record, r.EffectSettled):
            self._spend(activation, record)
        self._keys.add(activation)
        self._keys.update(one.key for one in (*delta.started, *delta.cancelled))
        self._keys.update(asker.key for asker, _, _ in delta.moved)

    def _spend(self, activation: str, record: r.EffectSettled) -> None:
        """Graphs use what the steps inside them use."""
        row = self._rows.by_activation.get(activation)
        while row is not None and row.parent is not None:
            row = self._rows.rows[row.parent]
            row.usage += record.usage or NO_USAGE

    def take(self) -> set[int]:
        """The numbers of rows that changed since this was last called, and of the rows around them."""
        rows, found = self._rows, set[int]()
        for key in self._keys:
            row = rows.by_activation.get(key)
            while row is not None and row.number not in found:
                found.add(row.number)
                row = None if row.parent is None else rows.rows[row.parent]
        self._keys.clear()
        return found

    def touch(self, keys: Iterable[str]) -> None:
        """Count rows as changed."""
        self._keys.update(keys)
