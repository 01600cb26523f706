"""Lists over all runs of a database: runs, open questions, usage; and the schedules.

The cost of a page of runs does not grow with the number of runs. Every index that can drive the query contains
`created` and the run's number after what it selects, so scanning it backwards gives the runs in list order, and a page
ends after `limit` of them. With several filters the most selective one drives, and the others are checked for each
run; counting stops as soon as the choice is clear. Open questions are rows of their own, written with the pauses that
they start and end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.errors import InvalidValue, RunUnknown, StoreError
from orchestrator.stores.base import Page, Schedule
from orchestrator.stores.postgres.leases import present_holders
from orchestrator.stores.postgres.reads import INFO_AND_NOW, info_with_now
from orchestrator.stores.postgres.statements import (
    execute,
    exists,
    index_key,
    key_of,
    looking_up,
    reading,
    streamed,
    walking,
)
from orchestrator.stores.requests import QuestionQuery, RunQuery, StatsQuery
from orchestrator.stores.rows import OpenQuestion, QuestionPage, RunTotals, WaitingQuestion
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
from orchestrator.stores.statistics import ANY_TOOL, By, Groups, StatsRow
from orchestrator.stores.stored import (
    DIVERGED,
    INFO_TABLES,
    Keys,
    add_parts,
    add_runs,
    labels_of,
    part_in_names,
    schedule_of,
    schedule_text,
    unpacked,
)

if TYPE_CHECKING:
    from orchestrator.stores.postgres.statements import Connection


COUNTED = 1000
"""Runs that a filter selects are looked up one by one if there are fewer; counting stops there."""


@dataclass(frozen=True, slots=True)
class _Sql:
    """A part of a statement, with its values."""

    text: str
    values: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class _Way:
    """A query source that contains all runs of the list."""

    table: str
    """Table or query of its rows: `runs` or `labels`, in the order of an index, or `few` runs."""
    where: _Sql
    """The condition on the table; for `few`, a query for the numbers of runs."""

    @property
    def ordered(self) -> bool:
        """True if it returns the runs in the order of the list."""
        return self.table != "few"

    @property
    def count(self) -> _Sql:
        """Return a query for the number of its rows, counted no further than needed."""
        query = f"SELECT 1 FROM {self.table} WHERE {self.where.text}" if self.ordered else self.where.text
        return _Sql(f"(SELECT count(*) FROM ({query} LIMIT {COUNTED}) AS counted)", self.where.values)


_Place = tuple[float, int]
"""A run's place in the list: when it was created, and its number."""


@dataclass(frozen=True, slots=True)
class _Span:
    """A part of the list by time, and its direction."""

    after: _Place | None
    """The last run of the previous page."""
    since: float | None
    before: float | None
    ascending: bool

    def within(self, created: str, number: str) -> _Sql:
        """Return the condition on the two columns of a run's place: an index is read from there on."""
        found = [] if self.since is None else [_Sql(f"{created} >= %s::float8", (self.since,))]
        if self.before is not None:
            found.append(_Sql(f"{created} < %s::float8", (self.before,)))
        if self.after is not None:
            sign = ">" if self.ascending else "<"
            found.append(_Sql(f"({created}, {number}) {sign} (%s::float8, %s::bigint)", self.after))
        return _Sql(" AND ".join(one.text for one in found) or "TRUE", _values(found))

    def order(self, created: str, number: str) -> str:
        """Return the order of the list."""
        way = "ASC" if self.ascending else "DESC"
        return f"ORDER BY {created} {way}, {number} {way}"


def runs(connection: Connection, wanted: RunQuery) -> Page:
    """See `Store.runs`."""
    wanted.check_sort()
    if wanted.sort != "started":
        return _sorted(connection, wanted)
    place = None if wanted.after is None else _parsed(wanted.after)
    limit = max(wanted.limit, 1)
    if wanted.words == [] or wanted.statuses == frozenset():
        return Page()
    with walking(connection):
        found = _page(connection, wanted, place, limit + 1)
        rows = _rows(connection, found[:limit])
    cursor = page_cursor(*found[limit - 1]) if len(found) > limit else None
    return Page(tuple(map(info_with_now, rows)), cursor)


def _parsed(cursor: str) -> _Place:
    created, number = parse_cursor(cursor)
    return created, as_bigint(number)


