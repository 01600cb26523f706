"""Snapshots of runs in the store: when one pays, and how it is written. `executor.loader` reads them.

They are caches of a fold and never more: the journal alone says where a run stands.
"""

from __future__ import annotations

import logging
import zlib
from dataclasses import dataclass, replace

from pydantic_core import to_json

from orchestrator.errors import StoreError
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.snapshot import dump
from orchestrator.stores.base import Store

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
