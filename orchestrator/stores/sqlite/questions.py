"""The open questions of runs: rows of their own, written with the pauses that they begin and end."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping

from orchestrator.stores.rows import OpenQuestion, QuestionPage, WaitingQuestion
from orchestrator.stores.shared import UNLISTED, json_object, parse_question_cursor, question_cursor
from orchestrator.stores.sqlite.label_text import labels_of


def of_run(connection: sqlite3.Connection, number: int) -> tuple[OpenQuestion, ...] | None:
    """See `Store.open_questions`."""
    rows = connection.execute(
        "SELECT name, asked, kind, data FROM questions WHERE run = ? ORDER BY asked, name", (number,)
    ).fetchall()
    (waiting,) = connection.execute("SELECT waiting FROM runs WHERE id = ?", (number,)).fetchone()
    if isinstance(waiting, int) and waiting > len(rows):
        return None
    return tuple(OpenQuestion(name, asked, kind, json_object(data)) for name, asked, kind, data in rows)


def page(
    connection: sqlite3.Connection,
    graph: str | None,
    labels: Mapping[str, str],
    kinds: Collection[str] | None,
    after: str | None,
    limit: int,
) -> QuestionPage:
    """See `Store.questions`."""
    limit = max(limit, 1)
    of_runs, values = ["TRUE"], list[object]()
    if graph is not None:
        of_runs.append("runs.graph = ?")
        values.append(graph)
    for name, value in labels.items():
        of_runs.append("EXISTS (SELECT 1 FROM labels WHERE name = ? AND value = ? AND created = runs.created"
                       " AND run = runs.id)")  # fmt: skip
        values += [name, value]
    where = " AND ".join(of_runs)
    unlisted = connection.execute(
        f"SELECT run_id FROM runs WHERE waiting > 0 AND {where}"
        " AND NOT EXISTS (SELECT 1 FROM questions WHERE run = runs.id) ORDER BY created, id LIMIT ?",
        (*values, UNLISTED),
    ).fetchall()
    if kinds is not None:
        where += f" AND questions.kind IN ({', '.join('?' * len(kinds))})"
        values += kinds
    if after is not None:
        where += " AND (questions.asked, questions.run, questions.name) > (?, ?, ?)"
        values += parse_question_cursor(after)
    # CROSS: the oldest questions lead the way
    rows = connection.execute(
        "SELECT runs.run_id, runs.graph, runs.labels, questions.run, name, asked, kind, data FROM questions"
        f" CROSS JOIN runs ON runs.id = questions.run WHERE {where}"
        " ORDER BY questions.asked, questions.run, questions.name LIMIT ?",
        (*values, limit + 1),
    ).fetchall()
    found = tuple(
        WaitingQuestion(run_id, graph, labels_of(text) or {}, OpenQuestion(name, asked, kind, json_object(data)))
        for run_id, graph, text, _, name, asked, kind, data in rows[:limit]
    )
    last = rows[limit - 1] if len(rows) > limit else None
    cursor = None if last is None else question_cursor(last[5], last[3], last[4])
    return QuestionPage(found, cursor, tuple(run_id for (run_id,) in unlisted))
