"""Many runs resumed, each in its own code: `recover` and `resume --all`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import anyio

from orchestrator.cli.exits import COMPLETED, FAILED, INTERRUPTED, UsageError
from orchestrator.cli.interrupts import Interrupted, run_async
from orchestrator.cli.launch import Given, Launch, of_run
from orchestrator.cli.output import out, out_json, redacted, warn
from orchestrator.cli.report import NextCommands
from orchestrator.cli.run_session import opened
from orchestrator.cli.storage import codec_of_environment, exists, store_url
from orchestrator.cli.words import error_text
from orchestrator.errors import GraphChanged, OrchestratorError
from orchestrator.executor import Executor, ResumedRun
from orchestrator.executor.recovery import check_statuses, find
from orchestrator.render.terminal.colours import can_draw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.cli.options import Continuing
    from orchestrator.executor import Migration, Run
    from orchestrator.graph.limits import Limits
    from orchestrator.stores import RunInfo


async def recovered(url: str) -> tuple[list[Run], list[str]]:
    """The runs that were driven until they ended or paused, and why others could not be taken up."""

    groups: dict[Launch, list[str]] = {}
    faults: list[str] = []
    runs: list[Run] = []
    async with Executor(store=url, codec=codec_of_environment()) as looking:
        for run_id in await looking.workers.recoverable():
            try:
                found = await looking.load(run_id)
                command = f"orchestrator resume {run_id}"
                launch = of_run(run_id, found.root_id, found.refs, url, Given(), command=command)
            except (UsageError, OrchestratorError) as error:
                faults.append(f"{run_id}: {error_text(error)}")
            else:
                groups.setdefault(launch, []).append(run_id)

    async def resume_runs(launch: Launch, names: list[str]) -> None:
        try:
            code = launch.load()
        except (UsageError, OrchestratorError) as error:
            faults.extend(f"{name}: {error_text(error)}" for name in names)
            return
        async with opened(url, code) as executor:
            driven = await executor.recover(only=names)
            left = set(names) - {run.run_id for run in driven}
            runs.extend(driven)
            # Of these the executor has said why, if nobody else was quicker.
            faults.extend(
                f"{name}: it could not be resumed" for name in await executor.workers.recoverable() if name in left
            )

    async with anyio.create_task_group() as tasks:
        for launch, names in groups.items():
            tasks.start_soon(resume_runs, launch, names)
    return runs, faults


_COLUMN = 60
"""Characters of an error in the table."""


@dataclass(frozen=True)
class Batch:
    """The runs to resume, and how."""

    status: Collection[str]
    labels: Mapping[str, str]
    retry: bool = False
    limits: Limits | None = None
    approve: str | None = None
    accept_changes: bool = False
    wait: float = 0.0
    concurrency: int = 20
    migrate: Migration | None = None


@dataclass
class _Progress:
    """Results of the runs so far."""

    total: int = 0
    over: list[ResumedRun] = field(default_factory=list)
    tell: Callable[[ResumedRun, int, int], None] | None = None

    def note(self, one: ResumedRun) -> None:
        self.over.append(one)
        if self.tell is not None:
            self.tell(one, len(self.over), self.total)


def resume_batch(batch: Batch, then: Continuing) -> int:
    """Resume runs, show the progress on stderr and tell what became of each.

    Returns:
        0 if all of them completed or paused, else 1; 130 if it was interrupted.
    """

    try:
        check_statuses(batch.status, retry=batch.retry)
    except ValueError as error:
        said = str(error).replace("retry=True", "--retry").replace("status=", "--status ")
        raise UsageError(said) from None
    url = store_url(then.store)
    progress, code = _Progress(), COMPLETED
    if exists(url):
        try:
            with _shown(progress):
                run_async(partial(_work, url, batch, then, progress))
        except Interrupted:
            warn("interrupted; runs that were under way can be resumed")
            code = INTERRUPTED
    _tell(progress, json=then.json)
    if code == COMPLETED and any(one.status not in ("completed", "paused") for one in progress.over):
        code = FAILED
    return code


async def _work(url: str, batch: Batch, then: Continuing, progress: _Progress) -> None:

    given = Given.of(then.graph, then.tools, then.model, then.trust)
    name = _name_of(given)
    groups: dict[Launch, list[RunInfo]] = {}
    known: set[str] = set()
    """Runs that find this code by themselves."""
    async with Executor(store=url, codec=codec_of_environment()) as looking:
        found = await find(looking.store, looking.runs, batch.status, name, batch.labels, None)
        progress.total = len(found)
        for info in found:
            try:
                run = await looking.load(info.run_id)
                launch = _launch(run, url, given)
                if launch.is_found(run.root_id, run.refs, url):
                    known.add(info.run_id)
            except (UsageError, OrchestratorError) as error:
                progress.note(_refused(info, error))
            else:
                groups.setdefault(launch, []).append(info)

    def tell(launch: Launch, one: ResumedRun) -> None:
        code = () if one.run_id in known else launch.options()
        progress.note(_worded(one, NextCommands(then.store, code)))

    for launch, infos in groups.items():
        try:
            code = launch.quiet().admitted().load()
        except (UsageError, OrchestratorError) as error:
            for info in infos:
                progress.note(_refused(info, error))
            continue
        async with opened(url, code) as executor:
            await executor.resume_all(
                batch.status, only={info.run_id for info in infos}, retry=batch.retry, limits=batch.limits,
                approve=batch.approve, accept_changes=batch.accept_changes, migrate=batch.migrate, wait=batch.wait,
                concurrency=batch.concurrency, on_progress=partial(_first, partial(tell, launch)),
            )  # fmt: skip


def _name_of(given: Given) -> str | None:
    """The name of the graph whose runs are meant: `--graph` is a name, or refers to a graph that has one."""
    if given.graph is None or _is_name(given.graph):
        return given.graph
    return Given(graph=given.graph, trust=given.trust).new().load().graph.name


def _is_name(graph: str) -> bool:
    """Return True if it is a graph's name, and no reference to a module or file."""
    return graph.replace("-", "_").isidentifier()


