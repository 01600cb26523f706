"""Checks of the list of runs, and of taking a run out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

from orchestrator.errors import RunUnknown, StoreError
from orchestrator.stores.base import RunInfo, Store
from orchestrator.stores.requests import Append, NewRun, RunQuery
from orchestrator.testing.store_conformance.helpers import a_lease, created, equal, events, new_run, raises, texts, that


async def check_listing(store: Store) -> None:
    """Runs are found by status, graph and labels, alone and together, the newest first."""
    mark = uuid4().hex
    infos: list[RunInfo] = []
    for number in range(24):
        info, records = new_run(labels={"mark": mark, "user": f"u{number % 3}", "parity": str(number % 2)})
        status = ("running", "paused", "completed", "failed")[number % 4]
        info = replace(info, graph=f"{mark} {number % 2}", status=status, created=1000.0 + number // 2)
        await store.create(NewRun(info, records))
        infos.append(info)
    newest_first = list(reversed(infos))

    async def expect(what: str, fits: Callable[[RunInfo], bool], **filters: Any) -> None:
        labels = {"mark": mark, **texts(filters.pop("labels", {}))}
        page = await store.runs(RunQuery(labels=labels, limit=100, **filters))
        equal(list(page.runs), [info for info in newest_first if fits(info)], f"runs by {what}")
        equal(page.cursor, None, f"the cursor after all runs by {what}")

    await expect("one label", lambda info: True)
    await expect("status", lambda info: info.status == "paused", status="paused")
    await expect("statuses", lambda info: info.status in ("paused", "failed"), status=["paused", "failed"])
    await expect("no status at all", lambda info: False, status=[])
    await expect("status, interrupted", lambda info: info.status == "running", status="interrupted")
    await expect("statuses, interrupted among them", lambda info: info.status in ("running", "failed"),
                 status=["running", "interrupted", "failed"])  # fmt: skip
    error = await raises(ValueError, store.runs(RunQuery(status="complete")), "runs of a status that there is not")
    that("completed" in str(error), f"the message names the status that may be meant: {error}")
    await raises(ValueError, store.runs(RunQuery(status=["paused", ""])), "runs of an empty status")
    await expect("graph", lambda info: info.graph == f"{mark} 1", graph=f"{mark} 1")
    await expect("two labels", lambda info: info.labels["user"] == "u1", labels={"user": "u1"})
    await expect("a label that none has", lambda info: False, labels={"user": "u1", "none": "x"})
    await expect(
        "everything",
        lambda info: (info.status, info.graph, info.labels["user"]) == ("running", f"{mark} 0", "u0"),
        status={"running"}, graph=f"{mark} 0", labels={"user": "u0", "parity": "0"},
    )  # fmt: skip
    page = await store.runs(RunQuery(graph=f"{mark} 0", status="running", limit=100))
    wanted = [info for info in newest_first if info.graph == f"{mark} 0" and info.status == "running"]
    equal(list(page.runs), wanted, "runs by graph and status, without labels")
    await store.append(Append(infos[0].run_id, events(2), after=1, status="paused"))
    moved = await store.runs(RunQuery(labels={"mark": mark}, status="running", limit=100))
    that(infos[0].run_id not in [info.run_id for info in moved.runs], "a run that was paused is listed as running")


async def check_pages(store: Store) -> None:
    """Pages follow on without gap or repeat, also while runs are added and others removed."""
    mark = uuid4().hex

    async def add(created: float) -> str:
        info, records = new_run(labels={"mark": mark})
        info = replace(info, created=created, graph=mark)
        await store.create(NewRun(info, records))
        return info.run_id

    ids = [await add(100.0 + number // 4) for number in range(30)]
    several: tuple[dict[str, Any], ...] = (
        {"labels": {"mark": mark}}, {"graph": mark}, {"graph": mark, "status": ["running", "paused"]},
    )  # fmt: skip
    for filters in several:
        seen: list[str] = []
        cursor: str | None = None
        pages = 0
        while pages < 20:
            page = await store.runs(RunQuery(after=cursor, limit=7, **filters))
            seen.extend(info.run_id for info in page.runs)
            that(len(page.runs) <= 7, "a page holds more than its limit")
            pages += 1
            cursor = page.cursor
            if cursor is None:
                break
            await add(500.0)  # newer than all: must not move the pages to come
        equal([run_id for run_id in seen if run_id in ids], list(reversed(ids)), f"all pages of {filters}")
        equal(len(seen), len(set(seen)), f"runs seen once on the pages of {filters}")
    first = await store.runs(RunQuery(graph=mark, limit=5))
    await store.delete(first.runs[-1].run_id)
    second = await store.runs(RunQuery(graph=mark, limit=5, after=first.cursor))
    equal(len(second.runs), 5, "the page behind a run that was deleted")
    await raises(StoreError, store.runs(RunQuery(after="nonsense")), "runs(after=nonsense)")


async def check_delete(store: Store) -> None:
    """Nothing of a deleted run is left, its id is free, and other runs are as they were."""
    info, records = new_run(labels={"mark": uuid4().hex})
    other = await created(store)
    await store.create(NewRun(info, records))
    await store.put_snapshot(info.run_id, 1, b"fold")
    await store.take_lease(a_lease(info.run_id, "t"), ttl=60.0)
    message = await store.post(info.run_id, {"kind": "pause"})
    equal(await store.delete(info.run_id), True, "delete, of a run that is there")
    equal(await store.delete(info.run_id), False, "delete, asked again")
    await raises(RunUnknown, store.info(info.run_id), "info of a deleted run")
    await raises(RunUnknown, store.read(info.run_id), "read of a deleted run")
    equal((await store.runs(RunQuery(labels=info.labels))).runs, (), "runs by the label of a deleted run")
    equal(await store.inbox([info.run_id]), [], "the inbox of a deleted run")
    await store.create(NewRun(info, records))
    equal(await store.read(info.run_id), records, "the records of a new run under a freed id")
    equal(await store.lease(info.run_id), None, "the lease of a new run under a freed id")
    equal(await store.snapshot(info.run_id), None, "the snapshot of a new run under a freed id")
    equal(await store.inbox([info.run_id]), [], "the inbox of a new run under a freed id")
    that(await store.post(info.run_id, {}) > message, "the id of a deleted message is used again")
    equal(len(await store.read(other)), 1, "the records of another run")
