"""Appends and new runs, each kind in batches of one statement, which is its own transaction.

The statement updates the row of each run if its head and its lease are as expected, and adds everything else for the
updated runs. A lease that was taken over is in the same row, so PostgreSQL itself orders a take-over and an append:
the second one sees the changes of the first. For a run that was not updated, a second statement finds out why.

A batch has at most one change for each run. Runs are updated in the order of their ids, so batches of several processes
do not deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.errors import RunArchived, RunConflict, RunExists, RunUnknown
from orchestrator.json import canonical
from orchestrator.kernel.status import FINAL
from orchestrator.stores.base import RunInfo
from orchestrator.stores.postgres.connection_threads import Job
from orchestrator.stores.postgres.connections import WORK
from orchestrator.stores.postgres.record_partitions import BITS, THIS_MONTH
from orchestrator.stores.postgres.related_rows import RelatedRows, add_related_rows
from orchestrator.stores.postgres.statements import Statement, Table, index_key, keys_of, table
from orchestrator.stores.requests import Append, NewRun
from orchestrator.stores.shared import is_released, moved, taken_over
from orchestrator.stores.stored import RUN_COLUMNS, Row, archived_of, checksum, values_of_run

if TYPE_CHECKING:
    from orchestrator.stores.postgres.statements import Connection

RELEASED = "token = NULL, holder = NULL, deaths = 0, retry_at = NULL, fault = '', taken = 0"
"""The columns of a run's row after its lease was released."""

NOW = "extract(epoch FROM clock_timestamp())::double precision"
"""The clock of the database, in Unix seconds."""


class AppendJob(Job[int]):
    """A requested append."""

    __slots__ = ("append", "related")

    def __init__(self, append: Append, related: RelatedRows) -> None:
        super().__init__()
        self.append, self.related = append, related

    @property
    def ends_run(self) -> bool:
        """True if all messages of the run except notices are deleted."""
        return self.append.release and self.append.status in FINAL

    @property
    def is_short(self) -> bool:
        """True if it changes only the head in the row."""
        one = self.append
        return one.status is None and one.due is None and one.waiting is None and not one.release and not one.consumed


class CreateJob(Job[None]):
    """A run to be added. `graph`: the text of its graph."""

    __slots__ = ("graph", "new", "related")

    def __init__(self, new: NewRun, related: RelatedRows, graph: str | None = None) -> None:
        super().__init__()
        self.new, self.related, self.graph = new, related, graph


def run_number(connection: Connection, run_id: str) -> int:
    """Return the number under which a run's rows are stored.

    Raises:
        RunUnknown: the store has no such run.
    """
    row = connection.execute("SELECT id FROM runs WHERE run_id = %s", (run_id,)).fetchone()
    if row is None:
        raise RunUnknown(run_id)
    number: Any = row[0]
    return int(number)


# -------------------------------------------------------------------------------------- appends


def append_all(connection: Connection, jobs: Sequence[AppendJob]) -> None:
    """Make appends, and set their results."""
    jobs = sorted(jobs, key=lambda job: job.append.run_id)
    statement = Statement()
    short = all(job.is_short for job in jobs)
    statement.add("new", _new_heads(jobs) if short else _new_rows(jobs))
    statement.add(
        "moved",
        f"UPDATE runs SET head = new.head, updated = coalesce(new.updated, runs.updated){'' if short else _LONG}"
        " FROM new WHERE runs.run_id = new.run_id AND runs.head = new.after"
        " AND (new.lease IS NULL OR runs.token = new.lease) AND runs.archived IS NULL"
        " RETURNING new.n, runs.id, runs.waiting",
    )
    add_related_rows(statement, [job.related for job in jobs])
    _add_snapshots(statement, jobs)
    if not short:
        _consume(statement, jobs)
    done = statement.run(connection, "SELECT n FROM moved")
    for number, job in enumerate(jobs, 1):
        if (number,) in done:
            job.value = job.append.head
        else:
            _look_why(connection, job)
    _forget_late_messages(connection, [job for job in jobs if job.ends_run and job.error is None])


def _forget_late_messages(connection: Connection, ended: Sequence[AppendJob]) -> None:
    """Delete messages that arrived while the last append of a run waited for the row that their sender had locked.

    The statement that made the append does not see them.
    """
    if ended:
        connection.execute(
            "DELETE FROM inbox USING runs WHERE runs.run_id = ANY(%s) AND runs.status = ANY(%s)"
            " AND inbox.run = runs.id AND NOT notice",
            ([job.append.run_id for job in ended], [*FINAL]),
        )


