"""The store for tests, notebooks and runs that need not outlive the process.

It keeps records as the bytes that a file would hold and reads them back anew, so that nothing works in memory
that would not work on disk, and no caller can reach into the journal of another.
"""

from __future__ import annotations

import itertools
import json
import os
from bisect import bisect_right, insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import TypeAlias

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.errors import RunExists, RunUnknown, StoreError
from orchestrator.jsontypes import JsonObject, canonical
from orchestrator.kernel.records import FINAL, Record, encode
from orchestrator.stores.base import (
    MAX_DEATHS,
    NOTICE,
    Finding,
    Lease,
    Message,
    Page,
    Relation,
    RunInfo,
    RunSummary,
    Schedule,
    Store,
)
from orchestrator.stores.owner import Owner
from orchestrator.stores.presence import held_here, is_present
from orchestrator.stores.shared import (
    DIED,
    STEP_LANDED,
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
    retry_delay,
    taken_over,
)
from orchestrator.stores.words import contains, words

__all__ = ["MemoryStore"]


@dataclass(slots=True)
class _MemoryRun:
    info: RunInfo
    number: int
    records: list[bytes]
    snapshots: dict[int, bytes] = field(default_factory=dict)
    token: str | None = None
    holder: str = ""
    taken: int = 0
    """The head when the lease was taken."""


@dataclass(slots=True)
class _Holder:
    """An executor that holds leases."""

    owner: JsonObject
    ttl: float
    expires: float
    """By the steady clock."""
    robbed: bool = False
    """Whether a lease was taken from it since its last beat."""


