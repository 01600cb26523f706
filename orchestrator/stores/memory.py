"""The store for tests, notebooks and runs that need not outlive the process.

It keeps records as the bytes that a file would hold and reads them back anew, so that nothing works in memory
that would not work on disk, and no caller can reach into the journal of another.
"""

from __future__ import annotations

import itertools
import json
from bisect import bisect_right, insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import RLock

from orchestrator.errors import RunExists, RunUnknown, StoreError
from orchestrator.jsontypes import JsonObject, canonical
from orchestrator.kernel.records import FINAL, Record, encode
from orchestrator.stores.base import Lease, Message, Page, RunInfo, Store
from orchestrator.stores.shared import (
    as_statuses,
    check_new,
    check_release,
    check_seqs,
    copy_run,
    graph_unknown,
    moved,
    page_cursor,
    parse_cursor,
    read_record,
    taken_over,
)

__all__ = ["MemoryStore"]


@dataclass(slots=True)
class _MemoryRun:
    info: RunInfo
    number: int
    records: list[bytes]
    snapshots: dict[int, bytes] = field(default_factory=dict)
    lease: Lease | None = None


class MemoryStore:
    """A store in memory, gone with the process. Safe to use from several threads and event loops.

    No method waits for anything, so none of them is a point where a task can be cancelled.
    """

    def __init__(self, url: str = "memory://") -> None:
        self._url = url
        self._lock = RLock()
        self._numbers = itertools.count(1)
        self._message_ids = itertools.count(1)
        self._runs: dict[str, _MemoryRun] = {}
        self._order: list[tuple[float, int, str]] = []
        """(-created, -number, run id): ascending is newest first."""
        self._graphs: dict[str, str] = {}
        self._messages: dict[int, tuple[str, str]] = {}
        self._closed = False

    @property
    def url(self) -> str:
        return self._url

    # ------------------------------------------------------------------------------- journal

    async def create(
        self, info: RunInfo, records: Sequence[Record], *, graph: JsonObject | None = None, lease: Lease | None = None
    ) -> None:
        check_new(info, records, graph, lease)
        encoded = [encode(record) for record in records]
        with self._writing():
            if info.run_id in self._runs:
                raise RunExists(info.run_id)
            if graph is not None and info.content not in self._graphs:
                self._graphs[info.content] = canonical(graph)
            run = _MemoryRun(replace(info, labels=dict(info.labels)), next(self._numbers), encoded, lease=lease)
            self._runs[info.run_id] = run
            insort(self._order, (-info.created, -run.number, info.run_id))

    async def append(
        self,
        run_id: str,
        records: Sequence[Record],
        *,
        after: int,
        status: str | None = None,
        due: float | None = None,
        waiting: int | None = None,
        consumed: Sequence[int] = (),
        lease: str | None = None,
        release: bool = False,
    ) -> int:
        check_seqs(run_id, records, after)
        check_release(run_id, lease, release)
        encoded = [encode(record) for record in records]
        with self._writing():
            run = self._run(run_id)
            if run.info.head != after:
                raise moved(run_id, run.info.head, after)
            if lease is not None and (run.lease is None or run.lease.token != lease):
                raise taken_over(run_id)
            run.records.extend(encoded)
            run.info = replace(
                run.info,
                head=after + len(records),
                updated=records[-1].ts if records else run.info.updated,
                status=run.info.status if status is None else status,
                due=run.info.due if status is None and due is None else due,
                waiting=run.info.waiting if waiting is None else waiting,
            )
            for message in consumed:
                if self._messages.get(message, ("", ""))[0] == run_id:
                    del self._messages[message]
            if release:
                run.lease = None
                if status in FINAL:
                    self._forget_messages(run_id)
            return run.info.head

    async def read(
        self, run_id: str, *, after: int = 0, upto: int | None = None, limit: int | None = None
    ) -> list[Record]:
        if limit is not None:
            upto = after + limit if upto is None else min(upto, after + limit)
        return self.read_now(run_id, after=after, upto=upto)

    def read_now(self, run_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        with self._lock:
            stored = self._run(run_id).records[max(after, 0) : None if upto is None else max(upto, 0)]
        records: list[Record] = []
        for seq, data in enumerate(stored, max(after, 0) + 1):
            records.append(read_record(run_id, seq, data, records))
        return records

    # ---------------------------------------------------------------------------------- runs

    async def info(self, run_id: str) -> RunInfo:
        with self._lock:
            info = self._run(run_id).info
        return replace(info, labels=dict(info.labels))

    async def runs(
        self,
        *,
        status: Collection[str] | str | None = None,
        graph: str | None = None,
        labels: Mapping[str, str] | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page:
        statuses = as_statuses(status)
        limit = max(limit, 1)
        found: list[RunInfo] = []
        cursor: str | None = None
        with self._lock:
            start = 0
            if after is not None:
                created, number = parse_cursor(after)
                start = bisect_right(self._order, (-created, -number, "\U0010ffff"))
            for index in range(start, len(self._order)):
                run = self._runs[self._order[index][2]]
                info = run.info
                if statuses is not None and info.status not in statuses:
                    continue
                if graph is not None and info.graph != graph:
                    continue
                if labels and any(info.labels.get(name) != value for name, value in labels.items()):
                    continue
                if len(found) == limit:
                    last = self._runs[found[-1].run_id]
                    cursor = page_cursor(last.info.created, last.number)
                    break
                found.append(replace(info, labels=dict(info.labels)))
        return Page(tuple(found), cursor)

    async def delete(self, run_id: str) -> None:
        with self._writing():
            run = self._run(run_id)
            del self._runs[run_id]
            self._order.remove((-run.info.created, -run.number, run_id))
            self._forget_messages(run_id)

    async def copy(self, run_id: str, to: Store) -> None:
        await copy_run(self, run_id, to)

    # -------------------------------------------------------------------- graphs and snapshots

    async def put_graph(self, digest: str, data: JsonObject) -> None:
        text = canonical(data)
        with self._writing():
            self._graphs.setdefault(digest, text)

    async def graph(self, digest: str) -> JsonObject:
        return self.graph_now(digest)

    def graph_now(self, digest: str) -> JsonObject:
        with self._lock:
            text = self._graphs.get(digest)
        if text is None:
            raise graph_unknown(digest, self._url)
        data: JsonObject = json.loads(text)
        return data

    async def put_snapshot(self, run_id: str, seq: int, data: bytes) -> None:
        with self._writing():
            self._run(run_id).snapshots[seq] = bytes(data)

    async def snapshot(self, run_id: str, *, upto: int | None = None) -> tuple[int, bytes] | None:
        with self._lock:
            run = self._runs.get(run_id)
            seqs = [seq for seq in run.snapshots if upto is None or seq <= upto] if run else []
            return (max(seqs), run.snapshots[max(seqs)]) if run and seqs else None

    # -------------------------------------------------------------------- leases and messages

    async def lease(self, run_id: str) -> Lease | None:
        with self._lock:
            run = self._runs.get(run_id)
            return run.lease if run else None

    async def take_lease(self, lease: Lease, *, replaces: str | None = None, now: float) -> bool:
        with self._writing():
            run = self._run(lease.run_id)
            held = run.lease
            if held is not None and held.token != replaces and held.expires >= now:
                return False
            run.lease = lease
            return True

    async def renew_lease(self, run_id: str, token: str, expires: float) -> bool:
        with self._writing():
            run = self._runs.get(run_id)
            if run is None or run.lease is None or run.lease.token != token:
                return False
            run.lease = replace(run.lease, expires=expires)
            return True

    async def drop_lease(self, run_id: str, token: str) -> None:
        with self._writing():
            run = self._runs.get(run_id)
            if run is not None and run.lease is not None and run.lease.token == token:
                run.lease = None

    async def post(self, run_id: str, body: JsonObject) -> int:
        text = canonical(body)
        with self._writing():
            self._run(run_id)
            message = next(self._message_ids)
            self._messages[message] = (run_id, text)
            return message

    async def inbox(self, run_ids: Collection[str]) -> list[Message]:
        with self._lock:
            if not self._messages:
                return []
            wanted = frozenset(run_ids)
            found = [(key, to, text) for key, (to, text) in self._messages.items() if to in wanted]
        return [Message(key, to, json.loads(text)) for key, to, text in found]

    async def discard(self, ids: Sequence[int]) -> None:
        with self._writing():
            for message in ids:
                self._messages.pop(message, None)

    async def close(self) -> None:
        self._closed = True

    # ------------------------------------------------------------------------------- helpers

    def _run(self, run_id: str) -> _MemoryRun:
        run = self._runs.get(run_id)
        if run is None:
            raise RunUnknown(run_id)
        return run

    def _forget_messages(self, run_id: str) -> None:
        for message in [key for key, (to, _) in self._messages.items() if to == run_id]:
            del self._messages[message]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise StoreError(f"store {self._url} is closed; open it again to write")
            yield
