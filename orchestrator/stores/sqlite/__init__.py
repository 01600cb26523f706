"""Runs in one SQLite file.

One thread writes, for all runs of the process; what queues up while it commits shares the next commit. Any
number of processes may use the file: a write holds SQLite's lock, and compare-and-set decides who wins.

    schema.py    the tables, and checking those of a file
    files.py     opening the file, and what SQLite's errors mean
    filesystems.py  which file systems are refused
    wal.py       whether a log that was left behind is whole
    writer.py    the thread that writes
    readers.py   connections that read
    writes.py    what is written, as functions of a connection
    reads.py     what is read, as functions of a connection
    listing.py   the list of runs: pages, filters
    searching.py the full-text index of inputs and outputs
    clock.py     the clock that leases are measured by
    leases.py    leases, as functions of a connection: take, beat, drop, claim
    store.py     `SQLiteStore`, which puts these together
"""

from __future__ import annotations

from orchestrator.stores.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
