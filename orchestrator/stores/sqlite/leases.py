"""Leases, as functions of a connection that is inside a transaction: taking, renewing, giving back, claiming.

A lease is in the row of its run (`token`, `holder`), which an append moves and checks in one statement. When it expires
is in the row of its holder.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.errors import RunUnknown
from orchestrator.jsontypes import canonical
from orchestrator.stores.base import Holder, Lease, RunInfo
from orchestrator.stores.owner import Owner
from orchestrator.stores.presence import held_here, is_present
from orchestrator.stores.rows import MAX_DEATHS, NOTICE
from orchestrator.stores.shared import DIED, STEP_LANDED, json_object, retry_delay
from orchestrator.stores.sqlite.clock import StoreClock

_KEPT_SECONDS = 3600.0
"""Rows of holders whose leases expired so long ago are deleted if no run names them."""

RELEASED = "token = NULL, holder = NULL, deaths = 0, retry_at = NULL, fault = '', taken = 0"
"""What a run's row says after its lease was given back as it should be."""

IS_NOTICE = (
    "(typeof(body) = 'text' AND length(body) < 2000"
    f" AND CASE WHEN json_valid(body) THEN json_extract(body, '$.type') END IS '{NOTICE}')"
)
"""Whether a row of `inbox` is a notice. Notices are short; events may be long."""


def hold(connection: sqlite3.Connection, clock: StoreClock, holder: str, owner: str, ttl: float) -> None:
    """Note that a holder lives: its row is made or renewed."""
    now = clock.now(connection, write=True)
    changed = connection.execute(
        "UPDATE holders SET owner = ?, ttl = ?, expires = ? WHERE holder = ?", (owner, float(ttl), now + ttl, holder)
    ).rowcount
    if changed:
        return
    connection.execute(
        "DELETE FROM holders WHERE expires < ? AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.holder = holders.holder)",
        (now - _KEPT_SECONDS,),
    )
    connection.execute(
        "INSERT INTO holders (holder, owner, ttl, expires, robbed) VALUES (?, ?, ?, ?, 0)",
        (holder, owner, float(ttl), now + ttl),
    )


def take(connection: sqlite3.Connection, clock: StoreClock, lease: Lease, ttl: float, replaces: str | None) -> bool:
    """See `Store.take_lease`."""
    found = connection.execute(
        "SELECT runs.id, token, runs.holder, expires FROM runs LEFT JOIN holders ON holders.holder = runs.holder"
        " WHERE run_id = ?",
        (lease.run_id,),
    ).fetchone()
    if found is None:
        raise RunUnknown(lease.run_id)
    number, token, holder, expires = found
    if replaces == lease.token != token:
        return False
    others = token is not None and token not in (lease.token, replaces)
    if others and isinstance(expires, float) and expires > clock.now(connection, write=True):
        return False
    hold(connection, clock, lease.holder, canonical(lease.owner), ttl)
    if token != lease.token:
        _give(connection, number, lease, (token, holder))
    return True


def _give(connection: sqlite3.Connection, number: int, lease: Lease, before: tuple[str | None, str | None]) -> None:
    """Write a lease into its run's row. `before`: token and holder of the lease that was never given back."""
    token, holder = before
    if token is not None and holder != lease.holder:
        rob(connection, holder)
        _die(connection, number, DIED)
    connection.execute(
        "UPDATE runs SET token = ?, holder = ?, taken = head WHERE id = ?", (lease.token, lease.holder, number)
    )


def _die(connection: sqlite3.Connection, number: int, fault: str) -> int:
    """Note that a drive died, or was given up; returns how many did so in a row."""
    deaths, taken, head = connection.execute("SELECT deaths, taken, head FROM runs WHERE id = ?", (number,)).fetchone()
    before = deaths if isinstance(deaths, int) else 0
    (landed,) = connection.execute(
        "SELECT EXISTS(SELECT 1 FROM records WHERE id > ? AND id <= ? AND substr(data, -length(?)) = ?)",
        (number << 32 | _seq(taken), number << 32 | _seq(head), STEP_LANDED, STEP_LANDED),
    ).fetchone()
    count = 1 if landed else before + 1
    connection.execute(
        "UPDATE runs SET deaths = ?, retry_at = ?, fault = ? WHERE id = ?",
        (count, SYSTEM_CLOCK.now() + retry_delay(count), fault, number),
    )
    return count


def _seq(value: object) -> int:
    """A `seq` from a row; 0 if it is damaged."""
    return value if isinstance(value, int) and 0 <= value < 1 << 32 else 0


def rob(connection: sqlite3.Connection, holder: str | None) -> None:
    """Note that a lease of a holder was taken from it, so that its next beat finds out."""
    connection.execute("UPDATE holders SET robbed = 1 WHERE holder = ?", (holder,))


