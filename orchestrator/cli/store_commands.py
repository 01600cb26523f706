"""Commands about whole stores: store copy, store check."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Self

import typer

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED, FAILED, UsageError
from orchestrator.cli.interrupts import run_look
from orchestrator.cli.output import out, out_json, warn
from orchestrator.cli.run_lookup import looking
from orchestrator.cli.storage import codec_of_environment, exists, place, shown_url, store_url
from orchestrator.errors import StoreError, StoreTooNew, StoreUnavailable, StoreUnsupported
from orchestrator.executor.checking import Checked
from orchestrator.stores import Finding, open_store
from orchestrator.stores.copying import copy_store

if TYPE_CHECKING:
    from orchestrator.executor import Executor
    from orchestrator.stores.copying import Copied


def copy(
    source: Annotated[str, typer.Argument(metavar="URL", help="The store to copy.", show_default=False)],
    to: Annotated[str, typer.Argument(metavar="URL", help="The store to add its runs to.", show_default=False)],
    start_schedules: Annotated[
        bool,
        typer.Option("--start-schedules", help="Let copied schedules begin runs. Without it they are paused."),
    ] = False,
    json: options.Json = False,
) -> int:
    """Copy all runs, schedules and memory of a store into another one.

    Asked again, it continues where it stopped, and copies what has happened since.
    Let workers work on one of the two stores only: unfinished runs are in both.

    Example: orchestrator store copy sqlite:///runs.db sqlite:////backup/runs.db
    """

    urls = [store_url(source), store_url(to)]
    places = [place(url) for url in urls]
    if None in places:
        raise UsageError("store copy: memory:// ends with this command; name two files, or databases")
    if places[0] == places[1]:
        raise UsageError("store copy: both URLs name the same store")
    if not exists(urls[0]):
        raise UsageError(f"store copy: there is no store {shown_url(urls[0])}")

    async def work() -> Copied:

        first = open_store(urls[0], codec=codec_of_environment())
        try:
            second = open_store(urls[1], codec=codec_of_environment())
            try:
                with ProgressLine("runs copied") as line:
                    return await copy_store(first, second, line.show, start_schedules=start_schedules)
            finally:
                await second.close()
        finally:
            await first.close()

    found = run_look(work)
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
            warn(f"{run_id}: {shown_url(urls[1])} has other records under this id; it was left as it is")
        for name in found.differing_schedules:
            warn(f"schedule {name}: {shown_url(urls[1])} has another one of this name; it was left as it is")
        for name in found.differing_items:
            warn(f"memory {name}: {shown_url(urls[1])} has another value there; it was left as it is")
    return FAILED if found.differing or found.differing_schedules or found.differing_items else COMPLETED


def check(
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

    url = store_url(store)
    if place(url) is None:
        raise UsageError("store check: memory:// ends with this command; name a file, or a database")
    if not exists(url):
        raise UsageError(f"store check: there is no store {shown_url(url)}")

    async def look(executor: Executor) -> Checked:
        with ProgressLine("runs checked") as line:
            return await executor.check(repair=repair, progress=line.show)

    try:
        found = looking(url, look, writes=repair)
    except (StoreTooNew, StoreUnavailable, StoreUnsupported):
        raise  # that says nothing about the store's order
    except StoreError as error:
        found = Checked(findings=[Finding(str(error))])
    if json:
        findings = [
            {"run_id": one.run_id or None, "what": one.what, "repaired": one.repaired or None, "note": one.note}
            for one in found.findings
        ]
        counts = {"runs": found.runs, "records": found.records, "unread": found.unread}
        out_json({"ok": found.ok, **counts, "findings": findings})
        return COMPLETED if found.ok else FAILED
    for one in found.findings:
        about = f"run {one.run_id}: " if one.run_id else ""
        done = f" - {one.repaired}" if one.repaired else ""
        out(f"{'note' if one.note else 'wrong'}: {about}{one.what}{done}")
    left = sum(not one.note and not one.repaired for one in found.findings)
    said = f"{left} {'thing is' if left == 1 else 'things are'} wrong" if left else "in order"
    if found.unread:
        said = f"{f'{said}; ' if left else ''}{found.unread} runs and items could not be read"
    warn(f"{found.runs} runs with {found.records} records checked: {said}")
    return COMPLETED if found.ok else FAILED


_EVERY = 0.1
"""Seconds between two updates."""


class ProgressLine:
    """Counts what is done. Use it in a `with` block, whose end removes the line.

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
        """Show how much is done."""
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
