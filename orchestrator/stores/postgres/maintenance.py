"""Maintenance of a database: moving runs to an archive, giving space back, and finding and repairing damage.

The check looks for inconsistent rows, including payloads that differ from those of the records.

`runs.archived` is in the row that an append changes, so PostgreSQL itself orders an append and a move to the archive:
the second one sees the changes of the first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.errors import Archived, InvalidValue, RunConflict, RunUnknown
from orchestrator.stores.base import Finding
from orchestrator.stores.payloads import Disorder, Payloads, damage, disorder
from orchestrator.stores.postgres import items, record_partitions
from orchestrator.stores.postgres.listing import all_schedules
from orchestrator.stores.postgres.reads import INFO_AND_NOW, info_with_now
from orchestrator.stores.postgres.related_rows import IS_SKELETON, keep, let_go, remove_unused
from orchestrator.stores.postgres.related_rows import note as note_payloads
from orchestrator.stores.postgres.statements import index_key, keys_of, reading, streamed, walking
from orchestrator.stores.rows import Page
from orchestrator.stores.shared import json_object, out_of_reach, page_cursor, parse_cursor
from orchestrator.stores.stored import (
    INFO_TABLES,
    InfoRow,
    Row,
    archived_of,
    archived_text,
    checksum,
    labels_of,
    stored_note,
)

if TYPE_CHECKING:
    from orchestrator.stores.postgres.statements import Connection


log = logging.getLogger("orchestrator")

TABLES = (
    "runs",
    "labels",
    "records",
    "snapshots",
    "graphs",
    "holders",
    "inbox",
    "summaries",
    "run_totals",
    "run_parts",
    "failed_tools",
    "questions",
    "unlisted",
    "notes",
    "schedules",
    "items",
    "item_writes",
    "archive_objects",
    "payloads",
    "payload_uses",
)


def compact(connection: Connection) -> int:
    """See `Store.compact`. The server gives back the records of whole months, and free space at the ends of tables.

    It reuses the rest. Other writes continue meanwhile. The connection must not be inside a transaction. What the
    server refuses is left for the next time: the runs are deleted or archived already, so this is not a failure.
    """
    import psycopg

    with suppress(psycopg.Error):
        record_partitions.begin_month(connection)
    before = _size(connection)
    all_dropped = _drop_empty(connection)
    for table in TABLES:
        # Records are found by their key alone, so they need no statistics; and there are very many.
        what = "VACUUM" if table == "records" else "VACUUM (ANALYZE)"
        with _left_for_later(connection):
            connection.execute(f"{what} {table}".encode(), prepare=False)
    if not all_dropped:
        _drop_empty(connection)
    return max(0, before - _size(connection))


def _drop_empty(connection: Connection) -> bool:
    with _left_for_later(connection):
        return record_partitions.drop_empty(connection)
    return True


@contextmanager
def _left_for_later(connection: Connection) -> Iterator[None]:
    """Ignore refusals of the server. A lost connection is an error: a repeated request may succeed."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        if connection.closed:
            raise
        log.warning("disk space is released later; the server refuses it now: %s", error.diag.message_primary)


def _size(connection: Connection) -> int:
    """Return the size in bytes of the tables, their partitions and their indexes."""
    row = connection.execute(
        "SELECT sum(pg_table_size(one) + pg_indexes_size(one)) FROM (SELECT name::regclass FROM unnest(%s::text[])"
        " AS name UNION ALL SELECT inhrelid FROM pg_inherits WHERE inhparent = 'records'::regclass) AS known (one)",
        ([*TABLES],),
    ).fetchone()
    return 0 if row is None else int(row[0])


