"""Shorter ways to a machine than folding its whole journal: snapshots in the store, machines that were just left.

Both are caches of a fold and never more: they count only where they stand at a position that the journal has, in a
graph of the same content, and the records behind them are folded as always.
"""

from __future__ import annotations

import logging
import zlib
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Protocol

from pydantic_core import from_json, to_json

from orchestrator.errors import StoreError
from orchestrator.graph.model import GraphDefinition
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.snapshot import dump, lineage_of, load
from orchestrator.stores.base import RunInfo, Store

log = logging.getLogger("orchestrator")

EVERY = 1000
"""Records after which a run that goes on may have a snapshot: to fold as many takes some hundredths of a second."""
FEW = 32
"""Records after which a run that pauses or ends may have one: to fold fewer takes no longer than to load it."""
BYTES = 64
"""Bytes of a snapshot for each record that it saves, beside a share of what the run's state has grown by."""
RECORDS = 2
"""Records that a snapshot has to save for each branch that it holds: to load one takes about as long as to fold one."""
SHARE = 3
SMALL = 64 * 1024
"""The share, and the most that it comes to. All snapshots of a run together stay a fraction of its journal, which
contains every byte that the state has grown by."""
DENSE = 32
"""Text that has to become so many times smaller to be kept is not compressed at all while the run goes on: it hardly
ever would. Where the run pauses or ends, its whole journal counts for that, not only what a snapshot would save."""
_PART = 1 << 18
"""Bytes of text that are compressed before it is looked whether there is still room."""
MOST = 1 << 28
"""Bytes of text that no snapshot has more of. What has more than its place allows is damaged or forged."""
RECENT = 32
"""Most machines of waiting runs that are kept in memory."""


class Versions(Protocol):
    """The graphs of a run."""

    async def of(self, info: RunInfo, structure: str, content: str) -> GraphDefinition:
        """The graph that the run had, with these digests: with code, if the executor has it."""
        ...


class Snapshots:
    """The shorter ways of one executor."""

    def __init__(self, store: Store, *, believed: bool = True) -> None:
        self._store, self._believed = store, believed
        self._recent: OrderedDict[str, Checkpoint] = OrderedDict()

    def remember(self, machine: RunState, kept: Kept) -> None:
        """Keep the machine of a run that is left and not over; nobody changes it any more."""
        self._recent.pop(machine.run_id, None)
        if machine.ended is None:
            self._recent[machine.run_id] = Checkpoint(machine, kept)
            if len(self._recent) > RECENT:
                self._recent.popitem(last=False)

    async def nearest(
        self, info: RunInfo, graph: GraphDefinition, versions: Versions, upto: int | None = None
    ) -> Checkpoint:
        """The machine of the run nearest to a position; where nothing shorter leads there, one at its beginning.

        Args:
            info: the run.
            graph: the graph that it began in.
            versions: gives its later graphs, to fold it in.
            upto: the position; None: its end.
        """
        first = Plan.of(graph)
        recent = self._recent.get(info.run_id)
        if recent is not None and recent.machine.head <= (upto or info.head) and recent.fits(info):
            now = await versions.of(info, *recent.machine.lineage[-1]) if len(recent.machine.lineage) > 1 else graph
            if recent.machine.plan.graph is now and recent.machine.content == now.content:
                return Checkpoint(recent.machine.copy(), recent.kept)
        # A snapshot has no seal: where records need one, only they say where a run stands.
        kept = await self._store.snapshot(info.run_id, upto=upto) if self._believed else None
        if kept is not None:
            seq, data = kept
            try:
                text = unpacked(data, seq)
                written = from_json(text)
                past = lineage_of(written)[1:]
                later = {content: Plan.of(await versions.of(info, structure, content)) for structure, content in past}
                machine = load(later[past[-1][1]] if past else first, written)
                machine.first = first
                machine.later.update(later)
                there = machine.plan.graph
                if machine.head == seq and there is not None and machine.content == there.content:
                    return Checkpoint(machine, Kept(seq, len(text)))
            except Exception as error:  # whatever it is, the journal is there
                log.debug("run %s: its snapshot at %d cannot be used: %r", info.run_id, seq, error)
        return Checkpoint(RunState(first))


@dataclass(frozen=True, slots=True)
class Kept:
    """Facts about the last snapshot of a run."""

    seq: int = 0
    """Its position; 0: there is none."""
    size: int = 0
    """Bytes of its text."""
    look: int = 0
    """The position before which it is not looked for another: the last one that was made did not pay."""


