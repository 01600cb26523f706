"""Leases, as functions of a connection that is inside a transaction: acquiring, renewing, releasing; claims of runs.

A lease is in the row of its run (`token`, `holder`), which an append changes and checks in one statement. Its expiry
is in the row of its holder, by the clock of the database. A change of both locks the run's row first.

A claim gives out runs that could continue and that no executor drives. Each kind of such runs is found by an index that
has few others, and each row is locked as it is found: rows that another claimer has locked are skipped. Facts read
before a row was locked may be out of date, so its holder is checked again afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.errors import RunUnknown
from orchestrator.json import canonical
from orchestrator.stores.base import Holder, Lease, RunInfo
from orchestrator.stores.fair_claims import Selection, Turns, take_turns
from orchestrator.stores.owner import held_here, is_present
from orchestrator.stores.postgres import fair_index, reads
from orchestrator.stores.postgres.connections import LEAST_IDLE
from orchestrator.stores.postgres.fair_index import WALL
from orchestrator.stores.postgres.writes import NOW, RELEASED
from orchestrator.stores.requests import ClaimRequest
from orchestrator.stores.rows import MAX_DEATHS
from orchestrator.stores.shared import DIED, STEP_LANDED, json_object, retry_delay
from orchestrator.stores.stored import lease_of

if TYPE_CHECKING:
    from orchestrator.stores.postgres.statements import Connection


_TIMEOUT = "idle_in_transaction_session_timeout"
_ROB = (
    f"UPDATE holders SET robbed = TRUE WHERE holder = %s RETURNING set_config('{_TIMEOUT}', least((SELECT"
    f" setting::double precision FROM pg_settings WHERE name = '{_TIMEOUT}'), greatest(ttl / 3, {LEAST_IDLE}) * 1000"
    ")::bigint::text, TRUE)"
).encode()

_KEPT_SECONDS = 3600.0
"""Rows of holders whose leases expired this many seconds ago are deleted if no run names them."""


def hold(connection: Connection, holder: str, owner: str, ttl: float) -> None:
    """Record that a holder is alive: its row is created or renewed."""
    made = connection.execute(
        f"INSERT INTO holders (holder, owner, ttl, expires, robbed) VALUES (%s, %s, %s, {NOW} + %s, FALSE)"
        " ON CONFLICT (holder) DO UPDATE SET owner = excluded.owner, ttl = excluded.ttl, expires = excluded.expires"
        " RETURNING xmax = 0",
        (holder, owner, float(ttl), float(ttl)),
    ).fetchone()
    if made is not None and made[0]:
        # opportunistic cleanup, without waiting for locks
        connection.execute(
            "DELETE FROM holders WHERE holder IN (SELECT holder FROM holders WHERE expires <"
            f" {NOW} - %s AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.holder = holders.holder)"
            " LIMIT 100 FOR UPDATE SKIP LOCKED)",
            (_KEPT_SECONDS,),
        )


def take(connection: Connection, lease: Lease, ttl: float, replaces: str | None) -> bool:
    """See `Store.take_lease`."""
    found: Any = connection.execute(
        "SELECT id, token, holder FROM runs WHERE run_id = %s FOR NO KEY UPDATE", (lease.run_id,)
    ).fetchone()
    if found is None:
        raise RunUnknown(lease.run_id)
    number, token, holder = found
    if replaces == lease.token != token:
        return False
    others = token is not None and token not in (lease.token, replaces)
    if others and lives(connection, holder):
        return False
    if token != lease.token:
        give(connection, number, lease, (token, holder))
    hold(connection, lease.holder, canonical(lease.owner), ttl)
    return True


def lives(connection: Connection, holder: str) -> bool:
    """Return True if the leases of a holder have not expired.

    Claims check this again once they have locked the row of one of its runs.
    """
    query = f"SELECT 1 FROM holders WHERE holder = %s AND expires > {NOW}"
    return connection.execute(query, (holder,)).fetchone() is not None


def give(connection: Connection, number: int, lease: Lease, before: tuple[str | None, str | None]) -> None:
    """Write a lease into its run's row. `before`: token and holder of the lease that was never given back."""
    token, holder = before
    if token is not None and holder != lease.holder:
        rob(connection, holder)
        die(connection, number, DIED)
    connection.execute(
        "UPDATE runs SET token = %s, holder = %s, taken = head WHERE id = %s", (lease.token, lease.holder, number)
    )


