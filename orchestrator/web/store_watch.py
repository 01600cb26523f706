"""Looks at a store for a stream: only after something was written to it, as far as the store can tell."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio

from orchestrator.stores.base import Changing

if TYPE_CHECKING:
    from orchestrator.stores.base import Store
    from orchestrator.web.settings import Settings


class StoreWatch:
    """When a stream has to look at the store.

    Args:
        store: the store.
        settings: the times of the application.
        rest: seconds between two looks at least, for looks that cost much.
    """

    def __init__(self, store: Store, settings: Settings, *, rest: float = 0.0) -> None:
        self._store, self._settings, self._rest = store, settings, rest
        self._changes: object = None
        self._looked = -float("inf")

    async def turn(self) -> None:
        """Return when it is time to look. What lapses without a write, such as a lease, is seen after a heartbeat."""
        while True:
            changes = self._store.changes() if isinstance(self._store, Changing) else None
            since = time.monotonic() - self._looked
            new = changes is None or changes != self._changes or since >= self._settings.heartbeat
            if new and since >= self._rest:
                self._changes = changes  # asked before looking: what is written meanwhile is looked at next
                self._looked = time.monotonic()
                return
            await anyio.sleep(self._settings.poll)