def as_bigint(number: int) -> int:
    """Return a number of a cursor, which may be of any size, as one that the database can compare."""
    return min(max(number, -_MOST), _MOST)


_MOST = (1 << 63) - 1


def _rows(connection: Connection, page: list[_Place]) -> list[tuple[Any, ...]]:
    """Return the rows of runs. Runs that are deleted meanwhile are left out."""
    rows = connection.execute(
        f"SELECT {INFO_AND_NOW} FROM runs {INFO_TABLES} WHERE runs.id = ANY(%s)".encode(),
        ([number for _, number in page],),
    ).fetchall()
    by_number = {number: (number, *rest) for number, *rest in rows}
    return [by_number[number] for _, number in page if number in by_number]


def _page(connection: Connection, wanted: RunQuery, place: _Place | None, limit: int) -> list[_Place]:
    """Return the places of the runs of a page."""
    conditions = _conditions(connection, wanted)
    ways = _fewest(connection, wanted)
    span = _Span(place, wanted.begun_since, wanted.begun_before, wanted.ascending)
    words = wanted.words
    found: list[_Place] = []
    for way in ways:
        if words is None:
            found += _walk(connection, way, conditions, span, limit)
            continue
        some = _look(connection, way, conditions, _has_words(words), span, limit)
        if some is None:  # few of these runs have the words: the index finds them
            looking_up(connection)
            few = _Way("few", _Sql("SELECT run FROM summaries WHERE words @> %s", (_keys(words),)))
            return _walk(connection, few, conditions, span, limit)
        found += some
    return sorted(found, reverse=not wanted.ascending)[:limit]


def _fewest(connection: Connection, wanted: RunQuery) -> list[_Way]:
    """Return the sources with the fewest runs; together they contain all runs of the list."""
    several = list(_ways(wanted))
    if not several:
        return [_Way("runs", _Sql("TRUE"))]
    if len(several) == 1 and several[0][0].ordered:
        return several[0]
    sums = [" + ".join(way.count.text for way in ways) for ways in several]
    values = [value for ways in several for way in ways for value in way.where.values]
    counts = execute(connection, f"SELECT {', '.join(sums)}", values).fetchone() or ()
    fewest, at = min((count, at) for at, count in enumerate(counts))
    if fewest < COUNTED:
        return several[at]
    ordered = [ways for ways in several if ways[0].ordered]
    return ordered[0] if ordered else [_Way("runs", _Sql("TRUE"))]


def _ways(wanted: RunQuery) -> Iterator[list[_Way]]:
    """Yield each filter that an index can drive, usually the most selective ones first."""
    if wanted.parent is not None:
        yield [_Way("runs", _Sql("runs.parent = %s", (wanted.parent,)))]
    relation = "replay" if wanted.diverged else wanted.relation
    if relation is not None:
        yield [_Way("runs", _Sql("runs.relation = %s", (relation,)))]
    if wanted.waiting:
        graph = _Sql("TRUE") if wanted.graph is None else _Sql("runs.graph = %s", (wanted.graph,))
        yield [_Way("runs", _Sql(f"runs.waiting > 0 AND {graph.text}", graph.values))]
    for item in wanted.labels.items():
        yield [_Way("labels", _Sql("labels.name = %s AND labels.value = %s", tuple(map(index_key, item))))]
    own = _Sql("TRUE") if wanted.graph is None else _Sql("runs.graph = %s", (wanted.graph,))
    if (statuses := wanted.statuses) is not None:
        # one scan for each status, since an index is in list order only within one status
        walked = sorted({"running" if status == "interrupted" else status for status in statuses})
        yield [_Way("runs", _Sql(f"{own.text} AND runs.status = %s", (*own.values, one))) for one in walked]
    elif wanted.graph is not None:
        yield [_Way("runs", own)]
    if wanted.failed_tool is not None:
        yield [_Way("few", _of_failed_tool(wanted.failed_tool))]


def _of_failed_tool(name: str) -> _Sql:
    """Return a query for the numbers of the runs in which a tool failed."""
    if name in ANY_TOOL:
        return _Sql("SELECT run FROM run_totals WHERE failed_tools > 0")
    return _Sql("SELECT run FROM failed_tools WHERE name = %s", (index_key(name),))


