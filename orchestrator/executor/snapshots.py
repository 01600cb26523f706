"""Snapshots of runs in the store: when to make one, and how it is written. `executor.loader` reads them.

They only cache a fold: the journal alone defines the state of a run.
"""

from __future__ import annotations

import logging
import zlib

from msgspec import Struct, structs
from pydantic_core import to_json

from orchestrator.errors import StoreError
from orchestrator.graph.isolation import SharedList
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.snapshot import dump
from orchestrator.stores.base import Store

log = logging.getLogger("orchestrator")

EVERY = 1000
"""Records after which a running run may have a snapshot: folding as many takes some hundredths of a second."""
FEW = 32
"""Records after which a run that pauses or ends may have one: folding fewer takes no longer than loading it."""
BYTES = 64
"""Bytes of a snapshot allowed for each record that it saves, in addition to a share of the growth of the run's state.
"""
RECORDS = 2
"""Records that a snapshot must save for each branch in it: loading one takes about as long as folding one."""
ITEMS = 2
"""Records that a snapshot of a running run must save for each item in its state. Writing an item takes a tenth of the
time of a step: beside 5,000 untouched messages a step would otherwise take twice as long, on average, as beside none.
"""
AT_REST = 2
"""Items that the state of a run that pauses or ends may have for each record that a snapshot saves. Of a long
conversation that pauses after each question, the state is written only when many records have followed.
"""
SHARE = 3
SMALL = 64 * 1024
"""The share's divisor and its maximum. All snapshots of a run together stay a fraction of its journal, which contains
every byte by which the state has grown.
"""
DENSE = 32
"""Compression ratio beyond which a text is not compressed while the run continues: it would hardly ever be reached.
When the run pauses or ends, its whole journal counts for that, not only what a snapshot would save.
"""
_PART = 1 << 18
"""Bytes of text that are compressed between checks of the remaining space."""
MOST = 1 << 28
"""Maximum bytes of text in a snapshot. A snapshot with more than its position allows is damaged or forged."""


class Kept(Struct, frozen=True):
    """Facts about the last snapshot of a run."""

    seq: int = 0
    """Its position; 0 if there is none."""
    size: int = 0
    """Bytes of its text."""
    look: int = 0
    """Position before which no other is tried: the last one made was not worth storing."""


NONE_KEPT = Kept()


class SnapshotPolicy:
    """Decides when a driven run is worth a snapshot.

    Args:
        kept: the last snapshot.
        packs: whether snapshots are compressed. Those that a codec encrypts are not: the size of compressed text
            reveals which words in it are alike.
    """

    __slots__ = ("_crowded_until", "_packs", "busy", "kept")

    def __init__(self, kept: Kept, *, packs: bool = True) -> None:
        self._packs = packs
        self.kept = kept
        """The last snapshot."""
        self.busy = False
        """True while one is being stored."""
        self._crowded_until = 0
        """Record up to which the run has so many branches that, while it continues, they are not even counted."""

    def due(self, head: int) -> bool:
        """Return True if it is time to make a snapshot while the run continues."""
        return not self.busy and head >= max(self.kept.seq + EVERY, self.kept.look, self._crowded_until)

    def at_rest(self, machine: RunState) -> bytes | None:
        """Return a snapshot of a run that pauses or ends, if it is worth it."""
        # A run ends once, so the check is made whatever earlier checks found.
        look = 0 if machine.ended is not None else self.kept.look
        return self.take(machine, rest=True) if machine.head >= max(self.kept.seq + FEW, look) else None

    def take(self, machine: RunState, *, rest: bool = False) -> bytes | None:
        """Return a snapshot of the machine's current state, if it is worth it. `rest`: the run pauses or ends there."""
        saved = machine.head - self.kept.seq
        branches = _branches(machine)
        if branches * RECORDS > saved:  # not even tried, for example while a map with many items runs
            self._crowded_until = machine.head + max(FEW, branches // 4)
            return None
        items = _items(machine)
        if items > saved * AT_REST if rest else items * ITEMS > saved:
            self._crowded_until = self.kept.seq + items * ITEMS
            return None
        try:
            text = to_json(dump(machine))
        except Exception as error:  # values of earlier versions may be nested more deeply than is written now
            log.debug("run %s: no snapshot at %d: %r", machine.run_id, machine.head, error)
            text = b""
        room = BYTES * saved + min(SMALL, max(0, len(text) - self.kept.size) // SHARE)
        most = _most_text(machine.head) if rest else DENSE * room
        if self._packs:
            data = _packed(text, room) if 0 < len(text) <= most else b""
        else:
            data = text if len(text) <= room else b""
        if not data:
            # Each try costs as much as the last one: try half as often.
            self.kept = structs.replace(self.kept, look=machine.head + saved)
            return None
        self.kept = Kept(machine.head, len(text))
        return data


def _branches(machine: RunState) -> int:
    """Return the number of branches of a run that are live, or ended without a join."""
    return sum(len(frame.live) + len(frame.ended_versions) for frame in machine.frames())


def _items(machine: RunState) -> int:
    """Return the number of items of the lists and objects in the fields of a run's graphs."""
    values = (value for frame in machine.frames() for value in frame.trunk.values.values())
    return sum(len(value) for value in values if isinstance(value, list | dict | SharedList))


def unpacked(data: bytes, seq: int) -> bytes:
    """Return the text of a snapshot. Those of earlier versions are not compressed.

    A few compressed bytes can expand to gigabytes, so no more is decompressed than `SnapshotPolicy.take` can have
    compressed at that position.

    Args:
        data: the stored bytes.
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
    """Return a compressed text; empty if it would take more than `room` bytes, found before all of it is compressed."""
    packer, rest, parts = zlib.compressobj(1), memoryview(text), list[bytes]()
    while rest and room >= 0:
        parts.append(packer.compress(rest[:_PART]))
        room -= len(parts[-1])
        rest = rest[_PART:]
    parts.append(packer.flush())
    return b"" if room < len(parts[-1]) else b"".join(parts)


def _most_text(seq: int) -> int:
    """Return the maximum size of the text of a snapshot at a position, in bytes."""
    return min(MOST, DENSE * (BYTES * seq + SMALL))


async def store_snapshot(store: Store, run_id: str, seq: int, data: bytes) -> None:
    """Store a snapshot; one that cannot be stored is dropped."""
    try:
        await store.put_snapshot(run_id, seq, data)
    except StoreError as error:
        log.debug("run %s: no snapshot at %d: %s", run_id, seq, error)
