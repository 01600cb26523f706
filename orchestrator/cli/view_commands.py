"""Commands that look at runs: runs, show, events. They need no code, only the store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED, UsageError

if TYPE_CHECKING:
    from orchestrator.cli.progress import Sink
    from orchestrator.executor import Executor, Point, Run
    from orchestrator.render.terminal.tables import Looks
    from orchestrator.stores import RunInfo, Store
    from orchestrator.stores.rows import Scanned
    from orchestrator.views.explainer import RunReasons

STATUSES = ("running", "paused", "interrupted", "completed", "failed", "cancelled", "exhausted")


def runs(
    status: Annotated[
        str | None, typer.Option("--status", metavar="S", help=f"Only runs with this status: {', '.join(STATUSES)}.")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="The same as --status failed.")] = False,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only runs with open questions.")] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="AGE", help="Only runs written to since: an age (2h, 3d) or a date."),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option("--search", metavar="WORDS", help="Only runs with all of these words in labels, input or output."),
    ] = None,
    anywhere: Annotated[
        str | None,
        typer.Option(
            "--anywhere",
            metavar="WORDS",
            help="The same, also in prompts and data of tools; reads journals of newer runs.",
        ),
    ] = None,
    failed_tool: Annotated[
        str | None,
        typer.Option(
            "--failed-tool", metavar="TOOL", help="Only runs in which a call of this tool failed; '*' is any."
        ),
    ] = None,
    graph: Annotated[str | None, typer.Option("--graph", metavar="G", help="Only runs of this graph, by name.")] = None,
    label: options.Labels = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="The most runs to list.")] = 50,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """List runs, newest first.

    Shows what each run asks, why it failed, or its answer.

    Example: orchestrator runs --failed --since 2h
    """
    from orchestrator.cli.moments import moment
    from orchestrator.cli.output import out_json, out_made, warn
    from orchestrator.cli.redaction import row_document
    from orchestrator.cli.run_lookup import reading
    from orchestrator.cli.storage import codec_of_environment, exists, shown_url, store_url
    from orchestrator.render.terminal.tables import run_table

    wanted = _statuses(status, failed=failed, waiting=waiting)
    if search is not None and anywhere is not None:
        raise UsageError("--search and --anywhere: use one of them")
    after = None if since is None else moment(since, "--since").timestamp()
    labels, url = options.pairs(label), store_url(store)

    scans: list[Scanned] = []

    async def listed(store: Store) -> Sequence[RunInfo]:
        from orchestrator.executor.run_status import run_list
        from orchestrator.stores.requests import RunQuery

        found: list[RunInfo] = []
        cursor: str | None = None
        while len(found) < limit:
            query = RunQuery(
                status=wanted, graph=graph, labels=labels, search=search, since=after, waiting=waiting or None,
                failed_tool=failed_tool, after=cursor, limit=limit - len(found),
            )  # fmt: skip
            page = await run_list(store, query, q=anywhere)
            found += page.runs
            cursor = page.cursor
            scans.extend([page.scanned] if page.scanned is not None else [])
            if cursor is None or len(scans) >= _MOST_SCANS:
                break
        return found[:limit]

    found = reading(url, listed) if exists(url) else ()
    if search is not None and codec_of_environment() is not None:
        warn("--search finds only the labels of encrypted runs; --anywhere reads their journals")
    if scans and scans[-1].stopped:
        warn(_scanned(scans))
    if json:
        out_json([row_document(info) for info in found])
    elif found:
        out_made(partial(run_table, found))
    else:
        every = not (labels or waiting) and all(
            option is None for option in (wanted, graph, after, search, anywhere, failed_tool)
        )
        warn(f"no runs in {shown_url(url)}" if every else f"no such runs in {shown_url(url)}")
    return COMPLETED


_MOST_SCANS = 20
"""Pages of a search through journals that one command asks for."""


def _scanned(scans: Sequence[Scanned]) -> str:
    """How far a search looked that has not looked through all runs."""
    from orchestrator.render.terminal.texts import ago

    runs, records = sum(one.runs for one in scans), sum(one.records for one in scans)
    back_to = next((one.back_to for one in reversed(scans) if one.back_to is not None), None)
    until = "" if back_to is None else f", back to {ago(back_to)}"
    return (
        f"searched {records:,} records of {runs:,} runs{until}; older ones were not searched, see --since and --graph"
    )


def _statuses(status: str | None, *, failed: bool, waiting: bool) -> tuple[str, ...] | None:
    """The statuses that options name; None: any.

    Raises:
        UsageError: they name one that there is not, or contradict each other.
    """
    if status is not None and status not in STATUSES:
        from difflib import get_close_matches

        close = get_close_matches(status, STATUSES, n=1)
        hint = f"did you mean {close[0]}? Use" if close else "use"
        raise UsageError(f"--status {status}: {hint} one of {', '.join(STATUSES)}")
    named = [f"--status {status}"] * (status is not None) + ["--failed"] * failed + ["--waiting"] * waiting
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)}: use one of them")
    return ("failed",) if failed else None if status is None else (status,)


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
    from orchestrator.cli.approvals import approvals
    from orchestrator.cli.output import out_json, out_made
    from orchestrator.cli.redaction import redacted
    from orchestrator.cli.report import NextCommands, document, next_text, tell_traceback, waiting_text
    from orchestrator.cli.run_lookup import loaded, one_run
    from orchestrator.cli.shown_questions import note
    from orchestrator.cli.storage import store_url
    from orchestrator.cli.words import visible
    from orchestrator.render.terminal.run_report import run_text, with_colours
    from orchestrator.views.run import explainer_of

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
    from orchestrator.cli.redaction import redacted

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
    import sys

    from orchestrator.cli.output import out, out_line
    from orchestrator.cli.progress import JsonLines, Plain, Tree
    from orchestrator.cli.report import document
    from orchestrator.cli.run_lookup import one_run
    from orchestrator.cli.shown_questions import note
    from orchestrator.cli.storage import store_url
    from orchestrator.cli.words import line

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
