"""The tree on a terminal: ended steps scroll up and stay, live ones are redrawn at the bottom."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from orchestrator.render.terminal import tree
from orchestrator.render.terminal.tree import Line
from orchestrator.views.reader import Reader
from orchestrator.views.step_tree import StepTree

if TYPE_CHECKING:
    from orchestrator.kernel.plan import Plan
    from orchestrator.views.events import Event

_PICTURES = 8
"""Redraws per second."""
_SETTLE = 0.1
"""Seconds between two searches for ended steps, each of which visits every live token."""
_SHARE = 0.05
"""Largest share of the time that drawing takes: a run of thousands of branches is drawn less often."""


class Screen:
    """A run on a terminal. One thread feeds events; another one only draws."""

    def __init__(self, plan: Plan, stream: TextIO) -> None:
        self._stream = stream
        self._console: Console = Console(file=stream, markup=False, highlight=False, emoji=False)
        self._encoding = getattr(stream, "encoding", "") or "ascii"
        self._model = StepTree()
        self._reader = Reader(plan, self._model)
        self._live: Live | None = None
        self._lock = threading.RLock()
        self._looked = 0.0
        self._cost = 0.0
        self._drawn: tuple[float, Text] | None = None
        self._held = True
        self._heard = 0.0
        """Unix seconds of the last event: the last moment at which the run is known to have been alive."""

    def knows(self, event: Event) -> bool:
        """True if it has the graph that a `migrated` event leads to."""
        return event.data.get("content") in self._reader.run.later

    def past(self, event: Event) -> None:
        """Take in an earlier event; steps that ended by then are not shown."""
        self._reader.take(event)

    def begin(self) -> None:
        """End the earlier events: print how many ended steps are left out."""
        over = self._over()
        if over:
            self._model.forget(over)
            self._print([Line(((f"… {over} step{'s' * (over > 1)} before this", "dim"),))])

    def show(self, event: Event) -> None:
        """Take in a new event, in order."""
        self._held, self._heard = False, max(self._heard, event.ts)
        with self._lock:
            self._reader.take(event)
        if event.seq is not None and time.monotonic() - self._looked > max(_SETTLE, self._cost / _SHARE):
            self._settle()
        if self._live is None:
            self._start()

    def hold(self) -> None:
        """Stop drawing until the next event, and print the state of the run."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()
        if self._held:
            return
        self._held = True
        self._settle()
        model = self._model
        if model.run.root is not None:
            now = self._heard if model.run.status == "running" else time.time()
            self._print(tree.where_it_stands(model, model.live_branches(), now, self._console.width, self._height))

    # -- drawing -------------------------------------------------------------------------------------------------

    @property
    def _height(self) -> int:
        return max(4, self._console.height - 1)

    def _start(self) -> None:
        live = Live(
            console=self._console,
            get_renderable=self._picture,
            refresh_per_second=_PICTURES,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
            vertical_overflow="crop",
        )
        live.start()
        self._console.show_cursor(True)  # it is never missed then, also if this process is killed
        self._live = live

    def _picture(self) -> Text:
        began = time.monotonic()
        if self._drawn is not None and began < self._drawn[0]:
            return self._drawn[1]
        with self._lock:
            model = self._model
            lines = tree.going_on(model, model.live_branches(), time.time(), self._console.width, self._height)
        whole = self._whole(lines)
        self._cost = time.monotonic() - began
        self._drawn = time.monotonic() + self._cost / _SHARE, whole
        return whole

    def _over(self) -> int:
        standing, over = self._model.live_branches(), 0
        for step in self._model.top.steps:
            if not self._model.is_over(step, standing):
                break
            over += 1
        return over

    def _settle(self) -> None:
        """Print the ended steps at the top for good; without the lock, as the drawing thread takes both."""
        self._looked = time.monotonic()
        with self._lock:
            over = self._over()
            if not over:
                return
            model, now = self._model, time.time()
            standing = model.live_branches()
            lines = [line for step in model.top.steps[:over] for line in tree.left_behind(model, step, standing, now)]
            model.forget(over)
            self._drawn = None  # else what scrolls up would still stand below, too
        self._print(lines)

    def _print(self, lines: list[Line]) -> None:
        if lines:
            self._console.print(self._whole(lines), no_wrap=True, crop=False, overflow="ignore")

    def _whole(self, lines: list[Line]) -> Text:
        return Text("\n", no_wrap=True, overflow="crop").join(self._text(line) for line in lines)

    def _text(self, line: Line) -> Text:
        made = Text()
        for text, style in line.said_in(self._encoding).fitted(max(10, self._console.width - 1)).parts:
            made.append(text, style)
        return made