def die(connection: Connection, number: int, fault: str) -> int:
    """Record that a drive died, or was given up; return how many did so in a row."""
    row: Any = connection.execute(
        "SELECT deaths, EXISTS (SELECT 1 FROM records WHERE run = %s::bigint AND seq > taken AND seq <= head"
        " AND substring(data FROM greatest(octet_length(data) - %s, 1)) = %s) FROM runs WHERE id = %s",
        (number, len(STEP_LANDED) - 1, STEP_LANDED, number),
    ).fetchone()
    deaths, landed = row
    count = 1 if landed else int(deaths) + 1
    connection.execute(
        f"UPDATE runs SET deaths = %s, retry_at = {NOW} + %s, fault = %s WHERE id = %s",
        (count, retry_delay(count), fault, number),
    )
    return count


def rob(connection: Connection, holder: str | None) -> None:
    """Record that a lease of a holder was taken from it, so that its next beat detects it.

    Its heartbeats wait for this transaction from now on, so its client may not be silent for longer than they can.
    """
    connection.execute(_ROB, (holder,))


def beat(connection: Connection, holder: str, ttl: float) -> bool:
    """See `Store.beat`."""
    if ttl <= 0:
        return connection.execute("DELETE FROM holders WHERE holder = %s", (holder,)).rowcount > 0
    found: Any = connection.execute(
        f"SELECT expires > {NOW}, robbed FROM holders WHERE holder = %s FOR NO KEY UPDATE", (holder,)
    ).fetchone()
    if found is None or not found[0]:
        return False
    connection.execute(
        f"UPDATE holders SET expires = {NOW} + %s, ttl = %s, robbed = FALSE WHERE holder = %s",
        (float(ttl), float(ttl), holder),
    )
    return not found[1]


def drop(connection: Connection, run_id: str, token: str, fault: str | None) -> bool:
    """See `Store.drop_lease`; return whether the run is running, and free now."""
    if fault is None:
        row: Any = connection.execute(
            f"UPDATE runs SET {RELEASED} WHERE run_id = %s AND token = %s RETURNING status = 'running'", (run_id, token)
        ).fetchone()
        return row is not None and bool(row[0])
    found: Any = connection.execute(
        "SELECT id FROM runs WHERE run_id = %s AND token = %s FOR NO KEY UPDATE", (run_id, token)
    ).fetchone()
    if found is not None:
        die(connection, found[0], fault)
        connection.execute("UPDATE runs SET token = NULL, holder = NULL WHERE id = %s", found)
    return False


def read(connection: Connection, run_id: str) -> Lease | None:
    """See `Store.lease`."""
    row: Any = connection.execute(
        f"SELECT token, runs.holder, owner, ttl, expires, {NOW} FROM runs LEFT JOIN holders"
        " ON holders.holder = runs.holder WHERE run_id = %s",
        (run_id,),
    ).fetchone()
    return None if row is None else lease_of(run_id, *row)


def holders(connection: Connection, runs: int) -> list[Holder]:
    """See `Store.holders`."""
    rows: Any = connection.execute(
        f"SELECT holders.holder, owner, ttl, expires - {NOW}, held, ids FROM holders"
        " CROSS JOIN LATERAL (SELECT count(*) AS held FROM runs WHERE runs.holder = holders.holder) AS all_of"
        " CROSS JOIN LATERAL (SELECT array(SELECT run_id FROM runs WHERE runs.holder = holders.holder ORDER BY id"
        " LIMIT %s) AS ids) AS some_of ORDER BY holders.holder",
        (max(runs, 0),),
    ).fetchall()
    return [
        Holder(holder, json_object(owner), min(left, ttl), ttl, held, tuple(ids))
        for holder, owner, ttl, left, held, ids in rows
    ]


def present_holders(connection: Connection) -> tuple[list[str], list[str]]:
    """Return the ids of the holders that may be alive, and of those known to be gone before their leases expire."""
    steady = SYSTEM_CLOCK.steady()
    present: list[str] = []
    gone: list[str] = []
    rows: Any = connection.execute(f"SELECT holder, owner, ttl, expires, {NOW} FROM holders").fetchall()
    for holder, owner, ttl, expires, now in rows:
        if is_present(holder, json_object(owner), expires - now, ttl, expires, steady):
            present.append(holder)
        elif expires > now:
            gone.append(holder)
    return present, gone


