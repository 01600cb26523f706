"""Checks whether the payloads of a file are those that its records have."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator

from orchestrator.stores.base import Finding
from orchestrator.stores.payloads import Disorder, damage, digests_of, disorder, is_sound
from orchestrator.stores.sqlite.payloads import IS_SKELETON


def repairs(connection: sqlite3.Connection, found: Disorder) -> Iterator[tuple[str, Callable[[], str]]]:
    """What is wrong, and a function that repairs it and says what it did.

    Others may have written since it was found, and wait while it is repaired: only runs and payloads of which something
    was found are looked at again.
    """

    def note() -> str:
        connection.executemany(
            "DELETE FROM payload_uses WHERE run = ?1"
            " AND NOT EXISTS (SELECT 1 FROM runs WHERE id = ?1 AND archived IS NULL)",
            [(run,) for run in found.stale],
        )
        for run, digests in found.unnoted.items():
            connection.executemany(
                "INSERT OR IGNORE INTO payload_uses (digest, run) SELECT digest, ?1 FROM payloads WHERE digest = ?2",
                [(run, digest) for digest in sorted(digests & _digests(connection, run))],
            )
        return "written again from the records"

    def remove() -> str:
        connection.executemany(
            "DELETE FROM payloads WHERE digest = ?1 AND NOT EXISTS (SELECT 1 FROM payload_uses WHERE digest = ?1)",
            [(digest,) for digest in found.unused],
        )
        return "deleted"

    if found.wrong:
        yield f"the payloads that are noted differ from the records of {len(found.wrong)} runs", note
    if found.unused:
        yield f"{len(found.unused)} payloads that no record has", remove


def _digests(connection: sqlite3.Connection, run: int) -> set[bytes]:
    """The payloads that the records of a run have; none if there is no such run."""
    rows = connection.execute(
        f"SELECT data FROM records WHERE id BETWEEN ? AND ? AND {IS_SKELETON}"
        " AND EXISTS (SELECT 1 FROM runs WHERE id = ?)",
        (run << 32, run << 32 | 0xFFFFFFFF, run),
    )
    return digests_of(data for (data,) in rows)


def damaged(connection: sqlite3.Connection, found: Disorder) -> list[Finding]:
    """The payloads that are damaged or missing."""
    names = dict(connection.execute("SELECT id, run_id FROM runs").fetchall())
    missing = {digest: str(names.get(run, run)) for digest, run in found.missing.items()}
    payloads = connection.execute("SELECT digest, data FROM payloads ORDER BY id")
    return damage([digest for digest, data in payloads if not is_sound(digest, data)], missing)


def look(connection: sqlite3.Connection) -> Disorder:
    """Find what does not belong together."""
    return disorder(
        connection.execute(
            f"SELECT id >> 32, data FROM records WHERE {IS_SKELETON} AND id >> 32 IN (SELECT id FROM runs)"
        ),
        connection.execute(
            "SELECT run, digest, EXISTS (SELECT 1 FROM runs WHERE id = run AND archived IS NULL) FROM payload_uses"
        ),
        {digest for (digest,) in connection.execute("SELECT digest FROM payloads")},
    )
