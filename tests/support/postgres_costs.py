"""Cost of reads for a PostgreSQL server, in pages that it reads; and many runs that are added at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from tests.support.many_runs import TEAMS
from tests.support.postgres import PostgresDatabase

_EXPLAIN = b"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) "
_CHANGES = ("INSERT", "UPDATE", "DELETE")


class Pages:
    """Counts the pages that the server reads for statements of this process, and notes the tables that it scans.

    Each statement that reads rows is run with EXPLAIN first, with its values.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.whole: list[str] = []
        execute: Any = psycopg.Connection.execute
        pages = self

        def explained(self: Any, query: Any, params: Any = None, **options: Any) -> Any:
            text = query if isinstance(query, str) else bytes(query).decode()
            if text.lstrip().startswith(("SELECT", "WITH")) and not any(word in text for word in _CHANGES):
                ((plans,),) = execute(self, _EXPLAIN + text.encode(), params, prepare=False).fetchall()
                pages.add(plans[0]["Plan"])
            return execute(self, query, params, **options)

        monkeypatch.setattr(psycopg.Connection, "execute", explained)

    def add(self, plan: dict[str, Any]) -> None:
        """Add the pages that a plan of the server names to the count."""
        self.count += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        self._look(plan)

    def _look(self, plan: dict[str, Any]) -> None:
        if plan["Node Type"] == "Seq Scan":
            self.whole.append(plan["Relation Name"])
        for inner in plan.get("Plans", ()):
            self._look(inner)


def multiplied(database: PostgresDatabase, samples: Sequence[str], count: int, *, first: int = 0) -> None:
    """Add copies of runs, as `many_runs.copied` does, by a few statements for all, so a million takes minutes.

    Each has the rows of its sample: its records say the sample's id, so they cannot be read.
    """
    with psycopg.connect(database.conninfo, autocommit=True) as connection:
        names = ", ".join(f"('{name}', {at})" for at, name in enumerate(samples))
        connection.execute(
            f"CREATE TEMP TABLE new AS SELECT nextval(pg_get_serial_sequence('runs', 'id')) AS run, n, runs.id AS old,"
            f" runs.created + n AS created FROM (VALUES {names}) AS sample (name, at)"
            f" JOIN runs ON runs.run_id = sample.name JOIN generate_series({first}, {first + count - 1}) AS n"
            f" ON n % {len(samples)} = sample.at ORDER BY n".encode()
        )
        connection.execute("ANALYZE new")
        connection.execute(_RUNS.encode())
        connection.execute(_LABELS.encode())
        connection.execute(_SUMMARIES.encode())
        for table, columns in _BESIDE.items():
            own = columns.replace("asked", "asked + n")
            connection.execute(
                f"INSERT INTO {table} (run, {columns}) SELECT new.run, {own} FROM new JOIN {table} ON {table}.run = old"
                " ORDER BY n".encode()
            )
        connection.execute("DROP TABLE new")


_KEPT = "graph, status, head, structure, content, due, waiting, deaths, fault"
_RUNS = f"""
    INSERT INTO runs (id, run_id, labels, created, updated, {_KEPT})
    SELECT run, 'run-' || n, CASE WHEN n % 1000 = 0 THEN '{{"rare":"yes",' ELSE '{{' END
        || '"team":"t' || n % {TEAMS} || '"}}', new.created, updated + n, {_KEPT}
    FROM new JOIN runs ON runs.id = old ORDER BY n
"""
_LABELS = f"""
    INSERT INTO labels SELECT 'team', 't' || n % {TEAMS}, created, run FROM new
    UNION ALL SELECT 'rare', 'yes', created, run FROM new WHERE n % 1000 = 0
"""
_SUMMARIES = f"""
    INSERT INTO summaries
    SELECT run, error, input || ' ' || n, output, question, steps, usage, own, own || words || n::text
    FROM new JOIN (SELECT run AS sample, error, input, output, question, steps, usage, words FROM summaries) AS known
        ON sample = old
    CROSS JOIN LATERAL (
        SELECT ('{{team,t' || n % {TEAMS} || CASE WHEN n % 1000 = 0 THEN ',rare,yes' ELSE '' END || '}}')::text[]
    ) AS labelled (own)
"""
_BESIDE = {
    "records": "seq, crc, data",
    "run_totals": "calls, failed, tools, failed_tools, input_tokens, output_tokens, cost, seconds",
    "run_parts": "names, numbers",
    "failed_tools": "name",
    "questions": "name, asked, kind, data",
}