# -- filters without an index ------------------------------------------------------------------------------------------


def _conditions(connection: Connection, wanted: RunQuery) -> list[_Sql]:
    """Return all filters but the words as conditions on `runs` that use no index."""
    found = [_Sql(f"{one.sql} %s", (one.value,)) for one in wanted.comparisons("begun_since", "begun_before")]
    if (statuses := wanted.statuses) is not None:
        found.append(_of_status(connection, statuses))
    if wanted.waiting is not None:
        found.append(_Sql("runs.waiting > 0" if wanted.waiting else "runs.waiting <= 0"))
    for item in wanted.labels.items():
        query = "SELECT 1 FROM labels WHERE name = %s AND value = %s AND created = runs.created AND run = runs.id"
        found.append(_Sql(exists(query), tuple(map(index_key, item))))
    if wanted.failed_tool is not None:
        failed = _of_failed_tool(wanted.failed_tool)
        found.append(_Sql(exists(f"{failed.text} AND run = runs.id"), failed.values))
    if not wanted.replays:
        found.append(_Sql("runs.relation IS DISTINCT FROM 'replay'"))
    if wanted.diverged is not None:
        marked = exists(f"SELECT 1 FROM summaries WHERE run = runs.id AND strpos(usage, '{DIVERGED}') > 0")
        found.append(_Sql(f"runs.relation = 'replay' AND {marked}" if wanted.diverged else f"NOT {marked}"))
    for part in wanted.parts:
        query = "SELECT 1 FROM run_parts WHERE run = runs.id AND strpos(names, %s) > 0"
        found.append(_Sql(exists(query), (part_in_names(*part),)))
    return [_Sql(f"({one.text}) IS TRUE", one.values) for one in found]


def _of_status(connection: Connection, statuses: frozenset[str]) -> _Sql:
    if "interrupted" not in statuses or "running" in statuses:
        return _Sql("runs.status = ANY(%s)", (sorted(statuses),))
    present = present_holders(connection)[0]
    return _Sql(
        "runs.status = ANY(%s) OR runs.status = 'running' AND (runs.token IS NULL OR runs.holder <> ALL(%s))",
        (sorted(statuses), present),
    )


def _has_words(wanted: list[str]) -> _Sql:
    return _Sql(exists("SELECT 1 FROM summaries WHERE run = way.id AND words @> %s"), (_keys(wanted),))


def _keys(wanted: list[str]) -> list[str]:
    return sorted({key_of(word) for word in wanted})


# -- walking -----------------------------------------------------------------------------------------------------------


def _walk(connection: Connection, way: _Way, conditions: list[_Sql], span: _Span, limit: int) -> list[_Place]:
    """Return the first runs of a source that meet the conditions."""
    query = _query(way, conditions, span, limit)
    return execute(connection, query.text, query.values).fetchall()


def _look(
    connection: Connection, way: _Way, conditions: list[_Sql], words: _Sql, span: _Span, limit: int
) -> list[_Place] | None:
    """Like `_walk`, for runs with some words; None if so few of the first runs have them that the index is faster."""
    for most in (COUNTED, _OFTEN * COUNTED):
        query = _query(way, conditions, span, most)
        rows = execute(
            connection,
            f"SELECT created, id FROM ({query.text}) AS way WHERE {words.text} {span.order('created', 'id')} LIMIT %s",
            (*query.values, *words.values, limit),
        ).fetchall()
        if len(rows) >= limit:
            return rows
        row = execute(connection, f"SELECT count(*) FROM ({query.text}) AS way", query.values).fetchone()
        if row is not None and row[0] < most:
            return rows
        if len(rows) * _SELDOM < most:
            break
    return None


_OFTEN, _SELDOM = 20, 100
"""Words that at least one of so many runs has are searched along the list, over so many times as many runs."""