def _payload_repairs(connection: Connection, found: Disorder) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield each inconsistency, with a function that repairs it and describes the repair."""
    if found.wrong:
        what = f"the payloads that are noted differ from the records of {len(found.wrong)} runs"
        yield what, partial(_note_payloads, connection, found.wrong)
    if found.unused:
        yield (
            f"{len(found.unused)} payloads that no record refers to",
            partial(_remove_payloads, connection, found.unused),
        )


def _damaged_payloads(connection: Connection, found: Disorder) -> list[Finding]:
    """Return the damaged or missing payloads. The connection must be inside a transaction."""
    missing = found.missing
    names: dict[int, str] = dict(
        connection.execute("SELECT id, run_id FROM runs WHERE id = ANY(%s)", ([*missing.values()],)).fetchall()
    )
    query = "SELECT digest FROM payloads WHERE sha256(data) <> digest ORDER BY digest"
    wrong: list[tuple[bytes]] = connection.execute(query).fetchall()
    return damage([digest for (digest,) in wrong], {digest: names[run] for digest, run in missing.items()})


def look_at_payloads(connection: Connection, runs: list[int] | None = None) -> Disorder:
    """Find inconsistent payloads of all runs, or of some. The connection must be inside a transaction."""
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


def _note_payloads(connection: Connection, runs: list[int]) -> str:
    """Note the payloads of records of some runs. The runs may have changed since the check, but cannot change now."""
    connection.execute("SELECT 1 FROM runs WHERE id = ANY(%s::bigint[]) ORDER BY run_id FOR NO KEY UPDATE", (runs,))
    found = look_at_payloads(connection, runs)
    connection.execute("DELETE FROM payload_uses WHERE run = ANY(%s::bigint[])", (sorted(found.stale),))
    for run, digests in found.unnoted.items():
        note_payloads(connection, run, sorted(digests))
    return "written again from the records"


def _remove_payloads(connection: Connection, digests: list[bytes]) -> str:
    remove_unused(connection, digests)
    return "deleted"


_LARGE = ("records", "snapshots")
"""Tables with many rows for each run, with an index in the order of the runs."""
_SMALL = (
    "labels",
    "inbox",
    "summaries",
    "item_writes",
    "run_parts",
    "failed_tools",
    "run_totals",
    "questions",
    "unlisted",
    "notes",
)

_AT_ONCE = 5000
"""Number of runs that are compared at once."""


def look(connection: Connection) -> list[Finding]:
    """See `Store.check`, without repair."""
    with reading(connection):
        connection.execute(b"SET LOCAL statement_timeout = 0", prepare=False)  # it reads whole tables
        payloads = look_at_payloads(connection)
        found = [Finding(text) for text, _ in _disorder(connection, payloads)]
        found += _graphs(connection)
        found += _schedules(connection)
        found += _notes(connection)
        found += _items(connection)
        found += _damaged_payloads(connection, payloads)
    return found


def tidy(connection: Connection) -> list[Finding]:
    """Repair the repairable findings of `look`; return the repairs. The connection is inside a transaction."""
    connection.execute(b"SET LOCAL statement_timeout = 0", prepare=False)
    return [
        Finding(text, repaired=repair()) for text, repair in list(_disorder(connection, look_at_payloads(connection)))
    ]


_Repair = tuple[str, Callable[[], str]]
"""An inconsistency, and a function that repairs it and describes the repair."""


def _disorder(connection: Connection, payloads: Disorder) -> Iterator[_Repair]:
    for table in (*_LARGE, *_SMALL):
        lost = _lost(connection, table)
        if lost:
            yield f"{table} of {len(lost)} runs that do not exist", partial(_delete, connection, table, lost)
    labels, words = _wrong(connection)
    if labels:
        yield f"the index of labels differs from the rows of {len(labels)} runs", partial(_label, connection, labels)
    if words:
        yield f"the full-text index differs from the texts of {len(words)} runs", partial(_index, connection, words)
    damaged = _damaged_snapshots(connection)
    if damaged:
        yield f"{len(damaged)} snapshots are damaged", partial(_forget, connection, damaged)
    cached = [number for number, area, _ in items.damaged(connection) if area == "cache"]
    if cached:
        yield f"{len(cached)} results of cached nodes are damaged", partial(_remove, connection, cached)
    yield from _payload_repairs(connection, payloads)


# -- data of no run ----------------------------------------------------------------------------------------------------


def _lost(connection: Connection, table: str) -> list[int]:
    """Return the numbers of runs that have rows in a table, but do not exist."""
    there = "EXISTS (SELECT 1 FROM runs WHERE runs.id = known.run)"
    if table not in _LARGE:
        query = f"SELECT DISTINCT run FROM {table} AS known WHERE NOT {there}"
        return [run for (run,) in connection.execute(query.encode()).fetchall()]
    lost: list[int] = []
    for first, last in _spans(connection, table):  # one index lookup for each run
        following = f"SELECT min(run) FROM {table} WHERE run <= {last} AND run"
        query = (
            f"WITH RECURSIVE known (run) AS ({following} >= {first} UNION ALL SELECT ({following} > known.run)"
            f" FROM known WHERE run IS NOT NULL) SELECT run FROM known WHERE run IS NOT NULL AND NOT {there}"
        )
        lost += [run for (run,) in connection.execute(query.encode()).fetchall()]
    return lost


def _spans(connection: Connection, table: str) -> Iterator[tuple[int, int]]:
    """Yield the first and last number of the runs of each month with rows in a table: each month has its own index."""
    first = 0
    while True:
        row: Any = connection.execute(f"SELECT min(run) FROM {table} WHERE run >= {first}".encode()).fetchone()
        if row[0] is None:
            return
        month = record_partitions.month_of(row[0])
        first = record_partitions.first_number(month + 1)
        yield row[0], first - 1


def _delete(connection: Connection, table: str, lost: list[int]) -> str:
    connection.execute(f"DELETE FROM {table} WHERE run = ANY(%s::bigint[])".encode(), (lost,))
    return "deleted"


# -- labels and words, which are in indexes ----------------------------------------------------------------------------

_Labels = dict[int, list[tuple[str, str, float]]]
"""Number of a run -> name, value and time of each of its labels, as in the index."""
_Words = dict[int, tuple[list[str], list[str]]]
"""Number of a run -> the words of its labels, and all of its words."""


def _wrong(connection: Connection) -> tuple[_Labels, _Words]:
    """Return the correct index entries of the runs whose entries are wrong."""
    labels: _Labels = {}
    words: _Words = {}
    last = -1
    while True:
        rows: Any = connection.execute(
            "SELECT id, labels, created, input, output, label_words, words FROM runs"
            " LEFT JOIN summaries ON summaries.run = runs.id WHERE id > %s ORDER BY id LIMIT %s",
            (last, _AT_ONCE),
        ).fetchall()
        if not rows:
            return labels, words
        indexed: _Labels = {}
        known: Any = connection.execute(
            "SELECT run, name, value, created FROM labels WHERE run > %s AND run <= %s", (last, rows[-1][0])
        )
        for run, *label in known:
            indexed.setdefault(run, []).append((label[0], label[1], label[2]))
        for run, text, created, given, output, *there in rows:
            named = labels_of(text)
            if named is None:
                continue  # its row is damaged, which reading it reports
            wanted = [(index_key(name), index_key(value), created) for name, value in named.items()]
            if sorted(indexed.get(run, ())) != sorted(wanted):
                labels[run] = wanted
            if given is not None:
                of_labels = keys_of([*named, *named.values()])
                if {*there[0]} != {*of_labels} or {*there[1]} != {*of_labels, *keys_of([given, output])}:
                    words[run] = of_labels, [*of_labels, *keys_of([given, output])]
        last = rows[-1][0]


def _label(connection: Connection, wrong: _Labels) -> str:
    connection.execute("DELETE FROM labels WHERE run = ANY(%s::bigint[])", ([*wrong],))
    connection.cursor().executemany(
        "INSERT INTO labels (name, value, created, run) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
        [(*one, run) for run, labels in wrong.items() for one in labels],
    )
    return "written again from the rows"


def _index(connection: Connection, wrong: _Words) -> str:
    connection.cursor().executemany(
        "UPDATE summaries SET label_words = %s::text[], words = %s::text[] WHERE run = %s",
        [(*words, run) for run, words in wrong.items()],
    )
    return "written again from the texts"


# -- damaged rows ------------------------------------------------------------------------------------------------------


def _damaged_snapshots(connection: Connection) -> list[tuple[int, int]]:
    """Return the run's number and the `seq` of each snapshot whose checksum does not match."""
    query = "SELECT run, seq, crc, data, run_id FROM snapshots JOIN runs ON runs.id = snapshots.run"
    return [
        (run, seq)
        for run, seq, crc, data, run_id in streamed(connection, query, ())
        if checksum(run_id, seq, bytes(data)) != crc
    ]


