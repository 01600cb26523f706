"""Lists over all runs of a file: runs, open questions, usage; their full-text index; and the schedules.

The cost of a page of runs does not grow with the number of runs. Every index that can drive the query contains
`created` and the run's number after what it selects, so scanning it backwards gives the runs in list order, and a page
ends after `limit` of them. With several filters the most selective one drives and the others are looked up; counting
stops as soon as the choice is clear. Open questions are rows of their own, written with the pauses that they start
and end.

The full-text index of labels, inputs and outputs is a cache, created by the first search and updated by each;
an append never changes it. It contains the words of `stores.requests.words`, so that all stores find the same
runs, and no text of a user is ever a query to SQLite.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import InvalidValue, StoreError
from orchestrator.stores.base import Page, RunInfo, Schedule
from orchestrator.stores.requests import QuestionQuery, RunQuery, StatsQuery, contains, words
from orchestrator.stores.rows import MAX_DEATHS, OpenQuestion, QuestionPage, RunTotals, WaitingQuestion
from orchestrator.stores.shared import (
    UNLISTED,
    json_object,
    page_cursor,
    parse_cursor,
    parse_question_cursor,
    parse_sorted_cursor,
    question_cursor,
    sorted_cursor,
)
from orchestrator.stores.sqlite.leases import IS_NOTICE, StoreClock, present_holders
from orchestrator.stores.sqlite.reads import run_number
from orchestrator.stores.statistics import ANY_TOOL, By, Groups, StatsRow
from orchestrator.stores.stored import (
    DIVERGED,
    INFO_COLUMNS,
    INFO_TABLES,
    InfoRow,
    Keys,
    add_parts,
    add_runs,
    info_of,
    labels_of,
    part_in_names,
    schedule_of,
    schedule_text,
    unpacked,
)


@dataclass(frozen=True, slots=True)
class _Filter:
    """A filter that can drive the list: `table` has columns `created` and `key`, the run's number."""

    table: str
    key: str
    where: str
    values: tuple[object, ...]


def unsettled(connection: sqlite3.Connection, clock: StoreClock, graphs: Collection[str] | None) -> list[RunInfo]:
    """See `Store.unsettled`."""
    rows = connection.execute(
        f"SELECT {INFO_COLUMNS} FROM runs {INFO_TABLES} WHERE runs.id IN ("
        "SELECT id FROM runs INDEXED BY runs_by_status WHERE status = 'running'"
        " UNION SELECT id FROM runs INDEXED BY runs_by_due WHERE due IS NOT NULL"
        f" UNION SELECT run FROM inbox WHERE NOT {IS_NOTICE}"
        ") AND +status IN ('running', 'paused') ORDER BY +created, +runs.id"  # driven by the selection, not by an index
    )
    now = clock.now(connection)
    return [info_of(row, now) for row in map(InfoRow._make, rows.fetchall()) if graphs is None or row.graph in graphs]


def parked(connection: sqlite3.Connection, clock: StoreClock, limit: int) -> list[RunInfo]:
    """See `Store.parked`."""
    rows = connection.execute(
        f"SELECT {INFO_COLUMNS} FROM runs {INFO_TABLES} WHERE runs.id IN ("
        "SELECT id FROM runs INDEXED BY runs_by_retry WHERE retry_at IS NOT NULL"
        f" AND deaths >= {MAX_DEATHS} AND status IN ('running', 'paused') ORDER BY retry_at, id LIMIT ?"
        ") ORDER BY +retry_at, +runs.id",
        (limit,),
    )
    now = clock.now(connection)
    return [info_of(row, now) for row in map(InfoRow._make, rows.fetchall())]