NONE_KEPT = Kept()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A machine at a position of a run."""

    machine: RunState
    kept: Kept = NONE_KEPT
    """The last snapshot."""

    def fits(self, info: RunInfo) -> bool:
        """True if it is of this run, and not of one before it that had the same id."""
        return self.machine.started is not None and self.machine.created == info.created


class SnapshotPolicy:
    """When a run that is driven is worth a snapshot.

    Args:
        kept: the last snapshot.
        packs: whether snapshots are compressed. Those that a codec encrypts are not: the size of compressed text tells
            which words in it are alike.
    """

    __slots__ = ("_crowded_until", "_packs", "busy", "kept")

    def __init__(self, kept: Kept, *, packs: bool = True) -> None:
        self._packs = packs
        self.kept = kept
        """The last snapshot."""
        self.busy = False
        """True while one is on its way to the store."""
        self._crowded_until = 0
        """Record up to which it has so many branches that, while it goes on, not even their number is looked at."""

    def due(self, head: int) -> bool:
        """True if it is time to make one while the run goes on."""
        return not self.busy and head >= max(self.kept.seq + EVERY, self.kept.look, self._crowded_until)

    def at_rest(self, machine: RunState) -> bytes | None:
        """A snapshot of a run that pauses or ends, if it pays."""
        # An end comes once, so it is looked there whatever earlier looks found.
        look = 0 if machine.ended is not None else self.kept.look
        return self.take(machine, rest=True) if machine.head >= max(self.kept.seq + FEW, look) else None

    def take(self, machine: RunState, *, rest: bool = False) -> bytes | None:
        """A snapshot of where the machine stands, if it pays. `rest`: the run pauses or ends there."""
        saved = machine.head - self.kept.seq
        branches = _branches(machine)
        if branches * RECORDS > saved:  # as while a map with many items is at work: it is not even tried
            self._crowded_until = machine.head + max(FEW, branches // 4)
            return None
        try:
            text = to_json(dump(machine))
        except Exception as error:  # values of earlier versions may be nested deeper than is written now
            log.debug("run %s: no snapshot at %d: %r", machine.run_id, machine.head, error)
            text = b""
        room = BYTES * saved + min(SMALL, max(0, len(text) - self.kept.size) // SHARE)
        most = _most_text(machine.head) if rest else DENSE * room
        if self._packs:
            data = _packed(text, room) if 0 < len(text) <= most else b""
        else:
            data = text if len(text) <= room else b""
        if not data:
            # Each look costs as much as the last one: look half as often.
            self.kept = replace(self.kept, look=machine.head + saved)
            return None
        self.kept = Kept(machine.head, len(text))
        return data


def _branches(machine: RunState) -> int:
    """Number of branches of a run that are live, or ended without a join."""
    return sum(len(frame.live) + len(frame.ended_versions) for frame in machine.frames())


def unpacked(data: bytes, seq: int) -> bytes:
    """The text of a snapshot. Those of earlier versions are not compressed.

    A few bytes can be packed that need gigabytes when they are read, so no more is unpacked than `SnapshotPolicy.take`
    can have packed at that position.

    Args:
        data: as it is stored.
        seq: its position.

    Raises:
        ValueError, zlib.error: there is no text in it.
    """
    if data.startswith(b"{"):
        return data
    most = _most_text(seq)
    found = zlib.decompressobj()
    text = found.decompress(data, most)
    if not found.eof:
        raise ValueError(f"it is cut off, or has more than {most:,} bytes of text")
    return text


def _packed(text: bytes, room: int) -> bytes:
    """A text, compressed; empty if that takes more than `room`, which is found out without compressing all of it."""
    packer, rest, parts = zlib.compressobj(1), memoryview(text), list[bytes]()
    while rest and room >= 0:
        parts.append(packer.compress(rest[:_PART]))
        room -= len(parts[-1])
        rest = rest[_PART:]
    parts.append(packer.flush())
    return b"" if room < len(parts[-1]) else b"".join(parts)


def _most_text(seq: int) -> int:
    """Bytes of text that no snapshot at a position has more of."""
    return min(MOST, DENSE * (BYTES * seq + SMALL))


async def store_snapshot(store: Store, run_id: str, seq: int, data: bytes) -> None:
    """Store a snapshot; one that cannot be stored is none."""
    try:
        await store.put_snapshot(run_id, seq, data)
    except StoreError as error:
        log.debug("run %s: no snapshot at %d: %s", run_id, seq, error)
