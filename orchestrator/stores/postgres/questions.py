"""The open questions of runs: rows of their own, written with the pauses that they begin and end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.errors import RunUnknown
from orchestrator.stores.postgres.listing import COUNTED, as_bigint
from orchestrator.stores.postgres.statements import execute, exists, walking
from orchestrator.stores.postgres.texts import index_key
from orchestrator.stores.requests import QuestionQuery
from orchestrator.stores.rows import OpenQuestion, QuestionPage, WaitingQuestion
from orchestrator.stores.shared import UNLISTED, json_object, parse_question_cursor, question_cursor
from orchestrator.stores.stored import labels_of

if TYPE_CHECKING:
    from orchestrator.stores.postgres.connections import Connection


def of_run(connection: Connection, run_id: str) -> tuple[OpenQuestion, ...] | None:
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


def page(connection: Connection, query: QuestionQuery) -> QuestionPage:
    """See `Store.questions`."""
    limit = max(query.limit, 1)
    place = None if query.after is None else parse_question_cursor(query.after)
    with walking(connection):
        few = _few(connection, query)
        fits, values = _fits(query)
        unlisted = execute(
            connection,
            "SELECT run_id FROM unlisted CROSS JOIN LATERAL"
            f" (SELECT run_id, created, id FROM runs WHERE id = unlisted.run AND waiting > 0 AND ({fits}) OFFSET 0)"
            " AS waiting_runs ORDER BY created, id LIMIT %s",
            (*values, UNLISTED),
        ).fetchall()
        rows: list[tuple[Any, ...]] = []
        # one walk for each kind, for only within one kind are an index's entries in the order of the list
        for kind in [None] if query.kinds is None else sorted(set(query.kinds)):
            rows += _walk(connection, kind, few, (fits, values), place, limit + 1)
    rows.sort(key=lambda row: row[:3])
    found = tuple(
        WaitingQuestion(run_id, graph, labels_of(text) or {}, OpenQuestion(name, asked, kind, json_object(data)))
        for asked, _, name, kind, data, run_id, graph, text in rows[:limit]
    )
    cursor = question_cursor(*rows[limit - 1][:3]) if len(rows) > limit else None
    return QuestionPage(found, cursor, tuple(run_id for (run_id,) in unlisted))


_Values = tuple[object, ...]


def _walk(
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
        # the index has no names: questions of one run and moment are few
        where.append("(questions.asked, questions.run) >= (%s::float8, %s::bigint)")
        where.append("(questions.asked, questions.run, questions.name) > (%s::float8, %s::bigint, %s)")
        asked, number, name = place
        values += [asked, as_bigint(number), asked, as_bigint(number), name]
    table, columns = "questions", "questions.asked, questions.run, questions.name"
    if few is not None:
        of_run = "SELECT * FROM questions WHERE run = few.run OFFSET 0"
        table = f"({few[0]}) AS few CROSS JOIN LATERAL ({of_run}) AS questions"
        values = [*few[1], *values]
    return execute(
        connection,
        f"SELECT {columns}, kind, data, run_id, graph, labels FROM {table} CROSS JOIN LATERAL"
        " (SELECT id, created, run_id, graph, labels FROM runs WHERE id = questions.run OFFSET 0) AS runs"
        f" WHERE {' AND '.join(where)} ORDER BY {columns} LIMIT %s",
        (*values, limit),
    ).fetchall()


def _fits(query: QuestionQuery) -> tuple[str, _Values]:
    """A condition on `runs`."""
    where, values = ["TRUE"], list[object]()
    if query.graph is not None:
        where.append("runs.graph = %s")
        values.append(query.graph)
    for item in query.labels.items():
        having = "SELECT 1 FROM labels WHERE name = %s AND value = %s AND created = runs.created AND run = runs.id"
        where.append(exists(having))
        values += map(index_key, item)
    return " AND ".join(where), tuple(values)


def _few(connection: Connection, asked: QuestionQuery) -> tuple[str, _Values] | None:
    """A query for the numbers of the runs that a filter selects, if these are few; None: it leads the way nowhere."""
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