def runs(connection: sqlite3.Connection, clock: StoreClock, query: RunQuery) -> Page:
    """See `Store.runs`."""
    query.check_sort()
    if query.sort != "started":
        return _sorted(connection, clock, query)
    place = None if query.after is None else parse_cursor(query.after)
    limit = max(query.limit, 1)
    statuses, graph, labels = query.statuses, query.graph, query.labels
    if statuses is not None and {"running", "interrupted"} <= statuses:
        statuses -= {"interrupted"}
    # one scan for each status, since an index is in list order only within one status
    walks = [
        _and_also(walk, connection, clock, query, status)
        for walk, status in (
            [(_of_row(status, graph), status) for status in sorted(statuses)]
            if statuses is not None
            else [(_of_row(None, graph), None)]
        )
    ]
    by_label = [_Filter("labels", "run", "name = ? AND value = ?", item) for item in labels.items()]
    rest = by_label
    if by_label:
        by_row = sum(_count(connection, walk) for walk in walks) if statuses is not None or graph is not None else None
        counts = [(_count(connection, label), index) for index, label in enumerate(by_label)]
        fewest, index = min(counts)
        if by_row is None or fewest <= by_row:
            label = by_label.pop(index)
            walks = [_and_row(label, walk) for walk in walks]
            rest = by_label
    rows = [row for walk in walks for row in _walk(connection, walk, rest, place, limit + 1, query.ascending)]
    rows.sort(key=_place, reverse=not query.ascending)
    cursor = page_cursor(rows[limit - 1].created, rows[limit - 1].id) if len(rows) > limit else None
    now = clock.now(connection)
    return Page(tuple(info_of(row, now) for row in rows[:limit]), cursor)


def _place(row: InfoRow) -> tuple[bool, float, int]:
    """Return a run's place in the list, as SQLite sorts it, even if a damaged `created` is not a number."""
    created = row.created
    return (False, created, row.id) if isinstance(created, float | int) else (True, 0.0, row.id)


def _of_row(status: str | None, graph: str | None) -> _Filter:
    status = "running" if status == "interrupted" else status
    parts = [("runs.graph = ?", graph), ("runs.status = ?", status)]
    given = [(text, value) for text, value in parts if value is not None]
    return _Filter("runs", "id", " AND ".join(text for text, _ in given) or "TRUE", tuple(value for _, value in given))


def _and_also(
    walk: _Filter, connection: sqlite3.Connection, clock: StoreClock, query: RunQuery, status: str | None
) -> _Filter:
    """Return the query with the filters that do not drive it, except that of a parent."""
    words = query.words
    where, values = [walk.where], list(walk.values)
    if status == "interrupted":
        free = _is_free(connection, clock)
        where.append(free.where)
        values += free.values
    for one in query.comparisons("graph", "relation"):
        where.append(f"{one.sql} ?")
        values.append(one.value)
    leads = False  # whether one of these filters selects fewer runs than the scan
    if query.relation is not None:
        few = query.parent is None and _count_of(connection, _OF_RELATION, (query.relation,)) < COUNTED
        where.append(f"runs.id IN ({_OF_RELATION})" if few else "runs.relation = ?")
        values.append(query.relation)
        leads |= few
    if query.waiting is not None:
        where.append("runs.waiting > 0" if query.waiting else "runs.waiting <= 0")
        leads |= query.waiting and _count(connection, walk) >= COUNTED
    if not query.replays:
        where.append("runs.relation IS NOT 'replay'")
    if query.diverged is not None:
        where.append(f"{'' if query.diverged else 'NOT '}{_DIVERGED}")
        if query.diverged:
            few = query.relation is None and _count_of(connection, _OF_RELATION, ("replay",)) < COUNTED
            where.append(f"runs.id IN ({_OF_RELATION})" if few else "runs.relation = ?")
            values.append("replay")
            leads |= few
    for kind, name in query.parts:
        where.append("EXISTS (SELECT 1 FROM run_parts WHERE run = runs.id AND instr(names, ?))")
        values.append(part_in_names(kind, name))
    for condition in (
        None if query.failed_tool is None else _of_failed_tool(connection, query.failed_tool),
        None if words is None else _with_words(connection, words),
    ):
        if condition is not None:
            where.append(condition.where)
            values += condition.values
            leads |= condition.few
    if leads:
        where[0] = where[0].replace("runs.", "+runs.")  # `+` keeps SQLite from using an index of the column
    return _Filter(walk.table, walk.key, " AND ".join(where), tuple(values))


def _is_free(connection: sqlite3.Connection, clock: StoreClock) -> Condition:
    """Return the condition that no living executor holds a run."""
    present = present_holders(connection, clock)[0]
    return Condition(
        f"(runs.token IS NULL OR runs.holder NOT IN ({', '.join('?' * len(present))}))", tuple(map(str, present))
    )


_DIVERGED = f"EXISTS (SELECT 1 FROM summaries WHERE run = runs.id AND instr(usage, '{DIVERGED}'))"

_OF_RELATION = "SELECT id FROM runs WHERE parent IS NOT NULL AND relation = ?"
"""The runs that were made from others have a separate index."""


