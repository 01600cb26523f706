"""The command `runs`. It reads the store directly: loading an executor would take longer than printing the list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeVar, cast, get_args

import typer

from orchestrator.cli import exits, options, signals, storage
from orchestrator.cli.options import moment
from orchestrator.cli.output import out_json, out_made, row_document, warn
from orchestrator.executor.run_status import run_list
from orchestrator.render.terminal.tables import run_table
from orchestrator.render.terminal.texts import ago
from orchestrator.stores import open_store
from orchestrator.stores.requests import RunQuery, Sort

if TYPE_CHECKING:
    from orchestrator.stores import RunInfo, Store
    from orchestrator.stores.rows import Scanned

T = TypeVar("T")

STATUSES = ("running", "paused", "interrupted", "completed", "failed", "cancelled", "exhausted")


@dataclass(frozen=True)
class Filters:
    """Options that choose runs."""

    status: Annotated[
        str | None, typer.Option("--status", metavar="S", help=f"Only runs with this status: {', '.join(STATUSES)}.")
    ] = None
    failed: Annotated[bool, typer.Option("--failed", help="The same as --status failed.")] = False
    waiting: Annotated[bool, typer.Option("--waiting", help="Only runs with open questions.")] = False
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="AGE", help="Only runs written to since: an age (2h, 3d) or a date."),
    ] = None
    search: Annotated[
        str | None,
        typer.Option("--search", metavar="WORDS", help="Only runs with all of these words in labels, input or output."),
    ] = None
    anywhere: Annotated[
        str | None,
        typer.Option(
            "--anywhere",
            metavar="WORDS",
            help="Like --search, but also in prompts and data of tools. Reads journals, of the newest runs first, "
            "up to a limit.",
        ),
    ] = None
    failed_tool: Annotated[
        str | None,
        typer.Option(
            "--failed-tool", metavar="TOOL", help="Only runs in which a call of this tool failed; '*' is any."
        ),
    ] = None
    model: Annotated[
        str | None, typer.Option("--used-model", metavar="MODEL", help="Only runs that called this model.")
    ] = None
    tool: Annotated[
        str | None, typer.Option("--used-tool", metavar="TOOL", help="Only runs that called this tool.")
    ] = None
    diverged: Annotated[bool, typer.Option("--diverged", help="Only replays that diverged.")] = False
    no_replays: Annotated[bool, typer.Option("--no-replays", help="Leave out replays.")] = False
    graph: Annotated[str | None, typer.Option("--graph", metavar="G", help="Only runs of this graph, by name.")] = None
    label: options.Labels = None

    def wanted(self) -> tuple[str, ...] | None:
        """Return the statuses that the options name; None: any.

        Raises:
            UsageError: a status is unknown, or the options contradict each other.
        """
        if self.search is not None and self.anywhere is not None:
            raise exits.UsageError("--search and --anywhere: use one of them")
        if self.diverged and self.no_replays:
            raise exits.UsageError("--diverged and --no-replays: use one of them")
        return _statuses(self.status, failed=self.failed, waiting=self.waiting)


def runs(
    which: Filters,
    sort: Annotated[
        str,
        typer.Option("--sort", metavar="KEY", help=f"Sort by {', '.join(get_args(Sort))}; the largest comes first."),
    ] = "started",
    ascending: Annotated[
        bool, typer.Option("--ascending", help="The smallest, or the oldest run, comes first.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of runs to list.")] = 50,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """List runs, newest first.

    Shows what each run asks, why it failed, or its answer. A replay that ended where it diverged is `diverged`.

    Example: orchestrator runs --failed --since 2h
    """

    wanted, labels, url = which.wanted(), options.pairs(which.label), storage.store_url(store)
    after = None if which.since is None else moment(which.since, "--since").timestamp()
    key = _sort(sort)
    if which.anywhere is not None and (key != "started" or ascending):
        raise exits.UsageError("--anywhere reads the newest runs first: use --search with --sort or --ascending")

    scans: list[Scanned] = []

    async def listed(store: Store) -> Sequence[RunInfo]:

        found: list[RunInfo] = []
        cursor: str | None = None
        while len(found) < limit:
            query = RunQuery(
                status=wanted,
                graph=which.graph,
                labels=labels,
                search=which.search,
                since=after,
                waiting=which.waiting or None,
                failed_tool=which.failed_tool,
                model=which.model,
                tool=which.tool,
                diverged=which.diverged or None,
                replays=not which.no_replays,
                sort=key,
                ascending=ascending,
                after=cursor,
                limit=limit - len(found),
            )
            page = await run_list(store, query, q=which.anywhere)
            found += page.runs
            cursor = page.cursor
            scans.extend([page.scanned] if page.scanned is not None else [])
            if cursor is None or len(scans) >= _MOST_SCANS:
                break
        return found[:limit]

    found = reading(url, listed) if storage.exists(url) else ()
    if which.search is not None and storage.codec_of_environment() is not None:
        warn("--search finds only the labels of encrypted runs; --anywhere reads their journals")
    if scans and scans[-1].stopped:
        warn(_scanned(scans))
    if json:
        out_json([row_document(info) for info in found])
    elif found:
        out_made(partial(run_table, found))
    else:
        every = which == Filters()
        warn(f"no runs in {storage.shown_url(url)}" if every else f"no such runs in {storage.shown_url(url)}")
    return exits.COMPLETED


def _sort(name: str) -> Sort:
    """Return the key of `--sort`.

    Raises:
        UsageError: runs cannot be sorted by it.
    """
    known = get_args(Sort)
    if name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}? Use" if close else "use"
        raise exits.UsageError(f"--sort {name}: {hint} one of {', '.join(known)}")
    return cast("Sort", name)


_MOST_SCANS = 20
"""Pages of a search through journals that one command requests."""


def _scanned(scans: Sequence[Scanned]) -> str:
    """Return the progress of a search that has not read all runs."""

    runs, records = sum(one.runs for one in scans), sum(one.records for one in scans)
    back_to = next((one.back_to for one in reversed(scans) if one.back_to is not None), None)
    until = "" if back_to is None else f", back to {ago(back_to)}"
    return (
        f"searched {records:,} records of {runs:,} runs{until}; older ones were not searched, see --since and --graph"
    )


def _statuses(status: str | None, *, failed: bool, waiting: bool) -> tuple[str, ...] | None:
    """Return the statuses that options name; None: any.

    Raises:
        UsageError: a status is unknown, or the options contradict each other.
    """
    if status is not None and status not in STATUSES:
        close = get_close_matches(status, STATUSES, n=1)
        hint = f"did you mean {close[0]}? Use" if close else "use"
        raise exits.UsageError(f"--status {status}: {hint} one of {', '.join(STATUSES)}")
    named = [f"--status {status}"] * (status is not None) + ["--failed"] * failed + ["--waiting"] * waiting
    if len(named) > 1:
        raise exits.UsageError(f"{' and '.join(named)}: use one of them")
    return ("failed",) if failed else None if status is None else (status,)


def reading(url: str, look: Callable[[Store], Awaitable[T]]) -> T:
    """Return the result of `look` in an existing store, without an executor, which takes a while to load.

    Raises:
        KeyboardInterrupt: a signal arrived.
    """

    async def work() -> T:
        store = open_store(url, codec=storage.codec_of_environment())
        try:
            return await look(store)
        finally:
            await store.close()

    return signals.run_look(work)
