"""Commands that show one run: show, events, why. They need no code of the run, only the store."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED, UsageError
from orchestrator.cli.output import out, out_json, out_line, out_made, redacted
from orchestrator.cli.report import (
    JsonLines,
    NextCommands,
    Plain,
    Tree,
    document,
    next_text,
    tell_traceback,
    waiting_text,
)
from orchestrator.cli.run_lookup import approvals, loaded, one_run
from orchestrator.cli.storage import store_url
from orchestrator.cli.trust import note
from orchestrator.render.terminal.run_report import run_text, with_colours
from orchestrator.views.run import explainer_of
from orchestrator.visible import line
from orchestrator.visible import shown as visible

if TYPE_CHECKING:
    from orchestrator.cli.report import Sink
    from orchestrator.executor import Executor, Point, Run
    from orchestrator.render.terminal.tables import Looks
    from orchestrator.views.explainer import RunExplanation, RunReasons


def show(
    run: options.Run,
    at: options.At = None,
    traceback: options.Traceback = False,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Show the progress and state of a run.

    Shows what it was asked, its answer, error or open questions, then every step, its branches and its state.

    Example: orchestrator show 3f2a9c1d --at 12
    """

    async def look(executor: Executor) -> tuple[Run, list[Point], RunReasons, list[str]]:
        found = await loaded(executor, run, at)
        points = await executor.history(run, at=found.seq)
        return found, points, explainer_of(found).reasons(), await approvals(executor, found)

    url = store_url(store)
    found, points, why, approved = one_run(url, run, look)
    if at is None:
        note(found, url)
    if not json:
        waiting = waiting_text(run, found.waiting, None) if found.waiting else ""
        ahead = next_text(found, NextCommands(store)) if at is None or found.waiting else ""

        def shown(looks: Looks) -> str:
            text = visible(run_text(found, points, why, approved, waiting, ahead, width=looks.width))
            return with_colours(text, found.status) if looks.colours else text

        out_made(shown)
    else:
        branches = [
            {"path": one.path, "node": one.node, "phase": one.phase, "values": dict(one.values)}
            for one in found.branches
        ]
        history = [point.to_json() for point in points]
        more = redacted({"state": found.values, "branches": branches, "history": history})
        assert isinstance(more, dict)
        about = {"why": why.run, "approvals": approved}
        out_json({**document(found, output=False), **about, **_standby(found), **more})
    if traceback:
        tell_traceback(found)
    return COMPLETED


def _standby(run: Run) -> dict[str, object]:
    """When a run that no process drives continues, and why its last drive stopped."""

    found = run.standby
    if found is None:
        return {}
    return {
        "due": found.due, "deaths": found.deaths, "retry_at": found.retry_at, "fault": redacted(found.fault),
    }  # fmt: skip


def events(
    run: options.Run,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the run until it ends.")] = False,
    after: Annotated[int, typer.Option("--after", metavar="SEQ", min=0, help="Only events after record SEQ.")] = 0,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Print the events of a run.

    Prints lines of JSON, the last one the result. On a terminal and without --json, prints lines of text, or with
    --follow a tree that is redrawn while the run continues.

    Example: orchestrator events 3f2a9c1d --json
    """

    as_text = sys.stdout.isatty() and not json
    sink: Sink = JsonLines() if not as_text else Tree(out, sys.stdout) if follow else Plain(out)

    async def look(executor: Executor) -> Run:
        await sink.meet(executor, run, after)
        try:
            async for event in executor.events(run, after=after, follow=follow):
                sink.show(event)
        finally:
            sink.hold()
        return await executor.load(run)

    found = one_run(store_url(store), run, look)
    if as_text:
        out(f"{line(run)}  {line(found.graph)}  {found.status}")
    else:
        note(found, store_url(store))
        out_line(document(found, output=False))
    return COMPLETED


def why(
    run: options.Run,
    seq: Annotated[
        int | None,
        typer.Argument(
            metavar="SEQ",
            min=1,
            help="A record: the step that ended with it, or was running then. Default: the latest record.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Explain why a run is where it is.

    For a step: its cause (an edge, a join, an item, a spent limit), where it led, what decided that, and the edges that
    were not taken.

    Example: orchestrator why 3f2a9c1d 12
    """

    async def look(executor: Executor) -> RunExplanation:
        found = await loaded(executor, run)
        try:
            return found.why(seq)
        except ValueError as error:
            raise UsageError(str(error)) from None

    stand = one_run(store_url(store), run, look)
    out_json(stand.to_json()) if json else out(stand.to_text())
    return COMPLETED
