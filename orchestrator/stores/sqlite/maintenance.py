"""Maintenance of a file: moving runs to an archive, giving space back, and finding and repairing damage.

Each function except the checks is one short write, so that appends of other runs go between them. The check looks for
inconsistent rows, including payloads that differ from those of the records.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence

from orchestrator.errors import Archived, InvalidValue, RunConflict, RunUnknown
from orchestrator.stores.base import Finding
from orchestrator.stores.payloads import Disorder, Payloads, damage, digests_of, disorder, is_sound
from orchestrator.stores.rows import Page
from orchestrator.stores.shared import json_object, out_of_reach, page_cursor, parse_cursor
from orchestrator.stores.sqlite import items
from orchestrator.stores.sqlite.listing import OF_RUNS
from orchestrator.stores.sqlite.payloads import IS_SKELETON
from orchestrator.stores.sqlite.reads import has_notes
from orchestrator.stores.sqlite.writes import insert, remove
from orchestrator.stores.stored import (
    INFO_COLUMNS,
    INFO_TABLES,
    InfoRow,
    Row,
    archived_of,
    archived_text,
    checksum,
    info_of,
    labels_of,
    schedule_of,
    stored_note,
)

BYTES_AT_ONCE = 2 << 20
"""Approximate bytes of the file that one write gives back."""

_MERGED_AT_ONCE = 200


def can_shrink(connection: sqlite3.Connection) -> bool:
    """Return True if the file gives space back in steps. A file made by `.recover` does not until it is rewritten."""
    return bool(connection.execute("PRAGMA auto_vacuum").fetchone()[0] == 2)


def free_pages(connection: sqlite3.Connection) -> int:
    """Return the number of unused pages of the file."""
    count: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
    return count


def give_back(connection: sqlite3.Connection) -> int:
    """Give some free pages back to the system; return their bytes. The file shrinks when its log is emptied."""
    if not can_shrink(connection):
        return 0
    before = free_pages(connection)
    size: int = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.execute(f"PRAGMA incremental_vacuum({BYTES_AT_ONCE // size})").fetchall()
    return (before - free_pages(connection)) * size


INDEXES = ("search", "item_words")
"""The full-text indexes: of runs, and of items."""


def has_index(connection: sqlite3.Connection, index: str) -> bool:
    """Return True if the file has an index: searches create them."""
    return connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (index,)).fetchone() is not None


def merge_index(connection: sqlite3.Connection, index: str) -> bool:
    """Merge a part of a full-text index, which keeps deleted words until then; return whether more is to be done.

    Args:
        connection: a connection to the file.
        index: one of `INDEXES`.
    """
    if not has_index(connection, index):
        return False
    before = connection.total_changes
    connection.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('merge', ?)", (-_MERGED_AT_ONCE,))
    return connection.total_changes - before >= 2  # FTS5 reports in this way that it did something


# ---------------------------------------------------------------------------------------- what does not fit


def faults(connection: sqlite3.Connection) -> list[Finding]:
    """Return the faults of the file itself: such a file is not changed."""
    texts = [text for (text,) in connection.execute("PRAGMA integrity_check(20)") if text != "ok"]
    return [Finding(f"the file is damaged: {text}; restore it from a copy") for text in texts]


def look(connection: sqlite3.Connection) -> list[Finding]:
    """See `Store.check`, without repair; for a file without faults."""
    payloads = look_at_payloads(connection)
    found = [Finding(text) for text, _ in _disorder(connection, payloads)]
    found += _graphs(connection)
    found += _schedules(connection)
    found += _notes(connection)
    found += _items(connection)
    found += _damaged_payloads(connection, payloads)
    if not can_shrink(connection):
        found.append(Finding("the file keeps the space of deleted runs", note=True))
    return found


def tidy(connection: sqlite3.Connection, payloads: Disorder) -> list[Finding]:
    """Repair the repairable findings of `look`; return the repairs.

    Args:
        connection: one that writes, inside a transaction.
        payloads: the result of `look_at_payloads`, from an earlier transaction for which no writer waits.
    """
    found: list[Finding] = []
    for text, repaired in list(_disorder(connection, payloads)):
        found.append(Finding(text, repaired=repaired()))
    for index, table in zip(INDEXES, ("summaries", "items"), strict=True):
        if has_index(connection, index) and not _index_is_whole(connection, index):
            connection.execute(f"DROP TABLE {index}")
            connection.execute(f"UPDATE {table} SET indexed = 0 WHERE indexed = 1")
            what = "full-text index" if index == "search" else "full-text index of memory"
            found.append(Finding(f"the {what} is damaged", repaired="deleted; the next search makes it"))
    return found


_Repair = tuple[str, Callable[[], str]]
"""An inconsistency, and a function that repairs it and describes the repair."""


def _disorder(connection: sqlite3.Connection, payloads: Disorder) -> Iterator[_Repair]:
    known = {number for (number,) in connection.execute("SELECT id FROM runs")}
    for table in ("records", "snapshots"):
        lost = [run for run in _runs_of(connection, table) if run not in known]
        if lost:
            yield f"{table} of {len(lost)} runs that do not exist", _deletion(connection, table, lost)
    for table in ("labels", "inbox", "summaries", "item_writes", *OF_RUNS):
        if table == "notes" and not has_notes(connection):
            continue
        rows = connection.execute(f"SELECT DISTINCT run FROM {table} WHERE run NOT IN (SELECT id FROM runs)")
        lost = [run for (run,) in rows.fetchall()]
        if lost:
            yield f"{table} of {len(lost)} runs that do not exist", _deletion(connection, table, lost, "run")
    wrong = _wrong_labels(connection)
    if wrong:
        yield f"the index of labels differs from the rows of {len(wrong)} runs", lambda: _label(connection, wrong)
    damaged = _damaged_snapshots(connection)
    if damaged:
        yield f"{len(damaged)} snapshots are damaged", _deletion(connection, "snapshots", damaged, "id")
    lost = [number for number, area, _ in items.damaged(connection) if area == "cache"]
    if lost:
        yield f"{len(lost)} results of cached nodes are damaged", _removal(connection, lost)
    yield from _payload_repairs(connection, payloads)


def _runs_of(connection: sqlite3.Connection, table: str) -> Iterator[int]:
    """Yield the runs that have rows in a table with keys `run << 32 | seq`, by one index lookup for each."""
    key = -(1 << 63)
    while True:
        row = connection.execute(f"SELECT id FROM {table} WHERE id >= ? ORDER BY id LIMIT 1", (key,)).fetchone()
        if row is None:
            return
        run = row[0] >> 32
        yield run
        key = (run + 1) << 32
        if key >= 1 << 63:
            return


def _deletion(connection: sqlite3.Connection, table: str, keys: list[int], column: str = "") -> Callable[[], str]:
    def delete() -> str:
        if column:
            connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(key,) for key in keys])
        else:
            connection.executemany(
                f"DELETE FROM {table} WHERE id >= ? AND id < ?",
                [(run << 32, min((run + 1) << 32, (1 << 63) - 1)) for run in keys],
            )
        return "deleted"

    return delete


_Labels = dict[int, list[tuple[str, str, float]]]


def _wrong_labels(connection: sqlite3.Connection) -> _Labels:
    """Return number of each run with wrongly indexed labels -> name, value and time of the labels in its row."""
    indexed: dict[int, set[tuple[str, str, float]]] = {}
    for name, value, created, run in connection.execute("SELECT name, value, created, run FROM labels"):
        indexed.setdefault(run, set()).add((name, value, created))
    wrong: _Labels = {}
    for number, text, created in connection.execute("SELECT id, labels, created FROM runs"):
        labels = labels_of(text)
        if labels is None:
            continue  # its row is damaged, which reading it reports
        wanted = [(name, value, created) for name, value in labels.items()]
        if indexed.get(number, set()) != set(wanted):
            wrong[number] = wanted
    return wrong


def _label(connection: sqlite3.Connection, wrong: _Labels) -> str:
    for number, labels in wrong.items():
        connection.execute("DELETE FROM labels WHERE run = ?", (number,))
        connection.executemany(
            "INSERT INTO labels (name, value, created, run) VALUES (?, ?, ?, ?)", [(*one, number) for one in labels]
        )
    return "written again from the rows"


def _damaged_snapshots(connection: sqlite3.Connection) -> list[int]:
    ids = dict(connection.execute("SELECT id, run_id FROM runs").fetchall())
    return [
        key
        for key, crc, data in connection.execute("SELECT id, crc, data FROM snapshots")
        if key >> 32 in ids
        and not (isinstance(data, bytes) and checksum(str(ids[key >> 32]), key & 0xFFFFFFFF, data) == crc)
    ]


def _removal(connection: sqlite3.Connection, numbers: list[int]) -> Callable[[], str]:
    def remove() -> str:
        items.remove(connection, numbers)
        return "deleted"

    return remove


def _items(connection: sqlite3.Connection) -> list[Finding]:
    return [
        Finding(f"{area} item {name} is damaged; delete it, or put it again")
        for _, area, name in items.damaged(connection)
        if area != "cache"
    ]


def _graphs(connection: sqlite3.Connection) -> list[Finding]:
    from orchestrator.graph.versions import content_digest  # imported late: nothing else in a store needs graphs

    used = {digest for row in connection.execute("SELECT structure, content FROM runs") for digest in row}
    found: list[Finding] = []
    for digest, text in connection.execute("SELECT digest, data FROM graphs"):
        try:
            whole = content_digest(json_object(text)) == digest
        except InvalidValue:
            whole = False
        if not whole and digest in used:
            found.append(Finding(f"graph {digest!r} is damaged; give executors the graph itself, or restore the store"))
    return found


def _schedules(connection: sqlite3.Connection) -> list[Finding]:
    found: list[Finding] = []
    for name, next_at, data in connection.execute("SELECT name, next_at, data FROM schedules ORDER BY name"):
        try:
            schedule_of(name, next_at, data)
        except InvalidValue:
            found.append(Finding(f"schedule {name!r} is damaged; remove it and schedule it again"))
    return found


def _notes(connection: sqlite3.Connection) -> list[Finding]:
    query = "SELECT run_id, notes.id, data FROM notes JOIN runs ON runs.id = notes.run ORDER BY run, notes.id"
    return [
        Finding(f"run {run_id!r}: note {name!r} is damaged; delete it")
        for run_id, name, data in (connection.execute(query) if has_notes(connection) else ())
        if stored_note(run_id, name, data) is None
    ]


def _index_is_whole(connection: sqlite3.Connection, index: str) -> bool:
    try:
        connection.execute(f"INSERT INTO {index} ({index}) VALUES ('integrity-check')")
    except sqlite3.DatabaseError:
        return False
    return True


def _payload_repairs(connection: sqlite3.Connection, found: Disorder) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield each inconsistency, with a function that repairs it and describes the repair.

    Other processes may have written since the check, and wait during the repair: only runs and payloads with findings
    are checked again.
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
                [(run, digest) for digest in sorted(digests & _digests_of_run(connection, run))],
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
        yield f"{len(found.unused)} payloads that no record refers to", remove


def _digests_of_run(connection: sqlite3.Connection, run: int) -> set[bytes]:
    """Return the payloads that the records of a run have; empty if there is no such run."""
    rows = connection.execute(
        f"SELECT data FROM records WHERE id BETWEEN ? AND ? AND {IS_SKELETON}"
        " AND EXISTS (SELECT 1 FROM runs WHERE id = ?)",
        (run << 32, run << 32 | 0xFFFFFFFF, run),
    )
    return digests_of(data for (data,) in rows)


def _damaged_payloads(connection: sqlite3.Connection, found: Disorder) -> list[Finding]:
    """Return the damaged or missing payloads."""
    names = dict(connection.execute("SELECT id, run_id FROM runs").fetchall())
    missing = {digest: str(names.get(run, run)) for digest, run in found.missing.items()}
    payloads = connection.execute("SELECT digest, data FROM payloads ORDER BY id")
    return damage([digest for digest, data in payloads if not is_sound(digest, data)], missing)


def look_at_payloads(connection: sqlite3.Connection) -> Disorder:
    """Find inconsistent payloads."""
    return disorder(
        connection.execute(
            f"SELECT id >> 32, data FROM records WHERE {IS_SKELETON} AND id >> 32 IN (SELECT id FROM runs)"
        ),
        connection.execute(
            "SELECT run, digest, EXISTS (SELECT 1 FROM runs WHERE id = run AND archived IS NULL) FROM payload_uses"
        ),
        {digest for (digest,) in connection.execute("SELECT digest FROM payloads")},
    )


def ended(connection: sqlite3.Connection, now: float, before: float | None, after: str | None, limit: int) -> Page:
    """See `Archivable.ended`. `now`: the file's clock."""
    created, number = (-1e300, 0) if after is None else parse_cursor(after)
    latest = 1e300 if before is None else before
    rows = connection.execute(
        # this index has no archived runs; SQLite would choose another one, and sort
        f"SELECT {INFO_COLUMNS} FROM runs INDEXED BY runs_to_archive {INFO_TABLES} WHERE archived IS NULL"
        " AND status IN ('cancelled', 'completed', 'exhausted', 'failed')"
        " AND (runs.created, runs.id) > (?, ?) AND runs.created < ? AND runs.updated < ?"
        " ORDER BY runs.created, runs.id LIMIT ?",
        (created, number, latest, latest, max(limit, 1) + 1),
    ).fetchall()
    found = [*map(InfoRow._make, rows[: max(limit, 1)])]
    cursor = page_cursor(found[-1].created, found[-1].id) if len(rows) > len(found) else None
    return Page(tuple(info_of(row, now) for row in found), cursor)


