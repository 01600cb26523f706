"""Which runs have which payloads, by their records and by what a store has noted: for the check of a store."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass

from orchestrator.stores.payloads import holes, shown
from orchestrator.stores.rows import Finding


@dataclass(frozen=True, slots=True)
class Disorder:
    """What does not belong together. The runs are numbers."""

    unnoted: dict[int, set[bytes]]
    """Runs whose records have payloads that are not noted -> these payloads."""
    stale: set[int]
    """Runs for which payloads are noted, and whose records are not in the store."""
    unused: list[bytes]
    """Payloads that no record has and that are noted for no run whose records are in the store; sorted."""
    missing: dict[bytes, int]
    """Payloads that are not there -> the first run whose records have them."""

    @property
    def wrong(self) -> list[int]:
        """The runs for which something is to be noted or removed, sorted."""
        return sorted({*self.unnoted, *self.stale})


def disorder(
    records: Iterable[tuple[int, object]], noted: Iterable[tuple[int, bytes, object]], there: AbstractSet[bytes]
) -> Disorder:
    """Compare what records have with what is noted.

    What is noted for a run whose records are in the store is never wrong: a record that is damaged may have had it.

    Args:
        records: number of the run, and stored bytes, of all records with payloads of runs that exist.
        noted: number of the run, digest, and whether the records of this run are in the store, of all uses.
        there: the digests of all payloads.
    """
    wanted: dict[int, set[bytes]] = {}
    missing: dict[bytes, int] = {}
    for run, data in records:
        for digest in digests_of([data]):
            if digest in there:
                wanted.setdefault(run, set()).add(digest)
            else:
                missing.setdefault(digest, run)
    used = set().union(*wanted.values())
    stale: set[int] = set()
    for run, digest, here in noted:
        if not here:
            stale.add(run)
            continue
        used.add(digest)
        if run in wanted:
            wanted[run].discard(digest)
    return Disorder({run: some for run, some in wanted.items() if some}, stale, sorted(there - used), missing)


def digests_of(records: Iterable[object]) -> set[bytes]:
    """The digests of the payloads of stored records. Of one that is damaged there are none: reading it reports it."""
    found: set[bytes] = set()
    for data in records:
        with suppress(ValueError):
            found |= {hole.digest for hole in holes(data)} if isinstance(data, bytes) else set()
    return found


def damage(damaged: Iterable[object], missing: dict[bytes, str]) -> list[Finding]:
    """What cannot be repaired.

    Args:
        damaged: digests of payloads that do not have these digests.
        missing: see `Disorder`; with the ids of runs.
    """
    found = [Finding(f"payload {shown(digest)} is damaged; restore the store from a copy") for digest in damaged]
    found += [
        Finding(f"payload {shown(digest)} of run {run_id!r} is missing; restore the store from a copy")
        for digest, run_id in sorted(missing.items())
    ]
    return found