def _query(way: _Way, conditions: list[_Sql], span: _Span, limit: int) -> _Sql:
    """Return a query for the places of the first runs of a source that meet the conditions."""
    fits, values = " AND ".join(one.text for one in conditions) or "TRUE", _values(conditions)
    place = ("labels.created", "labels.run") if way.table == "labels" else ("created", "id")
    within, order = span.within(*place), f"{span.order(*place)} LIMIT %s"
    if way.table == "runs":
        return _Sql(
            f"SELECT created, id FROM runs WHERE {way.where.text} AND {fits} AND {within.text} {order}",
            (*way.where.values, *values, *within.values, limit),
        )
    if way.table == "labels":
        return _Sql(
            f"SELECT labels.created, labels.run AS id FROM labels CROSS JOIN LATERAL"
            f" (SELECT 1 FROM runs WHERE runs.id = labels.run AND {fits} OFFSET 0) AS fitting"
            f" WHERE {way.where.text} AND {within.text} {order}",
            (*values, *way.where.values, *within.values, limit),
        )
    return _Sql(
        f"SELECT created, id FROM ({way.where.text}) AS few CROSS JOIN LATERAL"
        f" (SELECT created, id FROM runs WHERE runs.id = few.run AND {fits} OFFSET 0) AS fitting"
        f" WHERE {within.text} {order}",
        (*way.where.values, *values, *within.values, limit),
    )


def _number(name: str) -> str:
    """Return SQL for a number of the stored usage; 0 if it has none that can be read."""
    digits = r"(-?[0-9]{1,15}(?:\.[0-9]{0,20})?(?:[eE][-+]?[0-9]{1,2})?)"
    return f"coalesce(substring(usage FROM '\"{name}\":{digits}')::float8, 0)"


_SORTED = {
    "updated": "runs.updated",
    "duration": _number("seconds"),
    "cost": _number("cost"),
    "status": "runs.status",
    "graph": "runs.graph",
}


def _sorted(connection: Connection, wanted: RunQuery) -> Page:
    """Return a page of a list that is sorted by something else than `started`."""
    if wanted.words == [] or wanted.statuses == frozenset():
        return Page()
    key, limit = _SORTED[wanted.sort], max(wanted.limit, 1)
    with reading(connection):
        conditions = [*_conditions(connection, wanted), _selection(connection, wanted)]
        conditions.append(_Span(None, wanted.begun_since, wanted.begun_before, False).within("runs.created", "runs.id"))
        if wanted.words is not None:
            found = "runs.id IN (SELECT run FROM summaries WHERE words @> %s)"
            conditions.append(_Sql(found, (_keys(wanted.words),)))
        if wanted.after is not None:
            value, created, number = parse_sorted_cursor(wanted.sort, wanted.after)
            sign, kind = ">" if wanted.ascending else "<", "text" if isinstance(value, str) else "float8"
            behind = f"({key} {sign} %s::{kind} OR ({key} = %s::{kind} AND"
            behind += " (runs.created, runs.id) < (%s::float8, %s::bigint)))"
            conditions.append(_Sql(behind, (value, value, created, as_bigint(number))))
        rows = execute(
            connection,
            f"SELECT {key}, runs.created, runs.id FROM runs LEFT JOIN summaries ON summaries.run = runs.id"
            f" WHERE {' AND '.join(one.text for one in conditions)}"
            f" ORDER BY 1 {'ASC' if wanted.ascending else 'DESC'}, runs.created DESC, runs.id DESC LIMIT %s",
            (*_values(conditions), limit + 1),
        ).fetchall()
        found_rows = _rows(connection, [(created, number) for _, created, number in rows[:limit]])
    cursor = sorted_cursor(wanted.sort, *rows[limit - 1]) if len(rows) > limit else None
    return Page(tuple(map(info_with_now, found_rows)), cursor)


def _selection(connection: Connection, wanted: RunQuery) -> _Sql:
    """Return the most selective filters as a condition that an index can answer."""
    ways = _fewest(connection, wanted)
    numbers = {"labels": "runs.id IN (SELECT run FROM labels WHERE {})", "few": "runs.id IN ({})", "runs": "({})"}
    parts = [numbers[way.table].format(way.where.text) for way in ways]
    return _Sql(f"({' OR '.join(parts)})", _values([way.where for way in ways]))


def _values(conditions: list[_Sql]) -> tuple[object, ...]:
    return tuple(value for one in conditions for value in one.values)


def totals(connection: Connection, run_id: str) -> RunTotals | None:
    """See `Store.totals`."""
    row = connection.execute(
        "SELECT names, numbers, seconds FROM runs LEFT JOIN run_totals ON run_totals.run = runs.id"
        " LEFT JOIN run_parts ON run_parts.run = runs.id WHERE run_id = %s",
        (run_id,),
    ).fetchone()
    if row is None:
        raise RunUnknown(run_id)
    names, numbers, seconds = row
    return None if seconds is None else unpacked(names, numbers, seconds)


