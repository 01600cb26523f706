"""Programs for processes of the crash kit, with faults in their store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio

from orchestrator.errors import StoreUnavailable
from orchestrator.kernel.records import Record
from orchestrator.stores.sqlite import SQLiteStore
from tests.testing.shop import shop_program

_append = SQLiteStore.append


def swallowing() -> dict[str, Any]:
    """A failed write counts as written."""

    async def append(self: SQLiteStore, run_id: str, records: Sequence[Record], *, after: int, **options: Any) -> int:
        try:
            return await _append(self, run_id, records, after=after, **options)
        except StoreUnavailable:
            return after + len(records)

    SQLiteStore.append = append
    return shop_program()


def nameless() -> dict[str, Any]:
    """Nobody is told which file it is."""

    async def append(self: SQLiteStore, *args: Any, **options: Any) -> int:
        try:
            return await _append(self, *args, **options)
        except StoreUnavailable:
            raise StoreUnavailable("no") from None

    SQLiteStore.append = append
    return shop_program()


def waiting() -> dict[str, Any]:
    """It waits for better times."""

    async def append(self: SQLiteStore, *args: Any, **options: Any) -> int:
        while True:
            try:
                return await _append(self, *args, **options)
            except StoreUnavailable:
                await anyio.sleep(0.01)

    SQLiteStore.append = append
    return shop_program()