def _forget(connection: Connection, damaged: list[tuple[int, int]]) -> str:
    connection.cursor().executemany("DELETE FROM snapshots WHERE run = %s AND seq = %s", damaged)
    return "deleted"


def _remove(connection: Connection, numbers: list[int]) -> str:
    items.remove(connection, numbers)
    return "deleted"


def _items(connection: Connection) -> list[Finding]:
    return [
        Finding(f"{area} item {name} is damaged; delete it, or put it again")
        for _, area, name in items.damaged(connection)
        if area != "cache"
    ]


def _graphs(connection: Connection) -> list[Finding]:
    from orchestrator.graph.versions import content_digest  # imported late: nothing else in a store needs graphs

    names: Any = connection.execute("SELECT DISTINCT structure, content FROM runs").fetchall()
    used = {digest for row in names for digest in row}
    found: list[Finding] = []
    for digest, text in streamed(connection, "SELECT digest, data FROM graphs", ()):
        try:
            whole = content_digest(json_object(text)) == digest
        except InvalidValue:
            whole = False
        if not whole and digest in used:
            found.append(Finding(f"graph {digest!r} is damaged; give executors the graph itself, or restore the store"))
    return found


def _schedules(connection: Connection) -> list[Finding]:
    return [
        Finding(f"schedule {name!r} is damaged; remove it and schedule it again")
        for name, schedule in all_schedules(connection)
        if schedule is None
    ]