def _of_failed_tool(connection: sqlite3.Connection, name: str) -> Condition:
    """Return a condition on `runs`. Few such runs are looked up one by one; many are soon found along the list."""
    any_tool = name in ANY_TOOL
    values = () if any_tool else (name,)
    found = (
        "SELECT run FROM run_totals WHERE failed_tools > 0"
        if any_tool
        else "SELECT run FROM failed_tools WHERE name = ?"
    )
    few = _count_of(connection, found, values) < COUNTED
    return Condition(f"runs.id IN ({found})" if few else f"EXISTS ({found} AND run = runs.id)", values, few)


def _and_row(label: _Filter, row: _Filter) -> _Filter:
    return _Filter("labels", "run", f"{label.where} AND {row.where}", label.values + row.values)


def _count(connection: sqlite3.Connection, walk: _Filter) -> int:
    return _count_of(connection, f"SELECT 1 FROM {walk.table} WHERE {walk.where}", walk.values)


def _count_of(connection: sqlite3.Connection, query: str, values: tuple[object, ...]) -> int:
    """Return the number of rows of a query, counted no further than needed."""
    count: int = connection.execute(f"SELECT count(*) FROM ({query} LIMIT {COUNTED})", values).fetchone()[0]
    return count


def _walk(
    connection: sqlite3.Connection,
    walk: _Filter,
    labels: list[_Filter],
    place: tuple[float, int] | None,
    limit: int,
    ascending: bool,
) -> list[InfoRow]:
    table = walk.table
    behind, order = (">", "ASC") if ascending else ("<", "DESC")
    source = "runs" if table == "runs" else "labels CROSS JOIN runs ON runs.id = labels.run"  # CROSS: in this order
    # of the table that drives, so that a range of times is one of its index
    where, values = [walk.where.replace("runs.created", f"{table}.created")], list(walk.values)
    if place is not None:
        where.append(f"({table}.created, {table}.{walk.key}) {behind} (?, ?)")
        values.extend(place)
    for label in labels:
        where.append(
            f"EXISTS (SELECT 1 FROM labels AS other WHERE {label.where.replace('name', 'other.name', 1)}"
            " AND other.created = runs.created AND other.run = runs.id)"
        )
        values.extend(label.values)
    found = connection.execute(
        f"SELECT {INFO_COLUMNS} FROM {source} {INFO_TABLES} WHERE {' AND '.join(where)}"
        f" ORDER BY {table}.created {order}, {table}.{walk.key} {order} LIMIT ?",
        (*values, limit),
    ).fetchall()
    return [*map(InfoRow._make, found)]


def _number(name: str) -> str:
    """Return SQL for a number of the stored usage: a cast reads the digits at the beginning of a text."""
    mark = f'"{name}":'
    digits = f"CAST(substr(usage, instr(usage, '{mark}') + {len(mark)}) AS REAL)"
    return f"(CASE WHEN instr(usage, '{mark}') THEN {digits} ELSE 0.0 END)"


_SORTED = {
    "updated": "runs.updated",
    "duration": _number("seconds"),
    "cost": _number("cost"),
    "status": "runs.status",
    "graph": "runs.graph",
}


def _sorted(connection: sqlite3.Connection, clock: StoreClock, query: RunQuery) -> Page:
    """Return a page of a list that is sorted by something else than `started`.

    First the numbers of its runs are found from the columns that this needs, then their rows are read.
    """
    key, limit = _SORTED[query.sort], max(query.limit, 1)
    found = _and_also(_of_row(None, query.graph), connection, clock, query, None)
    where, values = [found.where], list(found.values)
    if (statuses := query.statuses) is not None:
        condition = _of_statuses(connection, clock, statuses)
        where.append(condition.where)
        values += condition.values
    for label in query.labels.items():
        where.append("runs.id IN (SELECT run FROM labels WHERE name = ? AND value = ?)")
        values += label
    if query.after is not None:
        value, *place = parse_sorted_cursor(query.sort, query.after)
        sign = ">" if query.ascending else "<"
        where.append(f"({key} {sign} ? OR ({key} = ? AND (runs.created, runs.id) < (?, ?)))")
        values += [value, value, *place]
    order = f"ORDER BY {key} {'ASC' if query.ascending else 'DESC'}, runs.created DESC, runs.id DESC"
    page = (
        f"SELECT runs.id FROM runs LEFT JOIN summaries ON summaries.run = runs.id WHERE {' AND '.join(where)}"
        f" {order} LIMIT ?"
    )
    rows = connection.execute(
        f"SELECT {key}, {INFO_COLUMNS} FROM runs {INFO_TABLES} WHERE runs.id IN ({page}) {order}", (*values, limit + 1)
    ).fetchall()
    now = clock.now(connection)
    infos = [InfoRow._make(row[1:]) for row in rows]
    last = infos[limit - 1] if len(infos) > limit else None
    cursor = None if last is None else sorted_cursor(query.sort, rows[limit - 1][0], last.created, last.id)
    return Page(tuple(info_of(row, now) for row in infos[:limit]), cursor)


