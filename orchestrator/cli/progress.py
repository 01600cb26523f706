"""What a run does while it does it: a tree on a terminal, else one line per event that a person cares about."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TextIO

from orchestrator.cli.output import out_line
from orchestrator.cli.redaction import redacted
from orchestrator.errors import StoreCorrupt
from orchestrator.render.terminal.colours import can_draw
from orchestrator.render.terminal.event_lines import EventLines

if TYPE_CHECKING:
    from orchestrator.executor import Event, Executor
    from orchestrator.render.terminal.screen import Screen


class Sink(Protocol):
    """Where events of a run go while it is driven."""

    async def meet(self, executor: Executor, run_id: str, seen: int) -> None:
        """The run whose events will follow, behind record `seen`."""

    def show(self, event: Event) -> None:
        """One event, in order."""

    def hold(self) -> None:
        """The run stands still: leave the terminal to a question, or to the result."""


class Plain:
    """A line of text per event that a person cares about."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._lines = EventLines()

    async def meet(self, executor: Executor, run_id: str, seen: int) -> None:
        """Nothing has to be known."""

    def show(self, event: Event) -> None:
        text = self._lines.text(event)
        if text is not None:
            self._write(text)

    def hold(self) -> None:
        """Lines stay where they are."""


_BEFORE = 400
"""Records of a long run that a tree begins with; of those before, it says how many steps they were."""


class Tree:
    """What the run does as a tree that is drawn anew as it grows; where that cannot be, lines of text.

    Args:
        write: writes such a line.
        stream: where all is shown.
    """

    def __init__(self, write: Callable[[str], None], stream: TextIO) -> None:
        self._stream = stream
        self._plain = Plain(write)
        self._screen: Screen | None = None
        self._until = 0
        """Records that the screen knows of before anything is shown."""

    async def meet(self, executor: Executor, run_id: str, seen: int) -> None:
        self._screen = None
        if not can_draw(self._stream):
            return
        from orchestrator.render.terminal.screen import Screen

        with suppress(StoreCorrupt):  # lines tell what can be read, and then where the damage is
            run = await executor.load(run_id)
            self._until = max(seen, run.seq - _BEFORE)
            screen = Screen(run.plan, self._stream)
            async for event in executor.events(run_id):
                if event.seq is None or event.seq > self._until:
                    break
                screen.past(event)
            screen.begin()
            self._screen = screen

    def show(self, event: Event) -> None:
        if self._screen is None:
            self._plain.show(event)
        elif event.type == "migrated" and not self._screen.knows(event):  # its graph from here on is another one
            self._screen.hold()
            self._screen = None
            self._plain.show(event)
        elif event.seq is None or event.seq > self._until:
            self._screen.show(event)

    def hold(self) -> None:
        (self._screen or self._plain).hold()


class JsonLines:
    """Every event as a line of JSON on stdout."""

    async def meet(self, executor: Executor, run_id: str, seen: int) -> None:
        pass

    def show(self, event: Event) -> None:
        out_line(redacted(event.to_json()))

    def hold(self) -> None:
        pass