Candidate: TypeAlias = tuple[int, str, str | None, str | None, str]
"""Number, id, token, holder and graph of a run."""
Ways: TypeAlias = Callable[..., Iterator["Candidate"]]
"""Finds candidates: `_ways` with its first three arguments bound."""


def claimable(connection: Connection, request: ClaimRequest) -> bool:
    """Return True if a claim would find anything; locks nothing."""
    owner, graphs = request.owner, request.graphs
    present, gone = present_holders(connection)
    bounds = dict.fromkeys(_names(connection, graphs), 1)
    kinds = (_ADDRESSED, _LAPSED, _IDLE, _NEW)  # the last ones include due runs
    found = _ways(connection, [*present, owner.executor], gone, bounds, 1, lock="", kinds=kinds)
    return any(True for _ in found)


def claim(connection: Connection, request: ClaimRequest) -> list[tuple[RunInfo, Lease]]:
    """See `Store.claim`. The index of the label of `turns` has been made."""
    owner, ttl = request.owner, request.ttl
    present, gone = present_holders(connection)
    ways = partial(_ways, connection, [*present, owner.executor], gone)
    selection = Selection[Candidate](request.limit, request.most)
    found = _selected(connection, ways, _names(connection, request.graphs), selection, request.turns)
    if not found:
        return []
    still, gone = present_holders(connection)
    found = [one for one in found if one[2] is None or one[3] == owner.executor or one[3] not in still]
    if gone:
        # A silent holder that is alive detects it by its next beat.
        connection.execute(f"UPDATE holders SET expires = {NOW} WHERE holder = ANY(%s)".encode(), (gone,))
    taken: list[Lease] = []
    for number, run_id, token, holder, _ in found:
        if token is not None and holder != owner.executor:
            rob(connection, holder)
            deaths = die(connection, number, DIED)
            connection.execute("UPDATE runs SET token = NULL, holder = NULL WHERE id = %s", (number,))
            if deaths >= MAX_DEATHS:
                continue
            token, holder = None, None
        lease = Lease(run_id, os.urandom(16).hex(), owner.executor, owner.data(), ttl, ttl)
        held_here[lease.token] = owner.executor
        give(connection, number, lease, (token, holder))
        taken.append(lease)
    if taken:
        hold(connection, owner.executor, canonical(owner.data()), ttl)
    rows = reads.infos(connection, [lease.run_id for lease in taken])
    return [(rows[lease.run_id], lease) for lease in taken]


_LOCKED = " FOR NO KEY UPDATE OF runs SKIP LOCKED"


def _selected(
    connection: Connection, ways: Ways, names: list[str], found: Selection[Candidate], turns: Turns | None
) -> list[Candidate]:
    """Return locked runs that can continue and that no present holder holds, in the order of `Store.claim`.

    Holders that appeared since are excluded as well: their runs would displace others, without being given out.
    """
    if turns is not None and found.open(names):
        _in_turn(connection, ways, found.open(names), found, turns)
    known = found.open(names)
    while known:
        for row in ways({name: found.bound(name) for name in known}, found.limit, _LOCKED):
            found.add(row[0], row[4], row)
            if found.full:
                break
        # again without the graphs that reached their limits, whose runs may have come before others
        still = found.open(known)
        if len(still) == len(known):
            break
        known = still
    return found.rows


