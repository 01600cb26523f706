"""Rows related to the rows of runs, written by parts of the statement that changes or adds these rows; payloads.

A part reads `moved`, which has `n` (the number of the change in the statement), `id` (of the run) and `waiting` of each
changed run. So nothing is written for a run that was not changed.

Payloads of records are stored with the first record that has them, and removed with the last; see `stores.payloads`.
Two kinds of transactions conflict at a payload: one adds a use of it, one removes it with its last use. A use refers to
its payload by a foreign key. So adding a use locks the payload against removal (`FOR KEY SHARE`, which many may hold at
the same time) until the transaction ends. A transaction that removes a use locks the payload exclusively (`FOR
UPDATE`), and only then, in a separate statement, looks for other uses: those added before are committed then, and
visible. A use of a payload that was just removed is refused by the server; the change is then repeated, and adds the
payload. Payloads are locked in the order of their digests, after the rows of runs.

The stored payload of a digest is compared with the given one. If it is damaged it is written again, so that what is
acknowledged can be read. Nothing else locks the payload more strongly than adding a use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.json import canonical
from orchestrator.stores.base import RunSummary
from orchestrator.stores.payloads import MARK, Assembly, Parted, Payloads, ahead, holes, is_sound, shown
from orchestrator.stores.postgres.statements import Statement, index_key, keys_of, table
from orchestrator.stores.rows import Note, OpenQuestion, RunTotals
from orchestrator.stores.statistics import numbers_of
from orchestrator.stores.stored import Row, note_row, packed, usage_text

if TYPE_CHECKING:
    from orchestrator.stores.postgres.statements import Connection, Statement
    from orchestrator.stores.stored import Row

if TYPE_CHECKING:
    pass


IS_SKELETON = f"substring(data FROM 1 FOR 1) = '\\x{MARK.hex()}'::bytea"
"""Condition: the stored record has holes."""


_KEEP = "INSERT INTO payloads (digest, data) SELECT * FROM given ORDER BY digest ON CONFLICT (digest) DO NOTHING"
_MEND = (
    "UPDATE payloads SET data = given.data FROM given"
    " WHERE payloads.digest = given.digest AND payloads.data IS DISTINCT FROM given.data"
)
"""Finds existing payloads from before the statement; only rows that are written again are locked."""


def add_payloads(statement: Statement, all_: Sequence[tuple[int, Payloads]]) -> None:
    """Store payloads, as parts of a statement that changes or adds runs; see `related_rows`.

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
        # sorted here, so that all runs are changed before a payload is added
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
    """Store the payloads of a run's records, and note that the run uses them."""
    digests = sorted(payloads)
    if digests:
        connection.execute(
            "WITH given (digest, data) AS MATERIALIZED (SELECT * FROM unnest(%b::bytea[], %b::bytea[])),"
            f" kept AS ({_KEEP}) {_MEND}".encode(),
            (digests, [payloads[digest] for digest in digests]),
        )
        note(connection, number, digests)


def note(connection: Connection, number: int, digests: Sequence[bytes]) -> None:
    """Note that records of a run have some payloads, which exist."""
    connection.execute(
        "INSERT INTO payload_uses (digest, run) SELECT digest, %s FROM unnest(%b::bytea[]) AS u (digest)"
        " ORDER BY digest ON CONFLICT DO NOTHING",
        (number, [*digests]),
    )


def let_go(connection: Connection, number: int) -> None:
    """Note that a run no longer has records. Payloads that no other run has are removed."""
    digests: Any = connection.execute("DELETE FROM payload_uses WHERE run = %s RETURNING digest", (number,)).fetchall()
    if digests:
        remove_unused(connection, [digest for (digest,) in digests])


def remove_unused(connection: Connection, digests: Sequence[bytes]) -> None:
    """Remove those payloads among `digests` that have no uses. The connection must be inside a transaction."""
    connection.execute("SELECT 1 FROM payloads WHERE digest = ANY(%b) ORDER BY digest FOR UPDATE", ([*digests],))
    connection.execute(
        "DELETE FROM payloads WHERE digest = ANY(%b)"
        " AND NOT EXISTS (SELECT 1 FROM payload_uses WHERE payload_uses.digest = payloads.digest)",
        ([*digests],),
    )


