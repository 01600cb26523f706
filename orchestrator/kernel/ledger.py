"""The effects of a run: what was intended, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.graph.limits import Usage
from orchestrator.kernel.records import EffectIntended, EffectSettled

IRREVERSIBLE = "lasting"
"""Key in a result's metadata: an irreversible effect happened on the way to it, so it holds for all attempts."""


@dataclass(slots=True)
class EffectEntry:
    """One effect of an activation: what was intended, and how it ended if that is known."""

    intended: EffectIntended
    settled: EffectSettled | None = None
    began: int = 0
    """The record of its first intent."""
    inner_usage: Usage | None = None
    """Usage so far of the run that it began, if it calls a graph as a tool."""

    @property
    def failed_try(self) -> EffectSettled | None:
        """The last try if it failed and the next one has not begun."""
        settled = self.settled
        ends = settled is not None and settled.next_at is not None and settled.seq > self.intended.seq
        return settled if ends else None

    @property
    def is_open(self) -> bool:
        """Whether it has no end yet, or a further try is to come."""
        settled = self.settled
        return (
            settled is None or settled.seq < self.intended.seq or (settled.next_at is not None and not settled.unknown)
        )

    @property
    def may_have_happened(self) -> bool:
        """False only if it is known not to have happened."""
        settled = self.settled
        return settled is None or settled.seq < self.intended.seq or settled.may_have_happened


def did_irreversible(result: object) -> bool:
    """Return whether an irreversible effect happened on the way to a result.

    Args:
        result: the result of an effect, as plain JSON.

    Returns:
        True if the result's metadata says so.
    """
    metadata = result.get("metadata") if isinstance(result, Mapping) else None
    return isinstance(metadata, Mapping) and bool(metadata.get(IRREVERSIBLE))


class Ledger:
    """The effects of activations that are not done, and the digests of the messages in the journal."""

    __slots__ = ("_by_activation", "_by_key", "_failed", "_messages")

    def __init__(self) -> None:
        self._by_activation: dict[str, list[EffectEntry]] = {}
        self._by_key: dict[str, EffectEntry] = {}
        self._messages: set[str] = set()
        self._failed: dict[str, list[EffectEntry]] = {}
        """The effects of steps that failed, for their next attempt if the run is reopened."""

    def intend(self, record: EffectIntended) -> bool:
        """Note an intent. Returns False if it repeats an earlier one."""
        messages = record.request.get("messages")
        if isinstance(messages, list):
            self._messages.update(m["digest"] for m in messages if isinstance(m, dict) and "digest" in m)
        known = self._by_key.get(record.key)
        if known is not None:
            known.intended = record
            return False
        entry = EffectEntry(record, began=record.seq)
        self._by_key[record.key] = entry
        self._by_activation.setdefault(record.activation, []).append(entry)
        return True

    def settle(self, record: EffectSettled) -> None:
        """Note how an effect ended, unless its activation is done."""
        entry = self._by_key.get(record.key)
        if entry is not None:
            entry.settled = record

    def entry(self, key: str) -> EffectEntry | None:
        """An effect of an activation that is not done, by its key."""
        return self._by_key.get(key)

    def __contains__(self, activation: str) -> bool:
        """Whether an activation that is not done has effects."""
        return activation in self._by_activation

    def of(self, activation: str) -> tuple[EffectEntry, ...]:
        """The effects of an activation, of all its attempts, in the journal's order."""
        return tuple(self._by_activation.get(activation, ()))

    def forget(self, activation: str) -> None:
        """Remove the effects of an activation that is done."""
        if activation in self._by_activation:
            for entry in self._by_activation.pop(activation):
                self._by_key.pop(entry.intended.key, None)

    def drop(self, key: str) -> None:
        """Remove one effect, as if it had never been intended."""
        entry = self._by_key.pop(key, None)
        if entry is not None:
            kept = self._by_activation[entry.intended.activation]
            kept.remove(entry)
            if not kept:
                del self._by_activation[entry.intended.activation]

    def put_by(self, activation: str) -> None:
        """Put the effects of a step by that failed: no step waits for them, unless the run is reopened."""
        if activation in self._by_activation:
            self._failed[activation] = self._by_activation.pop(activation)
            for entry in self._failed[activation]:
                self._by_key.pop(entry.intended.key, None)

    def take_back(self, activation: str) -> None:
        """Undo `put_by`: the step is begun again."""
        for entry in self._failed.pop(activation, ()):
            self._by_key[entry.intended.key] = entry
            self._by_activation.setdefault(activation, []).append(entry)

    def forget_failed(self, activation: str) -> None:
        """Remove the effects of a failed step that cannot be begun again."""
        self._failed.pop(activation, None)

    def knows_message(self, digest: str) -> bool:
        """Whether the journal holds this message, so that records can refer to it."""
        return digest in self._messages

    def entries(self) -> tuple[EffectEntry, ...]:
        """All effects of activations that are not done."""
        return tuple(self._by_key.values())

    def failed_entries(self) -> tuple[EffectEntry, ...]:
        """All effects of failed steps that can be begun again."""
        return tuple(entry for entries in self._failed.values() for entry in entries)

    def messages(self) -> list[str]:
        """Digests of the messages that the journal holds, sorted."""
        return sorted(self._messages)

    def restore(
        self, entries: Iterable[EffectEntry], messages: Iterable[str], failed: Iterable[EffectEntry] = ()
    ) -> None:
        """Replace the contents."""
        self._messages = set(messages)
        for entry in entries:
            self._by_key[entry.intended.key] = entry
            self._by_activation.setdefault(entry.intended.activation, []).append(entry)
        for entry in failed:
            self._failed.setdefault(entry.intended.activation, []).append(entry)
