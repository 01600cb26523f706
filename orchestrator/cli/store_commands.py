"""Commands about what a store holds.

Runs: export, import, delete, prune, archive, restore. Whole stores: store copy, check, upgrade. Results of cached
nodes: cache list, clear, prune.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer
from msgspec import structs

from orchestrator.cli import environment, exits, options, run_lookup, signals, storage
from orchestrator.cli.options import moment, seconds
from orchestrator.cli.output import out, out_json, out_table, warn, written
from orchestrator.cli.trust import audit_seal
from orchestrator.errors import StoreError, StoreTooNew, StoreUnavailable, StoreUnsupported
from orchestrator.executor.checking import Checked
from orchestrator.render.terminal.tables import Column
from orchestrator.stores import Finding, open_store
from orchestrator.stores.copying import copy_store
from orchestrator.stores.places import is_database
from orchestrator.stores.upgrading import Tables, back_up, tables_of, upgrade
from orchestrator.values import utc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator.executor import Executor
    from orchestrator.executor.deletion import Erase
    from orchestrator.executor.retention import ArchivedRuns, Pruned
    from orchestrator.executor.transfer import Imported
    from orchestrator.stores.copying import Copied


Runs = Annotated[list[str], typer.Argument(metavar="RUN...", help="The ids of runs.", show_default=False)]
OlderThan = Annotated[
    str | None, typer.Option("--older-than", metavar="AGE", help="An age (30d, 12h, 45m) or a date (2026-01-31).")
]
Ended = Annotated[
    list[str] | None,
    typer.Option("--status", metavar="S", help="completed, failed, cancelled or exhausted. Repeatable."),
]
OfGraph = Annotated[str | None, typer.Option("--graph", metavar="G", help="Only runs of this graph, by name.")]
NoChildren = Annotated[bool, typer.Option("--no-children", help="Leave out the runs that graph tools started.")]


def export(
    runs: Runs,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="The file to write. Default: stdout.")
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Redact text that looks like a secret. Such a file cannot be imported.")
    ] = False,
    no_children: NoChildren = False,
    store: options.Store = None,
) -> int:
    """Write runs as JSON Lines.

    Writes their records and graphs, and the runs that their graph tools started.

    Example: orchestrator export 3f2a9c1d -o run.jsonl
    """

    storage.check_output(output, storage.store_url(store))
    name = "standard output" if output is None else os.path.abspath(output)

    async def write_all(executor: Executor) -> int:
        count = 0
        with written(output) as write:
            lines = executor.export(runs, children=not no_children, redact=redact, to=name, by=environment.user_name())
            async for line in lines:
                write(line.encode() + b"\n")
                count += '"type":"run"' in line[:20]
        return count

    count = run_lookup.one_run(storage.store_url(store), runs[0], write_all)
    if output is not None:
        warn(f"{count} run{'s' if count != 1 else ''} written to {output}")
    return exits.COMPLETED


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
        raise exits.UsageError(f"{file}: there is no such file")

    async def add(executor: Executor) -> Imported:
        return await executor.import_(sys.stdin if file == "-" else file)

    found = run_lookup.looking(storage.store_url(store), add, writes=True)
    if json:
        out_json({"runs": list(found.runs), "skipped": list(found.skipped)})
        return exits.COMPLETED
    for run_id in found.runs:
        out(run_id)
    for run_id in found.skipped:
        warn(f"{run_id} is in the store already")
    return exits.COMPLETED


def delete(
    runs: Runs,
    no_children: NoChildren = False,
    forks: Annotated[bool, typer.Option("--forks", help="Also delete their forks and replays.")] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="Also delete what they stored in memory, unless it has changed since.")
    ] = False,
    undo: Annotated[
        list[str] | None,
        typer.Option(
            "--undo", metavar="DIR", help="Also delete their edits from the history of this root. Repeatable."
        ),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the proof of deletion.")] = "",
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Delete runs for good.

    The runs that their graph tools started, and the results that they cached, are deleted with them. A proof of the
    deletion stays: see `orchestrator audit`. A run that is being driven is refused: cancel or pause it first.

    Example: orchestrator delete 3f2a9c1d
    """

    deleted: list[str] = []
    url = storage.store_url(store)
    also = [_history(root) for root in undo or ()]

    async def remove(executor: Executor) -> None:
        for run in runs:
            await executor.store.info(run)  # a misspelt id is reported before anything is deleted
        for run in dict.fromkeys(runs):
            if run not in deleted:
                deleted.extend(
                    await executor.delete(
                        run,
                        children=not no_children,
                        forks=forks,
                        memory=memory,
                        also=also,
                        by=environment.user_name(),
                        reason=reason,
                    )
                )

    try:
        run_lookup.one_run(url, runs[0], remove, writes=True, sealed=audit_seal(url, None, None))
    finally:  # an error about one run must not hide the runs already deleted
        if json and deleted:
            out_json({"deleted": deleted})
        for run in () if json else deleted:
            out(run)
    return exits.COMPLETED


