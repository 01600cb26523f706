"""The store for tests, notebooks and runs that need not outlive the process.

It keeps records as the bytes that a file would hold and parses them again on each read, so that nothing works in memory
that would not work on disk, and no caller can change the journal of another.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from operator import gt, lt
from threading import RLock
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.errors import Archived, RunArchived, RunConflict, RunExists, RunUnknown
from orchestrator.json import PIECE, JsonObject, canonical, json_text
from orchestrator.kernel.records import Record, encode
from orchestrator.kernel.status import FINAL
from orchestrator.stores.base import Finding, Schedule, Store
from orchestrator.stores.fair_claims import Selection, Turns, take_turns
from orchestrator.stores.items import (
    AREAS,
    Area,
    FoundItem,
    Item,
    ItemUsage,
    ItemWrite,
    Namespace,
    check_room,
    namespace_of,
    namespace_text,
    nearest_of,
    prefix_range,
    ranked,
)
from orchestrator.stores.owner import Owner, held_here, is_present
from orchestrator.stores.requests import (
    Append,
    ClaimRequest,
    Comparison,
    NewRun,
    QuestionQuery,
    RunQuery,
    StatsQuery,
    contains,
)
from orchestrator.stores.rows import (
    MAX_DEATHS,
    NOTICE,
    Holder,
    Lease,
    Message,
    Note,
    OpenQuestion,
    Page,
    QuestionPage,
    RunInfo,
    RunTotals,
    WaitingQuestion,
    in_time,
)
from orchestrator.stores.shared import (
    DIED,
    STEP_LANDED,
    UNLISTED,
    SortKey,
    check_append,
    check_key,
    check_new,
    check_postable,
    copy_run,
    graph_unknown,
    is_released,
    moved,
    notes_full,
    out_of_reach,
    page_cursor,
    parse_cursor,
    parse_question_cursor,
    parse_sorted_cursor,
    question_cursor,
    read_record,
    retry_delay,
    sorted_cursor,
    store_closed,
    taken_over,
    too_large,
)
from orchestrator.stores.statistics import By, Groups, StatsRow, failed_in, used_in
from orchestrator.values import MAX_RECORD_BYTES

if TYPE_CHECKING:
    from orchestrator.kernel.records import Record


__all__ = ["MemoryStore"]


@dataclass(slots=True)
class MemoryRun:
    """A run: its row, its records, and its lease."""

    info: RunInfo
    number: int
    records: list[bytes]
    snapshots: dict[int, bytes] = field(default_factory=dict)
    totals: RunTotals | None = None
    questions: tuple[OpenQuestion, ...] = ()
    """Open questions, oldest first."""
    token: str | None = None
    holder: str = ""
    taken: int = 0
    """Head of the run when the lease was taken."""
    archived: Archived | None = None
    notes: dict[str, Note] = field(default_factory=dict)
    """By id."""

    def release(self) -> None:
        """Record that the run's drive released its lease."""
        self.token, info = None, self.info
        if info.deaths or info.retry_at is not None or info.fault:
            self.info = info.changed(deaths=0, retry_at=None, fault="")

    def die(self, fault: str) -> None:
        """Record that the run's drive died, or was given up. The lease is removed."""
        landed = any(data.endswith(STEP_LANDED) for data in self.records[self.taken :])
        deaths = 1 if landed else self.info.deaths + 1
        retry_at = SYSTEM_CLOCK.now() + retry_delay(deaths)
        self.token, self.info = None, self.info.changed(deaths=deaths, retry_at=retry_at, fault=fault)


@dataclass(slots=True)
class _Holder:
    """An executor that holds leases."""

    owner: JsonObject
    ttl: float
    expires: float
    """Expiry of its leases, by the steady clock."""
    robbed: bool = False
    """True if a lease was taken from it since its last beat."""


