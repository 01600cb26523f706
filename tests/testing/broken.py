"""Programs for processes of the crash kit, with faults in their store."""

from __future__ import annotations

from typing import Any

import anyio

from orchestrator.errors import StoreUnavailable
from orchestrator.stores.requests import Append
from orchestrator.stores.sqlite import SQLiteStore
from tests.testing.shop import shop_program

_append = SQLiteStore.append


def swallowing() -> dict[str, Any]:
    """A failed write counts as written."""

    async def append(self: SQLiteStore, append: Append) -> int:
        try:
            return await _append(self, append)
        except StoreUnavailable:
            return append.head

    SQLiteStore.append = append
    return shop_program()


def nameless() -> dict[str, Any]:
    """Nobody is told which file it is."""

    async def append(self: SQLiteStore, append: Append) -> int:
        try:
            return await _append(self, append)
        except StoreUnavailable:
            raise StoreUnavailable("no") from None

    SQLiteStore.append = append
    return shop_program()


def waiting() -> dict[str, Any]:
    """It waits for better times."""

    async def append(self: SQLiteStore, append: Append) -> int:
        while True:
            try:
                return await _append(self, append)
            except StoreUnavailable:
                await anyio.sleep(0.01)

    SQLiteStore.append = append
    return shop_program()
