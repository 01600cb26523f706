"""What is kept next to the rows of runs, as parts of the one statement that moves these rows or adds them.

A part reads `moved`, which has `n` (the number of the change in the statement), `id` (of the run) and `waiting` of each
run that was moved. So nothing is written for a run that was not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.json import canonical
from orchestrator.stores.base import RunSummary
from orchestrator.stores.payloads import Payloads
from orchestrator.stores.postgres.payloads import add_payloads
from orchestrator.stores.postgres.statements import Statement, table
from orchestrator.stores.postgres.texts import index_key, keys_of
from orchestrator.stores.rows import OpenQuestion, RunTotals
from orchestrator.stores.statistics import numbers_of
from orchestrator.stores.stored import Row
from orchestrator.stores.totals import packed

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class RelatedRows:
    """What is kept of a run next to its row. None leaves what is there."""

    rows: Sequence[Row] = ()
    payloads: Payloads = field(default_factory=dict)
    """Those of the rows."""
    summary: RunSummary | None = None
    totals: RunTotals | None = None
    questions: Sequence[OpenQuestion] | None = None
    waiting: int | None = None
    """As it was given; else the row has what it had."""


def add_related_rows(
    statement: Statement, all_: Sequence[RelatedRows], labels: Sequence[Sequence[str]] | None = None
) -> None:
    """Write what is kept next to the rows of runs. `labels`: the words of the labels of new runs."""
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


_SUMMARY = (
    ("run", "bigint"), ("error", "text"), ("input", "text"), ("output", "text"), ("question", "text"),
    ("steps", "bigint"), ("usage", "text"), ("label_words", "text"), ("words", "text"),
)  # fmt: skip


def _add_summaries(
    statement: Statement, summaries: Sequence[tuple[int, RunSummary]], labels: Sequence[Sequence[str]] | None
) -> None:
    if not summaries:
        return
    rows = [
        (
            at, one.error, one.input, one.output, one.question, one.steps,
            None if one.usage is None else one.usage.model_dump_json(exclude_defaults=True),
            "" if labels is None else " ".join(labels[at - 1]), " ".join(keys_of([one.input, one.output])),
        )
        for at, one in summaries
    ]  # fmt: skip
    statement.add(
        "summed",
        table("s", _SUMMARY, rows),
        # the words are the same value if the texts are: then no index is written to
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
    ("run", "bigint"), *((name, "double precision" if name in ("cost", "seconds") else "bigint") for name in _NUMBERS),
    ("names", "text"), ("numbers", "bytea"),
)  # fmt: skip


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
        columns = (("run", "bigint"), ("name", "text"), ("asked", "double precision"), ("kind", "text"),
                   ("data", "text"))  # fmt: skip
        statement.add(
            "asking",
            table("q", columns, questions),
            "INSERT INTO questions (run, name, asked, kind, data) SELECT id, name, asked, kind, data"
            " FROM {} JOIN moved ON moved.n = q.run",
        )
    # A list of open questions looks at the runs that wait for answers and have no questions.
    statement.add(
        "judged",
        "SELECT waits.id, waits.waiting > 0 AND CASE WHEN waits.asked IS NULL"
        " THEN NOT EXISTS (SELECT 1 FROM questions WHERE questions.run = waits.id) ELSE NOT waits.asked END AS unlisted"
        " FROM waits",
    )
    statement.add("noted", "INSERT INTO unlisted SELECT id FROM judged WHERE unlisted ON CONFLICT DO NOTHING")
    statement.add("listed", "DELETE FROM unlisted USING judged WHERE unlisted.run = judged.id AND NOT judged.unlisted")
