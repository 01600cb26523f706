"""Runs in a notebook, displayed while their cell executes.

    from orchestrator.notebook import live

    async with Executor(model=model) as executor:
        run = await live(executor, graph, {"question": "..."})    # starts a run
        run = await live(executor, "3f2a9c1d")                    # or follows one that another process drives

The cell shows the run's page, which follows the run, and below it the current activity as text. When the run ends or
pauses, its picture replaces both: a saved notebook stays small, and shows the run where scripts are not allowed.
`run.page()` shows the page again. Graphs and runs display themselves without this module, as the last value of a cell.
No additional package is needed.
"""

from __future__ import annotations

import html
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.to_thread

from orchestrator.errors import OrchestratorError
from orchestrator.executor.failures import without_group
from orchestrator.executor.lease import is_held
from orchestrator.kernel.plan import Plan
from orchestrator.render.html.page import FramedPage, posted
from orchestrator.render.html.run_data import run_data
from orchestrator.render.terminal import tree
from orchestrator.views.reader import Reader
from orchestrator.views.step_tree import StepTree

if TYPE_CHECKING:
    from orchestrator.executor import Event, Executor, Run
    from orchestrator.graph import GraphDefinition
    from orchestrator.graph.limits import Limits
    from orchestrator.graph_class import Graph

__all__ = ["LiveView", "Show", "live"]

_TICK = 0.25
"""Minimum number of seconds between two redraws of the run."""
_SHARE = 0.2
"""Largest share of the time spent on redrawing: long runs are redrawn less often."""
_BYTES = 500_000
"""Bytes per second that are sent to a browser."""
_QUIET = 0.5
_WIDTH, _HEIGHT = 110, 14
"""Columns and lines of the text below the page."""
_LINES = (
    "margin:.3em 0 0;padding:.5em .8em;font:12px/1.45 ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    "white-space:pre;overflow-x:auto;border-left:3px solid #8d98aa;background:transparent;color:inherit"
)
_numbers = itertools.count(1)


class Show(Protocol):
    """Shows an output, or replaces the output with the same name."""

    def __call__(self, bundle: Mapping[str, str], *, update: bool, name: str) -> None:
        """Show the output `name`, or replace it with `update`. `bundle`: MIME type -> text."""


def _in_notebook() -> Show:
    try:
        from IPython.display import display, update_display
    except ImportError:
        raise RuntimeError("a live view needs a notebook, or IPython; `pip install ipykernel` brings both") from None

    def show(bundle: Mapping[str, str], *, update: bool, name: str) -> None:
        act: Callable[..., object] = update_display if update else display
        act(dict(bundle), raw=True, display_id=name)

    return show