def beat(connection: sqlite3.Connection, clock: StoreClock, holder: str, ttl: float) -> bool:
    """See `Store.beat`."""
    if ttl <= 0:
        return connection.execute("DELETE FROM holders WHERE holder = ?", (holder,)).rowcount > 0
    now = clock.now(connection, write=True)
    found = connection.execute("SELECT expires, robbed FROM holders WHERE holder = ?", (holder,)).fetchone()
    if found is None or not isinstance(found[0], float) or found[0] <= now:
        return False
    connection.execute(
        "UPDATE holders SET expires = ?, ttl = ?, robbed = 0 WHERE holder = ?", (now + ttl, float(ttl), holder)
    )
    return not found[1]


def drop(connection: sqlite3.Connection, run_id: str, token: str, fault: str | None) -> None:
    """See `Store.drop_lease`."""
    if fault is None:
        connection.execute(f"UPDATE runs SET {RELEASED} WHERE run_id = ? AND token = ?", (run_id, token))
        return
    found = connection.execute("SELECT id FROM runs WHERE run_id = ? AND token = ?", (run_id, token)).fetchone()
    if found is not None:
        _die(connection, found[0], fault)
        connection.execute("UPDATE runs SET token = NULL, holder = NULL WHERE id = ?", found)


def read(connection: sqlite3.Connection, clock: StoreClock, run_id: str) -> Lease | None:
    """See `Store.lease`."""
    row = connection.execute(
        "SELECT token, runs.holder, owner, ttl, expires FROM runs LEFT JOIN holders ON holders.holder = runs.holder"
        " WHERE run_id = ?",
        (run_id,),
    ).fetchone()
    return None if row is None else lease_of(run_id, row, clock.now(connection))


def holders(connection: sqlite3.Connection, clock: StoreClock, runs: int) -> list[Holder]:
    """See `Store.holders`."""
    now = clock.now(connection)
    found: list[Holder] = []
    for holder, owner, ttl, expires in connection.execute(f"{_HOLDERS} ORDER BY holder").fetchall():
        (held,) = connection.execute("SELECT count(*) FROM runs WHERE holder = ?", (holder,)).fetchone()
        ids = connection.execute("SELECT run_id FROM runs WHERE holder = ? ORDER BY id LIMIT ?", (holder, max(runs, 0)))
        seconds = ttl if isinstance(ttl, float) else 0.0
        left = min((expires if isinstance(expires, float) else 0.0) - now, seconds)
        found.append(Holder(str(holder), json_object(owner), left, seconds, held, tuple(str(one) for (one,) in ids)))
    return found


def lease_of(run_id: str, row: tuple[object, object, object, object, object], now: float) -> Lease | None:
    """The lease in a run's row: its columns token, holder, owner, ttl and expires. A damaged one has expired."""
    token, holder, owner, ttl, expires = row
    if token is None:
        return None
    seconds = ttl if isinstance(ttl, float) else 0.0
    end = expires if isinstance(expires, float) else 0.0
    left = min(end - now, seconds)
    return Lease(run_id, str(token), str(holder), json_object(owner), left, seconds, end)


# ------------------------------------------------------------------------------------------ claiming

_HOLDERS = "SELECT holder, owner, ttl, expires FROM holders"


def present_holders(connection: sqlite3.Connection, clock: StoreClock) -> tuple[list[str], list[str]]:
    """The holders that may be alive, and those that are known to be gone before their leases expire."""
    steady, now = SYSTEM_CLOCK.steady(), clock.now(connection)
    present: list[str] = []
    gone: list[str] = []
    for holder, owner, ttl, expires in connection.execute(_HOLDERS).fetchall():
        end, seconds = (expires if isinstance(expires, float) else 0.0), (ttl if isinstance(ttl, float) else 0.0)
        if is_present(holder, json_object(owner), end - now, seconds, end, steady):
            present.append(holder)
        elif end > now:
            gone.append(holder)
    return present, gone


def claim(
    connection: sqlite3.Connection,
    clock: StoreClock,
    owner: Owner,
    graphs: Collection[str] | None,
    limit: int,
    ttl: float,
    info_of: Callable[[str], RunInfo],
) -> list[tuple[RunInfo, Lease]]:
    """See `Store.claim`. `info_of` reads the row of a run."""
    present, gone = present_holders(connection, clock)
    found = list(candidates(connection, {*present, owner.executor}, graphs, limit))
    if not found:
        return []
    if gone:
        # Whoever is silent and yet alive finds out by its next beat.
        marks = ", ".join("?" * len(gone))
        connection.execute(
            f"UPDATE holders SET expires = ? WHERE holder IN ({marks})", (clock.now(connection, write=True), *gone)
        )
    hold(connection, clock, owner.executor, canonical(owner.data()), ttl)
    taken: list[tuple[RunInfo, Lease]] = []
    for number, run_id, token, holder in found:
        if token is not None and holder != owner.executor:
            rob(connection, holder)
            deaths = _die(connection, number, DIED)
            connection.execute("UPDATE runs SET token = NULL, holder = NULL WHERE id = ?", (number,))
            if deaths >= MAX_DEATHS:
                continue
            token, holder = None, None
        lease = Lease(run_id, os.urandom(16).hex(), owner.executor, owner.data(), ttl, ttl)
        held_here[lease.token] = owner.executor
        _give(connection, number, lease, (token, holder))
        taken.append((info_of(run_id), lease))
    return taken


