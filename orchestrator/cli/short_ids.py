"""Short run ids: the first characters of an id, as typed after a command found no run with exactly this id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.cli import storage
from orchestrator.cli.exits import UsageError
from orchestrator.cli.runs_command import reading
from orchestrator.stores.requests import RunQuery

if TYPE_CHECKING:
    from orchestrator.stores import Store

LEAST = 4
"""Characters that a short id has at least."""
_LISTED = 10


def whole_id(typed: str, store: str | None) -> str | None:
    """Return the id of the only run whose id begins with the typed text; None if there is none.

    Args:
        typed: the text; no run has it as its id.
        store: the value of `--store`.

    Raises:
        UsageError: the ids of several runs begin with it.
    """
    url = storage.store_url(store)
    if len(typed) < LEAST or not storage.exists(url):
        return None

    async def look(store: Store) -> list[str]:
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = await store.runs(RunQuery(after=cursor, limit=200))
            found += [info.run_id for info in page.runs if info.run_id.startswith(typed)]
            cursor = page.cursor
            if cursor is None:
                return found

    found = reading(url, look)
    if len(found) > 1:
        listed = "\n  ".join(found[:_LISTED])
        more = f"\n  and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        raise UsageError(f"the ids of {len(found)} runs begin with {typed!r}: give more characters\n  {listed}{more}")
    return found[0] if found else None
