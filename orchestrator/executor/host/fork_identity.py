"""Whether a run of the same id is the same fork."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import RunExists
from orchestrator.kernel.records import Forked, Record, Resumed
from orchestrator.stores.base import Store


async def check_same(store: Store, run_id: str, records: Sequence[Record], parent: str) -> None:
    """Accept a run of the same id if it is the same fork.

    Args:
        store: the store, which has the run.
        run_id: its id.
        records: those that the fork begins with.
        parent: the run that is forked.

    Raises:
        RunExists: it is another run.
    """
    at = [record for record in records if isinstance(record, Forked)][-1].at
    wanted = [_content(record) for record in records if record.seq > at]
    stored = await store.read(run_id, upto=len(records))
    if [_content(record) for record in stored[-len(wanted) :]] != wanted:
        raise RunExists(run_id, f"it is not this fork of run {parent!r}")


def _content(record: Record) -> Record:
    """A record without what differs from one writing to the next."""
    plain: dict[str, object] = {"ts": 0.0, "seal": ""}
    if isinstance(record, Resumed):
        plain["holder"] = ""
    if isinstance(record, Forked):
        plain["held"] = False
    return record.model_copy(update=plain)