class Joiner:
    """Finds the payloads of records that were read in their order, together with those of the next records."""

    def __init__(self, connection: Connection, rows: Sequence[Row]) -> None:
        self._connection, self._rows = connection, rows
        self._known: dict[bytes, bytes] = {}
        self._assembly = Assembly()

    def record(self, at: int) -> bytes | Parted:
        """Return a record with its payloads.

        Args:
            at: index of its row.

        Raises:
            ValueError: the record cannot be assembled; the argument is the reason.
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


@dataclass(frozen=True, slots=True)
class RelatedRows:
    """The data of a run that is stored in other tables than its row. A field that is None leaves the stored data
    unchanged.
    """

    rows: Sequence[Row] = ()
    payloads: Payloads = field(default_factory=dict)
    """Payloads of `rows`, by digest."""
    summary: RunSummary | None = None
    totals: RunTotals | None = None
    questions: Sequence[OpenQuestion] | None = None
    waiting: int | None = None
    """Number of open questions, as the caller gave it; None keeps the stored number."""
    notes: Sequence[Note] = ()
    """Notes of a new run."""


def add_related_rows(
    statement: Statement, all_: Sequence[RelatedRows], labels: Sequence[Sequence[str]] | None = None
) -> None:
    """Write the data next to the rows of runs. `labels`: the words of the labels of new runs."""
    places = [*enumerate(all_, 1)]
    records = [(at, *row) for at, one in places for row in one.rows]
    if records:
        statement.add(
            "recorded",
            table("r", (("run", "bigint"), ("seq", "bigint"), ("crc", "bigint"), ("data", "bytea")), records),
            "INSERT INTO records (run, seq, crc, data) SELECT id, seq, crc, data FROM {} JOIN moved ON moved.n = r.run",
        )
    add_payloads(statement, [(at, one.payloads) for at, one in places if one.payloads])
    _add_summaries(statement, [(at, one.summary) for at, one in places if one.summary], labels)
    _add_totals(statement, [(at, one.totals) for at, one in places if one.totals])
    _add_questions(statement, places)
    notes = [(at, *note_row(note)) for at, one in places for note in one.notes]
    if notes:
        statement.add(
            "annotated",
            table("o", (("run", "bigint"), ("id", "text"), ("at", "double precision"), ("data", "text")), notes),
            "INSERT INTO notes (run, id, at, data) SELECT moved.id, o.id, o.at, o.data FROM {}"
            " JOIN moved ON moved.n = o.run",
        )


_SUMMARY = (
    ("run", "bigint"),
    ("error", "text"),
    ("input", "text"),
    ("output", "text"),
    ("question", "text"),
    ("steps", "bigint"),
    ("usage", "text"),
    ("label_words", "text"),
    ("words", "text"),
)


def _add_summaries(
    statement: Statement, summaries: Sequence[tuple[int, RunSummary]], labels: Sequence[Sequence[str]] | None
) -> None:
    if not summaries:
        return
    rows = [
        (
            at,
            one.error,
            one.input,
            one.output,
            one.question,
            one.steps,
            usage_text(one),
            "" if labels is None else " ".join(labels[at - 1]),
            " ".join(keys_of([one.input, one.output])),
        )
        for at, one in summaries
    ]
    statement.add(
        "summed",
        table("s", _SUMMARY, rows),
        # equal texts have equal words: then no index is written
        "INSERT INTO summaries AS old (run, error, input, output, question, steps, usage, label_words, words)"
        " SELECT id, error, input, output, question, steps, usage, string_to_array(s.label_words, ' '),"
        " string_to_array(s.label_words, ' ') || string_to_array(s.words, ' ') FROM {} JOIN moved ON moved.n = s.run"
        " ON CONFLICT (run) DO UPDATE SET error = excluded.error, input = excluded.input, output = excluded.output,"
        " question = excluded.question, steps = excluded.steps, usage = excluded.usage,"
        " words = CASE WHEN old.input = excluded.input AND old.output = excluded.output THEN old.words"
        " ELSE old.label_words || excluded.words END",
    )


_NUMBERS = ("calls", "failed", "tools", "failed_tools", "input_tokens", "output_tokens", "cost", "seconds")
_TOTALS = (
    ("run", "bigint"),
    *((name, "double precision" if name in ("cost", "seconds") else "bigint") for name in _NUMBERS),
    ("names", "text"),
    ("numbers", "bytea"),
)


def _add_totals(statement: Statement, totals: Sequence[tuple[int, RunTotals]]) -> None:
    if not totals:
        return
    columns = ", ".join(_NUMBERS)
    updates = ", ".join(f"{name} = excluded.{name}" for name in _NUMBERS)
    rows = [(at, *numbers_of(one), *packed(one)) for at, one in totals]
    statement.add("spent", table("t", _TOTALS, rows), "SELECT t.*, moved.id FROM {} JOIN moved ON moved.n = t.run")
    statement.add(
        "totalled",
        f"INSERT INTO run_totals (run, {columns}) SELECT id, {columns} FROM spent"
        f" ON CONFLICT (run) DO UPDATE SET {updates}",
    )
    statement.add(
        "parted",
        "INSERT INTO run_parts (run, names, numbers) SELECT id, names, numbers FROM spent"
        " ON CONFLICT (run) DO UPDATE SET names = excluded.names, numbers = excluded.numbers",
    )
    failed = [
        (at, name)
        for at, one in totals
        for name in sorted({index_key(row.name) for row in one.rows if row.kind == "tool" and row.failed})
    ]
    statement.add(
        "broken",
        table("f", (("run", "bigint"), ("name", "text")), failed),
        "SELECT f.name, moved.id FROM {} JOIN moved ON moved.n = f.run",
    )
    statement.add("breaking", "INSERT INTO failed_tools (name, run) SELECT name, id FROM broken ON CONFLICT DO NOTHING")
    statement.add(
        "cleared",
        "DELETE FROM failed_tools USING spent WHERE failed_tools.run = spent.id"
        " AND NOT EXISTS (SELECT 1 FROM broken WHERE broken.id = spent.id AND broken.name = failed_tools.name)",
    )


def _add_questions(statement: Statement, places: Sequence[tuple[int, RelatedRows]]) -> None:
    waits = [
        (at, None if one.questions is None else bool(one.questions))
        for at, one in places
        if one.questions is not None or one.waiting is not None
    ]
    if not waits:
        return
    statement.add(
        "waits",
        table("w", (("run", "bigint"), ("asked", "boolean")), waits),
        "SELECT moved.id, moved.waiting, w.asked FROM {} JOIN moved ON moved.n = w.run",
    )
    statement.add(
        "answered", "DELETE FROM questions USING waits WHERE questions.run = waits.id AND waits.asked IS NOT NULL"
    )
    questions = [
        (at, one.id, one.asked, one.kind, canonical(one.data))
        for at, related in places
        for one in related.questions or ()
    ]
    if questions:
        columns = (
            ("run", "bigint"),
            ("name", "text"),
            ("asked", "double precision"),
            ("kind", "text"),
            ("data", "text"),
        )
        statement.add(
            "asking",
            table("q", columns, questions),
            "INSERT INTO questions (run, name, asked, kind, data) SELECT id, name, asked, kind, data"
            " FROM {} JOIN moved ON moved.n = q.run",
        )
    # Lists of open questions check the runs that wait for answers and have no questions.
    statement.add(
        "judged",
        "SELECT waits.id, waits.waiting > 0 AND CASE WHEN waits.asked IS NULL"
        " THEN NOT EXISTS (SELECT 1 FROM questions WHERE questions.run = waits.id) ELSE NOT waits.asked END AS unlisted"
        " FROM waits",
    )
    statement.add("noted", "INSERT INTO unlisted SELECT id FROM judged WHERE unlisted ON CONFLICT DO NOTHING")
    statement.add("listed", "DELETE FROM unlisted USING judged WHERE unlisted.run = judged.id AND NOT judged.unlisted")