class LiveView:
    """Two outputs of a cell that follow a run: its page, and below it the current activity as text.

    Args:
        load: loads the run in its current state.
        graph: the run's graph; its code is not needed.
        show: shows an output. Default: IPython's.
        plan: the plan to fold the run with (`run.plan`). Default: that of the graph.

    Raises:
        RuntimeError: there is no IPython, and no `show`.
    """

    def __init__(
        self,
        load: Callable[[], Awaitable[Run]],
        graph: GraphDefinition,
        show: Show | None = None,
        plan: Plan | None = None,
    ) -> None:
        self._load, self._show = load, show or _in_notebook()
        self._model = StepTree()
        self._reader = Reader(plan or Plan.of(graph), self._model)
        self._name = f"orchestrator-{time.time_ns():x}-{next(_numbers)}"
        self._outputs: set[str] = set()
        self._parts: frozenset[str] | None = None
        self._moved = False
        self._next = 0.0
        self._changed = True

    def add(self, event: Event) -> None:
        """Add an event, in order; it becomes visible at the next `draw`."""
        self._changed = True
        if event.type == "migrated" and self._reader.run.later.get(str(event.data.get("content"))) is None:
            self._moved = True
        if not self._moved:  # otherwise it continues in a graph that is not known here, which the page shows
            self._reader.take(event)

    async def draw(self) -> None:
        """Show the current state of the run, unless it was just shown."""
        began = time.monotonic()
        if began < self._next or not (self._changed or self._reader.run.running):
            return
        changed, self._changed = self._changed, False
        script = await self._page() if changed else ""
        lines = tree.going_on(self._model, self._model.live_branches(), time.time(), _WIDTH, _HEIGHT)
        text = "\n".join(line.fitted(_WIDTH).text for line in lines)
        self._put("text", {"text/html": f'<pre style="{_LINES}">{html.escape(text)}</pre>{script}', "text/plain": text})
        ended = time.monotonic()
        self._next = ended + max(_TICK, (ended - began) / _SHARE, len(script) / _BYTES)

    async def _page(self) -> str:
        """Show the page if it is not shown; return the script that sends the run to the page."""
        try:
            return await self._posted()
        except OrchestratorError:  # the run is about to start, or its store is busy: no reason to interrupt it
            self._changed = True
            return ""

    async def _posted(self) -> str:
        run = await self._load()
        data = await anyio.to_thread.run_sync(lambda: run_data(run)[0])
        parts = frozenset(data["kinds"])
        if parts != self._parts:  # the picture on a page keeps the parts with which it started
            page = FramedPage(run, name=self._name)
            found = await anyio.to_thread.run_sync(page.to_html)
            self._put("page", {"text/html": found, "text/plain": ""})
            self._parts = parts
        return posted(self._name, data)

    def end(self, run: Run) -> None:
        """Replace the page with the run itself, which a saved notebook keeps."""
        self._put("page", run._repr_mimebundle_())
        steps = "1 step" if run.steps == 1 else f"{run.steps} steps"
        self._put("text", {"text/plain": f"{run.status} after {steps}; run.page() shows its page"})

    def _put(self, output: str, bundle: Mapping[str, str]) -> None:
        self._show(bundle, update=output in self._outputs, name=f"{self._name}-{output}")
        self._outputs.add(output)


async def live(
    executor: Executor,
    what: Graph | str,
    input: object = None,  # noqa: A002  the argument's name in `Executor.start`
    *,
    run_id: str | None = None,
    labels: Mapping[str, str] | None = None,
    approve: str | None = None,
    limits: Limits | None = None,
    show: Show | None = None,
) -> Run:
    """Start a run, or follow one, and show its page until it ends or pauses.

    Interrupting the cell interrupts a run that was started here, and never cancels it.

    Args:
        executor: an open executor.
        what: a graph to run, or the id of an existing run, which any executor may drive.
        input: the input, as the following arguments, is passed to `Executor.start`; only for a new run.
        show: shows an output. Default: IPython's.

    Returns:
        The run after it ended or paused.

    Raises:
        RunUnknown: there is no run with this id.
        RunExists: another run has the id `run_id`.
        RuntimeError: IPython is missing, and `show` is not given.
    """
    if isinstance(what, str):
        return await _followed(executor, what, show)
    async with executor.stream(what, input, run_id=run_id, labels=labels, approve=approve, limits=limits) as stream:
        view = LiveView(lambda: executor.load(stream.run_id), what, show)
        async with _drawn_meanwhile(view):
            async for event in stream:
                view.add(event)
    view.end(stream.run)
    return stream.run


async def _followed(executor: Executor, run_id: str, show: Show | None) -> Run:
    found = await executor.load(run_id)
    view = LiveView(lambda: executor.load(run_id), found.definition, show, found.plan)
    seen = 0
    async with _drawn_meanwhile(view):
        events = executor.events(run_id, follow=True)
        while True:
            event: Event | None = None
            with anyio.move_on_after(_QUIET):
                event = await anext(events, None)
                if event is None:
                    break
            if event is not None:
                view.add(event)
                seen = event.seq or seen
            elif await _stands_still(executor, run_id, seen):
                break
    run = await executor.load(run_id)
    view.end(run)
    return run


async def _stands_still(executor: Executor, run_id: str, seen: int) -> bool:
    """Return True if a run without new events waits for an answer, or no process drives it."""
    info = await executor.store.info(run_id)
    if info.head > seen:
        return False
    return info.status != "running" or not is_held(await executor.store.lease(run_id))


@asynccontextmanager
async def _drawn_meanwhile(view: LiveView) -> AsyncIterator[None]:
    """Draw while the block runs, without changing the exceptions that it raises."""

    async def draw() -> None:
        while True:
            await view.draw()
            await anyio.sleep(_TICK)

    with without_group():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(draw)
            yield
            tasks.cancel_scope.cancel()
