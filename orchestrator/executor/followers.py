"""Readers of a run, as what holds the run sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from orchestrator.kernel.records import Record


class Follower(Protocol):
    """A reader of a run's events while it is held here."""

    def stored(self, records: Sequence[Record]) -> None:
        """These records are durable now."""

    def live(self, seq: int, kind: str, data: dict[str, object]) -> bool:
        """A live event came behind record `seq`. False: it lost what came before, and needs the replies so far."""
        ...

    def close(self) -> None:
        """The run is given back: nothing more will come."""


class IdleFollower(Protocol):
    """A reader of a run that is not driven here."""

    def notify(self) -> None:
        """The run was taken up here, and nothing is done in it yet."""