def note(connection: sqlite3.Connection, run_id: str, noted: Archived) -> Archived:
    """See `Archivable.note_object`."""
    if connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone() is None:
        raise RunUnknown(run_id)
    rows = connection.execute(
        "SELECT data FROM archive_objects WHERE run_id = ? AND archive = ? AND sha256 = ? AND gone = 0",
        (run_id, noted.archive, noted.sha256),
    )
    known = archived_of((rows.fetchone() or (None,))[0])
    if known is not None and known.name:
        return known
    connection.execute(
        "INSERT INTO archive_objects (name, run_id, archive, sha256, data, gone) VALUES (?, ?, ?, ?, ?, 0)",
        (noted.name, run_id, noted.archive, noted.sha256, archived_text(noted)),
    )
    return noted


def move_out(connection: sqlite3.Connection, run_id: str, archived: Archived, head: int) -> None:
    """See `Archivable.move_out`."""
    found = connection.execute(
        "SELECT id, status, head, token, archived FROM runs WHERE run_id = ?", (run_id,)
    ).fetchone()
    if found is None:
        raise RunUnknown(run_id)
    number, status, has, token, where = found
    text = archived_text(archived)
    if where == text:
        return
    why = out_of_reach(status, has, head, held=token is not None, elsewhere=where is not None)
    if why is None and not _is_noted(connection, run_id, archived.name):
        why = "the object was not noted for this run"
    if why is not None:
        raise RunConflict(run_id, why)
    remove(connection, number)
    connection.execute("UPDATE runs SET archived = ? WHERE id = ?", (text, number))


