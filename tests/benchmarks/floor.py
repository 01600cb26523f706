"""The floors: what the same work costs with no framework at all."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

PRAGMAS = (
    "page_size = 8192",
    "journal_mode = WAL",
    "synchronous = FULL",
    "secure_delete = ON",
    "wal_autocheckpoint = 500",
    "journal_size_limit = 16777216",
)
"""Those of the SQLite store."""


def durable_commits(path: Path, count: int, payload: bytes) -> float:
    """Seconds for `count` rows of `payload`, each committed before the next, as the SQLite store does it."""
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE records (run INTEGER, seq INTEGER, data BLOB, PRIMARY KEY (run, seq))")
    started = time.perf_counter()
    for seq in range(count):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO records VALUES (1, ?, ?)", (seq, payload))
        connection.execute("COMMIT")
    seconds = time.perf_counter() - started
    connection.close()
    return seconds


def median_of(rounds: int, measure: Callable[[], float]) -> float:
    """The median of several measurements."""
    return sorted(measure() for _ in range(rounds))[rounds // 2]