def _of_statuses(connection: sqlite3.Connection, clock: StoreClock, statuses: Collection[str]) -> Condition:
    """Return the condition that a run has one of some statuses."""
    plain = f"runs.status IN ({', '.join('?' * len(statuses))})"
    if "interrupted" not in statuses or "running" in statuses:
        return Condition(plain, tuple(statuses))
    free = _is_free(connection, clock)
    return Condition(f"({plain} OR (runs.status = 'running' AND {free.where}))", (*statuses, *free.values))


def totals(connection: sqlite3.Connection, run_id: str) -> RunTotals | None:
    """See `Store.totals`."""
    row = connection.execute(
        "SELECT names, numbers, seconds FROM run_totals JOIN run_parts USING (run) WHERE run = ?",
        (run_number(connection, run_id),),
    ).fetchone()
    return None if row is None else unpacked(*row)


_SUMS = (
    "calls, failed, tools, failed_tools, input_tokens, output_tokens, cost, run_totals.seconds,"
    " CASE WHEN (instr(usage, 'cache_savings') AND relation IS NOT 'call') OR relation = 'replay' THEN usage END"
)


def stats(connection: sqlite3.Connection, by: By, wanted: StatsQuery) -> list[StatsRow]:
    """See `Store.stats`."""
    where, values = _stats_where(wanted)
    groups = Groups(by)
    keys = Keys(by, groups)
    if by.within:
        query = f"SELECT names, numbers, runs.status{keys.columns} FROM runs LEFT JOIN run_parts ON run = id"
        add_parts(by, keys, connection.execute(f"{query} WHERE {where}", values))
        return groups.rows()
    query = f"SELECT runs.status, {_SUMS}{keys.columns} FROM runs LEFT JOIN run_totals ON run_totals.run = id"
    query += f" LEFT JOIN summaries ON summaries.run = id WHERE {where}"
    add_runs(keys, connection.execute(query, values))
    return groups.rows()


def _stats_where(wanted: StatsQuery) -> tuple[str, list[object]]:
    where, values = ["TRUE"], list[object]()
    for text, value in (
        ("runs.created >= ?", wanted.since),
        ("runs.created < ?", wanted.until),
        ("runs.graph = ?", wanted.graph),
    ):
        if value is not None:
            where.append(text)
            values.append(value)
    for item in wanted.labels.items():
        where.append("runs.id IN (SELECT run FROM labels WHERE name = ? AND value = ?)")
        values.extend(item)
    return " AND ".join(where), values


def open_questions(connection: sqlite3.Connection, number: int) -> tuple[OpenQuestion, ...] | None:
    """See `Store.open_questions`."""
    rows = connection.execute(
        "SELECT name, asked, kind, data FROM questions WHERE run = ? ORDER BY asked, name", (number,)
    ).fetchall()
    (waiting,) = connection.execute("SELECT waiting FROM runs WHERE id = ?", (number,)).fetchone()
    if isinstance(waiting, int) and waiting > len(rows):
        return None
    return tuple(OpenQuestion(name, asked, kind, json_object(data)) for name, asked, kind, data in rows)