_Key: TypeAlias = tuple[str, str]
"""A run, and the key of a message for it."""


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
        self._schedules: dict[str, Schedule] = {}
        self._messages: dict[int, tuple[str, str]] = {}
        self._message_keys: dict[_Key, int] = {}
        self._holders: dict[str, _Holder] = {}
        self._closed = False

    @property
    def url(self) -> str:
        return self._url

    # ------------------------------------------------------------------------------- journal

    async def create(
        self,
        info: RunInfo,
        records: Sequence[Record],
        *,
        graph: JsonObject | None = None,
        lease: Lease | None = None,
        ttl: float = 30.0,
    ) -> None:
        check_new(info, records, graph, lease)
        encoded = [encode(record) for record in records]
        with self._writing():
            known = self._runs.get(info.run_id)
            if known is not None:
                if lease is not None and known.token == lease.token and known.records[: len(encoded)] == encoded:
                    return  # asked again
                raise RunExists(info.run_id)
            if graph is not None and info.content not in self._graphs:
                self._graphs[info.content] = canonical(graph)
            run = _MemoryRun(replace(info, labels=dict(info.labels), lease=None), next(self._numbers), encoded)
            if lease is not None:
                run.token, run.holder = lease.token, lease.holder
                self._hold(lease.holder, lease.owner, ttl)
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
        summary: RunSummary | None = None,
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
                ours = lease is not None and (run.token == lease or (release and run.token is None))
                if ours and encoded and run.records[after:] == encoded:
                    return run.info.head  # asked again
                raise moved(run_id, run.info.head, after)
            if lease is not None and run.token != lease:
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
            if summary is not None:
                run.info = replace(
                    run.info, error=summary.error, input=summary.input, output=summary.output,
                    question=summary.question, usage=summary.usage, steps=summary.steps,
                )  # fmt: skip
            for message in consumed:
                if self._messages.get(message, ("", ""))[0] == run_id:
                    self._forget_message(message)
            if release:
                _release(run)
                if status in FINAL:
                    self._forget_messages(run_id, notices=False)
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
            return self._info(self._run(run_id))

    async def heads(self, run_ids: Collection[str]) -> dict[str, tuple[int, str]]:
        with self._lock:
            found = {run_id: self._runs[run_id].info for run_id in run_ids if run_id in self._runs}
        return {run_id: (info.head, info.status) for run_id, info in found.items()}

    async def runs(
        self,
        *,
        status: Collection[str] | str | None = None,
        graph: str | None = None,
        labels: Mapping[str, str] | None = None,
        parent: str | None = None,
        relation: Relation | None = None,
        search: str | None = None,
        since: float | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page:
        statuses = as_statuses(status)
        wanted = None if search is None else words(search)

        def fits(info: RunInfo) -> bool:
            return (
                (graph is None or info.graph == graph)
                and all(info.labels.get(name) == value for name, value in (labels or {}).items())
                and (parent is None or (info.parent is not None and info.parent.run_id == parent))
                and (relation is None or (info.parent is not None and info.parent.relation == relation))
                and (since is None or info.updated >= since)
                and (wanted is None or contains(wanted, info.input, info.output))
            )

        limit = max(limit, 1)
        found: list[RunInfo] = []
        cursor: str | None = None
        with self._lock:
            present = self._present() if statuses and "interrupted" in statuses else set()
            start = 0
            if after is not None:
                created, number = parse_cursor(after)
                start = bisect_right(self._order, (-created, -number, "\U0010ffff"))
            for index in range(start, len(self._order)):
                run = self._runs[self._order[index][2]]
                if statuses is not None and run.info.status not in statuses:
                    free = run.token is None or run.holder not in present
                    if not (run.info.status == "running" and "interrupted" in statuses and free):
                        continue
                if not fits(run.info):
                    continue
                if len(found) == limit:
                    last = self._runs[found[-1].run_id]
                    cursor = page_cursor(last.info.created, last.number)
                    break
                found.append(self._info(run))
        return Page(tuple(found), cursor)

    async def delete(self, run_id: str) -> bool:
        with self._writing():
            run = self._runs.pop(run_id, None)
            if run is None:
                return False
            self._rob(run)
            self._order.remove((-run.info.created, -run.number, run_id))
            self._forget_messages(run_id)
            return True

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
            return None if run is None else self._lease(run)

    async def take_lease(self, lease: Lease, *, ttl: float, replaces: str | None = None) -> bool:
        with self._writing():
            run = self._run(lease.run_id)
            if replaces == lease.token != run.token:
                return False
            if run.token is not None and run.token not in (lease.token, replaces):
                holder = self._holders.get(run.holder)
                if holder is not None and holder.expires > SYSTEM_CLOCK.steady():
                    return False
            self._hold(lease.holder, lease.owner, ttl)
            if run.token != lease.token:
                self._give(run, lease)
            return True

    def _give(self, run: _MemoryRun, lease: Lease) -> None:
        if run.token is not None and run.holder != lease.holder:
            self._rob(run)
            _die(run, DIED)
        run.token, run.holder, run.taken = lease.token, lease.holder, run.info.head

    async def beat(self, holder: str, ttl: float) -> bool:
        with self._writing():
            if ttl <= 0:
                return self._holders.pop(holder, None) is not None
            found, now = self._holders.get(holder), SYSTEM_CLOCK.steady()
            if found is None or found.expires <= now:
                return False
            robbed, found.robbed = found.robbed, False
            found.ttl, found.expires = ttl, now + ttl
            return not robbed

    async def drop_lease(self, run_id: str, token: str, *, fault: str | None = None) -> None:
        with self._writing():
            run = self._runs.get(run_id)
            if run is None or run.token != token:
                return
            if fault is None:
                _release(run)
            else:
                _die(run, fault)

    async def claim(
        self, owner: Owner, *, graphs: Collection[str] | None, limit: int, ttl: float
    ) -> list[tuple[RunInfo, Lease]]:
        with self._writing():
            present = {*self._present(), owner.executor}
            found = self._claimable(present, graphs)[: max(limit, 0)]
            if not found:
                return []
            for name, holder in self._holders.items():
                if name not in present:
                    holder.expires = 0.0
            self._hold(owner.executor, owner.data(), ttl)
            taken: list[tuple[RunInfo, Lease]] = []
            for run in found:
                if run.token is not None and run.holder != owner.executor:
                    self._rob(run)
                    _die(run, DIED)
                    if run.info.deaths >= MAX_DEATHS:
                        continue
                lease = Lease(run.info.run_id, os.urandom(16).hex(), owner.executor, owner.data(), ttl, ttl)
                held_here[lease.token] = owner.executor
                self._give(run, lease)
                taken.append((self._info(run), lease))
            return taken

    def _claimable(self, present: Collection[str], graphs: Collection[str] | None) -> list[_MemoryRun]:
        now = SYSTEM_CLOCK.now()
        messages: dict[str, int] = {}
        for message, (run_id, text) in self._messages.items():
            if not _is_notice(text):
                messages.setdefault(run_id, message)
        found: list[tuple[int, float, _MemoryRun]] = []
        for run in self._driven_by_none(present, graphs):
            info = run.info
            if info.retry_at is not None and info.retry_at > now:
                continue
            if info.run_id in messages:
                found.append((0, messages[info.run_id], run))
            elif info.due is not None and info.due <= now:
                found.append((1, info.due, run))
            elif info.status == "running" and info.due is None:
                found.append((2 if run.token is not None else 3, info.created, run))
        return [run for _, _, run in sorted(found, key=lambda one: one[:2])]

    def _driven_by_none(self, present: Collection[str], graphs: Collection[str] | None) -> list[_MemoryRun]:
        """Runs that have not ended and that none of these holders holds, without those that died too often."""
        return [
            run
            for run in self._runs.values()
            if run.info.status not in FINAL
            and run.info.deaths < MAX_DEATHS
            and (graphs is None or run.info.graph in graphs)
            and (run.token is None or run.holder not in present)
        ]

    async def next_due(self, graphs: Collection[str] | None) -> float | None:
        with self._lock:
            times: list[float] = []
            for run in self._driven_by_none(self._present(), graphs):
                retry_at, due = run.info.retry_at, run.info.due
                if run.info.status == "running" and retry_at is not None:
                    times.append(retry_at)
                elif due is not None:
                    times.append(due if retry_at is None else max(due, retry_at))
        return min(times, default=None)

    async def post(self, run_id: str, body: JsonObject, *, key: str | None = None) -> int:
        text = canonical(body)
        with self._writing():
            self._run(run_id)
            if key is not None and (run_id, key) in self._message_keys:
                return self._message_keys[run_id, key]
            message = next(self._message_ids)
            self._messages[message] = (run_id, text)
            if key is not None:
                self._message_keys[run_id, key] = message
            return message

    async def inbox(self, run_ids: Collection[str]) -> list[Message]:
        with self._lock:
            if not self._messages:
                return []
            wanted = frozenset(run_ids)
            found = [(key, to, text) for key, (to, text) in self._messages.items() if to in wanted]
        return [Message(key, to, json.loads(text)) for key, to, text in found]

    async def notices(self) -> list[Message]:
        with self._lock:
            found = [(key, to, text) for key, (to, text) in self._messages.items() if _is_notice(text)]
        return [Message(key, to, json.loads(text)) for key, to, text in found]

    async def discard(self, ids: Sequence[int]) -> None:
        with self._writing():
            for message in ids:
                self._forget_message(message)

    # ----------------------------------------------------------------------------- schedules

    async def put_schedule(self, schedule: Schedule) -> None:
        with self._writing():
            self._schedules[schedule.name] = schedule

    async def schedules(self) -> list[Schedule]:
        with self._lock:
            return [self._schedules[name] for name in sorted(self._schedules)]

    async def move_schedule(self, name: str, *, at: float, to: float) -> bool:
        with self._writing():
            found = self._schedules.get(name)
            if found is None or found.next_at != at:
                return False
            self._schedules[name] = replace(found, next_at=to)
            return True

    async def delete_schedule(self, name: str) -> bool:
        with self._writing():
            return self._schedules.pop(name, None) is not None

    async def compact(self) -> int:
        return 0

    async def check(self, *, repair: bool = False) -> list[Finding]:
        return []

    async def close(self) -> None:
        self._closed = True

    # ------------------------------------------------------------------------------- helpers

    def _run(self, run_id: str) -> _MemoryRun:
        run = self._runs.get(run_id)
        if run is None:
            raise RunUnknown(run_id)
        return run

    def _info(self, run: _MemoryRun) -> RunInfo:
        return replace(run.info, labels=dict(run.info.labels), lease=self._lease(run))

    def _lease(self, run: _MemoryRun) -> Lease | None:
        if run.token is None:
            return None
        holder = self._holders.get(run.holder)
        if holder is None:
            return Lease(run.info.run_id, run.token, run.holder)
        left = holder.expires - SYSTEM_CLOCK.steady()
        return Lease(run.info.run_id, run.token, run.holder, holder.owner, left, holder.ttl, holder.expires)

    def _hold(self, name: str, owner: JsonObject, ttl: float) -> None:
        """Note that a holder lives."""
        expires = SYSTEM_CLOCK.steady() + ttl
        known = self._holders.get(name)
        if known is None:
            self._holders[name] = _Holder(owner, ttl, expires)
        else:
            known.owner, known.ttl, known.expires = owner, ttl, expires

    def _rob(self, run: _MemoryRun) -> None:
        """Note that a run's lease is taken from its holder, if it has one."""
        if run.token is not None and run.holder in self._holders:
            self._holders[run.holder].robbed = True

    def _present(self) -> set[str]:
        """The holders that may be alive."""
        now = SYSTEM_CLOCK.steady()
        return {
            name
            for name, one in self._holders.items()
            if is_present(name, one.owner, one.expires - now, one.ttl, one.expires, now)
        }

    def _forget_messages(self, run_id: str, *, notices: bool = True) -> None:
        found = [(key, text) for key, (to, text) in self._messages.items() if to == run_id]
        for message, text in found:
            if notices or not _is_notice(text):
                self._forget_message(message)

    def _forget_message(self, message: int) -> None:
        self._messages.pop(message, None)
        if self._message_keys:
            self._message_keys = {key: known for key, known in self._message_keys.items() if known != message}

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise StoreError(f"store {self._url} is closed; open it again to write")
            yield


def _is_notice(text: str) -> bool:
    return NOTICE in text and json.loads(text).get("type") == NOTICE


def _release(run: _MemoryRun) -> None:
    run.token = None
    run.info = replace(run.info, deaths=0, retry_at=None, fault="")


def _die(run: _MemoryRun, fault: str) -> None:
    """Note that a drive died, or was given up; its lease is gone."""
    landed = any(data.endswith(STEP_LANDED) for data in run.records[run.taken :])
    deaths = 1 if landed else run.info.deaths + 1
    run.token = None
    run.info = replace(run.info, deaths=deaths, retry_at=SYSTEM_CLOCK.now() + retry_delay(deaths), fault=fault)