def _notes(connection: Connection) -> list[Finding]:
    rows: Any = connection.execute(
        "SELECT run_id, notes.id, data FROM notes JOIN runs ON runs.id = notes.run ORDER BY run, notes.id"
    )
    return [
        Finding(f"run {run_id!r}: note {name!r} is damaged; delete it")
        for run_id, name, data in rows
        if stored_note(run_id, name, data) is None
    ]


def ended(connection: Connection, before: float | None, after: str | None, limit: int) -> Page:
    """See `Archivable.ended`."""
    created, number = (-1e300, 0) if after is None else parse_cursor(after)
    latest = 1e300 if before is None else before
    query = (
        f"SELECT {INFO_AND_NOW} FROM (SELECT * FROM runs WHERE archived IS NULL"
        " AND status IN ('cancelled', 'completed', 'exhausted', 'failed')"
        " AND (created, id) > (%s::double precision, %s::bigint) AND created < %s::double precision"
        " AND updated < %s::double precision ORDER BY created, id LIMIT %s) AS runs"
        f" {INFO_TABLES} ORDER BY runs.created, runs.id"
    )
    with walking(connection):
        rows: Any = connection.execute(query.encode(), (created, number, latest, latest, max(limit, 1) + 1)).fetchall()
    found = rows[: max(limit, 1)]
    last = InfoRow._make(found[-1][:-1]) if len(rows) > len(found) else None
    cursor = None if last is None else page_cursor(last.created, last.id)
    return Page(tuple(map(info_with_now, found)), cursor)