def questions(connection: sqlite3.Connection, query: QuestionQuery) -> QuestionPage:
    """See `Store.questions`."""
    limit = max(query.limit, 1)
    of_runs, values = ["TRUE"], list[object]()
    if query.graph is not None:
        of_runs.append("runs.graph = ?")
        values.append(query.graph)
    for name, value in query.labels.items():
        of_runs.append(
            "EXISTS (SELECT 1 FROM labels WHERE name = ? AND value = ? AND created = runs.created AND run = runs.id)"
        )
        values += [name, value]
    unlisted = connection.execute(
        "SELECT runs.run_id FROM unlisted CROSS JOIN runs ON runs.id = unlisted.run"
        f" WHERE runs.waiting > 0 AND {' AND '.join(of_runs)} ORDER BY runs.created, runs.id LIMIT ?",
        (*values, UNLISTED),
    ).fetchall()
    few = _few_asked(connection, query)
    if few is not None:
        of_runs.append(f"questions.run IN ({few[0]})")
        values += few[1]
    if query.after is not None:
        of_runs.append("(questions.asked, questions.run, questions.name) > (?, ?, ?)")
        values += parse_question_cursor(query.after)
    rows = []
    # one scan for each kind, since an index is in list order only within one kind
    for kind in [None] if query.kinds is None else sorted(set(query.kinds)):
        rows += connection.execute(
            "SELECT runs.run_id, runs.graph, runs.labels, questions.run, name, asked, kind, data FROM questions"
            f" CROSS JOIN runs ON runs.id = questions.run WHERE {'kind = ? AND ' if kind is not None else ''}"
            f"{' AND '.join(of_runs)} ORDER BY questions.asked, questions.run, questions.name LIMIT ?",
            (*([] if kind is None else [kind]), *values, limit + 1),
        ).fetchall()
    rows.sort(key=_place_of_question)
    found = tuple(
        WaitingQuestion(run_id, graph, labels_of(text) or {}, OpenQuestion(name, asked, kind, json_object(data)))
        for run_id, graph, text, _, name, asked, kind, data in rows[:limit]
    )
    last = rows[limit - 1] if len(rows) > limit else None
    cursor = None if last is None else question_cursor(last[5], last[3], last[4])
    return QuestionPage(found, cursor, tuple(run_id for (run_id,) in unlisted))


def _place_of_question(row: tuple[Any, ...]) -> tuple[bool, float, int, str]:
    """Return a question's place in the list, as SQLite sorts it, even if a damaged time is not a number."""
    number, name, asked = row[3:6]
    return (False, asked, number, name) if isinstance(asked, float | int) else (True, 0.0, number, str(name))


def _few_asked(connection: sqlite3.Connection, asked: QuestionQuery) -> tuple[str, tuple[object, ...]] | None:
    """Return a query for the numbers of the runs that a filter selects, if they are few; else None."""
    ways: list[tuple[str, tuple[object, ...]]] = [
        ("SELECT run FROM labels WHERE name = ? AND value = ?", item) for item in asked.labels.items()
    ]
    if asked.graph is not None:
        ways.append(("SELECT id FROM runs WHERE graph = ?", (asked.graph,)))
    for query, values in ways:
        (count,) = connection.execute(f"SELECT count(*) FROM ({query} LIMIT {COUNTED})", values).fetchone()
        if count < COUNTED:
            return query, values
    return None


def put_schedule(connection: sqlite3.Connection, schedule: Schedule) -> None:
    """See `Store.put_schedule`."""
    connection.execute(
        "INSERT OR REPLACE INTO schedules (name, next_at, data) VALUES (?, ?, ?)",
        (schedule.name, schedule.next_at, schedule_text(schedule)),
    )


def schedules(connection: sqlite3.Connection, url: str) -> list[Schedule]:
    """See `Store.schedules`."""
    found = []
    for name, next_at, data in connection.execute("SELECT name, next_at, data FROM schedules ORDER BY name"):
        try:
            found.append(schedule_of(name, next_at, data))
        except InvalidValue as error:
            raise StoreError(f"store {url}: schedule {name!r} is damaged; remove it and schedule it again") from error
    return found


def move_schedule(connection: sqlite3.Connection, name: str, at: float, to: float) -> bool:
    """See `Store.move_schedule`."""
    changed = connection.execute("UPDATE schedules SET next_at = ? WHERE name = ? AND next_at = ?", (to, name, at))
    return changed.rowcount == 1


def delete_schedule(connection: sqlite3.Connection, name: str) -> bool:
    """See `Store.delete_schedule`."""
    return connection.execute("DELETE FROM schedules WHERE name = ?", (name,)).rowcount == 1


OF_RUNS = ("run_parts", "failed_tools", "run_totals", "questions", "unlisted", "notes")
"""Tables of facts about runs outside of their journals, with the number of the run in the column `run`."""
COUNTED = 1000
"""Runs that a filter selects are looked up one by one if there are fewer; counting stops there."""
AT_ONCE = 500
"""Maximum number of runs that are indexed in one write."""


