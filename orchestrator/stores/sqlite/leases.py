"""Leases, as functions of a connection inside a transaction: taking, renewing, releasing.

A lease is in the row of its run (`token`, `holder`), which an append changes and checks in one statement. Its expiry
is in the row of its holder.

`StoreClock` is the clock of a file's leases, which all processes of one machine share.

It counts from the start of the machine, so it never jumps, and a process with a wrong wall clock still agrees with all
others. The difference to Unix seconds is stored in the file by the first process of each boot.
"""

from __future__ import annotations

import sqlite3

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.errors import RunUnknown
from orchestrator.json import canonical
from orchestrator.stores.base import Holder, Lease
from orchestrator.stores.owner import boot_id, is_present, namespace
from orchestrator.stores.rows import NOTICE
from orchestrator.stores.shared import DIED, STEP_LANDED, json_object, retry_delay
from orchestrator.stores.stored import lease_of


class StoreClock:
    """The clock of one file."""

    __slots__ = ("_start",)

    def __init__(self) -> None:
        self._start: float | None = None

    def now(self, connection: sqlite3.Connection, *, write: bool = False) -> float:
        """Return Unix seconds by the file's clock.

        Args:
            connection: a connection to the file.
            write: whether the connection is in a transaction that may store the start of the clock.
        """
        if not boot_id():
            return SYSTEM_CLOCK.now()
        steady = SYSTEM_CLOCK.steady()
        if self._start is not None:
            return self._start + steady
        found = connection.execute("SELECT start FROM clocks WHERE boot = ?", (boot_key(),)).fetchone()
        if found is not None and isinstance(found[0], float):
            self._start = found[0]
            return found[0] + steady
        start = SYSTEM_CLOCK.now() - steady
        if write:  # cached only when it is read back: this transaction may be rolled back
            connection.execute("INSERT OR REPLACE INTO clocks (boot, start) VALUES (?, ?)", (boot_key(), start))
        return start + steady


def boot_key() -> str:
    """Return the id of this boot of the machine and of the time namespace: a container may measure time differently."""
    return f"{boot_id()} {namespace('time')}"


_KEPT_SECONDS = 3600.0
"""Rows of holders whose leases expired this many seconds ago are deleted if no run names them."""

RELEASED = "token = NULL, holder = NULL, deaths = 0, retry_at = NULL, fault = '', taken = 0"
"""The columns of a run's row after its lease was released."""

IS_NOTICE = (
    "(typeof(body) = 'text' AND length(body) < 2000"
    f" AND CASE WHEN json_valid(body) THEN json_extract(body, '$.type') END IS '{NOTICE}')"
)
"""Condition that a row of `inbox` is a notice. Notices are short; events may be long."""


def hold(connection: sqlite3.Connection, clock: StoreClock, holder: str, owner: str, ttl: float) -> None:
    """Record that a holder is alive: its row is created or renewed."""
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
        give(connection, number, lease, (token, holder))
    return True


def give(connection: sqlite3.Connection, number: int, lease: Lease, before: tuple[str | None, str | None]) -> None:
    """Write a lease into its run's row. `before`: token and holder of the lease that was never given back."""
    token, holder = before
    if token is not None and holder != lease.holder:
        rob(connection, holder)
        die(connection, number, DIED)
    connection.execute(
        "UPDATE runs SET token = ?, holder = ?, taken = head WHERE id = ?", (lease.token, lease.holder, number)
    )


def die(connection: sqlite3.Connection, number: int, fault: str) -> int:
    """Record that a drive died, or was given up; return how many did so in a row."""
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
    """Return a `seq` from a row; 0 if it is damaged."""
    return value if isinstance(value, int) and 0 <= value < 1 << 32 else 0


def rob(connection: sqlite3.Connection, holder: str | None) -> None:
    """Record that a lease of a holder was taken from it, so that its next beat detects it."""
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
        die(connection, found[0], fault)
        connection.execute("UPDATE runs SET token = NULL, holder = NULL WHERE id = ?", found)


def read(connection: sqlite3.Connection, clock: StoreClock, run_id: str) -> Lease | None:
    """See `Store.lease`."""
    row = connection.execute(
        "SELECT token, runs.holder, owner, ttl, expires FROM runs LEFT JOIN holders ON holders.holder = runs.holder"
        " WHERE run_id = ?",
        (run_id,),
    ).fetchone()
    if row is None:
        return None
    token, holder, owner, ttl, expires = row
    return lease_of(run_id, token, holder, owner, ttl, expires, clock.now(connection))


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


_HOLDERS = "SELECT holder, owner, ttl, expires FROM holders"


def present_holders(connection: sqlite3.Connection, clock: StoreClock) -> tuple[list[str], list[str]]:
    """Return the ids of the holders that may be alive, and of those known to be gone before their leases expire."""
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