def _in_turn(connection: Connection, ways: Ways, names: list[str], found: Selection[Candidate], turns: Turns) -> None:
    """Select runs of the values whose turn it is."""
    values, visited = fair_index.ready_values(connection, turns, names, found.limit)
    each = -(-found.limit // max(len(values), 1))
    waiting = fair_index.runs_of(connection, turns, values, names, each) if values else []
    bounds = {name: found.bound(name) for name in names}
    first = list(ways(bounds, found.limit, _LOCKED, (_ADDRESSED, _LAPSED)))
    of = fair_index.values_of(connection, turns, [row[0] for row in first]) if first else {}
    rows = [*((of.get(row[0], ""), row) for row in first), *waiting]
    take_turns(turns, rows, lambda row: found.add(row[0], row[4], row), lambda: found.full)
    if not found.full and visited is not None:
        turns.after = visited


def _names(connection: Connection, graphs: Collection[str] | None) -> list[str]:
    return sorted(graphs) if graphs is not None else graph_names(connection)


_SOME = "(status IN ('running', 'paused')) IS TRUE"
"""As in other conditions here, `IS TRUE` keeps the planner from an index that may contain most runs of a graph."""
_READY = f"deaths < {MAX_DEATHS} AND (retry_at IS NULL OR retry_at <= {WALL})"
_LIVE = (
    "EXISTS (SELECT 1 FROM holders AS one WHERE one.holder = {} AND one.holder <> ALL(%(gone)s::text[])"
    f" AND one.expires > {WALL})"
)
_UNHELD = f"(token IS NULL OR runs.holder <> ALL(%(present)s::text[]) AND NOT {_LIVE.format('runs.holder')})"
_GRAPHS = (
    "WITH RECURSIVE steps (name) AS ((SELECT min(graph) FROM runs) UNION ALL"
    " SELECT (SELECT min(graph) FROM runs WHERE graph > name) FROM steps WHERE name IS NOT NULL)"
    " SELECT name FROM steps WHERE name IS NOT NULL"
)
_HOLDERS = (
    "WITH RECURSIVE steps (name) AS ((SELECT min(holder) FROM runs WHERE holder IS NOT NULL) UNION ALL"
    " SELECT (SELECT min(holder) FROM runs WHERE holder > name) FROM steps WHERE name IS NOT NULL)"
    " SELECT name FROM steps WHERE name IS NOT NULL AND name <> ALL(%(present)s::text[])"
    f" AND NOT {_LIVE.format('name')}"
)
_COLUMNS = "runs.id, runs.run_id, runs.token, runs.holder, runs.graph"
_KNOWN = "(graph = ANY(%(names)s::text[])) IS TRUE"
_ADDRESSED, _DUE, _LAPSED, _IDLE, _NEW = range(5)
"""Kinds of runs that can be claimed, in their order."""


def _ways(
    connection: Connection,
    present: list[str],
    gone: list[str],
    bounds: Mapping[str, int],
    limit: int,
    lock: str,
    kinds: Collection[int] = (_ADDRESSED, _DUE, _LAPSED, _IDLE, _NEW),
) -> Iterator[Candidate]:
    """Yield runs of these kinds that can be claimed, of the graphs in `bounds`; within each kind, the oldest first."""
    if not bounds:
        return
    values: dict[str, Any] = {"names": [*bounds], "present": present, "gone": gone, "limit": limit}

    # messages are few; a run is locked once, however many it has
    if _ADDRESSED in kinds:
        found: Any = connection.execute(f"{_POSTED}{lock}".encode(), values).fetchall()
        yield from found
    if _DUE in kinds:
        yield from _oldest(connection, _OVERDUE, bounds, values, lock)
    if _LAPSED in kinds:
        absent: Any = connection.execute(_HOLDERS, values).fetchall()
        yield from _oldest(connection, _LEFT, {holder: limit for (holder,) in absent}, values, lock)
    if _IDLE in kinds:
        yield from _oldest(connection, _FREE, bounds, values, lock)
    if _NEW in kinds:
        yield from _oldest(connection, _ENQUEUED, bounds, values, lock)


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of runs, which an index contains by a key and by their time.

    Attributes:
        where: condition for the runs.
        since: their time.
        parts: the columns that an index has after the key, with the narrower conditions for each, and their order.
        key: the first column of the index.
    """

    where: str
    since: str
    parts: tuple[tuple[str, str], ...]
    key: str = "graph"


_POSTED = (
    f"SELECT {_COLUMNS} FROM runs JOIN (SELECT run, min(id) AS first FROM inbox WHERE NOT notice GROUP BY run)"
    f" AS posted ON posted.run = runs.id WHERE {_KNOWN} AND {_SOME} AND {_UNHELD} AND {_READY}"
    " ORDER BY posted.first LIMIT %(limit)s"
)
_ENQUEUED = _Kind(f"{_SOME} AND {_UNHELD} AND {_READY}", "due", ((f"due <= {WALL}", "due"),))
_OVERDUE = replace(_ENQUEUED, where=f"{_ENQUEUED.where} AND {fair_index.OVERDUE}")
_LEFT = _Kind(
    f"(status = 'running') IS TRUE AND {_KNOWN} AND (due IS NULL OR due <= {WALL}) AND {_READY}",
    "created",
    (("TRUE", ""),),
    "holder",
)
_FREE = _Kind(
    f"status = 'running' AND token IS NULL AND deaths < {MAX_DEATHS} AND due IS NULL",
    "coalesce(retry_at, created)",
    tuple((f"retry_at {which}", "retry_at, created") for which in ("IS NULL", f"<= {WALL}")),
)
_DEEPER = 4
"""Factor by which more candidates are read when other claimers hold some of the earlier ones."""


def _oldest(
    connection: Connection, kind: _Kind, bounds: Mapping[str, int], values: Mapping[str, Any], lock: str
) -> Iterator[Candidate]:
    """Yield the oldest runs of one kind, whatever their keys, and lock them.

    They are first read without locks, as many of each key as may be taken. No more are locked than are wanted, because
    other claimers could not take them. If others have locked some, more are read.

    Args:
        kind: the kind.
        bounds: key -> maximum number of its runs.
        values: values of the conditions; `limit` is the maximum number of runs in all.
        lock: how the rows are locked.
    """
    if not bounds:
        return
    limit, depth, before = values["limit"], 1, -1
    while True:
        looked = {"keys": [*bounds], "bounds": [*bounds.values()], "depth": depth, "looked": limit * depth}
        rows: Any = connection.execute(_looked_at(kind), {**values, **looked}).fetchall()
        ids = [number for (number,) in rows]
        if len(ids) <= before or not ids:
            return
        query = (
            f"SELECT {_COLUMNS} FROM runs WHERE id = ANY(%(ids)s::bigint[]) AND {kind.where}"
            f" AND ({' OR '.join(part for part, _ in kind.parts)}) ORDER BY {kind.since}, id LIMIT %(limit)s{lock}"
        )
        found: Any = connection.execute(query.encode(), {**values, "ids": ids}).fetchall()
        yield from found
        if len(found) >= min(limit, len(ids)):
            return
        depth, before = depth * _DEEPER, len(ids)


def _looked_at(kind: _Kind) -> bytes:
    """Return the SQL for the ids of the oldest runs of one kind: a short index scan for each key and part."""
    walks = " UNION ALL ".join(
        f"(SELECT id, {kind.since} AS since FROM runs WHERE {kind.key} = keys.key AND {part} AND {kind.where}"
        f"{f' ORDER BY {order}' if order else ''} LIMIT %(looked)s)"
        for part, order in kind.parts
    )
    return (
        "SELECT id FROM (SELECT id, since, bound, row_number() OVER (PARTITION BY key ORDER BY since, id) AS place"
        " FROM unnest(%(keys)s::text[], %(bounds)s::bigint[]) AS keys (key, bound)"
        f" CROSS JOIN LATERAL ({walks}) AS one) AS all_of_them WHERE place <= bound * %(depth)s"
        " ORDER BY since, id LIMIT %(looked)s"
    ).encode()


def graph_names(connection: Connection) -> list[str]:
    """Return the names of all graphs that have runs, by one index lookup for each."""
    rows: Any = connection.execute(_GRAPHS).fetchall()
    return [name for (name,) in rows]


def next_due(connection: Connection, graphs: Collection[str] | None) -> float | None:
    """See `Store.next_due`."""
    names = sorted(graphs) if graphs is not None else graph_names(connection)
    free = f"{_SOME} AND deaths < {MAX_DEATHS} AND {_UNHELD}"
    present, gone = present_holders(connection)
    values = {"names": names, "present": present, "gone": gone}
    query = (
        "SELECT least(overdue, backing_off) FROM unnest(%(names)s::text[]) AS g (name)"
        f" LEFT JOIN LATERAL (SELECT due AS overdue FROM runs WHERE graph = name AND due IS NOT NULL"
        f" AND retry_at IS NULL AND {free} ORDER BY due LIMIT 1) AS one ON TRUE"
        " LEFT JOIN LATERAL (SELECT min(CASE WHEN status = 'running' AND due IS NULL THEN retry_at"
        f" ELSE greatest(due, retry_at) END) AS backing_off FROM runs WHERE graph = name AND retry_at IS NOT NULL"
        f" AND {free}) AS two ON TRUE"
    )
    found: Any = connection.execute(query.encode(), values).fetchall()
    return min((at for (at,) in found if at is not None), default=None)