_SUMS = (
    "calls, failed, tools, failed_tools, input_tokens, output_tokens, cost, run_totals.seconds,"
    " CASE WHEN (position('cache_savings' IN usage) > 0 AND relation IS DISTINCT FROM 'call') OR relation = 'replay'"
    " THEN usage END"
)


def stats(connection: Connection, by: By, wanted: StatsQuery) -> list[StatsRow]:
    """See `Store.stats`."""
    where, values = _stats_where(wanted)
    groups = Groups(by)
    keys = Keys(by, groups)
    with reading(connection):
        if by.within:
            query = f"SELECT names, numbers, runs.status{keys.columns} FROM runs LEFT JOIN run_parts ON run = id"
            add_parts(by, keys, streamed(connection, f"{query} WHERE {where}", values))
            return groups.rows()
        query = f"SELECT runs.status, {_SUMS}{keys.columns} FROM runs LEFT JOIN run_totals ON run_totals.run = id"
        query += f" LEFT JOIN summaries ON summaries.run = id WHERE {where}"
        add_runs(keys, streamed(connection, query, values))
    return groups.rows()


def _stats_where(wanted: StatsQuery) -> tuple[str, tuple[object, ...]]:
    where, values = ["TRUE"], list[object]()
    for text, value in (
        ("runs.created >= %s", wanted.since),
        ("runs.created < %s", wanted.until),
        ("runs.graph = %s", wanted.graph),
    ):
        if value is not None:
            where.append(text)
            values.append(value)
    for item in wanted.labels.items():
        where.append("runs.id IN (SELECT run FROM labels WHERE name = %s AND value = %s)")
        values.extend(map(index_key, item))
    return " AND ".join(where), tuple(values)


def open_questions(connection: Connection, run_id: str) -> tuple[OpenQuestion, ...] | None:
    """See `Store.open_questions`."""
    rows = connection.execute(
        "SELECT waiting, name, asked, kind, data FROM runs LEFT JOIN questions ON questions.run = runs.id"
        " WHERE runs.run_id = %s ORDER BY asked, name",
        (run_id,),
    ).fetchall()
    if not rows:
        raise RunUnknown(run_id)
    found = tuple(
        OpenQuestion(name, asked, kind, json_object(data)) for _, name, asked, kind, data in rows if name is not None
    )
    return None if rows[0][0] > len(found) else found


def questions(connection: Connection, query: QuestionQuery) -> QuestionPage:
    """See `Store.questions`."""
    limit = max(query.limit, 1)
    place = None if query.after is None else parse_question_cursor(query.after)
    with walking(connection):
        few = _few_asked(connection, query)
        fits, values = _fits(query)
        unlisted = execute(
            connection,
            "SELECT run_id FROM unlisted CROSS JOIN LATERAL"
            f" (SELECT run_id, created, id FROM runs WHERE id = unlisted.run AND waiting > 0 AND ({fits}) OFFSET 0)"
            " AS waiting_runs ORDER BY created, id LIMIT %s",
            (*values, UNLISTED),
        ).fetchall()
        rows: list[tuple[Any, ...]] = []
        # one scan for each kind, since an index is in list order only within one kind
        for kind in [None] if query.kinds is None else sorted(set(query.kinds)):
            rows += _walk_questions(connection, kind, few, (fits, values), place, limit + 1)
    rows.sort(key=lambda row: row[:3])
    found = tuple(
        WaitingQuestion(run_id, graph, labels_of(text) or {}, OpenQuestion(name, asked, kind, json_object(data)))
        for asked, _, name, kind, data, run_id, graph, text in rows[:limit]
    )
    cursor = question_cursor(*rows[limit - 1][:3]) if len(rows) > limit else None
    return QuestionPage(found, cursor, tuple(run_id for (run_id,) in unlisted))


_Values = tuple[object, ...]


