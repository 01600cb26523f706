"""Notices: messages in the inbox of a run that say that observers are still to be called about it, and who does so.

A process posts one before it drives a run, and deletes it when its observers were called about the last record of the
drive. If it is gone by then, another executor with observers replaces the notice by one of its own and calls them. Of
several that try, one does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from orchestrator.errors import RunUnknown
from orchestrator.executor.lease import is_held
from orchestrator.stores.base import Message, RunInfo, Store
from orchestrator.stores.owner import Owner, is_dead, is_here
from orchestrator.stores.rows import NOTICE

_open_here: set[str] = set()
"""The executors of this process that are open and have observers."""

_PATIENCE = 60.0
"""Seconds behind the last record of a run after which another process counts as gone that cannot be looked for, or that
has not called its observers."""

_AT_ONCE = 100
"""Runs whose notices are taken over at once."""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A run that has ended or waits, and whose observers this executor is to call."""

    info: RunInfo
    notice: int


class Notices:
    """The notices of one executor."""

    def __init__(self, store: Store, owner: Owner) -> None:
        self.others = False
        """Whether a run had ended or paused about which another process was still to call its observers, when
        `take_over` looked last."""
        self._store, self._owner = store, owner
        self._mine: set[int] = set()
        self._looks = False

    def open(self) -> None:
        """The executor was opened."""
        self._mine.clear()
        self._looks = self.others = False
        _open_here.add(self._owner.executor)

    def close(self) -> None:
        """The executor was closed: notices that are left are left to others."""
        _open_here.discard(self._owner.executor)

    async def post(self, run_id: str) -> list[int]:
        """Post a notice about a run that is to be driven; the ids of it and of those that it replaces."""
        left = [
            message.id
            for message in await self._store.inbox([run_id])
            if message.body.get("type") == NOTICE and (self._is_gone(message) or self._is_own(message))
        ]
        return [await self._posted(run_id, None), *left]

    async def discard(self, ids: Sequence[int]) -> None:
        """Delete notices: the observers were called."""
        self._mine.difference_update(ids)
        await self._store.discard(ids)

    async def take_over(self, graphs: Collection[str], now: float) -> list[TakenOver]:
        """Take over the notices of processes that are gone, about runs of these graphs that no executor drives.

        A run that was interrupted is left to the executor that takes it up.

        Args:
            graphs: names of graphs.
            now: Unix seconds.
        """
        if self._looks:
            return []
        self._looks = True
        try:
            found: dict[str, list[Message]] = {}
            for message in await self._store.notices():
                if message.id not in self._mine:
                    found.setdefault(message.run_id, []).append(message)
            heads = await self._store.heads(found) if found else {}
            still = [run_id for run_id in found if heads.get(run_id, (0, "running"))[1] != "running"]
            self.others = len(still) > _AT_ONCE
            taken = [await self._take(run_id, found[run_id], graphs, now) for run_id in still[:_AT_ONCE]]
            return [one for one in taken if one is not None]
        finally:
            self._looks = False

    async def _take(
        self, run_id: str, notices: Sequence[Message], graphs: Collection[str], now: float
    ) -> TakenOver | None:
        try:
            info = await self._store.info(run_id)
            if info.graph not in graphs or info.status == "running":
                return None
            held = is_held(info.lease)
            left = [one.id for one in notices if self._is_gone(one) or now - info.updated > _PATIENCE]
            self.others = self.others or held or len(left) < len(notices)
            if held:
                return None
            if not left:
                return None
            mine = await self._posted(run_id, f"notice {left[-1]}")
            there = {message.id: message for message in await self._store.inbox([run_id])}
        except RunUnknown:  # deleted meanwhile
            return None
        if mine not in there or not self._is_own(there[mine]):
            self._mine.discard(mine)
            return None  # another executor was quicker
        if left[-1] not in there:  # and has called its observers
            await self.discard([mine])
            return None
        await self._store.discard(left)
        return TakenOver(info, mine)

    async def _posted(self, run_id: str, key: str | None) -> int:
        notice = await self._store.post(run_id, {"type": NOTICE, "owner": self._owner.data()}, key=key)
        self._mine.add(notice)
        return notice

    def _is_own(self, message: Message) -> bool:
        owner = message.body.get("owner")
        return isinstance(owner, dict) and owner.get("executor") == self._owner.executor

    def _is_gone(self, message: Message) -> bool:
        """Whether the executor that posted a notice calls no observers any more, as far as this process can tell."""
        owner = message.body.get("owner")
        if not isinstance(owner, dict):
            return True  # of an earlier version
        if self._is_own(message):
            return message.id not in self._mine
        return owner.get("executor") not in _open_here if is_here(owner) else is_dead(owner)
