"""Commands that show what a store holds about runs: show, events, why, stats. They need no code of a run."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from orchestrator.cli import exits, options, report, run_lookup, storage
from orchestrator.cli.options import moment
from orchestrator.cli.output import out, out_json, out_line, out_made, redacted, warn
from orchestrator.cli.trust import note
from orchestrator.errors import InvalidValue
from orchestrator.render.terminal.run_report import run_text, with_colours
from orchestrator.render.terminal.tables import stats_table
from orchestrator.render.terminal.transcript_text import transcript_text
from orchestrator.views.run import explainer_of
from orchestrator.visible import line
from orchestrator.visible import shown as visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.executor import Entry, Executor, Point, Run
    from orchestrator.executor.fork.preview import ForkChoices
    from orchestrator.render.terminal.tables import Looks
    from orchestrator.stores import Note, StatsRow
    from orchestrator.views.explainer import RunExplanation, RunReasons


def show(
    run: options.Run,
    at: options.At = None,
    traceback: options.Traceback = False,
    transcript: Annotated[
        bool,
        typer.Option("--transcript", help="Show what models, tools and people said, in place of steps and state."),
    ] = False,
    request: Annotated[
        bool,
        typer.Option(
            "--request",
            help="With --at: print the request of the model call in record SEQ, to edit for `fork --request`.",
        ),
    ] = False,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Show the progress and state of a run.

    Shows what it was asked, its answer, error or open questions, then every step, its branches and its state.

    Example: orchestrator show 3f2a9c1d --at 12
    """
    if request:
        return _request(run, at, store)
    if transcript:
        return _transcript(run, at, json, store)

    async def look(executor: Executor) -> tuple[Run, list[Point], RunReasons, list[str], Sequence[Note]]:
        found = await run_lookup.loaded(executor, run, at)
        points, notes = await executor.history(run, at=found.seq), await executor.notes.list(run)
        return found, points, explainer_of(found).reasons(), await run_lookup.approvals(executor, found), notes

    url = storage.store_url(store)
    found, points, why, approved, notes = run_lookup.one_run(url, run, look)
    if at is None:
        note(found, url)
    if not json:
        waiting = report.waiting_text(run, found.waiting, None) if found.waiting else ""
        ahead = report.next_text(found, report.NextCommands(store)) if at is None or found.waiting else ""
        place = report.place_text(found)

        def shown(looks: Looks) -> str:
            text = visible(run_text(found, points, why, approved, waiting, ahead, place, notes, width=looks.width))
            return with_colours(text, found.status) if looks.colours else text

        out_made(shown)
    else:
        branches = [
            {"path": one.path, "node": one.node, "phase": one.phase, "values": dict(one.values)}
            for one in found.branches
        ]
        history = [point.to_json() for point in points]
        written = [dict(note.data()) for note in notes]
        more = redacted({"state": found.values, "branches": branches, "history": history, "notes": written})
        assert isinstance(more, dict)
        about = {"why": why.run, "untaken": [asdict(event) for event in why.untaken], "approvals": approved}
        out_json({**report.document(found, output=False), **about, **_standby(found), **more})
    if traceback:
        report.tell_traceback(found)
    return exits.COMPLETED


def _request(run: str, at: int | None, store: str | None) -> int:
    """Print the request of a model call."""

    if at is None:
        raise exits.UsageError(
            "--request needs --at SEQ: the record of a model call; `show RUN --transcript` lists them"
        )

    async def look(executor: Executor) -> ForkChoices:
        return await executor.forks.choices(run, at)

    found = run_lookup.one_run(storage.store_url(store), run, look).request
    if found is None:
        raise exits.UsageError(f"record {at} of run {run!r} is no call of a model: `show RUN --transcript` lists them")
    out_json(redacted(dict(found.request)))
    return exits.COMPLETED


def _transcript(run: str, at: int | None, json: bool, store: str | None) -> int:
    """Print the transcript of a run."""

    async def look(executor: Executor) -> list[Entry]:
        return (await run_lookup.loaded(executor, run, at)).transcript()

    entries = run_lookup.one_run(storage.store_url(store), run, look)
    if json:
        out_json(redacted([entry.to_json() for entry in entries]))
    else:
        out_made(lambda looks: visible(transcript_text(entries, width=looks.width)))
    return exits.COMPLETED


def _standby(run: Run) -> dict[str, object]:
    """Return when a run that no process drives continues, and why its last drive stopped."""

    found = run.standby
    if found is None:
        return {}
    return {
        "due": found.due,
        "deaths": found.deaths,
        "retry_at": found.retry_at,
        "fault": redacted(found.fault),
    }


