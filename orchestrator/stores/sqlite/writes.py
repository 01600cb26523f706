"""Writes, as functions of a connection inside a transaction.

Each first checks whether it is allowed and raises before it changes anything: others share its transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from orchestrator._lazy import lazy_modules
from orchestrator.errors import RunArchived, RunExists, RunUnknown
from orchestrator.json import canonical
from orchestrator.kernel.status import FINAL
from orchestrator.stores.base import RunSummary
from orchestrator.stores.payloads import Payloads
from orchestrator.stores.requests import Append, NewRun
from orchestrator.stores.rows import NOTICE, Note, OpenQuestion, RunTotals
from orchestrator.stores.shared import check_postable, is_released, json_object, moved, notes_full, taken_over
from orchestrator.stores.sqlite.leases import IS_NOTICE, RELEASED, rob
from orchestrator.stores.sqlite.payloads import keep, let_go
from orchestrator.stores.statistics import numbers_of
from orchestrator.stores.stored import (
    RUN_COLUMNS,
    Row,
    archived_of,
    checksum,
    labels_of,
    note_row,
    packed,
    usage_text,
    values_of_run,
)

if TYPE_CHECKING:
    from orchestrator.stores.sqlite import listing
else:
    (listing,) = lazy_modules("orchestrator.stores.sqlite", "listing")


def create(
    connection: sqlite3.Connection,
    numbers: dict[str, int],
    new: NewRun,
    rows: Sequence[Row],
    payloads: Payloads,
    graph: str | None,
) -> None:
    """Add a run. The caller records the holder of its lease. `numbers`: see `append`.

    Raises:
        RunExists: the store has another run with this id.
    """
    info, lease = new.info, new.lease
    made = _add(connection, values_of_run(info, lease))
    if made is None:
        if lease is not None and _is_ours(connection, info.run_id, rows, lease.token):
            return  # repeated call
        raise RunExists(info.run_id)
    number, left_behind = made
    if left_behind:
        let_go(connection, number)
        connection.execute("DELETE FROM notes WHERE run = ?", (number,))
    if info.labels:
        connection.executemany(
            "INSERT INTO labels (name, value, created, run) VALUES (?, ?, ?, ?)",
            [(name, value, info.created, number) for name, value in info.labels.items()],
        )
    if graph is not None:
        put_graph(connection, info.content, graph)
    insert(connection, number, rows, payloads)
    summarize(connection, number, info.summary)
    if info.totals is not None:
        add_totals(connection, number, info.totals)
    if info.questions:
        write_questions(connection, number, info.questions)
    elif info.waiting:
        note_unlisted(connection, number, None, info.waiting)
    for note in new.notes:
        insert_note(connection, number, note)
    _remember(numbers, info.run_id, number)


_ADD = (
    f"INSERT INTO runs ({', '.join(RUN_COLUMNS)}) VALUES ({', '.join('?' * len(RUN_COLUMNS))})"
    " ON CONFLICT (run_id) DO NOTHING"
)

_LEFT_BEHIND = "EXISTS (SELECT 1 FROM payload_uses WHERE run = ?) OR EXISTS (SELECT 1 FROM notes WHERE run = ?)"
_RETURNS = sqlite3.sqlite_version_info >= (3, 35)
"""True if this SQLite supports RETURNING."""


def _add(connection: sqlite3.Connection, values: Sequence[object]) -> tuple[int, bool] | None:
    """Add a row of a run; return None if its id exists.

    Returns:
        Its number, and whether payloads or notes are noted for it. A process of a version without them, which had the
        file open when it was migrated, does not remove them when it deletes a run, whose number may be reused.
    """
    if _RETURNS:
        made: list[tuple[int, int]] = connection.execute(
            f"{_ADD} RETURNING id, {_LEFT_BEHIND.replace('?', 'runs.id')}", values
        ).fetchall()
        return (made[0][0], bool(made[0][1])) if made else None
    row = connection.execute(_ADD, values)
    if not row.rowcount:
        return None
    number = row.lastrowid
    assert number is not None
    (noted,) = connection.execute(f"SELECT {_LEFT_BEHIND}", (number, number)).fetchone()
    return number, bool(noted)


def _is_ours(connection: sqlite3.Connection, run_id: str, rows: Sequence[Row], token: str) -> bool:
    """Return True if a run has this lease, and starts with these records."""
    found = connection.execute("SELECT id FROM runs WHERE run_id = ? AND token = ?", (run_id, token)).fetchone()
    return found is not None and _stored(connection, found[0], rows)


def _stored(connection: sqlite3.Connection, number: int, rows: Sequence[Row]) -> bool:
    """Return True if a run has exactly these records at their places."""
    if not rows:
        return True
    first = number << 32
    found = connection.execute(
        "SELECT id, crc, data FROM records WHERE id >= ? AND id <= ? ORDER BY id",
        (first | rows[0][0], first | rows[-1][0]),
    ).fetchall()
    return found == [(first | seq, crc, data) for seq, crc, data in rows]


def summarize(connection: sqlite3.Connection, number: int, summary: RunSummary) -> None:
    """Store the summary of a run in lists. It is indexed again if a searchable text changes."""
    connection.execute(
        "INSERT INTO summaries (run, error, input, output, question, steps, usage) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (run) DO UPDATE SET error = excluded.error, question = excluded.question,"
        " steps = excluded.steps, usage = excluded.usage, input = excluded.input, output = excluded.output,"
        " indexed = indexed AND input = excluded.input AND output = excluded.output",
        (
            number,
            summary.error,
            summary.input,
            summary.output,
            summary.question,
            summary.steps,
            usage_text(summary),
        ),
    )


def write_totals(connection: sqlite3.Connection, number: int, totals: RunTotals) -> None:
    """Store the usage of a run, replacing the stored one."""
    connection.execute("DELETE FROM failed_tools WHERE run = ?", (number,))
    add_totals(connection, number, totals)


def add_totals(connection: sqlite3.Connection, number: int, totals: RunTotals) -> None:
    """Store the usage of a run that has no stored failed tools."""
    connection.execute(
        "INSERT OR REPLACE INTO run_parts (run, names, numbers) VALUES (?, ?, ?)", (number, *packed(totals))
    )
    failed = {row.name for row in totals.rows if row.kind == "tool" and row.failed}
    if failed:
        connection.executemany(
            "INSERT INTO failed_tools (name, run) VALUES (?, ?)", [(name, number) for name in sorted(failed)]
        )
    connection.execute(
        "INSERT OR REPLACE INTO run_totals (run, calls, failed, tools, failed_tools, input_tokens, output_tokens, cost,"
        " seconds) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (number, *numbers_of(totals)),
    )


def write_questions(connection: sqlite3.Connection, number: int, questions: Sequence[OpenQuestion]) -> None:
    """Store the open questions of a run, replacing the stored ones."""
    connection.execute("DELETE FROM questions WHERE run = ?", (number,))
    if questions:
        connection.executemany(
            "INSERT INTO questions (run, name, asked, kind, data) VALUES (?, ?, ?, ?, ?)",
            [(number, one.id, one.asked, one.kind, canonical(one.data)) for one in questions],
        )


def note_unlisted(
    connection: sqlite3.Connection, number: int, questions: Sequence[OpenQuestion] | None, waiting: int | None
) -> None:
    """Record whether a run waits for answers without questions: lists of open questions check these runs.

    Args:
        connection: a connection that has already written the other changes.
        number: the run's number.
        questions: the questions that were written; None: the stored ones stay.
        waiting: the number of open questions in its row now; None: unchanged.
    """
    connection.execute("DELETE FROM unlisted WHERE run = ?", (number,))
    if questions or waiting == 0:
        return
    connection.execute(
        "INSERT INTO unlisted SELECT id FROM runs WHERE id = ? AND waiting > 0"
        " AND NOT EXISTS (SELECT 1 FROM questions WHERE run = runs.id)",
        (number,),
    )


def append(
    connection: sqlite3.Connection, numbers: dict[str, int], append: Append, rows: Sequence[Row], payloads: Payloads
) -> int:
    """Append with compare-and-set. `numbers` caches runs' numbers between calls; a wrong one does no harm."""
    run_id, release = append.run_id, append.release
    row = _row_after(append)
    number = numbers.get(run_id, 0)
    if not _move(connection, row, number, append):
        if append.lease is not None and _is_done(connection, append, rows):
            return append.head
        number = _number_at(connection, append)
        _remember(numbers, run_id, number)
        _move(connection, row, number, append)
    insert(connection, number, rows, payloads)
    if append.summary is not None:
        summarize(connection, number, append.summary)
    if append.totals is not None:
        write_totals(connection, number, append.totals)
    if append.questions is not None:
        write_questions(connection, number, append.questions)
    if append.questions is not None or append.waiting is not None:
        note_unlisted(connection, number, append.questions, append.waiting)
    if append.snapshot is not None:
        _add_snapshot(connection, number, run_id, append.head, append.snapshot)
    if release:
        numbers.pop(run_id, None)
    if release and append.status in FINAL:
        connection.execute(f"DELETE FROM inbox WHERE run = ? AND NOT {IS_NOTICE}", (number,))
    elif append.consumed:
        connection.executemany(
            "DELETE FROM inbox WHERE id = ? AND run = ?", [(message, number) for message in append.consumed]
        )
    return append.head


