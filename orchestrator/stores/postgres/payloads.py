"""Payloads of records: kept with the first record that has them, removed with the last. See `stores.payloads`.

Two kinds of transactions meet at a payload: one notes a use of it, and one removes it with its last use. A use refers
to its payload by a foreign key. So to note one locks the payload against removal (`FOR KEY SHARE`, which many may hold
at the same time) until the transaction ends. Who removes a use locks the payload alone (`FOR UPDATE`), and looks only
then, by a statement of its own, whether it has other uses: those that were noted before are committed then, and seen. A
use of a payload that was removed a moment before is refused by the server; what noted it is then done again, and finds
that the payload is to be added. Payloads are locked in the order of their digests, behind the rows of runs.

What is stored for a digest is compared with what is given. If it is damaged it is written again, so that what is
acknowledged can be read. Nothing else locks the payload more than its use does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.stores.payloads import MARK, Assembly, Parted, Payloads, ahead, holes, is_sound, shown
from orchestrator.stores.postgres.statements import table

if TYPE_CHECKING:
    from orchestrator.stores.postgres.statements import Connection, Statement
    from orchestrator.stores.stored import Row

IS_SKELETON = f"substring(data FROM 1 FOR 1) = '\\x{MARK.hex()}'::bytea"
"""A condition: what is stored as a record has holes."""


_KEEP = "INSERT INTO payloads (digest, data) SELECT * FROM given ORDER BY digest ON CONFLICT (digest) DO NOTHING"
_MEND = (
    "UPDATE payloads SET data = given.data FROM given"
    " WHERE payloads.digest = given.digest AND payloads.data IS DISTINCT FROM given.data"
)
"""Finds what was there before the statement; no row is locked but one that is written again."""


def add_payloads(statement: Statement, all_: Sequence[tuple[int, Payloads]]) -> None:
    """Store payloads, as parts of a statement that moves or adds runs; see `related_rows`.

    Args:
        statement: the statement.
        all_: the number of each change, with the payloads of its records.
    """
    uses = [(at, digest) for at, payloads in all_ for digest in payloads]
    if not uses:
        return
    found = {digest: data for _, payloads in all_ for digest, data in payloads.items()}
    statement.add(
        "uses",
        table("u", (("run", "bigint"), ("digest", "bytea")), uses),
        # sorted here, so that all runs are moved before a payload is added
        "SELECT moved.id, u.digest FROM {} JOIN moved ON moved.n = u.run ORDER BY u.digest, moved.id",
    )
    statement.add(
        "given",
        table("p", (("digest", "bytea"), ("data", "bytea")), found.items()),
        "SELECT digest, data FROM {} WHERE digest IN (SELECT digest FROM uses)",
    )
    statement.add("kept", _KEEP)
    statement.add("mended", _MEND)
    statement.add(
        "used",
        "INSERT INTO payload_uses (digest, run) SELECT digest, id FROM uses ORDER BY digest, id ON CONFLICT DO NOTHING",
    )


def keep(connection: Connection, number: int, payloads: Payloads) -> None:
    """Store the payloads of records of a run, and that the run has them."""
    digests = sorted(payloads)
    if digests:
        connection.execute(
            "WITH given (digest, data) AS MATERIALIZED (SELECT * FROM unnest(%b::bytea[], %b::bytea[])),"
            f" kept AS ({_KEEP}) {_MEND}".encode(),
            (digests, [payloads[digest] for digest in digests]),
        )
        note(connection, number, digests)


def note(connection: Connection, number: int, digests: Sequence[bytes]) -> None:
    """Note that records of a run have some payloads, which are there."""
    connection.execute(
        "INSERT INTO payload_uses (digest, run) SELECT digest, %s FROM unnest(%b::bytea[]) AS u (digest)"
        " ORDER BY digest ON CONFLICT DO NOTHING",
        (number, [*digests]),
    )


def let_go(connection: Connection, number: int) -> None:
    """Note that a run has no records any more. Payloads that no other run has are removed."""
    digests: Any = connection.execute(
        "DELETE FROM payload_uses WHERE run = %s RETURNING digest", (number,)
    ).fetchall()  # fmt: skip
    if digests:
        remove_unused(connection, [digest for (digest,) in digests])


def remove_unused(connection: Connection, digests: Sequence[bytes]) -> None:
    """Remove those of some payloads that have no uses. The connection must be inside a transaction."""
    connection.execute("SELECT 1 FROM payloads WHERE digest = ANY(%b) ORDER BY digest FOR UPDATE", ([*digests],))
    connection.execute(
        "DELETE FROM payloads WHERE digest = ANY(%b)"
        " AND NOT EXISTS (SELECT 1 FROM payload_uses WHERE payload_uses.digest = payloads.digest)",
        ([*digests],),
    )


class Joiner:
    """Finds the payloads of records that were read in their order, with those of the records that come next."""

    def __init__(self, connection: Connection, rows: Sequence[Row]) -> None:
        self._connection, self._rows = connection, rows
        self._known: dict[bytes, bytes] = {}
        self._assembly = Assembly()

    def record(self, at: int) -> bytes | Parted:
        """A record with its payloads.

        Args:
            at: which one of the rows it is.

        Raises:
            ValueError: it cannot be put together; the argument says why.
        """
        stored = self._rows[at][2]
        wanted = {hole.digest for hole in holes(stored)}
        if not wanted <= self._known.keys():
            self._known = self._read(ahead(wanted, (row[2] for row in self._rows[at + 1 :])))
        try:
            return self._assembly.record(stored, self._known)
        except KeyError as missing:
            raise ValueError(self._fault(missing.args[0])) from None

    def _read(self, digests: set[bytes]) -> dict[bytes, bytes]:
        found: Any = self._connection.execute(
            "SELECT digest, data FROM payloads WHERE digest = ANY(%b)", (sorted(digests),)
        ).fetchall()
        return {digest: data for digest, data in found if is_sound(digest, data)}

    def _fault(self, digest: bytes) -> str:
        query = "SELECT 1 FROM payloads WHERE digest = %b"
        there = self._connection.execute(query, (digest,)).fetchone() is not None
        return f"its payload {shown(digest)} {'does not have this digest' if there else 'is missing'}"
