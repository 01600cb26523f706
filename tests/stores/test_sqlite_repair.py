"""What a file's check finds of payloads is repaired while others wait, and looked for while they do not."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from orchestrator.stores import open_store
from orchestrator.stores.payloads import Disorder
from orchestrator.stores.requests import Append
from orchestrator.stores.sqlite.maintenance import look_at_payloads, tidy
from tests.stores.runs import add_run, event, events
from tests.support.sizes import quick_on

pytestmark = pytest.mark.anyio

LONG, OTHER, LEFT = ("".join(f"{name} {number} " for number in range(4000)) for name in ("long", "other", "left"))


def digest(text: str) -> bytes:
    return sha256(text.encode()).digest()


def steps_of_repair(path: Path) -> int:
    """About how many steps SQLite takes while it repairs what was found before."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        found = look_at_payloads(connection)
        assert found.wrong
        connection.execute("BEGIN IMMEDIATE")
        connection.set_progress_handler(count, 1)
        tidy(connection, found)
        connection.set_progress_handler(None, 1)
        connection.execute("COMMIT")
    return steps


@quick_on("asyncio")
async def test_the_records_of_other_runs_are_not_read_while_others_wait(tmp_path: Path) -> None:
    steps: dict[int, int] = {}
    for count in (10, 1000):
        path = tmp_path / f"{count}.db"
        store = open_store(f"sqlite:///{path}")
        await add_run(store, "a", count, "short")
        await add_run(store, "b", 2, [LONG, OTHER])
        await store.close()
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("DELETE FROM payload_uses WHERE digest = ?", (digest(LONG),))
        steps[count] = steps_of_repair(path)
        store = open_store(f"sqlite:///{path}")
        assert await store.check() == []
        await store.close()
    assert steps[1000] < steps[10] + 100, steps


@quick_on("asyncio")
async def test_a_check_looks_before_others_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = list[bool]()

    def looking(connection: sqlite3.Connection) -> Disorder:
        reads.append(bool(connection.execute("PRAGMA query_only").fetchone()[0]))
        return look_at_payloads(connection)

    monkeypatch.setattr(sys.modules[look_at_payloads.__module__], "look_at_payloads", looking)
    store = open_store(f"sqlite:///{tmp_path}/runs.db")
    await add_run(store, "a", 1, LONG)
    assert await store.check(repair=True) == []
    assert reads
    assert all(reads)
    await store.close()


@quick_on("asyncio")
async def test_what_others_wrote_since_it_was_looked_at_stays(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = open_store(f"sqlite:///{path}")
    for name in ("stays", "goes", "used"):
        await add_run(store, name, 1, [LONG, OTHER])
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        numbers = dict(connection.execute("SELECT run_id, id FROM runs").fetchall())
        connection.execute("DELETE FROM payload_uses WHERE digest = ?", (digest(LONG),))
        connection.execute("INSERT INTO payloads (digest, data) VALUES (?, ?)", (digest(LEFT), LEFT.encode()))
        free = max(numbers.values()) + 1
        connection.execute("INSERT INTO payload_uses (digest, run) VALUES (?, ?)", (digest(OTHER), free))
        found = look_at_payloads(connection)
        assert (set(found.unnoted), found.stale, found.unused) == (set(numbers.values()), {free}, [digest(LEFT)])
        await store.append(Append("used", [event(2, LEFT)], after=1))  # no longer unused
        await store.delete("goes")  # nothing is to be noted for it
        await add_run(store, "new", 1, OTHER)  # gets the number for which too much was noted
        connection.execute("BEGIN IMMEDIATE")
        tidy(connection, found)
        connection.execute("COMMIT")
        numbers = dict(connection.execute("SELECT run_id, id FROM runs").fetchall())
        assert numbers["new"] == free
        noted = set(connection.execute("SELECT run, digest FROM payload_uses").fetchall())
    wanted = {"stays": (LONG, OTHER), "used": (LONG, OTHER, LEFT), "new": (OTHER,)}
    assert noted == {(numbers[name], digest(text)) for name, texts in wanted.items() for text in texts}
    assert await store.check() == []
    assert await store.read("used") == [*events(1, 1, [LONG, OTHER]), event(2, LEFT)]
    assert await store.read("new") == events(1, 1, OTHER)
    await store.close()