def has_index(connection: sqlite3.Connection) -> bool:
    """Return True if the index exists."""
    return connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'search'").fetchone() is not None


def index_some(connection: sqlite3.Connection) -> bool:
    """Index some of the runs that are not indexed; return whether others may be left."""
    if not has_index(connection):
        connection.execute("UPDATE summaries SET indexed = 0 WHERE indexed <> 0")
        connection.execute("CREATE VIRTUAL TABLE search USING fts5 (words)")
    rows = connection.execute(
        "SELECT summaries.run, input, output, labels FROM summaries LEFT JOIN runs ON runs.id = summaries.run"
        " WHERE indexed = 0 LIMIT ?",
        (AT_ONCE,),
    ).fetchall()
    connection.executemany("DELETE FROM search WHERE rowid = ?", [(run,) for run, *_ in rows])
    connection.executemany(
        "INSERT INTO search (rowid, words) VALUES (?, ?)",
        [(run, " ".join(words(" ".join(_texts(*texts))))) for run, *texts in rows],
    )
    connection.executemany("UPDATE summaries SET indexed = 1 WHERE run = ?", [(run,) for run, *_ in rows])
    return len(rows) == AT_ONCE


def is_complete(connection: sqlite3.Connection) -> bool:
    """Return True if every run is indexed."""
    return (
        has_index(connection)
        and connection.execute("SELECT 1 FROM summaries WHERE indexed = 0 LIMIT 1").fetchone() is None
    )


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on `runs`."""

    where: str
    values: tuple[object, ...] = ()
    few: bool = False
    """True if few runs meet it, so that they are best looked up by their numbers."""


def _with_words(connection: sqlite3.Connection, wanted: list[str]) -> Condition:
    """Return a condition on `runs` for those that have all of these words."""
    if not wanted:
        return Condition("FALSE", few=True)
    found: list[str] = []
    values: list[object] = []
    if has_index(connection):
        found.append("{runs.id} IN (SELECT rowid FROM search WHERE search MATCH ?)")
        values.append(" ".join(f'"{word}"' for word in wanted))
    if not is_complete(connection):  # the index of a read-only file may be incomplete: read the other runs
        connection.create_function(
            "has_words",
            3,
            lambda given, output, labels: contains(wanted, *_texts(given, output, labels)),
            deterministic=True,
        )
        rows = (
            "SELECT run FROM summaries JOIN runs AS labelled ON labelled.id = run"
            " WHERE has_words(input, output, labelled.labels)"
        )
        found.append(f"{{runs.id}} IN ({rows}{' AND indexed = 0' if found else ''})")
    # Few runs are looked up one by one. Many are put into a set, and soon found by scanning the list: the `+` keeps
    # SQLite from looking up and sorting all of them.
    few = len(found) == 1 and _count_matches(connection, values) < COUNTED
    where = f"({' OR '.join(found)})".replace("{runs.id}", "runs.id" if few else "+runs.id")
    return Condition(where, tuple(values), few)


def _count_matches(connection: sqlite3.Connection, values: list[object]) -> int:
    """Return the number of runs that the index finds, counted no further than needed."""
    if not values:
        return 0
    query = "SELECT count(*) FROM (SELECT 1 FROM search WHERE search MATCH ? LIMIT ?)"
    count: int = connection.execute(query, (*values, COUNTED)).fetchone()[0]
    return count


def _texts(given: object, output: object, labels: object) -> list[str]:
    """Return the searchable texts of a run."""
    named = labels_of(labels) or {}
    return [str(given), str(output), *named, *named.values()]


def forget(connection: sqlite3.Connection, number: int) -> None:
    """Delete the facts about a run outside of its journal, and its words from the index."""
    for table in OF_RUNS:
        connection.execute(f"DELETE FROM {table} WHERE run = ?", (number,))
    row = connection.execute("SELECT indexed FROM summaries WHERE run = ?", (number,)).fetchone()
    if row is None:
        return
    connection.execute("DELETE FROM summaries WHERE run = ?", (number,))
    if row[0] and has_index(connection):  # its words stay in the index until `Store.compact` merges it
        connection.execute("DELETE FROM search WHERE rowid = ?", (number,))
