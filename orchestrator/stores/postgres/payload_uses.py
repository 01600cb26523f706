"""Checks whether the payloads of a database are those that its records have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.stores.base import Finding
from orchestrator.stores.payloads import Disorder, damage, disorder
from orchestrator.stores.postgres.payloads import IS_SKELETON, note, remove_unused
from orchestrator.stores.postgres.statements import streamed

if TYPE_CHECKING:
    from orchestrator.stores.postgres.connections import Connection


def repairs(connection: Connection, found: Disorder) -> Iterator[tuple[str, Callable[[], str]]]:
    """What is wrong, and a function that repairs it and says what it did."""
    if found.wrong:
        what = f"the payloads that are noted differ from the records of {len(found.wrong)} runs"
        yield what, partial(_note, connection, found.wrong)
    if found.unused:
        yield f"{len(found.unused)} payloads that no record has", partial(_remove, connection, found.unused)


def damaged(connection: Connection, found: Disorder) -> list[Finding]:
    """The payloads that are damaged or missing. The connection must be inside a transaction."""
    missing = found.missing
    names: dict[int, str] = dict(
        connection.execute("SELECT id, run_id FROM runs WHERE id = ANY(%s)", ([*missing.values()],)).fetchall()
    )
    query = "SELECT digest FROM payloads WHERE sha256(data) <> digest ORDER BY digest"
    wrong: list[tuple[bytes]] = connection.execute(query).fetchall()
    return damage([digest for (digest,) in wrong], {digest: names[run] for digest, run in missing.items()})


def look(connection: Connection, runs: list[int] | None = None) -> Disorder:
    """Find what does not belong together: of all runs, or of some. The connection must be inside a transaction."""
    some, values = ("", ()) if runs is None else (" AND run = ANY(%s::bigint[])", (runs,))
    there = {digest for (digest,) in streamed(connection, "SELECT digest FROM payloads", ())}
    records = f"SELECT run, data FROM records JOIN runs ON runs.id = records.run WHERE {IS_SKELETON}{some}"
    noted = (
        "SELECT run, digest, runs.id IS NOT NULL AND runs.archived IS NULL FROM payload_uses"
        f" LEFT JOIN runs ON runs.id = payload_uses.run WHERE TRUE{some}"
    )
    return disorder(
        ((run, data) for run, data in streamed(connection, records, values)),
        ((run, digest, here) for run, digest, here in streamed(connection, noted, values)),
        there,
    )


def _note(connection: Connection, runs: list[int]) -> str:
    """Note what records of some runs have. The runs may have changed since they were looked at, and may not now."""
    connection.execute("SELECT 1 FROM runs WHERE id = ANY(%s::bigint[]) ORDER BY run_id FOR NO KEY UPDATE", (runs,))
    found = look(connection, runs)
    connection.execute("DELETE FROM payload_uses WHERE run = ANY(%s::bigint[])", (sorted(found.stale),))
    for run, digests in found.unnoted.items():
        note(connection, run, sorted(digests))
    return "written again from the records"


def _remove(connection: Connection, digests: list[bytes]) -> str:
    remove_unused(connection, digests)
    return "deleted"
