"""Runs to put into stores."""

from __future__ import annotations

from orchestrator.kernel.records import EventReceived, Record
from orchestrator.stores import RunInfo, Store
from orchestrator.stores.requests import NewRun


def event(seq: int, data: object = None) -> Record:
    return EventReceived(seq=seq, ts=float(seq), name="event", data=data)


def events(first: int, count: int = 1, data: object = None) -> list[Record]:
    return [event(seq, data) for seq in range(first, first + count)]


async def add_run(store: Store, run_id: str = "r", count: int = 1, data: object = None) -> str:
    await store.create(NewRun(RunInfo(run_id, "essay", "running", head=count), events(1, count, data)))
    return run_id