def _is_noted(connection: sqlite3.Connection, run_id: str, name: str) -> bool:
    query = "SELECT 1 FROM archive_objects WHERE name = ? AND run_id = ? AND gone = 0"
    return connection.execute(query, (name, run_id)).fetchone() is not None


def move_back(
    connection: sqlite3.Connection, run_id: str, rows: Sequence[Row], payloads: Payloads, archived: Archived
) -> None:
    """See `Archivable.move_back`."""
    found = connection.execute("SELECT id, archived FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if found is None:
        raise RunUnknown(run_id)
    number, where = found
    if where is None:
        return
    if where != archived_text(archived):
        raise RunConflict(run_id, "its records are in another object of the archive")
    insert(connection, number, rows, payloads)
    connection.execute("UPDATE runs SET archived = NULL WHERE id = ?", (number,))


def objects(connection: sqlite3.Connection, run_id: str) -> list[Archived]:
    """See `Archivable.objects`."""
    return _noted(connection.execute("SELECT data FROM archive_objects WHERE run_id = ?", (run_id,)))


def left(connection: sqlite3.Connection) -> list[Archived]:
    """See `Archivable.left_objects`."""
    return _noted(connection.execute("SELECT data FROM archive_objects WHERE gone = 1"))


def _noted(rows: sqlite3.Cursor) -> list[Archived]:
    found = [archived_of(data) for (data,) in rows.fetchall()]
    return sorted((one for one in found if one is not None and one.name), key=lambda one: one.at)


def forget(connection: sqlite3.Connection, names: Collection[str]) -> None:
    """See `Archivable.forget_objects`."""
    connection.executemany("DELETE FROM archive_objects WHERE name = ? AND gone = 1", [(name,) for name in names])