class Holders:
    """The executors that hold leases, by id. The store's lock is held during each call."""

    def __init__(self) -> None:
        self._holders: dict[str, _Holder] = {}

    def lease(self, run: MemoryRun) -> Lease | None:
        """Return the run's current lease; None if no executor holds one."""
        if run.token is None:
            return None
        holder = self._holders.get(run.holder)
        if holder is None:
            return Lease(run.info.run_id, run.token, run.holder)
        left = holder.expires - SYSTEM_CLOCK.steady()
        return Lease(run.info.run_id, run.token, run.holder, holder.owner, left, holder.ttl, holder.expires)

    def listed(self, runs: Iterable[MemoryRun], most: int) -> list[Holder]:
        """Return the holders by id, with up to `most` of the runs that each of them has."""
        held: dict[str, list[str]] = {}
        for run in runs:
            if run.token is not None:
                held.setdefault(run.holder, []).append(run.info.run_id)
        now = SYSTEM_CLOCK.steady()
        found: list[Holder] = []
        for name in sorted(self._holders):
            one, ids = self._holders[name], held.get(name, [])
            found.append(Holder(name, one.owner, one.expires - now, one.ttl, len(ids), tuple(ids[: max(most, 0)])))
        return found

    def hold(self, name: str, owner: JsonObject, ttl: float) -> None:
        """Record that a holder is alive."""
        expires = SYSTEM_CLOCK.steady() + ttl
        known = self._holders.get(name)
        if known is None:
            self._holders[name] = _Holder(owner, ttl, expires)
        else:
            known.owner, known.ttl, known.expires = owner, ttl, expires

    def beat(self, name: str, ttl: float) -> bool:
        """Extend the leases of a holder, or end them with a `ttl` of 0; see `Store.beat`."""
        if ttl <= 0:
            return self._holders.pop(name, None) is not None
        found, now = self._holders.get(name), SYSTEM_CLOCK.steady()
        if found is None or found.expires <= now:
            return False
        robbed, found.robbed = found.robbed, False
        found.ttl, found.expires = ttl, now + ttl
        return not robbed

    def give(self, run: MemoryRun, lease: Lease) -> None:
        """Give a run to the holder of a lease, and take it from its previous holder."""
        if run.token is not None and run.holder != lease.holder:
            self.rob(run)
            run.die(DIED)
        run.token, run.holder, run.taken = lease.token, lease.holder, run.info.head

    def rob(self, run: MemoryRun) -> None:
        """Record that a run's lease is taken from its holder, if it has one."""
        if run.token is not None and run.holder in self._holders:
            self._holders[run.holder].robbed = True

    def is_current(self, name: str) -> bool:
        """Return True if the leases of a holder have not expired."""
        holder = self._holders.get(name)
        return holder is not None and holder.expires > SYSTEM_CLOCK.steady()

    def present(self) -> set[str]:
        """Return the ids of the holders that may be alive."""
        now = SYSTEM_CLOCK.steady()
        return {
            name
            for name, one in self._holders.items()
            if is_present(name, one.owner, one.expires - now, one.ttl, one.expires, now)
        }

    def expire_except(self, present: set[str]) -> None:
        """Expire the leases of all other holders."""
        now = SYSTEM_CLOCK.steady()
        for name, holder in self._holders.items():
            if name not in present:
                holder.expires = min(holder.expires, now)


def idle_runs(runs: Iterable[MemoryRun], present: Collection[str], graphs: Collection[str] | None) -> list[MemoryRun]:
    """Return runs that have not ended, are held by none of the present holders, and did not die too often."""
    return [
        run
        for run in runs
        if run.info.status not in FINAL
        and run.info.deaths < MAX_DEATHS
        and (graphs is None or run.info.graph in graphs)
        and (run.token is None or run.holder not in present)
    ]


def claimable(idle: Iterable[MemoryRun], inbox: Inbox) -> list[MemoryRun]:
    """Return the runs with something to do now: a message, a due time, or a drive that has to be started again."""
    now = SYSTEM_CLOCK.now()
    messages = inbox.first()
    found: list[tuple[int, float, MemoryRun]] = []
    for run in idle:
        info = run.info
        if info.retry_at is not None and info.retry_at > now:
            continue
        if info.run_id in messages:
            found.append((0, messages[info.run_id], run))
        elif info.due is not None and info.due <= now:
            found.append((1 if info.due > info.created or info.status == "paused" else 4, info.due, run))
        elif info.status == "running" and info.due is None:
            since = info.created if run.token is not None or info.retry_at is None else info.retry_at
            found.append((2 if run.token is not None else 3, since, run))
    return [run for _, _, run in sorted(found, key=lambda one: one[:2])]


def selected(
    ready: Iterable[MemoryRun], limit: int, most: Mapping[str, int] | None, turns: Turns | None
) -> list[MemoryRun]:
    """Return the runs that a claim takes; see `Store.claim`."""
    found = Selection[MemoryRun](limit, most)

    def add(run: MemoryRun) -> bool:
        return found.add(run.number, run.info.graph, run)

    if turns is None:
        for run in ready:
            if found.full:
                break
            add(run)
    else:
        take_turns(turns, ((turns.value_of(run.info.labels), run) for run in ready), add, lambda: found.full)
    return found.rows


def parked(runs: Iterable[MemoryRun]) -> list[MemoryRun]:
    """Return runs that are no longer given out, the longest parked first; see `Store.parked`."""
    found = [
        (run.info.retry_at, run)
        for run in runs
        if run.info.status not in FINAL and run.info.deaths >= MAX_DEATHS and run.info.retry_at is not None
    ]
    return [run for _, run in sorted(found, key=lambda one: one[0])]


def unsettled(runs: Iterable[MemoryRun], inbox: Inbox, graphs: Collection[str] | None) -> list[MemoryRun]:
    """Return runs that may have something to do, oldest first; see `Store.unsettled`."""
    messages = inbox.first()
    found = [
        run
        for run in runs
        if run.info.status not in FINAL
        and (graphs is None or run.info.graph in graphs)
        and (run.info.status == "running" or run.info.due is not None or run.info.run_id in messages)
    ]
    return sorted(found, key=lambda run: run.info.created)


