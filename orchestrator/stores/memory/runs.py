"""Runs in memory, their leases and messages, and the runs that a worker may take up."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.errors import Archived
from orchestrator.json import JsonObject
from orchestrator.kernel.status import FINAL
from orchestrator.stores.fair_claims import Selection, Turns, take_turns
from orchestrator.stores.owner import is_present
from orchestrator.stores.rows import MAX_DEATHS, NOTICE, Holder, Lease, Message, OpenQuestion, RunInfo, RunTotals
from orchestrator.stores.shared import DIED, STEP_LANDED, retry_delay


@dataclass(slots=True)
class MemoryRun:
    """A run: its row, its records, and its lease."""

    info: RunInfo
    number: int
    records: list[bytes]
    snapshots: dict[int, bytes] = field(default_factory=dict)
    totals: RunTotals | None = None
    questions: tuple[OpenQuestion, ...] = ()
    """The open ones, the oldest first."""
    token: str | None = None
    holder: str = ""
    taken: int = 0
    """The head when the lease was taken."""
    archived: Archived | None = None

    def release(self) -> None:
        """Note that its drive gave the lease back."""
        self.token, info = None, self.info
        if info.deaths or info.retry_at is not None or info.fault:
            self.info = info.changed(deaths=0, retry_at=None, fault="")

    def die(self, fault: str) -> None:
        """Note that its drive died, or was given up. The lease is gone."""
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
    """By the steady clock."""
    robbed: bool = False
    """True if a lease was taken from it since its last beat."""


class Holders:
    """The executors that hold leases, by id. The store's lock is held around each call."""

    def __init__(self) -> None:
        self._holders: dict[str, _Holder] = {}

    def lease(self, run: MemoryRun) -> Lease | None:
        """The run's lease as it stands now; None: no executor holds one."""
        if run.token is None:
            return None
        holder = self._holders.get(run.holder)
        if holder is None:
            return Lease(run.info.run_id, run.token, run.holder)
        left = holder.expires - SYSTEM_CLOCK.steady()
        return Lease(run.info.run_id, run.token, run.holder, holder.owner, left, holder.ttl, holder.expires)

    def listed(self, runs: Iterable[MemoryRun], most: int) -> list[Holder]:
        """The holders by id, with up to `most` of the runs that each of them has."""
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
        """Note that a holder is alive."""
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
        """Give a run to the holder of a lease, and take it from the holder that it has."""
        if run.token is not None and run.holder != lease.holder:
            self.rob(run)
            run.die(DIED)
        run.token, run.holder, run.taken = lease.token, lease.holder, run.info.head

    def rob(self, run: MemoryRun) -> None:
        """Note that a run's lease is taken from its holder, if it has one."""
        if run.token is not None and run.holder in self._holders:
            self._holders[run.holder].robbed = True

    def is_current(self, name: str) -> bool:
        """True if the leases of a holder have not expired."""
        holder = self._holders.get(name)
        return holder is not None and holder.expires > SYSTEM_CLOCK.steady()

    def present(self) -> set[str]:
        """The holders that may be alive."""
        now = SYSTEM_CLOCK.steady()
        return {
            name
            for name, one in self._holders.items()
            if is_present(name, one.owner, one.expires - now, one.ttl, one.expires, now)
        }

    def expire_except(self, present: set[str]) -> None:
        """Let the leases of all other holders expire."""
        now = SYSTEM_CLOCK.steady()
        for name, holder in self._holders.items():
            if name not in present:
                holder.expires = min(holder.expires, now)


def idle_runs(runs: Iterable[MemoryRun], present: Collection[str], graphs: Collection[str] | None) -> list[MemoryRun]:
    """Runs that have not ended and that none of the present holders holds, without those that died too often."""
    return [
        run
        for run in runs
        if run.info.status not in FINAL
        and run.info.deaths < MAX_DEATHS
        and (graphs is None or run.info.graph in graphs)
        and (run.token is None or run.holder not in present)
    ]


def claimable(idle: Iterable[MemoryRun], inbox: Inbox) -> list[MemoryRun]:
    """Those that have something to do now: a message, a time that is due, or a drive that has to be begun again."""
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
    """Those that a claim takes; see `Store.claim`."""
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
    """Runs that are not given out any more, the longest parked first; see `Store.parked`."""
    found = [
        (run.info.retry_at, run)
        for run in runs
        if run.info.status not in FINAL and run.info.deaths >= MAX_DEATHS and run.info.retry_at is not None
    ]
    return [run for _, run in sorted(found, key=lambda one: one[0])]


def unsettled(runs: Iterable[MemoryRun], inbox: Inbox, graphs: Collection[str] | None) -> list[MemoryRun]:
    """Runs that may have something to do, the oldest first; see `Store.unsettled`."""
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
    """The first time at which one of them has something to do; None: no time is known."""
    times: list[float] = []
    for run in idle:
        retry_at, due = run.info.retry_at, run.info.due
        if run.info.status == "running" and retry_at is not None:
            times.append(retry_at)
        elif due is not None:
            times.append(due if retry_at is None else max(due, retry_at))
    return min(times, default=None)


class Inbox:
    """The messages of all runs, in the order in which they came. The store's lock is held around each call."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._messages: dict[int, tuple[str, str]] = {}
        """Id -> run, and the body as JSON."""
        self._keys: dict[tuple[str, str], int] = {}
        """Run, and the key of a message for it -> its id."""
        self._keyed: dict[int, tuple[str, str]] = {}
        """Id of a message with a key -> its run and key."""
        self.sizes: dict[str, int] = {}
        """Run -> characters of its messages."""

    def post(self, run_id: str, text: str, key: str | None) -> int:
        """Add a message, once for each key of a run; returns its id."""
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
        """The messages of some runs."""
        if not self._messages:
            return []
        wanted = frozenset(run_ids)
        return [Message(key, to, json.loads(text)) for key, (to, text) in self._messages.items() if to in wanted]

    def notices(self) -> list[Message]:
        """The notices of all runs."""
        return [Message(key, to, json.loads(text)) for key, (to, text) in self._messages.items() if _is_notice(text)]

    def first(self) -> dict[str, int]:
        """Run -> the id of its oldest message that is no notice."""
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
