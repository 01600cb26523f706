"""Leases, as functions of a connection that is inside a transaction: taking, renewing, giving back.

A lease is in the row of its run (`token`, `holder`), which an append moves and checks in one statement. When it expires
is in the row of its holder, by the clock of the database. A change of both locks the run's row first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.errors import RunUnknown
from orchestrator.json import canonical
from orchestrator.stores.base import Holder, Lease
from orchestrator.stores.owner import is_present
from orchestrator.stores.postgres.connections import LEAST_IDLE
from orchestrator.stores.postgres.writes import NOW, RELEASED
from orchestrator.stores.shared import DIED, STEP_LANDED, json_object, retry_delay
from orchestrator.stores.stored import lease_of

if TYPE_CHECKING:
    from orchestrator.stores.postgres.statements import Connection

_IDLE = "idle_in_transaction_session_timeout"
_ROB = (
    f"UPDATE holders SET robbed = TRUE WHERE holder = %s RETURNING set_config('{_IDLE}', least((SELECT"
    f" setting::double precision FROM pg_settings WHERE name = '{_IDLE}'), greatest(ttl / 3, {LEAST_IDLE}) * 1000"
    ")::bigint::text, TRUE)"
).encode()

_KEPT_SECONDS = 3600.0
"""Rows of holders whose leases expired so long ago are deleted if no run names them."""


def hold(connection: Connection, holder: str, owner: str, ttl: float) -> None:
    """Note that a holder lives: its row is made or renewed."""
    made = connection.execute(
        f"INSERT INTO holders (holder, owner, ttl, expires, robbed) VALUES (%s, %s, %s, {NOW} + %s, FALSE)"
        " ON CONFLICT (holder) DO UPDATE SET owner = excluded.owner, ttl = excluded.ttl, expires = excluded.expires"
        " RETURNING xmax = 0",
        (holder, owner, float(ttl), float(ttl)),
    ).fetchone()
    if made is not None and made[0]:
        # in passing, without waiting for locks
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
    """True if the leases of a holder have not expired. Asked anew, once the row of a run that it holds is locked."""
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
    """Note that a drive died, or was given up; returns how many did so in a row."""
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
    """Note that a lease of a holder was taken from it, so that its next beat finds out.

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
    """See `Store.drop_lease`; whether the run is running, and free now."""
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
    """The holders that may be alive, and those that are known to be gone before their leases expire."""
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