def _history(root: str) -> Erase:
    from orchestrator.tools.builtin.files import Files  # only few deletions need it

    try:
        return Files(root).forget_edits
    except NotADirectoryError as error:
        raise exits.UsageError(f"--undo: {error}") from None


def prune(
    older_than: OlderThan = None,
    keep: Annotated[
        int | None, typer.Option("--keep", metavar="N", min=0, help="Keep the newest N of the matching runs.")
    ] = None,
    status: Ended = None,
    graph: OfGraph = None,
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
        raise exits.UsageError(
            "prune needs --older-than or --keep: without them it would delete every run that has ended"
        )
    before = None if older_than is None else moment(older_than, "--older-than")
    labels, url = options.pairs(label), storage.store_url(store)

    async def remove(executor: Executor) -> Pruned:
        try:
            return await executor.prune(
                older_than=before,
                status=status,
                labels=labels,
                graph=graph,
                keep=keep,
                dry_run=dry_run,
                by=environment.user_name(),
            )
        except ValueError as error:
            raise exits.UsageError(f"prune: {error}") from None

    if not storage.exists(url):
        warn(f"no runs in {storage.shown_url(url)}")
        return exits.COMPLETED
    seal = None if dry_run else audit_seal(url, None, None)
    found = run_lookup.looking(url, remove, writes=not dry_run, sealed=seal)
    if json:
        out_json(
            {
                "runs": list(found.runs),
                "children": list(found.children),
                "skipped": dict(found.skipped),
                "items": found.items,
                "dry_run": dry_run,
            }
        )
        return exits.FAILED if found.skipped else exits.COMPLETED
    for run_id in found.runs:
        out(run_id)
    for why in found.skipped.values():
        warn(f"not deleted: {why}")
    more = f", and {len(found.children)} that they had started" if found.children else ""
    warn(f"{len(found.runs)} runs {'would be ' if dry_run else ''}deleted{more}")
    if found.items:
        warn(f"{found.items} expired items {'would be ' if dry_run else ''}removed")
    return exits.FAILED if found.skipped else exits.COMPLETED


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
    older_than: OlderThan = None,
    status: Ended = None,
    graph: OfGraph = None,
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
        raise exits.UsageError("archive needs --to URL, or ORCHESTRATOR_ARCHIVE")
    if older_than is None:
        raise exits.UsageError("archive needs --older-than AGE; 0s archives every run that has ended")
    before = moment(older_than, "--older-than")
    labels, url = options.pairs(label), storage.store_url(store)

    async def move(executor: Executor) -> ArchivedRuns:
        try:
            return await executor.archive(older_than=before, status=status, labels=labels, graph=graph, dry_run=dry_run)
        except ValueError as error:
            raise exits.UsageError(f"archive: {error}") from None

    if not storage.exists(url):
        warn(f"no runs in {storage.shown_url(url)}")
        return exits.COMPLETED
    found = run_lookup.looking(url, move, writes=not dry_run, archive=to)
    if json:
        out_json(
            {
                "runs": found.runs,
                "skipped": found.skipped,
                "written": found.written,
                "freed": found.freed,
                "dry_run": dry_run,
            }
        )
        return exits.FAILED if found.skipped else exits.COMPLETED
    for run_id in found.runs:
        out(run_id)
    for why in found.skipped.values():
        warn(f"not archived: {why}")
    warn(
        f"{len(found.runs)} runs would be archived"
        if dry_run
        else f"{len(found.runs)} runs archived: {found.written:,} bytes written, {found.freed:,} given back"
    )
    return exits.FAILED if found.skipped else exits.COMPLETED


def restore(runs: Runs, json: options.Json = False, store: options.Store = None) -> int:
    """Move the records of archived runs back into the store.

    Needed only to read them without the archive: a run that continues is restored automatically.

    Example: orchestrator restore 3f2a9c1d
    """

    async def move(executor: Executor) -> list[str]:
        for run in runs:
            await executor.store.info(run)  # a misspelt id is reported before anything is moved
        return [run for run in dict.fromkeys(runs) if await executor.restore(run)]

    moved = run_lookup.one_run(storage.store_url(store), runs[0], move, writes=True)
    if json:
        out_json({"restored": moved})
        return exits.COMPLETED
    for run in moved:
        out(run)
    for run in dict.fromkeys(runs):
        if run not in moved:
            warn(f"{run} is in the store already")
    return exits.COMPLETED


def store_copy(
    source: Annotated[str, typer.Argument(metavar="URL", help="The store to copy.", show_default=False)],
    to: Annotated[str, typer.Argument(metavar="URL", help="The store to add its runs to.", show_default=False)],
    start_schedules: Annotated[
        bool,
        typer.Option("--start-schedules", help="Let copied schedules start runs. Without it they are paused."),
    ] = False,
    json: options.Json = False,
) -> int:
    """Copy all runs, schedules and memory of a store into another one.

    Run again, the command continues where it stopped, and copies what has been added since.
    Let workers work on one of the two stores only: unfinished runs are in both.

    Example: orchestrator store copy sqlite:///runs.db sqlite:////backup/runs.db
    """

    urls = [storage.store_url(source), storage.store_url(to)]
    places = [storage.place(url) for url in urls]
    if None in places:
        raise exits.UsageError("store copy: a memory:// store ends with this command; name two files, or databases")
    if places[0] == places[1]:
        raise exits.UsageError("store copy: both URLs name the same store")
    if not storage.exists(urls[0]):
        raise exits.UsageError(f"store copy: there is no store {storage.shown_url(urls[0])}")

    async def work() -> Copied:

        first = open_store(urls[0], codec=storage.codec_of_environment())
        try:
            second = open_store(urls[1], codec=storage.codec_of_environment())
            try:
                with ProgressLine("runs copied") as line:
                    return await copy_store(first, second, line.show, start_schedules=start_schedules)
            finally:
                await second.close()
        finally:
            await first.close()

    found = signals.run_look(work)
    fields = {name: list(getattr(found, name)) for name in ("runs", "extended", "skipped", "differing")}
    fields |= {name: list(getattr(found, name)) for name in ("schedules", "differing_schedules")}
    if json:
        out_json({**fields, "items": found.items, "differing_items": [*found.differing_items]})
    else:
        for name in ("runs", "extended"):
            for run_id in fields[name]:
                out(run_id)
        warn(
            f"{len(found.runs)} runs copied, {len(found.extended)} brought up to date, "
            f"{len(found.skipped)} were there already"
        )
        if found.schedules:
            how = "started" if start_schedules else "paused; `schedule --resume NAME` starts one"
            warn(f"{len(found.schedules)} schedules copied, {how}")
        if found.items:
            warn(f"{found.items} items of memory copied")
        for run_id in found.differing:
            warn(f"{run_id}: {storage.shown_url(urls[1])} has other records under this id; it was left as it is")
        for name in found.differing_schedules:
            warn(f"schedule {name}: {storage.shown_url(urls[1])} has another one with this name; it was left as it is")
        for name in found.differing_items:
            warn(f"memory {name}: {storage.shown_url(urls[1])} has another value there; it was left as it is")
    return exits.FAILED if found.differing or found.differing_schedules or found.differing_items else exits.COMPLETED


def store_check(
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair what can be repaired without losing anything.")
    ] = False,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Check a store: every record, graph and row.

    Says what it found and what it did. Exit code 1 if something is wrong and was not repaired, or could not be read, as
    without its key or archive.

    Example: orchestrator store check --repair
    """

    url = storage.store_url(store)
    if storage.place(url) is None:
        raise exits.UsageError("store check: a memory:// store ends with this command; name a file, or a database")
    if not storage.exists(url):
        raise exits.UsageError(f"store check: there is no store {storage.shown_url(url)}")

    async def look(executor: Executor) -> Checked:
        with ProgressLine("runs checked") as line:
            return await executor.check(repair=repair, progress=line.show)

    try:
        found = run_lookup.looking(url, look, writes=repair)
    except (StoreTooNew, StoreUnavailable, StoreUnsupported):
        raise  # this does not concern the store's consistency
    except StoreError as error:
        found = Checked(findings=[Finding(str(error))])
    if json:
        findings = [
            {"run_id": one.run_id or None, "what": one.what, "repaired": one.repaired or None, "note": one.note}
            for one in found.findings
        ]
        counts = {"runs": found.runs, "records": found.records, "unread": found.unread}
        out_json({"ok": found.ok, **counts, "findings": findings})
        return exits.COMPLETED if found.ok else exits.FAILED
    for one in found.findings:
        about = f"run {one.run_id}: " if one.run_id else ""
        done = f" - {one.repaired}" if one.repaired else ""
        out(f"{'note' if one.note else 'wrong'}: {about}{one.what}{done}")
    left = sum(not one.note and not one.repaired for one in found.findings)
    said = f"{left} {'thing is' if left == 1 else 'things are'} wrong" if left else "in order"
    if found.unread:
        said = f"{f'{said}; ' if left else ''}{found.unread} runs and items could not be read"
    warn(f"{found.runs} runs with {found.records} records checked: {said}")
    return exits.COMPLETED if found.ok else exits.FAILED


def store_upgrade(
    url: Annotated[
        str | None, typer.Argument(metavar="URL", help="The store. Default: ORCHESTRATOR_STORE.", show_default=False)
    ] = None,
    backup: Annotated[
        str | None,
        typer.Option("--backup", metavar="PATH", help="The file of the backup. Default: beside the store's file."),
    ] = None,
    no_backup: Annotated[bool, typer.Option("--no-backup", help="Make no backup.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Do it although processes work on the store.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    json: options.Json = False,
) -> int:
    """Bring the tables of a store that an earlier version wrote to those of this version.

    A file is copied first. Of a database, make a backup with its own tools, and say --no-backup. Killed in the middle,
    the command leaves the store as it was or upgraded. Exit code 7 if processes work on the store.

    Example: orchestrator store upgrade sqlite:///runs.db --backup runs-before.db
    """
    url = storage.store_url(url)
    shown = storage.shown_url(url)
    if storage.place(url) is None:
        raise exits.UsageError("store upgrade: a memory:// store ends with this command; name a file, or a database")
    if not storage.exists(url):
        raise exits.UsageError(f"store upgrade: there is no store {shown}")
    if backup is not None and no_backup:
        raise exits.UsageError("store upgrade: --backup and --no-backup exclude each other")
    found = tables_of(url)
    copy = None if no_backup or not found.steps else _backup_of(url, backup, found, dry_run=dry_run)
    work = "; ".join(found.steps) or ("nothing to upgrade" if found.version else "no tables yet: nothing to upgrade")
    warn(f"store {shown}: schema version {found.version}, of {found.newest}: {work}")
    held = found.steps and found.workers and not force
    if held:
        warn(
            f"not upgraded: {', '.join(found.workers)} may be working on the store, and refuses it afterwards if its "
            "version of the library is an earlier one; end it, or say --force"
        )
    made = bool(found.steps and not dry_run and not held)
    if made and copy is not None:
        with ProgressLine("pages copied") as line:
            back_up(url, copy, line.show)
        warn(f"backup: {copy}")
    if made:
        upgrade(url)
        warn(f"upgraded to schema version {found.newest}")
    if json:
        out_json({**asdict(found), "backup": str(copy) if made and copy is not None else None, "upgraded": made})
    return exits.CONFLICT if held else exits.COMPLETED


def _backup_of(url: str, given: str | None, found: Tables, *, dry_run: bool) -> Path | None:
    """Return the path of the backup; None: there is none to make."""
    if is_database(url):
        if dry_run and given is None:
            return None
        raise exits.UsageError(
            "store upgrade: make a backup of the database with its own tools, such as `pg_dump --format=custom "
            "--file=PATH DATABASE`, and say --no-backup"
        )
    file = storage.store_file(url)
    assert file is not None
    path = file.with_name(f"{file.name}.schema{found.version}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    path = path if given is None else Path(given)
    if os.path.lexists(path):
        raise exits.UsageError(f"store upgrade: {path} exists; name another file with --backup")
    return path


_EVERY = 0.1
"""Seconds between updates."""


class ProgressLine:
    """Progress line with a count. Use it in a `with` block, whose end removes the line.

    Args:
        what: what is counted, such as `runs copied`.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = False
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def show(self, done: int, total: int | None = None) -> None:
        """Show the current count."""
        now = time.monotonic()
        if now < self._next or not sys.stderr.isatty():
            return
        self._next = now + _EVERY
        self._shown = True
        print(
            f"\r{done:,}{'' if total is None else f' of {total:,}'} {self._what}", end="", file=sys.stderr, flush=True
        )

    def __exit__(self, *error: object) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


Graph = Annotated[str | None, typer.Argument(metavar="GRAPH", help="The name of a graph.", show_default=False)]
Node = Annotated[str | None, typer.Argument(metavar="NODE", help="The name of its node.", show_default=False)]


def cache_list(
    graph: Graph = None,
    node: Node = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1000, help="Maximum number of results.")
    ] = 100,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """List the results that are kept of nodes with cache=.

    Example: orchestrator cache list research
    """

    url = storage.store_url(store)
    found = (
        run_lookup.looking(url, lambda executor: executor.cache.list(graph, node, limit=limit))
        if storage.exists(url)
        else []
    )
    if json:
        out_json([structs.asdict(one) for one in found])
        return exits.COMPLETED
    columns = (
        Column("graph", least=12),
        Column("node", least=12),
        Column("key"),
        Column("bytes", right=True),
        Column("until", optional=True),
    )
    rows = [
        (
            one.graph,
            one.node,
            one.key,
            f"{one.size:,}",
            "" if one.expires is None else f"{utc(one.expires):%Y-%m-%d %H:%M:%SZ}",
        )
        for one in found
    ]
    if rows:
        out_table(columns, rows)
    return exits.COMPLETED


def cache_clear(graph: Graph = None, node: Node = None, json: options.Json = False, store: options.Store = None) -> int:
    """Remove kept results, so that their steps run again.

    Example: orchestrator cache clear research search
    """
    return _removed_results(lambda executor: executor.cache.clear(graph, node), store, json=json)


def cache_prune(
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="Also remove results that are older than this (such as 30d)."),
    ] = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Remove kept results that have expired.

    Example: orchestrator cache prune --older-than 30d
    """

    age = None if older_than is None else timedelta(seconds=seconds(older_than, "--older-than"))
    return _removed_results(lambda executor: executor.cache.prune(older_than=age), store, json=json)


def _removed_results(act: Callable[[Executor], Awaitable[int]], store: str | None, *, json: bool) -> int:

    async def remove(executor: Executor) -> int:
        removed = await act(executor)
        await executor.store.compact()
        return removed

    url = storage.store_url(store)
    removed = run_lookup.looking(url, remove, writes=True) if storage.exists(url) else 0
    if json:
        out_json({"removed": removed})
    else:
        warn(f"{removed} results removed")
    return exits.COMPLETED