def next_due(idle: Iterable[MemoryRun]) -> float | None:
    """Return the first time at which one of the runs has something to do; None if it is unknown."""
    times: list[float] = []
    for run in idle:
        retry_at, due = run.info.retry_at, run.info.due
        if run.info.status == "running" and retry_at is not None:
            times.append(retry_at)
        elif due is not None:
            times.append(due if retry_at is None else max(due, retry_at))
    return min(times, default=None)


class Inbox:
    """The messages of all runs, in order of arrival. The store's lock is held during each call."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._messages: dict[int, tuple[str, str]] = {}
        """Id -> run, and the body as JSON."""
        self._keys: dict[tuple[str, str], int] = {}
        """Run and key of a message -> id of the message."""
        self._keyed: dict[int, tuple[str, str]] = {}
        """Id of a message with a key -> its run and key."""
        self.sizes: dict[str, int] = {}
        """Run -> total characters of its messages."""

    def post(self, run_id: str, text: str, key: str | None) -> int:
        """Add a message, once for each key of a run; return its id."""
        if key is not None and (run_id, key) in self._keys:
            return self._keys[run_id, key]
        message = next(self._ids)
        self._messages[message] = (run_id, text)
        self.sizes[run_id] = self.sizes.get(run_id, 0) + len(text)
        if key is not None:
            self._keys[run_id, key] = message
            self._keyed[message] = (run_id, key)
        return message

    def messages(self, run_ids: Collection[str]) -> list[Message]:
        """Return the messages of some runs."""
        if not self._messages:
            return []
        wanted = frozenset(run_ids)
        return [Message(key, to, json.loads(text)) for key, (to, text) in self._messages.items() if to in wanted]

    def notices(self) -> list[Message]:
        """Return the notices of all runs."""
        return [Message(key, to, json.loads(text)) for key, (to, text) in self._messages.items() if _is_notice(text)]

    def first(self) -> dict[str, int]:
        """Return run -> id of its oldest message that is not a notice."""
        found: dict[str, int] = {}
        for message, (run_id, text) in self._messages.items():
            if not _is_notice(text):
                found.setdefault(run_id, message)
        return found

    def consume(self, run_id: str, message: int) -> None:
        """Delete a message of a run; one of another run stays."""
        if self._messages.get(message, ("", ""))[0] == run_id:
            self.forget(message)

    def forget(self, message: int) -> None:
        """Delete a message."""
        run_id, text = self._messages.pop(message, ("", ""))
        left = self.sizes.get(run_id, 0) - len(text)
        if left > 0:
            self.sizes[run_id] = left
        else:
            self.sizes.pop(run_id, None)
        key = self._keyed.pop(message, None)
        if key is not None:
            del self._keys[key]

    def forget_run(self, run_id: str, *, notices: bool = True) -> None:
        """Delete the messages of a run, with or without its notices."""
        found = [(key, text) for key, (to, text) in self._messages.items() if to == run_id]
        for message, text in found:
            if notices or not _is_notice(text):
                self.forget(message)


def _is_notice(text: str) -> bool:
    return NOTICE in text and json.loads(text).get("type") == NOTICE


_Place: TypeAlias = tuple[str, str]


class MemoryItems:
    """The part of `MemoryStore` that keeps items."""

    _lock: RLock

    def __init__(self) -> None:
        self._areas: dict[Area, dict[_Place, Item]] = {area: {} for area in AREAS}
        self._first_end: dict[Area, float] = dict.fromkeys(AREAS, math.inf)
        """Area -> time before which no item of it expires."""
        self._item_writes: dict[str, dict[str, bool]] = {}
        """Id of each run -> key of each call that wrote, and whether there was an item before."""

    def _writing(self) -> AbstractContextManager[None]:
        raise NotImplementedError

    def _has_run(self, run_id: str) -> bool:
        raise NotImplementedError

    async def put_item(
        self,
        area: Area,
        item: Item,
        *,
        lifetime: float | None = None,
        write: ItemWrite | None = None,
        most: int | None = None,
        evict: bool = False,
    ) -> None:
        with self._writing():
            if self._written(write) is not None:
                return
            now, there, place = SYSTEM_CLOCK.now(), self._areas[area], item.place
            others: dict[_Place, Item] = {}
            if most is not None:
                others = {key: one for key, one in there.items() if key != place and not _is_over(one, now)}
                used = sum(one.size for one in others.values())
                check_room(item, used, most, evict=evict)
                for oldest in sorted(others, key=lambda key: (others[key].updated, key)):
                    if used + item.size <= most:
                        break
                    used -= there.pop(oldest).size
            self._remove_expired(area, now)
            expires = None if lifetime is None else now + lifetime
            known = there.get(place)
            there[place] = replace(item, created=now if known is None else known.created, updated=now, expires=expires)
            if expires is not None:
                self._first_end[area] = min(self._first_end[area], expires)
            self._remember(write, known is not None)

    async def item(self, area: Area, namespace: Namespace, key: str) -> Item | None:
        with self._lock:
            found = self._areas[area].get((namespace_text(namespace), key))
            return None if found is None or _is_over(found, SYSTEM_CLOCK.now()) else found

    async def delete_item(self, area: Area, namespace: Namespace, key: str, *, write: ItemWrite | None = None) -> bool:
        with self._writing():
            before = self._written(write)
            if before is not None:
                return before
            found = self._areas[area].pop((namespace_text(namespace), key), None)
            there = found is not None and not _is_over(found, SYSTEM_CLOCK.now())
            self._remember(write, there)
            return there

    async def items(
        self, area: Area, prefix: Namespace = (), *, after: tuple[str, str] | None = None, limit: int = 100
    ) -> list[Item]:
        found = [item for item in self._in(area, prefix) if after is None or item.place > after]
        return found[: max(limit, 0)]

    async def item_namespaces(self, area: Area, prefix: Namespace = ()) -> list[Namespace]:
        return [namespace_of(text) for text in dict.fromkeys(item.place[0] for item in self._in(area, prefix))]

    async def search_items(self, area: Area, prefix: Namespace, text: str, *, limit: int) -> list[FoundItem]:
        return ranked(self._in(area, prefix), text, limit)

    async def nearest_items(self, area: Area, prefix: Namespace, vector: bytes, *, limit: int) -> list[FoundItem]:
        return nearest_of(self._in(area, prefix), vector, limit)

    async def prune_items(self, area: Area, prefix: Namespace = (), *, older_than: float | None = None) -> int:
        low, high = prefix_range(prefix)
        with self._writing():
            now, there = SYSTEM_CLOCK.now(), self._areas[area]
            old = [
                place
                for place, item in there.items()
                if low <= place[0] < high
                and (_is_over(item, now) or (older_than is not None and item.updated <= now - older_than))
            ]
            for place in old:
                del there[place]
            return len(old)

    async def item_usage(self, area: Area) -> ItemUsage:
        with self._lock:
            now, items = SYSTEM_CLOCK.now(), [*self._areas[area].values()]
        return ItemUsage(len(items), sum(one.size for one in items), sum(_is_over(one, now) for one in items))

    async def add_item(self, area: Area, item: Item) -> bool:
        with self._writing():
            self._remove_expired(area, SYSTEM_CLOCK.now())
            if item.place in self._areas[area]:
                return False
            self._areas[area][item.place] = item
            if item.expires is not None:
                self._first_end[area] = min(self._first_end[area], item.expires)
            return True

    # ------------------------------------------------------------------------------- helpers

    def _in(self, area: Area, prefix: Namespace) -> list[Item]:
        """Return the items whose namespaces begin with a prefix, in order."""
        low, high = prefix_range(prefix)
        with self._lock:
            there, now = self._areas[area], SYSTEM_CLOCK.now()
            found = [place for place, item in there.items() if low <= place[0] < high and not _is_over(item, now)]
            return [there[place] for place in sorted(found)]

    def _remove_expired(self, area: Area, now: float) -> None:
        if self._first_end[area] <= now:
            there = self._areas[area]
            for place in [place for place, one in there.items() if _is_over(one, now)]:
                del there[place]
            ends = (one.expires for one in there.values() if one.expires is not None)
            self._first_end[area] = min(ends, default=math.inf)

    def _written(self, write: ItemWrite | None) -> bool | None:
        """Return the result of an earlier write by the same call; None if there was none."""
        if write is None:
            return None
        if not self._has_run(write.run_id):
            raise RunUnknown(write.run_id)
        return self._item_writes.get(write.run_id, {}).get(write.key)

    def _remember(self, write: ItemWrite | None, there: bool) -> None:
        if write is not None:
            self._item_writes.setdefault(write.run_id, {})[write.key] = there


def _is_over(item: Item, now: float) -> bool:
    return item.expires is not None and item.expires <= now


class MemoryStore(MemoryItems):
    """A store in memory, lost when the process ends. Safe to use from several threads and event loops.

    No method waits for anything, so none of them is a point where a task can be cancelled.
    """

    def __init__(self, url: str = "memory://") -> None:
        super().__init__()
        self._url = url
        self._lock = RLock()
        self._numbers = itertools.count(1)
        self._runs: dict[str, MemoryRun] = {}
        self._order: list[tuple[float, int, str]] = []
        """(-created, -number, run id): ascending is newest first."""
        self._graphs: dict[str, str] = {}
        self._schedules: dict[str, Schedule] = {}
        self._inbox = Inbox()
        self._holders = Holders()
        self._objects: dict[str, tuple[str, Archived]] = {}
        """Name of an object in an archive -> id of the run, and the object."""
        self._gone: set[str] = set()
        """Names of the objects of deleted runs."""
        self._closed = False

    @property
    def url(self) -> str:
        return self._url

    # ------------------------------------------------------------------------------- journal

    async def create(self, new: NewRun) -> None:
        check_new(new)
        info, lease, graph = new.info, new.lease, new.graph
        encoded = _encoded(info.run_id, new.records)
        with self._writing():
            known = self._runs.get(info.run_id)
            if known is not None:
                if lease is not None and known.token == lease.token and known.records[: len(encoded)] == encoded:
                    return  # repeated call
                raise RunExists(info.run_id)
            if graph is not None and info.content not in self._graphs:
                self._graphs[info.content] = json_text(graph)
            row = info.changed(labels=dict(info.labels)) if info.labels else info
            run = MemoryRun(row, next(self._numbers), encoded)
            run.totals, run.questions = info.totals, in_order(info.questions or ())
            run.notes = {note.id: note for note in new.notes}
            if lease is not None:
                run.token, run.holder = lease.token, lease.holder
                self._holders.hold(lease.holder, lease.owner, new.ttl)
            self._runs[info.run_id] = run
            insort(self._order, (-info.created, -run.number, info.run_id))

    async def append(self, append: Append) -> int:
        check_append(append)
        run_id, after, status, lease, release = (
            append.run_id,
            append.after,
            append.status,
            append.lease,
            append.release,
        )
        encoded = _encoded(run_id, append.records)
        with self._writing():
            run = self._run(run_id)
            self._check_here(run)
            info = run.info
            if info.head != after:
                ours = lease is not None and (run.token == lease or (release and run.token is None))
                if ours and encoded and run.records[after:] == encoded:
                    return info.head  # repeated call
                raise moved(run_id, info.head, after)
            if lease is not None and run.token != lease:
                stands = is_released(info.head, info.status, info.due, info.waiting, append)
                if release and not encoded and run.token is None and stands:
                    return after  # repeated call
                raise taken_over(run_id)
            run.records.extend(encoded)
            run.info = info.changed(
                head=append.head,
                updated=append.records[-1].ts if append.records else info.updated,
                status=info.status if status is None else status,
                due=info.due if status is None and append.due is None else append.due,
                waiting=info.waiting if append.waiting is None else append.waiting,
                **({} if append.summary is None else append.summary.facts()),
            )
            if append.totals is not None:
                run.totals = append.totals
            if append.questions is not None:
                run.questions = in_order(append.questions)
            if append.snapshot is not None:
                run.snapshots[append.head] = bytes(append.snapshot)
            for message in append.consumed:
                self._inbox.consume(run_id, message)
            if release:
                run.release()
                if status in FINAL:
                    self._inbox.forget_run(run_id, notices=False)
            return append.head

    async def read(
        self, run_id: str, *, after: int = 0, upto: int | None = None, limit: int | None = None
    ) -> list[Record]:
        if limit is not None:
            upto = after + limit if upto is None else min(upto, after + limit)
        stored = self._stored(run_id, after, upto)
        if sum(map(len, stored)) <= PIECE:
            return _read(run_id, after, stored)
        from orchestrator.tasks import away

        return await away(lambda: _read(run_id, after, stored))

    def read_now(self, run_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        return _read(run_id, after, self._stored(run_id, after, upto))

    def _stored(self, run_id: str, after: int, upto: int | None) -> list[bytes]:
        with self._lock:
            run = self._run(run_id)
            self._check_here(run)
            return run.records[max(after, 0) : None if upto is None else max(upto, 0)]

    # ---------------------------------------------------------------------------------- runs

    async def info(self, run_id: str) -> RunInfo:
        with self._lock:
            return self._info(self._run(run_id))

    async def heads(self, run_ids: Collection[str]) -> dict[str, tuple[int, str]]:
        with self._lock:
            found = {run_id: self._runs[run_id].info for run_id in run_ids if run_id in self._runs}
        return {run_id: (info.head, info.status) for run_id, info in found.items()}

    async def runs(self, query: RunQuery) -> Page:
        query.check_sort()
        with self._lock:
            if query.sort == "started" and not query.ascending:
                return self._newest(query)
            return self._sorted(query)

    def _newest(self, query: RunQuery) -> Page:
        """Return a page of the runs, the newest first."""
        limit, start, fits = max(query.limit, 1), 0, self._filter(query)
        if query.after is not None:
            created, number = parse_cursor(query.after)
            start = bisect_right(self._order, (-created, -number, "\U0010ffff"))
        runs = (self._runs[self._order[index][2]] for index in range(start, len(self._order)))
        found = [*itertools.islice(filter(fits, runs), limit + 1)]
        last = found[limit - 1] if len(found) > limit else None
        cursor = None if last is None else page_cursor(last.info.created, last.number)
        return Page(tuple(map(self._info, found[:limit])), cursor)

    def _sorted(self, query: RunQuery) -> Page:
        """Return a page of the runs in another order: sorting keeps the newest of equal ones first."""
        limit, sort, key_of = max(query.limit, 1), query.sort, _SORTED[query.sort]
        found = [*filter(self._filter(query), (self._runs[run_id] for *_, run_id in self._order))]
        if sort == "started":
            place = None if query.after is None else parse_cursor(query.after)
            found = [run for run in reversed(found) if place is None or (run.info.created, run.number) > place]
        else:
            if query.after is not None:
                value, *behind = parse_sorted_cursor(sort, query.after)
                before = gt if query.ascending else lt
                found = [
                    run
                    for run in found
                    if before(key_of(run.info), value)
                    or (key_of(run.info) == value and [run.info.created, run.number] < behind)
                ]
            found.sort(key=lambda run: key_of(run.info), reverse=not query.ascending)
        cursor = None
        if len(found) > limit:
            info, number = found[limit - 1].info, found[limit - 1].number
            created = info.created
            cursor = (
                page_cursor(created, number)
                if sort == "started"
                else sorted_cursor(sort, key_of(info), created, number)
            )
        return Page(tuple(map(self._info, found[:limit])), cursor)

    def _filter(self, query: RunQuery) -> Callable[[MemoryRun], bool]:
        """Return a function that tells whether a run matches a query."""
        statuses, compared, wanted = query.statuses, query.comparisons(), query.words
        present = self._holders.present() if statuses and "interrupted" in statuses else set()

        def fits(run: MemoryRun) -> bool:
            if statuses is not None and run.info.status not in statuses:
                free = run.token is None or run.holder not in present
                if not (run.info.status == "running" and "interrupted" in statuses and free):
                    return False
            return _fits(run, query, compared, wanted)

        return fits

    def cursor_before(self, created: float) -> str:
        """See `Placing`."""
        return page_cursor(created, 0)

    async def totals(self, run_id: str) -> RunTotals | None:
        with self._lock:
            return self._run(run_id).totals

    async def stats(self, query: StatsQuery) -> list[StatsRow]:
        groups = Groups(By.of(query.by))
        with self._lock:
            for run in self._runs.values():
                info = run.info
                if (
                    (query.since is None or info.created >= query.since)
                    and (query.until is None or info.created < query.until)
                    and (query.graph is None or info.graph == query.graph)
                    and all(info.labels.get(name) == value for name, value in query.labels.items())
                ):
                    groups.add_run(info, run.totals)
        return groups.rows()

    async def open_questions(self, run_id: str) -> tuple[OpenQuestion, ...] | None:
        with self._lock:
            run = self._run(run_id)
            return None if run.info.waiting > len(run.questions) else run.questions

    async def questions(self, query: QuestionQuery) -> QuestionPage:
        with self._lock:
            runs = [
                run
                for run in self._runs.values()
                if (run.info.waiting or run.questions)
                and (query.graph is None or run.info.graph == query.graph)
                and all(run.info.labels.get(name) == value for name, value in query.labels.items())
            ]
            return page_of(runs, query.kinds, query.after, query.limit)

    async def delete(self, run_id: str) -> bool:
        with self._writing():
            run = self._runs.pop(run_id, None)
            if run is None:
                return False
            self._holders.rob(run)
            self._order.remove((-run.info.created, -run.number, run_id))
            self._inbox.forget_run(run_id)
            self._item_writes.pop(run_id, None)
            self._leave_objects(run_id)
            return True

    async def copy(self, run_id: str, to: Store) -> None:
        await copy_run(self, run_id, to)

    # -------------------------------------------------------------------- graphs and snapshots

    async def put_graph(self, digest: str, data: JsonObject) -> None:
        text = json_text(data)
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
            run = self._run(run_id)
            if run.archived is None:  # snapshots of archived runs are not stored
                run.snapshots[seq] = bytes(data)

    async def snapshot(self, run_id: str, *, upto: int | None = None) -> tuple[int, bytes] | None:
        with self._lock:
            run = self._runs.get(run_id)
            seqs = [seq for seq in run.snapshots if upto is None or seq <= upto] if run else []
            return (max(seqs), run.snapshots[max(seqs)]) if run and seqs else None

    # -------------------------------------------------------------------- leases and messages

    async def lease(self, run_id: str) -> Lease | None:
        with self._lock:
            run = self._runs.get(run_id)
            return None if run is None else self._holders.lease(run)

    async def take_lease(self, lease: Lease, *, ttl: float, replaces: str | None = None) -> bool:
        with self._writing():
            run = self._run(lease.run_id)
            if replaces == lease.token != run.token:
                return False
            free = run.token in (None, lease.token, replaces)
            if not free and self._holders.is_current(run.holder):
                return False
            self._holders.hold(lease.holder, lease.owner, ttl)
            if run.token != lease.token:
                self._holders.give(run, lease)
            return True

    async def beat(self, holder: str, ttl: float) -> bool:
        with self._writing():
            return self._holders.beat(holder, ttl)

    async def announce(self, owner: Owner, *, ttl: float) -> None:
        with self._writing():
            self._holders.hold(owner.executor, owner.data(), ttl)

    async def holders(self, *, runs: int = 20) -> list[Holder]:
        with self._lock:
            return self._holders.listed(self._runs.values(), runs)

    async def drop_lease(self, run_id: str, token: str, *, fault: str | None = None) -> None:
        with self._writing():
            run = self._runs.get(run_id)
            if run is None or run.token != token:
                return
            if fault is None:
                run.release()
            else:
                run.die(fault)

    async def claim(self, request: ClaimRequest) -> list[tuple[RunInfo, Lease]]:
        owner, ttl = request.owner, request.ttl
        with self._writing():
            present = {*self._holders.present(), owner.executor}
            ready = claimable(idle_runs(self._runs.values(), present, request.graphs), self._inbox)
            found = selected(ready, request.limit, request.most, request.turns)
            if not found:
                return []
            self._holders.expire_except(present)
            self._holders.hold(owner.executor, owner.data(), ttl)
            taken: list[tuple[RunInfo, Lease]] = []
            for run in found:
                if run.token is not None and run.holder != owner.executor:
                    self._holders.rob(run)
                    run.die(DIED)
                    if run.info.deaths >= MAX_DEATHS:
                        continue
                lease = Lease(run.info.run_id, os.urandom(16).hex(), owner.executor, owner.data(), ttl, ttl)
                held_here[lease.token] = owner.executor
                self._holders.give(run, lease)
                taken.append((self._info(run), lease))
            return taken

    async def parked(self, *, limit: int = 100) -> list[RunInfo]:
        with self._lock:
            return [self._info(run) for run in parked(self._runs.values())[: max(limit, 0)]]

    async def unsettled(self, graphs: Collection[str] | None) -> list[RunInfo]:
        with self._lock:
            return [self._info(run) for run in unsettled(self._runs.values(), self._inbox, graphs)]

    async def next_due(self, graphs: Collection[str] | None) -> float | None:
        with self._lock:
            return next_due(idle_runs(self._runs.values(), self._holders.present(), graphs))

    async def post(self, run_id: str, body: JsonObject, *, key: str | None = None) -> int:
        text = canonical(body)
        check_key("the key of a message", key or "")
        with self._writing():
            check_postable(run_id, self._run(run_id).info.status, body.get("type") == NOTICE)
            return self._inbox.post(run_id, text, key)

    async def inbox(self, run_ids: Collection[str]) -> list[Message]:
        with self._lock:
            return self._inbox.messages(run_ids)

    async def notices(self) -> list[Message]:
        with self._lock:
            return self._inbox.notices()

    async def discard(self, ids: Sequence[int]) -> None:
        with self._writing():
            for message in ids:
                self._inbox.forget(message)

    # ----------------------------------------------------------------------------- schedules

    async def put_schedule(self, schedule: Schedule) -> None:
        check_key("the name of a schedule", schedule.name)
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

    # --------------------------------------------------------------------------------- notes

    async def add_note(self, note: Note, *, most: int) -> None:
        with self._writing():
            notes = self._run(note.run).notes
            if note.id not in notes:
                if len(notes) >= most:
                    raise notes_full(note.run, most)
                notes[note.id] = note

    async def notes(self, run_id: str) -> list[Note]:
        return self.notes_now(run_id)

    def notes_now(self, run_id: str) -> list[Note]:
        with self._lock:
            return in_time(self._run(run_id).notes.values())

    async def delete_note(self, run_id: str, note: str) -> bool:
        with self._writing():
            return self._run(run_id).notes.pop(note, None) is not None

    # ------------------------------------------------------------------------------- archive

    async def ended(self, *, before: float | None = None, after: str | None = None, limit: int = 500) -> Page:
        """See `Archivable`."""
        least = (-1e300, 0) if after is None else parse_cursor(after)
        with self._writing():
            ready = sorted(self._to_archive(before, least), key=lambda run: (run.info.created, run.number))
            found = ready[: max(limit, 1)]
            cursor = page_cursor(found[-1].info.created, found[-1].number) if len(ready) > len(found) else None
            return Page(tuple(self._info(run) for run in found), cursor)

    def _to_archive(self, before: float | None, least: tuple[float, int]) -> Iterator[MemoryRun]:
        for run in self._runs.values():
            old = before is None or run.info.updated < before
            behind = (run.info.created, run.number) > least
            if old and behind and run.archived is None and run.info.status in FINAL:
                yield run

    async def note_object(self, run_id: str, noted: Archived) -> Archived:
        """See `Archivable`."""
        with self._writing():
            self._run(run_id)
            for name, (owner, known) in self._objects.items():
                same = (owner, known.archive, known.sha256) == (run_id, noted.archive, noted.sha256)
                if same and name not in self._gone:
                    return known
            self._objects[noted.name] = run_id, noted
            return noted

    async def move_out(self, run_id: str, where: Archived, *, head: int) -> None:
        """See `Archivable`."""
        with self._writing():
            run = self._run(run_id)
            if run.archived == where:
                return
            held, elsewhere = run.token is not None, run.archived is not None
            why = out_of_reach(run.info.status, run.info.head, head, held=held, elsewhere=elsewhere)
            if why is None and (where.name in self._gone or self._objects.get(where.name, ("", where))[0] != run_id):
                why = "the object was not noted for this run"
            if why is not None:
                raise RunConflict(run_id, why)
            run.archived = where
            run.records.clear()
            run.snapshots.clear()

    async def move_back(self, run_id: str, records: Sequence[Record], where: Archived) -> None:
        """See `Archivable`."""
        encoded = _encoded(run_id, records)
        with self._writing():
            run = self._run(run_id)
            if run.archived is None:
                return
            if run.archived != where:
                raise RunConflict(run_id, "its records are in another object of the archive")
            run.archived, run.records = None, encoded

    async def objects(self, run_id: str) -> list[Archived]:
        """See `Archivable`."""
        with self._writing():
            return sorted((one for name, one in self._objects.values() if name == run_id), key=lambda one: one.at)

    async def left_objects(self) -> list[Archived]:
        """See `Archivable`."""
        with self._writing():
            return sorted((self._objects[name][1] for name in self._gone), key=lambda one: one.at)

    async def forget_objects(self, names: Collection[str]) -> None:
        """See `Archivable`."""
        with self._writing():
            for name in self._gone.intersection(names):
                self._gone.remove(name)
                del self._objects[name]

    def _leave_objects(self, run_id: str) -> None:
        """Record that a run with objects in an archive is deleted."""
        self._gone.update(name for name, (owner, _) in self._objects.items() if owner == run_id)

    def _check_here(self, run: MemoryRun) -> None:
        """Refuse access to records that are in an archive.

        Raises:
            RunArchived: the records are in an archive.
        """
        if run.archived is not None:
            raise RunArchived(run.info.run_id, run.archived)

    # --------------------------------------------------------------------------- maintenance

    async def compact(self) -> int:
        return 0

    async def check(self, *, repair: bool = False) -> list[Finding]:
        return []

    async def close(self) -> None:
        self._closed = True

    def reopen(self) -> None:
        """See `Reopening`."""
        self._closed = False

    # ------------------------------------------------------------------------------- helpers

    def _has_run(self, run_id: str) -> bool:
        return run_id in self._runs

    def _run(self, run_id: str) -> MemoryRun:
        run = self._runs.get(run_id)
        if run is None:
            raise RunUnknown(run_id)
        return run

    def _info(self, run: MemoryRun) -> RunInfo:
        lease = self._holders.lease(run)
        return run.info.changed(
            labels=dict(run.info.labels), lease=lease, totals=None, questions=None, archived=run.archived
        )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise store_closed(self._url)
            yield


def _encoded(run_id: str, records: Iterable[Record]) -> list[bytes]:
    """Return records as a file would hold them."""
    found: list[bytes] = []
    for record in records:
        data = encode(record)
        if len(data) > MAX_RECORD_BYTES:
            raise too_large(run_id, record, data)
        found.append(data)
    return found


def _read(run_id: str, after: int, stored: Sequence[bytes]) -> list[Record]:
    records: list[Record] = []
    for seq, data in enumerate(stored, max(after, 0) + 1):
        records.append(read_record(run_id, seq, data, records))
    return records


def _fits(run: MemoryRun, query: RunQuery, compared: Sequence[Comparison], wanted: Sequence[str] | None) -> bool:
    """Return True if a run matches all filters of a query except the status.

    Args:
        run: the run.
        query: the query.
        compared: its comparisons.
        wanted: the words of its search.
    """
    info = run.info
    return (
        all(info.labels.get(name) == value for name, value in query.labels.items())
        and all(one.fits(info) for one in compared)
        and (query.failed_tool is None or failed_in(run.totals, query.failed_tool))
        and (query.waiting is None or (info.waiting > 0) is query.waiting)
        and (query.diverged is None or info.diverged is query.diverged)
        and (query.replays or info.parent is None or info.parent.relation != "replay")
        and all(used_in(run.totals, kind, name) for kind, name in query.parts)
        and (wanted is None or contains(wanted, info.input, info.output, *info.labels, *info.labels.values()))
    )


_SORTED: dict[str, Callable[[RunInfo], SortKey]] = {
    "started": lambda info: info.created,
    "updated": lambda info: info.updated,
    "duration": lambda info: 0.0 if info.usage is None else info.usage.seconds,
    "cost": lambda info: 0.0 if info.usage is None else info.usage.cost,
    "status": lambda info: info.status,
    "graph": lambda info: info.graph,
}


def in_order(questions: Iterable[OpenQuestion]) -> tuple[OpenQuestion, ...]:
    """Return questions of one run, oldest first."""
    return tuple(sorted(questions, key=lambda one: (one.asked, one.id)))


def page_of(runs: Sequence[MemoryRun], kinds: Collection[str] | None, after: str | None, limit: int) -> QuestionPage:
    """See `Store.questions`."""
    limit = max(limit, 1)
    behind = None if after is None else parse_question_cursor(after)
    places = (
        ((one.asked, run.number, one.id), run, one)
        for run in runs
        for one in run.questions
        if kinds is None or one.kind in kinds
    )
    found = nsmallest(
        limit + 1, (one for one in places if behind is None or one[0] > behind), key=lambda found: found[0]
    )
    unlisted = sorted((run.info.created, run.number, run.info.run_id) for run in runs if not run.questions)
    return QuestionPage(
        tuple(WaitingQuestion(run.info.run_id, run.info.graph, run.info.labels, one) for _, run, one in found[:limit]),
        question_cursor(*found[limit - 1][0]) if len(found) > limit else None,
        tuple(run_id for _, _, run_id in unlisted[:UNLISTED]),
    )
