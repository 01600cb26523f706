"""Runs and records for the checks, and assertions with clear messages."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TypeVar
from uuid import uuid4

import anyio

from orchestrator.errors import OrchestratorError
from orchestrator.kernel.records import EventReceived, Record, RunStarted
from orchestrator.stores.base import Lease, RunInfo, Store
from orchestrator.stores.owner import Owner
from orchestrator.stores.requests import Append, ClaimRequest, NewRun

T = TypeVar("T")


def new_run(
    *, labels: dict[str, str] | None = None, due: float | None = None, waiting: int = 0
) -> tuple[RunInfo, list[Record]]:
    info = RunInfo(
        f"check-{uuid4().hex}", f"graph-{uuid4().hex}", "running", labels or {}, 1.5, 2.5, 1, "s", "c", due, waiting
    )
    return info, [started(info)]


def started(info: RunInfo) -> Record:
    return RunStarted(
        seq=1,
        ts=1.5,
        run_id=info.run_id,
        graph=info.graph,
        structure=info.structure,
        content=info.content,
        values={"n": 1},
        labels=dict(info.labels),
        rules=2,
    )


def a_lease(run_id: str, token: str, holder: str | None = None) -> Lease:
    """Return a lease of a separate holder, which counts as alive; `token` is unique to its run."""
    owner = {"host": "h", "machine": "m", "boot": "b", "pid": 7}
    return Lease(run_id, token, f"holder of {token} of {run_id}" if holder is None else holder, owner)


def an_owner() -> Owner:
    """Return an executor in this process."""
    return Owner.here()


async def created(store: Store) -> str:
    info, records = new_run()
    await store.create(NewRun(info, records))
    return info.run_id


def event(seq: int, data: object = None) -> Record:
    return EventReceived(seq=seq, ts=1000.0 + seq, name="event", data=data)


def events(first: int, count: int = 1) -> list[Record]:
    return [event(seq, {"n": seq}) for seq in range(first, first + count)]


async def append(store: Store, run_id: str, after: int, *, data: object = None) -> int:
    return await store.append(Append(run_id, [event(after + 1, data)], after=after))


async def claim(store: Store, owner: Owner, graphs: Sequence[str], limit: int = 10) -> list[tuple[RunInfo, Lease]]:
    return await store.claim(ClaimRequest(owner, graphs=graphs, limit=limit, ttl=60.0))


async def together(*calls: Awaitable[T]) -> list[T | OrchestratorError]:
    """Make all calls at the same time; return what each of them returned or raised."""
    outcomes: dict[int, T | OrchestratorError] = {}

    async def make(index: int, call: Awaitable[T]) -> None:
        try:
            outcomes[index] = await call
        except OrchestratorError as error:
            outcomes[index] = error

    async with anyio.create_task_group() as group:
        for index, call in enumerate(calls):
            group.start_soon(make, index, call)
    return [outcomes[index] for index in range(len(calls))]


async def raises(kind: type[Exception], call: Awaitable[object], what: str) -> Exception:
    try:
        value = await call
    except kind as error:
        return error
    except Exception as error:
        raise AssertionError(f"{what} must raise {kind.__name__}, but it raised {error!r}") from error
    raise AssertionError(f"{what} must raise {kind.__name__}, but it returned {value!r}")


def equal(actual: object, wanted: object, what: str) -> None:
    if actual != wanted:
        raise AssertionError(f"{what}: {short(actual)} instead of {short(wanted)}")


def that(holds: bool, fault: str) -> None:
    if not holds:
        raise AssertionError(fault)


def short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 600 else f"{text[:600]} ... ({len(text)} characters)"


def texts(value: object) -> dict[str, str]:
    return {str(key): str(text) for key, text in value.items()} if isinstance(value, dict) else {}
