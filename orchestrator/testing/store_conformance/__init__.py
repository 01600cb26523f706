"""Checks of the promises that every store makes, to be run on your own store.

    from orchestrator.testing import STORE_CHECKS, check_store

    async def test_all_at_once():
        await check_store(lambda: MyStore.open("..."))

    @pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
    async def test_one_by_one(check):
        store = await MyStore.open("...")
        await check(store)
        await store.close()

Each check is an async function of an open store. It uses its own run ids, graph names and labels, so that the
checks may share a store with each other and with anything else. A broken promise is an `AssertionError` that names
it. No test framework is needed; both backends of anyio will do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from orchestrator.stores.base import Store
from orchestrator.stores.requests import Append
from orchestrator.testing.store_conformance import items, journal, leases, other_data, queries
from orchestrator.testing.store_conformance.helpers import created, event, that

__all__ = ["STORE_CHECKS", "StoreCheck", "check_linear_bytes", "check_store"]

StoreCheck: TypeAlias = Callable[[Store], Awaitable[None]]

STORE_CHECKS: tuple[StoreCheck, ...] = tuple(
    check
    for module in (journal, leases, queries, other_data, items)
    for name, check in vars(module).items()
    if name.startswith("check_")
)
"""Every check, to be run one by one on an open store. `check_close` leaves its store closed."""


async def check_store(
    open_store: Callable[[], Awaitable[Store]], *, stored_bytes: Callable[[Store], Awaitable[int]] | None = None
) -> None:
    """Run every check, each on a store that is opened for it and closed after it.

    Args:
        open_store: opens a new, empty store.
        stored_bytes: returns the size of a store in bytes. With it, storage is checked to grow linearly.

    Raises:
        AssertionError: a promise is broken; the message starts with the name of the check.
    """
    checks = {check.__name__: check for check in STORE_CHECKS}
    if stored_bytes is not None:
        checks["check_linear_bytes"] = partial(check_linear_bytes, stored_bytes=stored_bytes)
    for name, check in checks.items():
        store = await open_store()
        try:
            await check(store)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
        finally:
            await store.close()


async def check_linear_bytes(store: Store, stored_bytes: Callable[[Store], Awaitable[int]]) -> None:
    """400 records add as many bytes as the 400 before them: the size of a store grows linearly."""
    run_id = await created(store)
    sizes = [await stored_bytes(store)]
    after = 1
    for _ in range(3):
        for _ in range(400):
            after = await store.append(Append(run_id, [event(after + 1, "x" * 1000)], after=after))
        sizes.append(await stored_bytes(store))
    second, third = sizes[2] - sizes[1], sizes[3] - sizes[2]
    that(third <= 1.5 * second + 65536, f"400 records added {second} bytes, the next 400 added {third}")
    that(sizes[3] - sizes[0] <= 3 * 1200 * 1024, f"1200 records of 1 KiB took {sizes[3] - sizes[0]} bytes")
