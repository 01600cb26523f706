"""Watching a fold: a view learns why things happen without changing how they do."""

from __future__ import annotations

from orchestrator.kernel.records import Failure, Migrated, Record
from orchestrator.kernel.state import Activation, FrameResult, FrameState, MapItem
from orchestrator.kernel.version import Version


class Observer:
    """Watches one run. The methods do nothing here; an observer overrides those that it needs.

    Between `sending`, `joining`, `collapsing` or `ending` and the `done` that belongs to it, tokens are added and
    dropped, edges are taken and graphs finish for that reason. These spans nest.
    """

    def applying(self, record: Record) -> None:
        """A record that follows the ones before it is about to be folded in."""

    def sending(self, source: Activation, version: Version, outcome: str, error: Failure | None) -> None:
        """An outcome is about to take its edges."""

    def joining(self, join: str, arrivals: list[Activation]) -> None:
        """A join is about to fire for these tokens, in the order in which they arrived."""

    def collapsing(self, frame: FrameState) -> None:
        """A limit is spent: the graph's tokens are about to be merged into one."""

    def ending(self, frame: FrameState) -> None:
        """No token is left: the ended versions are about to become the graph's result."""

    def done(self) -> None:
        """The innermost of the four above is over."""

    def edge_taken(self, frame: FrameState, index: int) -> None:
        """An edge was taken."""

    def added(self, token: Activation) -> None:
        """A token is about to join the live ones."""

    def item_ready(self, item: MapItem) -> None:
        """Every item that this one needs is done; it is about to start, or to be skipped."""

    def dropped(self, token: Activation) -> None:
        """A live token was dropped; what runs inside it is about to end."""

    def restored(self, token: Activation) -> None:
        """A dropped token is live again: its run was reopened."""

    def finished(self, frame: FrameState, result: FrameResult) -> None:
        """A graph is about to get its result, and to drop the tokens it has left."""

    def moved(self, record: Migrated) -> None:
        """The run moved to another version of its graph: all its graphs and tokens are other objects, with their keys.

        Joins that nothing can reach any more are about to fire.
        """