def _launch(run: Run, url: str, given: Given) -> Launch:
    """The code of a run: a plain name in `--graph` only says which runs are meant, if the run itself knows its code."""
    if given.graph is not None and _is_name(given.graph):
        try:
            return of_run(
                run.run_id, run.root_id, run.refs, url, Given(None, given.tools, given.model, given.trust, given.models)
            )
        except UsageError:
            pass
    return of_run(run.run_id, run.root_id, run.refs, url, given)


def _first(tell: Callable[[ResumedRun], None], one: ResumedRun, _done: int, _all: int) -> None:
    tell(one)


def _worded(one: ResumedRun, commands: NextCommands) -> ResumedRun:
    """A run with its error as the command line words it."""
    error = one.exception
    if error is None:
        return one
    text = error_text(error, commands.store)
    if isinstance(error, GraphChanged) and error.options is not None:
        text = error.with_command(commands.resume(one.run_id, *error.options))
    return replace(one, error=f"{type(error).__name__}: {text}")


def _refused(info: RunInfo, error: Exception) -> ResumedRun:

    return ResumedRun(info.run_id, info.graph, info.status, "", f"{type(error).__name__}: {error_text(error)}")


# -- telling ---------------------------------------------------------------------------------------------------------


@contextmanager
def _shown(progress: _Progress) -> Iterator[None]:
    """Show the progress on stderr: a bar on a terminal, else a line for each run."""

    if not can_draw(sys.stderr):
        progress.tell = lambda one, done, total: warn(f"{done}/{total}  {_line(one)}")
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(file=sys.stderr)
    text, last = TextColumn("resuming"), TextColumn("{task.fields[last]}", markup=False)
    columns = text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), last
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("resuming", total=None, last="")

        def tell(one: ResumedRun, done: int, total: int) -> None:
            bar.update(task, total=total, completed=done, last=f"{one.run_id[:20]} {one.status or 'not resumed'}")

        progress.tell = tell
        yield


def _line(one: ResumedRun) -> str:
    why = f"  {redacted(one.error)}" if one.error else ""
    return f"{one.run_id}  {one.graph}  {one.before} -> {one.status or 'not resumed'}{why}"


def _tell(progress: _Progress, *, json: bool) -> None:
    counts: dict[str, int] = {}
    for one in progress.over:
        said = one.status or "not resumed"
        counts[said] = counts.get(said, 0) + 1
    left = progress.total - len(progress.over)
    if json:
        names = ("run_id", "graph", "before", "status", "error")
        rows = [{name: redacted(getattr(one, name)) for name in names} for one in progress.over]
        out_json({"runs": rows, "counts": counts, "left": left})
        return
    if not progress.total:
        warn("no run matches")
        return
    table = [
        (one.run_id, one.graph, one.before, one.status or "not resumed", _short(one.error)) for one in progress.over
    ]
    widths = [max(len(row[column]) for row in table) for column in range(4)] if table else []
    for row in table:
        cells = [f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)]
        out("  ".join((*cells, row[-1])).rstrip())
    said = ", ".join(f"{count} {name}" for name, count in counts.items())
    warn(f"{said}{f', {left} left' if left else ''}")


def _short(error: str) -> str:
    first = str(redacted(error)).partition("\n")[0]
    return first if len(first) <= _COLUMN else f"{first[: _COLUMN - 1]}…"