_LONG = (
    ", status = coalesce(new.status, runs.status)"
    ", due = CASE WHEN new.status IS NULL THEN coalesce(new.due, runs.due) ELSE new.due END"
    ", waiting = coalesce(new.waiting, runs.waiting)"
    ", token = CASE WHEN NOT new.release THEN runs.token END"
    ", holder = CASE WHEN NOT new.release THEN runs.holder END"
    ", deaths = CASE WHEN new.release THEN 0 ELSE runs.deaths END"
    ", retry_at = CASE WHEN NOT new.release THEN runs.retry_at END"
    ", fault = CASE WHEN new.release THEN '' ELSE runs.fault END"
    ", taken = CASE WHEN new.release THEN 0 ELSE runs.taken END"
)

_HEAD = (
    ("run_id", "text"),
    ("after", "bigint"),
    ("head", "bigint"),
    ("updated", "double precision"),
    ("lease", "text"),
)
_ROW = (*_HEAD, ("status", "text"), ("due", "double precision"), ("waiting", "bigint"), ("release", "boolean"))


def _new_heads(jobs: Sequence[AppendJob]) -> Table:
    return table("new", _HEAD, [_head(job.append) for job in jobs])


def _new_rows(jobs: Sequence[AppendJob]) -> Table:
    rows = [(*_head(one), one.status, one.due, one.waiting, one.release) for one in (job.append for job in jobs)]
    return table("new", _ROW, rows)


def _head(one: Append) -> tuple[object, ...]:
    return one.run_id, one.after, one.head, one.records[-1].ts if one.records else None, one.lease


def _look_why(connection: Connection, job: AppendJob) -> None:
    """Set the error of an append that was not made, or its result if it was made by the first call."""
    append, rows = job.append, job.related.rows
    found: Any = connection.execute(
        "SELECT id, head, token, archived, status, due, waiting FROM runs WHERE run_id = %s", (append.run_id,)
    ).fetchone()
    if found is None:
        job.error = RunUnknown(append.run_id)
        return
    number, head, token, text, status, due, waiting = found
    archived = archived_of(text)
    # With `release` the lease is gone; the records identify the caller.
    ours = append.lease is not None and (token == append.lease or (append.release and token is None))
    if (rows and ((ours and head == append.head) or job.again) and _stored(connection, number, rows)) or (
        not rows and append.release and token is None and is_released(head, status, due, waiting, append)
    ):
        job.value = append.head
    elif archived is not None:
        job.error = RunArchived(append.run_id, archived)
    elif head != append.after:
        job.error = moved(append.run_id, head, append.after)
    elif append.lease is not None and token != append.lease:
        job.error = taken_over(append.run_id)
    else:
        job.error = RunConflict(append.run_id, "another executor has just continued it, or taken its lease")


def _stored(connection: Connection, number: int, rows: Sequence[Row]) -> bool:
    """Return True if a run has exactly these records at their places."""
    if not rows:
        return True
    found = connection.execute(
        "SELECT seq, crc, data FROM records WHERE run = %s::bigint AND seq >= %s AND seq <= %s ORDER BY seq",
        (number, rows[0][0], rows[-1][0]),
    ).fetchall()
    return found == [*rows]


# ------------------------------------------------------------------------------------- new runs

_TYPES = {str: "text", int: "bigint", float: "double precision"}
_NEW = (
    *((name, _TYPES[kind]) for name, kind in RUN_COLUMNS.items()),
    ("owner", "text"),
    ("ttl", "double precision"),
)
_COLUMNS = ", ".join(RUN_COLUMNS)


def create_all(connection: Connection, jobs: Sequence[CreateJob]) -> bool:
    """Add runs; those whose ids are taken are refused.

    Returns:
        Whether a month has started to which they do not belong; see `record_partitions`.
    """
    jobs = sorted(jobs, key=lambda job: job.new.info.run_id)
    new = [job.new for job in jobs]
    statement = Statement()
    statement.add("new", table("new", _NEW, [_new_row(one) for one in new]))
    statement.add(
        "made",
        f"INSERT INTO runs ({_COLUMNS}) SELECT {_COLUMNS} FROM new ORDER BY n ON CONFLICT (run_id) DO NOTHING"
        " RETURNING id, run_id, waiting",
    )
    statement.add("moved", "SELECT new.n, made.id, made.waiting FROM made JOIN new USING (run_id)")
    if any(one.lease for one in new):
        statement.add(
            "held",
            f"INSERT INTO holders AS old (holder, owner, ttl, expires, robbed) SELECT DISTINCT ON (holder)"
            f" holder, owner, ttl, {NOW} + ttl, FALSE FROM new JOIN moved USING (n) WHERE token IS NOT NULL"
            " ORDER BY holder, ttl DESC ON CONFLICT (holder) DO UPDATE SET owner = excluded.owner, ttl = excluded.ttl,"
            " expires = excluded.expires",
        )
    _add_labels(statement, new)
    _add_graphs(statement, jobs)
    add_related_rows(statement, [job.related for job in jobs], [label_words(one.info) for one in new])
    free = any(one.lease is None and one.info.status == "running" for one in new)
    done = statement.run(connection, f"SELECT n, id >> {BITS} < {THIS_MONTH} FROM moved")
    made = {number for number, _ in done}
    if free and made:
        connection.execute(f"NOTIFY {WORK}".encode())
    for number, job in enumerate(jobs, 1):
        if number not in made and not _is_there(connection, job):
            job.error = RunExists(job.new.info.run_id)
    return any(is_late for _, is_late in done)


