"""Runs in a PostgreSQL database, for many machines.

One thread of each process writes, for all of its runs; what queues up meanwhile shares the next statement and commit.
"""

from orchestrator.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