def events(
    run: options.Run,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the run until it ends.")] = False,
    after: Annotated[int, typer.Option("--after", metavar="SEQ", min=0, help="Only events after record SEQ.")] = 0,
    style: Annotated[
        str | None,
        typer.Option("--style", metavar="NAME", help="embedia: the names and order of events of that framework."),
    ] = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Print the events of a run.

    Prints lines of JSON, the last one the result. On a terminal and without --json, prints lines of text, or with
    --follow a tree that is redrawn while the run continues. With --style, every event is printed in full.

    Example: orchestrator events 3f2a9c1d --json
    """

    if style not in (None, "embedia"):
        raise exits.UsageError(f"--style {style}: use embedia")
    named: Literal["embedia"] | None = "embedia" if style else None
    as_text = sys.stdout.isatty() and not json
    sink: report.Sink = report.JsonLines()
    if as_text:
        styled = report.Transcript(out) if style else None
        sink = styled or (report.Tree(out, sys.stdout) if follow else report.Plain(out))

    async def look(executor: Executor) -> Run:
        await sink.meet(executor, run, after)
        try:
            async for event in executor.events(run, after=after, follow=follow, style=named):
                sink.show(event)
        finally:
            sink.hold()
        return await executor.load(run)

    found = run_lookup.one_run(storage.store_url(store), run, look)
    if as_text:
        out(f"{line(run)}  {line(found.graph)}  {found.status}")
    else:
        note(found, storage.store_url(store))
        out_line(report.document(found, output=False))
    return exits.COMPLETED


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
        found = await run_lookup.loaded(executor, run)
        try:
            return found.why(seq)
        except ValueError as error:
            raise exits.UsageError(str(error)) from None

    stand = run_lookup.one_run(storage.store_url(store), run, look)
    out_json(stand.to_json()) if json else out(stand.to_text())
    return exits.COMPLETED


def stats(
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="NAMES",
            help="Group by these, separated by commas: day, graph, model, tool, node, label:KEY.",
        ),
    ] = "day,graph",
    since: Annotated[
        str | None, typer.Option("--since", metavar="AGE", help="Only runs started since: an age (2h, 3d) or a date.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="AGE", help="Only runs started before: an age or a date.")
    ] = None,
    graph: Annotated[str | None, typer.Option("--graph", metavar="G", help="Only runs of this graph, by name.")] = None,
    label: options.Labels = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Show what runs spent, in groups.

    Shows runs, failures, calls, tokens, cost and times. Days are in UTC.

    Example: orchestrator stats --by model --since 7d
    """

    names = tuple(name.strip() for name in by.split(",") if name.strip())
    times = {
        name: None if text is None else moment(text, f"--{name}").timestamp()
        for name, text in (("since", since), ("until", until))
    }
    labels, url = options.pairs(label), storage.store_url(store)

    async def found(executor: Executor) -> list[StatsRow]:
        try:
            return await executor.stats(names, graph=graph, labels=labels, **times)
        except InvalidValue as error:
            raise exits.UsageError(f"--by {by}: {error}") from None

    rows = run_lookup.looking(url, found) if storage.exists(url) else []
    if json:
        out_json([_stats_data(row) for row in rows])
    elif rows:
        out_made(partial(stats_table, names, rows, storage.currency()))
    else:
        every = not (labels or graph or since or until)
        warn(f"no runs in {storage.shown_url(url)}" if every else f"no such runs in {storage.shown_url(url)}")
    uncounted = sum(row.uncounted for row in rows)
    if uncounted and not json:
        warn(f"{uncounted} runs of an earlier version are not counted; `store check --repair` counts")
    return exits.COMPLETED


def _stats_data(row: StatsRow) -> dict[str, object]:
    return {
        "group": dict(row.group),
        "runs": row.runs,
        "statuses": dict(row.statuses),
        "failed_rate": row.failed_rate,
        "uncounted": row.uncounted,
        "calls": row.calls,
        "failed_calls": row.failed_calls,
        "tool_calls": row.tool_calls,
        "failed_tool_calls": row.failed_tool_calls,
        "failed_tool_rate": row.failed_tool_rate,
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
        "cost": row.cost,
        "unpriced": row.unpriced,
        "currency": storage.currency(),
        "seconds": row.seconds,
        "p50": row.p50,
        "p95": row.p95,
        "cache_savings": row.cache_savings,
        "replay_savings": row.replay_savings,
        "replayed_calls": row.replayed_calls,
    }
