"""Runs in a notebook, drawn anew while their cell runs.

    from orchestrator.notebook import live

    async with Executor(model=model) as executor:
        run = await live(executor, graph, {"question": "..."})    # begins a run
        run = await live(executor, "3f2a9c1d")                    # or follows one that somebody else drives

Graphs and runs show themselves without this, as the last value of a cell. Nothing has to be installed beside the
notebook: a view is one output that is updated.
"""

from __future__ import annotations

import html
import itertools
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import anyio

from orchestrator.executor.failures import without_group
from orchestrator.executor.lease import is_held
from orchestrator.kernel.plan import Plan
from orchestrator.render import to_svg
from orchestrator.render.terminal import tree
from orchestrator.views.reader import Reader
from orchestrator.views.step_tree import StepTree
from orchestrator.views.trace import Trace

if TYPE_CHECKING:
    from orchestrator.executor import Event, Executor, Run
    from orchestrator.graph import GraphDefinition
    from orchestrator.graph.limits import Limits
    from orchestrator.verbs import Graph

__all__ = ["LiveView", "Show", "live"]

_TICK = 0.25
"""Seconds between two pictures, at least."""
_SHARE = 0.2
"""Of the time, that pictures take at most: those of large graphs come less often."""
_BYTES = 500_000
"""Bytes of pictures per second that are sent to a browser."""
_QUIET = 0.5
_WIDTH, _HEIGHT = 110, 14
"""Columns and lines of the text below the picture."""
_BESIDE = "display:flex;flex-wrap:wrap;align-items:flex-start;gap:1em"
_LINES = (
    "flex:1 1 32em;min-width:0;margin:.3em 0 0;"
    "padding:.5em .8em;font:12px/1.45 ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    "white-space:pre;overflow-x:auto;border-left:3px solid #8d98aa;background:transparent;color:inherit"
)
_numbers = itertools.count(1)


class Show(Protocol):
    """Shows an output, or puts it in the place of the one shown before."""

    def __call__(self, bundle: Mapping[str, str], *, update: bool) -> None:
        """`bundle`: MIME type -> text."""


def _in_notebook() -> Show:
    try:
        from IPython.display import display, update_display
    except ImportError:
        raise RuntimeError("a live view needs a notebook, or IPython; `pip install ipykernel` brings both") from None
    name = f"orchestrator-{time.time_ns():x}-{next(_numbers)}"

    def show(bundle: Mapping[str, str], *, update: bool) -> None:
        act: Callable[..., object] = update_display if update else display
        act(dict(bundle), raw=True, display_id=name)

    return show


class LiveView:
    """One output of a cell that follows a run: the graph as the run has coloured it so far, and what goes on in it.

    Args:
        graph: the run's graph; its code is not needed.
        show: shows an output. Default: IPython's.
        plan: the plan to fold the run with (`run.plan`). Default: that of the graph.

    Raises:
        RuntimeError: there is no IPython, and no `show`.
    """

    def __init__(self, graph: GraphDefinition, show: Show | None = None, plan: Plan | None = None) -> None:
        self._show = show or _in_notebook()
        self._graph, self._trace, self._model = graph, Trace(), StepTree()
        self._reader = Reader(plan or Plan.of(graph), self._trace, self._model)
        self._prefix = f"live{next(_numbers)}-"
        self._shown = self._moved = False
        self._next = 0.0
        self._changed = True

    def add(self, event: Event) -> None:
        """Take in an event, in order; it is seen at the next `draw`."""
        if event.type == "migrated":
            later = self._reader.run.later.get(str(event.data.get("content")))
            self._graph = (later.graph if later is not None else None) or self._graph
            self._moved = later is None
        if self._moved:  # it goes on in a graph that is not known here, which its end will show
            return
        self._reader.take(event)
        self._changed = True

    def draw(self) -> None:
        """Show where the run stands, unless that was shown a moment ago."""
        began = time.monotonic()
        if began < self._next or not (self._changed or self._trace.run.running):
            return
        picture = to_svg(self._graph, self._trace.overlay(), prefix=self._prefix)
        lines = tree.going_on(self._model, self._model.live_branches(), time.time(), _WIDTH, _HEIGHT)
        text = "\n".join(line.fitted(_WIDTH).text for line in lines)
        pre = f'<pre style="{_LINES}">{html.escape(text)}</pre>'
        both = f'<div style="{_BESIDE}"><div style="max-width:100%">{picture}</div>{pre}</div>'
        self._put({"text/html": both, "text/plain": text})
        ended = time.monotonic()
        self._changed = False
        self._next = ended + max(_TICK, (ended - began) / _SHARE, len(picture) / _BYTES)

    def end(self, run: Run) -> None:
        """Put the run itself in the place of the view: that is what a saved notebook keeps."""
        self._put(run._repr_mimebundle_())

    def _put(self, bundle: Mapping[str, str]) -> None:
        self._show(bundle, update=self._shown)
        self._shown = True


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
    """Start a run, or follow one, and redraw it until it ends or pauses.

    Interrupting the cell interrupts a run that was started here, and never cancels it.

    Args:
        executor: an open executor.
        what: a graph to run, or the id of an existing run, which any executor may drive.
        input: with the arguments after it as for `Executor.start`; only for a new run.
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
    view = LiveView(what, show)
    async with (
        executor.stream(what, input, run_id=run_id, labels=labels, approve=approve, limits=limits) as stream,
        _drawn_meanwhile(view),
    ):
        async for event in stream:
            view.add(event)
    view.end(stream.run)
    return stream.run


async def _followed(executor: Executor, run_id: str, show: Show | None) -> Run:
    found = await executor.load(run_id)
    view = LiveView(found.definition, show, found.plan)
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
    """Whether a run that nothing was heard of waits for an answer, or was left by who drove it."""
    info = await executor.store.info(run_id)
    if info.head > seen:
        return False
    return info.status != "running" or not is_held(await executor.store.lease(run_id))


@asynccontextmanager
async def _drawn_meanwhile(view: LiveView) -> AsyncIterator[None]:
    """Draw while the block runs; what it raises is raised as it is."""

    async def draw() -> None:
        while True:
            view.draw()
            await anyio.sleep(_TICK)

    with without_group():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(draw)
            yield
            tasks.cancel_scope.cancel()