def _is_done(connection: sqlite3.Connection, append: Append, rows: Sequence[Row]) -> bool:
    """Return True if these records were appended already, under this lease, by an earlier call."""
    found = connection.execute(
        "SELECT id, head, token, status, due, waiting FROM runs WHERE run_id = ?", (append.run_id,)
    ).fetchone()
    if found is None or found[1] != append.head:
        return False
    number, head, token, status, due, waiting = found
    if not rows:
        return append.release and token is None and is_released(head, status, due, waiting, append)
    # With `release` the lease is gone; the records identify the caller.
    return (token == append.lease or (append.release and token is None)) and _stored(connection, number, rows)


def _remember(numbers: dict[str, int], run_id: str, number: int) -> None:
    if len(numbers) > 10_000:
        numbers.clear()
    numbers[run_id] = number


RowChange: TypeAlias = tuple[str, tuple[object, ...]]
"""Columns of a run's row, as SQL that sets them, and their values."""


def _row_after(append: Append) -> RowChange:
    """Return the changes of an append to its run's row."""
    status, due = append.status, append.due
    columns = "head = ?, updated = coalesce(?, updated)"
    values: tuple[object, ...] = append.head, append.records[-1].ts if append.records else None
    # only changed columns are named: setting `status` would rewrite the indexes that contain it
    if status is not None:
        columns, values = f"{columns}, status = ?, due = ?", (*values, status, due)
    elif due is not None:
        columns, values = f"{columns}, due = ?", (*values, due)
    if append.waiting is not None:
        columns, values = f"{columns}, waiting = ?", (*values, append.waiting)
    if append.release:
        columns = f"{columns}, {RELEASED}"
    return columns, values