Candidate = tuple[int, str, str | None, str | None]
"""Number, id, token and holder of a run."""


def candidates(
    connection: sqlite3.Connection, present: Collection[str], graphs: Collection[str] | None, limit: int
) -> Iterator[Candidate]:
    """Runs that could go on and that none of these holders holds, in the order of `Store.claim`."""
    seen: set[int] = set()
    for row in _ways(connection, list(present), graphs, limit):
        if len(seen) >= limit:
            return
        if row[0] not in seen:
            seen.add(row[0])
            yield row


def _ways(
    connection: sqlite3.Connection, present: list[str], graphs: Collection[str] | None, limit: int
) -> Iterator[Candidate]:
    names = _graphs(connection) if graphs is None else sorted(graphs)
    if not names:
        return
    wall = SYSTEM_CLOCK.now()
    free = f"(token IS NULL OR holder NOT IN ({', '.join('?' * len(present))}))"
    ready = f"deaths < {MAX_DEATHS} AND (retry_at IS NULL OR retry_at <= ?)"
    columns = "SELECT runs.id, runs.run_id, runs.token, runs.holder"
    known = f"graph IN ({', '.join('?' * len(names))})"
    rows: Iterable[Candidate] = connection.execute(
        f"{columns} FROM inbox CROSS JOIN runs ON runs.id = inbox.run WHERE {known} AND status IN ('running', 'paused')"
        f" AND {free} AND {ready} AND NOT {IS_NOTICE} GROUP BY runs.id ORDER BY min(inbox.id) LIMIT ?",
        (*names, *present, wall, limit),
    ).fetchall()
    yield from rows
    for name in names:
        yield from connection.execute(
            f"{columns} FROM runs INDEXED BY runs_by_due WHERE graph = ? AND due <= ?"
            f" AND status IN ('running', 'paused') AND {free} AND {ready} ORDER BY due LIMIT ?",
            (name, wall, *present, wall, limit),
        ).fetchall()
    for holder in _absent(connection, present):
        yield from connection.execute(
            f"{columns} FROM runs INDEXED BY runs_by_holder WHERE holder = ? AND status = 'running' AND {known}"
            f" AND (due IS NULL OR due <= ?) AND {ready} LIMIT ?",
            (holder, *names, wall, wall, limit),
        ).fetchall()
    for name in names:
        for retry in ("IS NULL", "<= ?"):
            yield from connection.execute(
                f"{columns} FROM runs INDEXED BY runs_free WHERE graph = ? AND retry_at {retry} AND {_FREE}"
                " ORDER BY retry_at, created LIMIT ?",
                (name, limit) if retry == "IS NULL" else (name, wall, limit),
            ).fetchall()


_FREE = f"status = 'running' AND token IS NULL AND deaths < {MAX_DEATHS} AND due IS NULL"


def _graphs(connection: sqlite3.Connection) -> list[str]:
    """The names of all graphs that have runs, by one step into the index for each."""
    return [name for (name,) in connection.execute(_steps("graph", "runs", "TRUE"))]


def _absent(connection: sqlite3.Connection, present: Collection[str]) -> list[str]:
    """The holders that runs name, without those that may be alive."""
    found = connection.execute(_steps("holder", "runs", "holder IS NOT NULL"))
    return [holder for (holder,) in found if holder not in present]


def _steps(column: str, table: str, where: str) -> str:
    first = f"SELECT min({column}) FROM {table} WHERE {where}"
    return (
        f"WITH RECURSIVE steps (name) AS ({first} UNION ALL SELECT ({first} AND {column} > name) FROM steps"
        " WHERE name IS NOT NULL) SELECT name FROM steps WHERE name IS NOT NULL"
    )


def next_due(connection: sqlite3.Connection, clock: StoreClock, graphs: Collection[str] | None) -> float | None:
    """See `Store.next_due`."""
    present = present_holders(connection, clock)[0]
    free = f"(token IS NULL OR holder NOT IN ({', '.join('?' * len(present))})) AND deaths < {MAX_DEATHS}"
    times: list[float] = []
    overdue = (
        "SELECT due FROM runs INDEXED BY runs_by_due WHERE graph = ? AND due IS NOT NULL AND retry_at IS NULL"
        f" AND status IN ('running', 'paused') AND {free} ORDER BY due LIMIT 1"
    )
    backing_off = (
        "SELECT min(CASE WHEN status = 'running' AND due IS NULL THEN retry_at ELSE max(due, retry_at) END)"
        " FROM runs INDEXED BY runs_by_retry WHERE graph = ? AND retry_at IS NOT NULL"
        f" AND status IN ('running', 'paused') AND {free}"
    )
    for name in _graphs(connection) if graphs is None else graphs:
        for query in (overdue, backing_off):
            found = connection.execute(query, (name, *present)).fetchone()
            if found is not None and isinstance(found[0], float):
                times.append(found[0])
    return min(times, default=None)