def note(connection: Connection, run_id: str, noted: Archived) -> Archived:
    """See `Archivable.note_object`."""
    _locked(connection, run_id)
    row: Any = connection.execute(
        "SELECT data FROM archive_objects WHERE run_id = %s AND archive = %s AND sha256 = %s AND NOT gone LIMIT 1",
        (run_id, noted.archive, noted.sha256),
    ).fetchone()
    known = archived_of(row and row[0])
    if known is not None and known.name:
        return known
    connection.execute(
        "INSERT INTO archive_objects (name, run_id, archive, sha256, data, gone) VALUES (%s, %s, %s, %s, %s, FALSE)",
        (noted.name, run_id, noted.archive, noted.sha256, archived_text(noted)),
    )
    return noted


def move_out(connection: Connection, run_id: str, archived: Archived, head: int) -> None:
    """See `Archivable.move_out`."""
    number, status, has, token, where = _locked(connection, run_id)
    text = archived_text(archived)
    if where == text:
        return
    why = out_of_reach(status, has, head, held=token is not None, elsewhere=where is not None)
    if why is None and not _is_noted(connection, run_id, archived.name):
        why = "the object was not noted for this run"
    if why is not None:
        raise RunConflict(run_id, why)
    connection.execute("DELETE FROM records WHERE run = %s::bigint", (number,))
    connection.execute("DELETE FROM snapshots WHERE run = %s", (number,))
    let_go(connection, number)
    connection.execute("UPDATE runs SET archived = %s WHERE id = %s", (text, number))


def _is_noted(connection: Connection, run_id: str, name: str) -> bool:
    query = "SELECT 1 FROM archive_objects WHERE name = %s AND run_id = %s AND NOT gone"
    return connection.execute(query, (name, run_id)).fetchone() is not None


def move_back(connection: Connection, run_id: str, rows: Sequence[Row], payloads: Payloads, archived: Archived) -> None:
    """See `Archivable.move_back`."""
    number, _, _, _, where = _locked(connection, run_id)
    if where is None:
        return
    if where != archived_text(archived):
        raise RunConflict(run_id, "its records are in another object of the archive")
    connection.execute(
        "INSERT INTO records (run, seq, crc, data) SELECT %s::bigint, *"
        " FROM unnest(%s::bigint[], %s::bigint[], %s::bytea[])",
        (number, [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]),
    )
    keep(connection, number, payloads)
    connection.execute("UPDATE runs SET archived = NULL WHERE id = %s", (number,))


def _locked(connection: Connection, run_id: str) -> tuple[int, str, int, str | None, str | None]:
    """Lock a run until the transaction ends; return its number, status, head, token and the place of its records."""
    row: Any = connection.execute(
        "SELECT id, status, head, token, archived FROM runs WHERE run_id = %s FOR NO KEY UPDATE", (run_id,)
    ).fetchone()
    if row is None:
        raise RunUnknown(run_id)
    number, status, head, token, where = row
    return int(number), status, head, token, where


def objects(connection: Connection, run_id: str) -> list[Archived]:
    """See `Archivable.objects`."""
    return _noted(connection.execute("SELECT data FROM archive_objects WHERE run_id = %s", (run_id,)).fetchall())


def left(connection: Connection) -> list[Archived]:
    """See `Archivable.left_objects`."""
    return _noted(connection.execute("SELECT data FROM archive_objects WHERE gone").fetchall())


def _noted(rows: Any) -> list[Archived]:
    found = [archived_of(data) for (data,) in rows]
    return sorted((one for one in found if one is not None and one.name), key=lambda one: one.at)


def forget(connection: Connection, names: Collection[str]) -> None:
    """See `Archivable.forget_objects`."""
    connection.execute("DELETE FROM archive_objects WHERE name = ANY(%s) AND gone", (sorted(names),))