def label_words(info: RunInfo) -> list[str]:
    """Return the words of a run's labels, as in the index."""
    return keys_of([*info.labels, *info.labels.values()])


def _new_row(new: NewRun) -> tuple[object, ...]:
    lease = new.lease
    return (*values_of_run(new.info, lease), lease and canonical(lease.owner), float(new.ttl))


def _add_labels(statement: Statement, new: Sequence[NewRun]) -> None:
    rows = [
        (at, index_key(name), index_key(value), one.info.created)
        for at, one in enumerate(new, 1)
        for name, value in one.info.labels.items()
    ]
    if rows:
        columns = (("run", "bigint"), ("name", "text"), ("value", "text"), ("created", "double precision"))
        statement.add(
            "labelled",
            table("label", columns, rows),
            "INSERT INTO labels (name, value, created, run) SELECT name, value, created, id"
            " FROM {} JOIN moved ON moved.n = label.run",
        )


def _add_graphs(statement: Statement, jobs: Sequence[CreateJob]) -> None:
    # in the order of their digests, so that concurrent writers of the same ones do not deadlock
    graphs = dict(sorted({one.new.info.content: one.graph for one in jobs if one.graph is not None}.items()))
    if graphs:
        statement.add(
            "drawn",
            table("graph", (("digest", "text"), ("data", "text")), graphs.items()),
            "INSERT INTO graphs (digest, data) SELECT digest, data FROM {} WHERE digest IN (SELECT content FROM new"
            " JOIN moved USING (n)) ORDER BY digest ON CONFLICT DO NOTHING",
        )


def _is_there(connection: Connection, job: CreateJob) -> bool:
    """Return True if a run was added by the first call: under this lease, and with these records."""
    info, lease = job.new.info, job.new.lease
    if lease is None and not job.again:
        return False
    found: Any = connection.execute("SELECT id, token FROM runs WHERE run_id = %s", (info.run_id,)).fetchone()
    if found is None or (lease is not None and found[1] != lease.token and not job.again):
        return False
    return _stored(connection, found[0], job.related.rows)


def _add_snapshots(statement: Statement, jobs: Sequence[AppendJob]) -> None:
    rows = [
        (at, one.head, checksum(one.run_id, one.head, one.snapshot), one.snapshot)
        for at, one in enumerate((job.append for job in jobs), 1)
        if one.snapshot is not None
    ]
    if rows:
        statement.add(
            "folded",
            table("s", (("run", "bigint"), ("seq", "bigint"), ("crc", "bigint"), ("data", "bytea")), rows),
            "INSERT INTO snapshots (run, seq, crc, data) SELECT id, seq, crc, data FROM {}"
            " JOIN moved ON moved.n = s.run ON CONFLICT (run, seq) DO UPDATE"
            " SET crc = excluded.crc, data = excluded.data",
        )


def _consume(statement: Statement, jobs: Sequence[AppendJob]) -> None:
    some = [(at, message) for at, job in enumerate(jobs, 1) if not job.ends_run for message in job.append.consumed]
    if some:
        statement.add(
            "consumed",
            table("c", (("run", "bigint"), ("message", "bigint")), some),
            "DELETE FROM inbox USING {} JOIN moved ON moved.n = c.run"
            " WHERE inbox.id = c.message AND inbox.run = moved.id",
        )
    ended = [(at,) for at, job in enumerate(jobs, 1) if job.ends_run]
    if ended:
        statement.add(
            "emptied",
            table("e", (("run", "bigint"),), ended),
            "DELETE FROM inbox USING {} JOIN moved ON moved.n = e.run WHERE inbox.run = moved.id AND NOT notice",
        )
