"""Commands about which runs a store keeps, and where: export, import, delete, prune, archive, restore."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED, FAILED, UsageError
from orchestrator.cli.options import moment
from orchestrator.cli.output import out, out_json, warn, written
from orchestrator.cli.run_lookup import looking, one_run
from orchestrator.cli.storage import exists, shown_url, store_url

if TYPE_CHECKING:
    from orchestrator.executor import Executor
    from orchestrator.executor.retention import ArchivedRuns, Pruned
    from orchestrator.executor.transfer import Imported

Runs = Annotated[list[str], typer.Argument(metavar="RUN...", help="The ids of runs.", show_default=False)]
NoChildren = Annotated[bool, typer.Option("--no-children", help="Leave out the runs that graph tools started.")]


def export(
    runs: Runs,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="The file to write. Default: stdout.")
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Blank what looks like a secret. Such a file cannot be imported.")
    ] = False,
    no_children: NoChildren = False,
    store: options.Store = None,
) -> int:
    """Write runs as JSON Lines.

    Writes their records and graphs, and the runs that their graph tools started.

    Example: orchestrator export 3f2a9c1d -o run.jsonl
    """

    async def lines(executor: Executor) -> int:
        count = 0
        with written(output) as write:
            async for line in executor.export(runs, children=not no_children, redact=redact):
                write(line.encode() + b"\n")
                count += '"type":"run"' in line[:20]
        return count

    count = one_run(store_url(store), runs[0], lines)
    if output is not None:
        warn(f"{count} run{'s' if count != 1 else ''} written to {output}")
    return COMPLETED


def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="An exported file, or - for stdin.", show_default=False)],
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Add the runs of an exported file.

    The file is checked as a whole first. Approvals in it do not count: the runs ask again.

    Example: orchestrator import run.jsonl
    """

    if file != "-" and not os.path.exists(file):
        raise UsageError(f"{file}: there is no such file")

    async def add(executor: Executor) -> Imported:
        return await executor.import_(sys.stdin if file == "-" else file)

    found = looking(store_url(store), add, writes=True)
    if json:
        out_json({"runs": list(found.runs), "skipped": list(found.skipped)})
        return COMPLETED
    for run_id in found.runs:
        out(run_id)
    for run_id in found.skipped:
        warn(f"{run_id} is in the store already")
    return COMPLETED


def delete(runs: Runs, no_children: NoChildren = False, json: options.Json = False, store: options.Store = None) -> int:
    """Delete runs for good.

    The runs that their graph tools started are deleted with them. A run that is being driven is refused: cancel or
    pause it first.

    Example: orchestrator delete 3f2a9c1d
    """

    deleted: list[str] = []

    async def remove(executor: Executor) -> None:
        for run in runs:
            await executor.store.info(run)  # a misspelt id is reported before anything is deleted
        for run in dict.fromkeys(runs):
            if run not in deleted:
                deleted.extend(await executor.delete(run, children=not no_children))

    try:
        one_run(store_url(store), runs[0], remove, writes=True)
    finally:  # an error about one run must not hide the runs already deleted
        if json and deleted:
            out_json({"deleted": deleted})
        for run in () if json else deleted:
            out(run)
    return COMPLETED


