"""Runs in one SQLite file.

One thread writes, for all runs of the process; what queues up while it commits shares the next commit. Any
number of processes may use the file: a write holds SQLite's lock, and compare-and-set decides who wins.

    schema.py       the tables, and checking those of a file
    files.py        opening the file, refused file systems, a log that was left behind, and what SQLite's errors mean
    writer.py       the thread that writes
    readers.py      connections that read
    writes.py       what is written, as functions of a connection
    reads.py        what is read of a run, as functions of a connection
    listing.py      lists over all runs: runs, open questions, sums; schedules
    searching.py    the full-text index of inputs and outputs
    payloads.py     long values that records share
    leases.py       leases and their clock: take, beat, drop
    claims.py       which runs a worker is given
    items.py        items of the memory and the cache
    archived.py     runs whose records are in an archive
    maintenance.py  space that is given back, damage that is found and repaired
    store.py        `SQLiteStore`, which puts these together
"""

from __future__ import annotations

from orchestrator.stores.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