def _walk_questions(
    connection: Connection,
    kind: str | None,
    few: tuple[str, _Values] | None,
    fits: tuple[str, _Values],
    place: tuple[float, int, str] | None,
    limit: int,
) -> list[tuple[Any, ...]]:
    where, values = [f"({fits[0]}) IS TRUE"], [*fits[1]]
    if kind is not None:
        where.append("questions.kind = %s")
        values.append(kind)
    if place is not None:
        # the index does not contain names: questions of one run and moment are few
        where.append("(questions.asked, questions.run) >= (%s::float8, %s::bigint)")
        where.append("(questions.asked, questions.run, questions.name) > (%s::float8, %s::bigint, %s)")
        asked, number, name = place
        values += [asked, as_bigint(number), asked, as_bigint(number), name]
    table, columns = "questions", "questions.asked, questions.run, questions.name"
    if few is not None:
        theirs = "SELECT * FROM questions WHERE run = few.run OFFSET 0"
        table = f"({few[0]}) AS few CROSS JOIN LATERAL ({theirs}) AS questions"
        values = [*few[1], *values]
    return execute(
        connection,
        f"SELECT {columns}, kind, data, run_id, graph, labels FROM {table} CROSS JOIN LATERAL"
        " (SELECT id, created, run_id, graph, labels FROM runs WHERE id = questions.run OFFSET 0) AS runs"
        f" WHERE {' AND '.join(where)} ORDER BY {columns} LIMIT %s",
        (*values, limit),
    ).fetchall()


def _fits(query: QuestionQuery) -> tuple[str, _Values]:
    """Return an SQL condition on `runs` for the graph and the labels of a query, and its parameters."""
    where, values = ["TRUE"], list[object]()
    if query.graph is not None:
        where.append("runs.graph = %s")
        values.append(query.graph)
    for item in query.labels.items():
        having = "SELECT 1 FROM labels WHERE name = %s AND value = %s AND created = runs.created AND run = runs.id"
        where.append(exists(having))
        values += map(index_key, item)
    return " AND ".join(where), tuple(values)


def _few_asked(connection: Connection, asked: QuestionQuery) -> tuple[str, _Values] | None:
    """Return a query for the numbers of the runs that a filter selects, if they are few; else None."""
    ways: list[tuple[str, _Values]] = [
        ("SELECT run FROM labels WHERE name = %s AND value = %s", tuple(map(index_key, item)))
        for item in asked.labels.items()
    ]
    if asked.graph is not None:
        ways.append(("SELECT id AS run FROM runs WHERE graph = %s AND waiting > 0", (asked.graph,)))
    for query, values in ways:
        row = execute(connection, f"SELECT count(*) FROM ({query} LIMIT {COUNTED}) AS counted", values).fetchone()
        if row is not None and row[0] < COUNTED:
            return query, values
    return None


def put_schedule(connection: Connection, schedule: Schedule) -> None:
    """See `Store.put_schedule`."""
    connection.execute(
        "INSERT INTO schedules (name, next_at, data) VALUES (%s, %s, %s)"
        " ON CONFLICT (name) DO UPDATE SET next_at = excluded.next_at, data = excluded.data",
        (schedule.name, schedule.next_at, schedule_text(schedule)),
    )


def schedules(connection: Connection, url: str) -> list[Schedule]:
    """See `Store.schedules`."""
    found = []
    for name, schedule in all_schedules(connection):
        if schedule is None:
            raise StoreError(f"store {url}: schedule {name!r} is damaged; remove it and schedule it again")
        found.append(schedule)
    return found


def all_schedules(connection: Connection) -> list[tuple[str, Schedule | None]]:
    """Return the names of all schedules, and the schedules; None for a damaged row."""
    found: list[tuple[str, Schedule | None]] = []
    for name, next_at, data in connection.execute("SELECT name, next_at, data FROM schedules ORDER BY name"):
        try:
            found.append((name, schedule_of(name, next_at, data)))
        except InvalidValue:
            found.append((name, None))
    return found


def move_schedule(connection: Connection, name: str, at: float, to: float) -> bool:
    """See `Store.move_schedule`."""
    changed = connection.execute("UPDATE schedules SET next_at = %s WHERE name = %s AND next_at = %s", (to, name, at))
    return changed.rowcount == 1


def delete_schedule(connection: Connection, name: str) -> bool:
    """See `Store.delete_schedule`."""
    return connection.execute("DELETE FROM schedules WHERE name = %s", (name,)).rowcount == 1
