"""The numbers of runs that were read: who knows the number of a run can ask for the partition of its month alone."""

from __future__ import annotations

import threading

_MOST = 10_000


class RunNumbers:
    """Numbers by ids, of the latest runs. A number may be that of a deleted run: what is found by it says so."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}

    def get(self, run_id: str) -> int | None:
        """The number of a run, if it is known."""
        return self._numbers.get(run_id)

    def keep(self, run_id: str, number: int) -> None:
        """Note the number of a run."""
        if self._numbers.get(run_id) == number:
            return
        with self._lock:
            self._numbers[run_id] = number
            if len(self._numbers) > _MOST:
                del self._numbers[next(iter(self._numbers))]