def prune(
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="An age (30d, 12h, 45m) or a date (2026-01-31)."),
    ] = None,
    keep: Annotated[
        int | None, typer.Option("--keep", metavar="N", min=0, help="Keep the newest N of the matching runs.")
    ] = None,
    status: Annotated[
        list[str] | None,
        typer.Option("--status", metavar="S", help="completed, failed, cancelled or exhausted. Repeatable."),
    ] = None,
    graph: Annotated[str | None, typer.Option("--graph", metavar="G", help="Only runs of this graph, by name.")] = None,
    label: options.Labels = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs that would be deleted.")] = False,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Delete runs that have ended, by age and number.

    Items of memory and cache that have expired are removed, too.

    Example: orchestrator prune --older-than 30d --status completed --dry-run
    """

    if older_than is None and keep is None:
        raise UsageError("prune needs --older-than or --keep: without them it would delete every run that has ended")
    before = None if older_than is None else moment(older_than, "--older-than")
    labels, url = options.pairs(label), store_url(store)

    async def remove(executor: Executor) -> Pruned:
        try:
            return await executor.prune(
                older_than=before, status=status, labels=labels, graph=graph, keep=keep, dry_run=dry_run
            )
        except ValueError as error:
            raise UsageError(f"prune: {error}") from None

    if not exists(url):
        warn(f"no runs in {shown_url(url)}")
        return COMPLETED
    found = looking(url, remove, writes=not dry_run)
    if json:
        out_json(
            {
                "runs": list(found.runs), "children": list(found.children), "skipped": dict(found.skipped),
                "items": found.items, "dry_run": dry_run,
            }
        )  # fmt: skip
        return FAILED if found.skipped else COMPLETED
    for run_id in found.runs:
        out(run_id)
    for why in found.skipped.values():
        warn(f"not deleted: {why}")
    more = f", and {len(found.children)} that they had started" if found.children else ""
    warn(f"{len(found.runs)} runs {'would be ' if dry_run else ''}deleted{more}")
    if found.items:
        warn(f"{found.items} expired items {'would be ' if dry_run else ''}removed")
    return FAILED if found.skipped else COMPLETED


def archive(
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="URL",
            help="A folder (file:///var/archive), or s3://BUCKET/PREFIX.",
            envvar="ORCHESTRATOR_ARCHIVE",
            show_default=False,
        ),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="An age (30d, 12h, 45m) or a date (2026-01-31)."),
    ] = None,
    status: Annotated[
        list[str] | None,
        typer.Option("--status", metavar="S", help="completed, failed, cancelled or exhausted. Repeatable."),
    ] = None,
    graph: Annotated[str | None, typer.Option("--graph", metavar="G", help="Only runs of this graph, by name.")] = None,
    label: options.Labels = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs that would be archived.")] = False,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Move the records of ended runs to an archive.

    Their rows stay in the store. Set ORCHESTRATOR_ARCHIVE to the same URL, and all commands read archived runs as if
    they were in the store. Keys of S3 are read from the environment.

    Example: orchestrator archive --to file:///var/archive --older-than 30d
    """

    if to is None:
        raise UsageError("archive needs --to URL, or ORCHESTRATOR_ARCHIVE")
    if older_than is None:
        raise UsageError("archive needs --older-than AGE; 0s archives every run that has ended")
    before = moment(older_than, "--older-than")
    labels, url = options.pairs(label), store_url(store)

    async def move(executor: Executor) -> ArchivedRuns:
        try:
            return await executor.archive(older_than=before, status=status, labels=labels, graph=graph, dry_run=dry_run)
        except ValueError as error:
            raise UsageError(f"archive: {error}") from None

    if not exists(url):
        warn(f"no runs in {shown_url(url)}")
        return COMPLETED
    found = looking(url, move, writes=not dry_run, archive=to)
    if json:
        out_json(
            {
                "runs": found.runs, "skipped": found.skipped, "written": found.written, "freed": found.freed,
                "dry_run": dry_run,
            }
        )  # fmt: skip
        return FAILED if found.skipped else COMPLETED
    for run_id in found.runs:
        out(run_id)
    for why in found.skipped.values():
        warn(f"not archived: {why}")
    warn(
        f"{len(found.runs)} runs would be archived" if dry_run else
        f"{len(found.runs)} runs archived: {found.written:,} bytes written, {found.freed:,} given back"
    )  # fmt: skip
    return FAILED if found.skipped else COMPLETED


def restore(runs: Runs, json: options.Json = False, store: options.Store = None) -> int:
    """Move the records of archived runs back into the store.

    Needed only to read them without the archive: a run that goes on is restored by itself.

    Example: orchestrator restore 3f2a9c1d
    """

    async def move(executor: Executor) -> list[str]:
        for run in runs:
            await executor.store.info(run)  # a misspelt id is reported before anything is moved
        return [run for run in dict.fromkeys(runs) if await executor.restore(run)]

    moved = one_run(store_url(store), runs[0], move, writes=True)
    if json:
        out_json({"restored": moved})
        return COMPLETED
    for run in moved:
        out(run)
    for run in dict.fromkeys(runs):
        if run not in moved:
            warn(f"{run} is in the store already")
    return COMPLETED
