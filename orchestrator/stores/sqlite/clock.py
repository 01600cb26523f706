"""The clock of a file's leases, which all processes of one machine share.

It counts from the start of the machine, so it never jumps, and a process whose own wall clock is wrong reckons as all
others do. What to add to get Unix seconds is noted in the file by the first process of each boot.
"""

from __future__ import annotations

import sqlite3

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.stores.owner import boot_id, namespace


class StoreClock:
    """The clock of one file."""

    __slots__ = ("_start",)

    def __init__(self) -> None:
        self._start: float | None = None

    def now(self, connection: sqlite3.Connection, *, write: bool = False) -> float:
        """Unix seconds by the file's clock.

        Args:
            connection: a connection to the file.
            write: whether the connection is in a transaction that may note the start of the clock.
        """
        if not boot_id():
            return SYSTEM_CLOCK.now()
        steady = SYSTEM_CLOCK.steady()
        if self._start is not None:
            return self._start + steady
        found = connection.execute("SELECT start FROM clocks WHERE boot = ?", (boot_key(),)).fetchone()
        if found is not None and isinstance(found[0], float):
            self._start = found[0]
            return found[0] + steady
        start = SYSTEM_CLOCK.now() - steady
        if write:  # remembered only when it is read back: this transaction may be rolled back
            connection.execute("INSERT OR REPLACE INTO clocks (boot, start) VALUES (?, ?)", (boot_key(), start))
        return start + steady


def boot_key() -> str:
    """Names this boot of the machine, and the time namespace: a container may count in its own way."""
    return f"{boot_id()} {namespace('time')}"
