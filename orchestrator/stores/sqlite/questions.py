"""The open questions of runs: rows of their own, written with the pauses that they begin and end."""

from __future__ import annotations

import sqlite3
from typing import Any

from orchestrator.stores.requests import QuestionQuery
from orchestrator.stores.rows import OpenQuestion, QuestionPage, WaitingQuestion
from orchestrator.stores.shared import UNLISTED, json_object, parse_question_cursor, question_cursor
from orchestrator.stores.sqlite import searching
from orchestrator.stores.stored import labels_of


def of_run(connection: sqlite3.Connection, number: int) -> tuple[OpenQuestion, ...] | None:
    """See `Store.open_questions`."""
    rows = connection.execute(
        "SELECT name, asked, kind, data FROM questions WHERE run = ? ORDER BY asked, name", (number,)
    ).fetchall()
    (waiting,) = connection.execute("SELECT waiting FROM runs WHERE id = ?", (number,)).fetchone()
    if isinstance(waiting, int) and waiting > len(rows):
        return None
    return tuple(OpenQuestion(name, asked, kind, json_object(data)) for name, asked, kind, data in rows)


def page(connection: sqlite3.Connection, query: QuestionQuery) -> QuestionPage:
    """See `Store.questions`."""
    limit = max(query.limit, 1)
    of_runs, values = ["TRUE"], list[object]()
    if query.graph is not None:
        of_runs.append("runs.graph = ?")
        values.append(query.graph)
    for name, value in query.labels.items():
        of_runs.append("EXISTS (SELECT 1 FROM labels WHERE name = ? AND value = ? AND created = runs.created"
                       " AND run = runs.id)")  # fmt: skip
        values += [name, value]
    unlisted = connection.execute(
        "SELECT runs.run_id FROM unlisted CROSS JOIN runs ON runs.id = unlisted.run"
        f" WHERE runs.waiting > 0 AND {' AND '.join(of_runs)} ORDER BY runs.created, runs.id LIMIT ?",
        (*values, UNLISTED),
    ).fetchall()
    few = _few(connection, query)
    if few is not None:
        of_runs.append(f"questions.run IN ({few[0]})")
        values += few[1]
    if query.after is not None:
        of_runs.append("(questions.asked, questions.run, questions.name) > (?, ?, ?)")
        values += parse_question_cursor(query.after)
    rows = []
    # one walk for each kind, for only within one kind are an index's entries in the order of the list
    for kind in [None] if query.kinds is None else sorted(set(query.kinds)):
        rows += connection.execute(
            "SELECT runs.run_id, runs.graph, runs.labels, questions.run, name, asked, kind, data FROM questions"
            f" CROSS JOIN runs ON runs.id = questions.run WHERE {'kind = ? AND ' if kind is not None else ''}"
            f"{' AND '.join(of_runs)} ORDER BY questions.asked, questions.run, questions.name LIMIT ?",
            (*([] if kind is None else [kind]), *values, limit + 1),
        ).fetchall()
    rows.sort(key=_place)
    found = tuple(
        WaitingQuestion(run_id, graph, labels_of(text) or {}, OpenQuestion(name, asked, kind, json_object(data)))
        for run_id, graph, text, _, name, asked, kind, data in rows[:limit]
    )
    last = rows[limit - 1] if len(rows) > limit else None
    cursor = None if last is None else question_cursor(last[5], last[3], last[4])
    return QuestionPage(found, cursor, tuple(run_id for (run_id,) in unlisted))


def _place(row: tuple[Any, ...]) -> tuple[bool, float, int, str]:
    """Where a question stands in the list: as SQLite has it, also where a damaged time is no number."""
    number, name, asked = row[3:6]
    return (False, asked, number, name) if isinstance(asked, float | int) else (True, 0.0, number, str(name))


def _few(connection: sqlite3.Connection, asked: QuestionQuery) -> tuple[str, tuple[object, ...]] | None:
    """A query for the numbers of the runs that a filter selects, if these are few; None: it leads the way nowhere."""
    ways: list[tuple[str, tuple[object, ...]]] = [
        ("SELECT run FROM labels WHERE name = ? AND value = ?", item) for item in asked.labels.items()
    ]
    if asked.graph is not None:
        ways.append(("SELECT id FROM runs WHERE graph = ?", (asked.graph,)))
    for query, values in ways:
        (count,) = connection.execute(f"SELECT count(*) FROM ({query} LIMIT {searching.COUNTED})", values).fetchone()
        if count < searching.COUNTED:
            return query, values
    return None
