"""Short run ids: the first characters of a generated id, typed in its place.

Ids that users choose are not shortened: after the deletion of `order-1`, a command for it must not reach `order-12`.
"""

from __future__ import annotations

import re
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
_GENERATED = re.compile(r"[0-9a-f]{16}")


def whole_id(typed: str, store: str | None) -> str | None:
    """Return the only generated id that begins with the typed text; None if no id begins with it.

    Args:
        typed: the text; no run has it as its id.
        store: the value of `--store`.

    Raises:
        UsageError: several ids begin with it, or one that a user chose.
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
    if not found or (len(found) == 1 and _GENERATED.fullmatch(found[0])):
        return found[0] if found else None
    listed = "\n  ".join(found[:_LISTED])
    more = f"\n  and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    if len(found) == 1:
        raise UsageError(f"no run {typed!r}; give the whole id if you mean this run\n  {listed}")
    raise UsageError(f"the ids of {len(found)} runs begin with {typed!r}: give more characters\n  {listed}{more}")
