"""Payloads of records: stored with the first record that has them, removed with the last. See `stores.payloads`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from orchestrator.stores.payloads import MARK, Assembly, Parted, Payloads, ahead, holes, is_sound, shown

IS_SKELETON = f"substr(data, 1, 1) = x'{MARK.hex()}'"
"""Condition: the stored record has holes."""


class UnreadablePayload(sqlite3.DataError):
    """Raised when a payload cannot be read, and so not be compared: the file is damaged there.

    It concerns one change only, so those that share its transaction are repeated without it.
    """

    def __init__(self, digest: bytes, error: sqlite3.Error) -> None:
        self.digest = digest
        super().__init__(
            f"the file is damaged at payload {shown(digest)}; restore it, or save what can be read with "
            f"`sqlite3 FILE .recover` ({error})"
        )


def keep(connection: sqlite3.Connection, number: int, payloads: Payloads) -> None:
    """Store the payloads of a run's records, and note that the run uses them.

    An existing one is compared: if it is damaged it is written again, so that the new record can be read.

    Raises:
        UnreadablePayload: an existing one cannot be read. See `replace`.
    """
    for digest, data in payloads.items():
        with _of_payload(digest):
            connection.execute(
                "INSERT INTO payloads (digest, data) VALUES (?, ?)"
                " ON CONFLICT (digest) DO UPDATE SET data = excluded.data WHERE data IS NOT excluded.data",
                (digest, data),
            )
        connection.execute("INSERT OR IGNORE INTO payload_uses (digest, run) VALUES (?, ?)", (digest, number))


def replace(connection: sqlite3.Connection, digest: bytes, data: bytes) -> None:
    """Store a payload in place of an existing one that cannot be read.

    After a transaction has tried to read it, SQLite refuses to remove it in the same transaction.

    Raises:
        UnreadablePayload: the existing one cannot be removed.
    """
    with _of_payload(digest):
        if connection.execute("DELETE FROM payloads WHERE digest = ?", (digest,)).rowcount:
            connection.execute("INSERT INTO payloads (digest, data) VALUES (?, ?)", (digest, data))


@contextmanager
def _of_payload(digest: bytes) -> Iterator[None]:
    """Translate damage of the file within the block to damage of this payload."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        raise UnreadablePayload(digest, error) from error


def let_go(connection: sqlite3.Connection, number: int) -> None:
    """Note that a run no longer has records. Payloads that no other run has are removed."""
    digests = connection.execute("SELECT digest FROM payload_uses WHERE run = ?", (number,)).fetchall()
    if digests:
        connection.execute("DELETE FROM payload_uses WHERE run = ?", (number,))
        connection.executemany(
            "DELETE FROM payloads WHERE digest = ?1 AND NOT EXISTS (SELECT 1 FROM payload_uses WHERE digest = ?1)",
            digests,
        )


class Joiner:
    """Finds the payloads of records that are read in their order, together with those of the next records."""

    def __init__(self, connection: sqlite3.Connection, last: int) -> None:
        """Make a joiner for a connection inside a transaction; `last` is the key of the last record to be read."""
        self._connection, self._last = connection, last
        self._known: dict[bytes, bytes] = {}
        self._assembly = Assembly()

    def record(self, key: int, stored: bytes) -> bytes | Parted:
        """Return a record with its payloads.

        Args:
            key: its key.
            stored: its stored bytes.

        Raises:
            ValueError: the record cannot be assembled; the argument is the reason.
        """
        wanted = {hole.digest for hole in holes(stored)}
        if not wanted <= self._known.keys():
            self._read_ahead(key, wanted)
        try:
            return self._assembly.record(stored, self._known)
        except KeyError as missing:
            raise ValueError(self._fault(missing.args[0])) from None

    def _read_ahead(self, key: int, wanted: set[bytes]) -> None:
        """Read the payloads of a record and of some after it; only the first, if the others cannot be read."""
        try:
            self._known = self._read(self._coming(key, wanted))
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            self._known = {}
            for digest in wanted:
                try:
                    self._known |= self._read({digest})
                except sqlite3.DatabaseError as damage:
                    raise ValueError(f"the file is damaged at its payload {shown(digest)}: {damage}") from damage

    def _coming(self, key: int, wanted: set[bytes]) -> set[bytes]:
        """Return the digests of payloads of a record, and of some after it."""
        query = f"SELECT data FROM records WHERE id > ? AND id <= ? AND {IS_SKELETON} ORDER BY id"
        with closing(self._connection.execute(query, (key, self._last))) as rows:
            return ahead(wanted, (data for (data,) in rows))

    def _read(self, digests: set[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for some in _groups(sorted(digests)):
            query = f"SELECT digest, data FROM payloads WHERE digest IN ({', '.join('?' * len(some))})"
            for digest, data in self._connection.execute(query, some).fetchall():
                if is_sound(digest, data):
                    found[digest] = data
        return found

    def _fault(self, digest: bytes) -> str:
        query = "SELECT 1 FROM payloads WHERE digest = ?"
        there = self._connection.execute(query, (digest,)).fetchone() is not None
        return f"its payload {shown(digest)} {'does not have this digest' if there else 'is missing'}"


def _groups(digests: Sequence[bytes], most: int = 500) -> Iterator[Sequence[bytes]]:
    for first in range(0, len(digests), most):
        yield digests[first : first + most]