_AT = "WHERE id = ? AND head = ? AND run_id = ? AND archived IS NULL"
_HELD = "AND token = ?"


def _move(connection: sqlite3.Connection, row: RowChange, number: int, append: Append) -> bool:
    columns, values = row[0], (*row[1], number, append.after, append.run_id)
    if append.lease is None:
        return connection.execute(f"UPDATE runs SET {columns} {_AT}", values).rowcount == 1
    return connection.execute(f"UPDATE runs SET {columns} {_AT} {_HELD}", (*values, append.lease)).rowcount == 1


def _number_at(connection: sqlite3.Connection, append: Append) -> int:
    run_id = append.run_id
    found = connection.execute("SELECT id, head, token, archived FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if found is None:
        raise RunUnknown(run_id)
    number, head, token, text = found
    archived = archived_of(text)
    if archived is not None:
        raise RunArchived(run_id, archived)
    if head != append.after:
        raise moved(run_id, head, append.after)
    if append.lease is not None and token != append.lease:
        raise taken_over(run_id)
    return int(number)


def insert(connection: sqlite3.Connection, number: int, rows: Sequence[Row], payloads: Payloads) -> None:
    """Store records of a run, and their payloads."""
    first = number << 32
    for seq, crc, data in rows:
        connection.execute("INSERT INTO records (id, crc, data) VALUES (?, ?, ?)", (first | seq, crc, data))
    if payloads:
        keep(connection, number, payloads)


def remove(connection: sqlite3.Connection, number: int) -> None:
    """Remove the records of a run, with the payloads that no other run has, and its snapshots."""
    keys = number << 32, (number + 1) << 32
    connection.execute("DELETE FROM records WHERE id >= ? AND id < ?", keys)
    connection.execute("DELETE FROM snapshots WHERE id >= ? AND id < ?", keys)
    let_go(connection, number)


def delete(connection: sqlite3.Connection, run_id: str) -> bool:
    found = connection.execute("SELECT id, labels, created, holder FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if found is None:
        return False
    number, labels, created, holder = found
    if holder is not None:
        rob(connection, holder)
    # json_each() is not used: SQLite's JSON functions end a string at its first NUL
    named = labels_of(labels)
    if named is None:  # damaged: check the label of every run
        connection.execute("DELETE FROM labels WHERE run = ?", (number,))
    else:
        connection.executemany(
            "DELETE FROM labels WHERE name = ? AND value = ? AND created = ? AND run = ?",
            [(name, value, created, number) for name, value in named.items()],
        )
    remove(connection, number)
    connection.execute("DELETE FROM inbox WHERE run = ?", (number,))
    connection.execute("DELETE FROM item_writes WHERE run = ?", (number,))
    connection.execute("UPDATE archive_objects SET gone = 1 WHERE run_id = ?", (run_id,))
    listing.forget(connection, number)
    connection.execute("DELETE FROM runs WHERE id = ?", (number,))
    return True


def put_graph(connection: sqlite3.Connection, digest: str, data: str) -> None:
    connection.execute("INSERT OR IGNORE INTO graphs (digest, data) VALUES (?, ?)", (digest, data))


def put_snapshot(connection: sqlite3.Connection, run_id: str, seq: int, data: bytes) -> None:
    found = connection.execute("SELECT id, archived FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if found is None:
        raise RunUnknown(run_id)
    if found[1] is None:  # snapshots of archived runs are not stored
        _add_snapshot(connection, found[0], run_id, seq, data)


def _add_snapshot(connection: sqlite3.Connection, number: int, run_id: str, seq: int, data: bytes) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO snapshots (id, crc, data) VALUES (?, ?, ?)",
        (number << 32 | seq, checksum(run_id, seq, data), data),
    )


def add_note(connection: sqlite3.Connection, note: Note, most: int) -> None:
    """See `Store.add_note`."""
    found = connection.execute("SELECT id FROM runs WHERE run_id = ?", (note.run,)).fetchone()
    if found is None:
        raise RunUnknown(note.run)
    (number,) = found
    (there, count) = connection.execute(
        "SELECT coalesce(sum(id = ?), 0), count(*) FROM notes WHERE run = ?", (note.id, number)
    ).fetchone()
    if not there:
        if count >= most:
            raise notes_full(note.run, most)
        insert_note(connection, number, note)


def insert_note(connection: sqlite3.Connection, number: int, note: Note) -> None:
    """Store a note of a run."""
    connection.execute("INSERT INTO notes (run, id, at, data) VALUES (?, ?, ?, ?)", (number, *note_row(note)))


def delete_note(connection: sqlite3.Connection, run_id: str, note: str) -> bool:
    """See `Store.delete_note`."""
    found = connection.execute("SELECT id FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if found is None:
        raise RunUnknown(run_id)
    return connection.execute("DELETE FROM notes WHERE run = ? AND id = ?", (found[0], note)).rowcount > 0


def post(connection: sqlite3.Connection, run_id: str, body: str, key: str | None) -> int:
    found = connection.execute("SELECT id, status FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if found is None:
        raise RunUnknown(run_id)
    number, status = found
    check_postable(run_id, status, json_object(body).get("type") == NOTICE)
    if key is not None:
        known = connection.execute("SELECT id FROM inbox WHERE run = ? AND key = ?", (number, key)).fetchone()
        if known is not None:
            return int(known[0])
    message = connection.execute("INSERT INTO inbox (run, body, key) VALUES (?, ?, ?)", (number, body, key)).lastrowid
    assert message is not None
    return message


def discard(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    connection.executemany("DELETE FROM inbox WHERE id = ?", [(message,) for message in ids])
