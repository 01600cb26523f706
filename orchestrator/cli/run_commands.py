"""Commands that start, resume and stop runs: run, resume, recover, pause, cancel.

`recover` and `resume --all` resume many runs, each with its own graph, tools and models.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer

from orchestrator.cli import environment, exits, options, run_lookup, run_session, signals, storage
from orchestrator.cli.fork_command import Migrating, migration_of
from orchestrator.cli.graph_options import with_options
from orchestrator.cli.launch_refs import Given, Launch, of_run
from orchestrator.cli.output import error_text, out, out_json, redacted, warn
from orchestrator.cli.report import NextCommands, document
from orchestrator.cli.run_input import input_of
from orchestrator.cli.trust import seal as sealed
from orchestrator.errors import GraphChanged, InvalidValue, OrchestratorError, RunUnknown
from orchestrator.executor import Executor, ResumedRun
from orchestrator.executor.resume_many import check_statuses, find
from orchestrator.executor.resuming import nodes_of
from orchestrator.graph.limits import Limits
from orchestrator.kernel.status import FINAL
from orchestrator.render.terminal.texts import can_draw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.cli.options import Continuing
    from orchestrator.engines import ServedEngine
    from orchestrator.executor import Executor, Migration, Run
    from orchestrator.graph.limits import Limits
    from orchestrator.graph_class import Graph
    from orchestrator.stores import RunInfo


def run(
    graph: options.Graph,
    question: options.QuestionText = None,
    input: options.Input = None,  # noqa: A002  the name of the option
    tools: options.Tools = None,
    model: options.Model = None,
    trust: options.Trust = None,
    settings: options.Set = None,
    run_id: options.RunId = None,
    label: options.Labels = None,
    max_steps: options.MaxSteps = None,
    max_seconds: options.MaxSeconds = None,
    approve: options.Approve = None,
    pause_before: options.PauseBefore = None,
    pause_after: options.PauseAfter = None,
    events: Annotated[
        bool, typer.Option("--events", help="Print every event as a line of JSON; the last line is the result.")
    ] = False,
    traceback: options.Traceback = False,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Run a graph until it ends or pauses.

    On a terminal it asks its questions. Without a terminal it pauses, with exit code 3.

    Example: orchestrator run tool_user "What is 20+(2*4)?" --approve none
    """

    risk, labels, url = options.risk(approve), options.pairs(label), storage.store_url(store)
    launch = Given.of(with_options(graph, settings), tools, model, trust).new()
    code = launch.load()
    given = input_of(code.graph, question, input)
    stops = _stops(code.graph, pause_before, pause_after)
    limits = _limits(code.graph, max_steps, max_seconds)
    name = run_session.new_run_id(run_id)
    refs = launch.refs()
    seal = sealed(name, refs, url)
    next_commands = NextCommands(store, () if seal else launch.options(), gone=storage.place(url) is None)

    async def begin(executor: Executor, display: run_session.Display) -> Run:
        start = partial(
            executor.start,
            code.graph,
            given,
            run_id=name,
            labels=labels,
            approve=risk,
            limits=limits,
            refs={**refs, "seal": seal} if seal else refs,
            **stops,
        )
        joined = run_id is not None and await _exists(executor, name)
        # The run exists before its events are followed; `start` with the same id and input then waits for it.
        await executor.submit(*start.args, **start.keywords)
        if joined:
            warn(f"run {name} exists already: it is shown from its beginning, and continued unless it has ended")
        return await run_session.TerminalSession(executor, name, display.sink(), seen=0).go(
            start, partial(executor.resume, name)
        )

    return run_session.drive(
        url, code, name, begin, run_session.Display(next_commands, json=json, events=events, traceback=traceback)
    )


async def _exists(executor: Executor, run_id: str) -> bool:

    try:
        await executor.store.info(run_id)
    except RunUnknown:
        return False
    return True


def _stops(graph: Graph, before: list[str] | None, after: list[str] | None) -> dict[str, Any]:
    """Return the nodes at which a run pauses, as arguments; an empty name removes all."""

    found: dict[str, Any] = {}
    try:
        for name, given in (("pause_before", before), ("pause_after", after)):
            if given:
                found[name] = nodes_of(graph, [one for one in given if one], "--" + name.replace("_", "-"))
    except InvalidValue as error:
        raise exits.UsageError(str(error)) from None
    return found


def _limits(graph: Graph, steps: int | None, seconds: float | None) -> Limits | None:
    changes = options.limits(steps, seconds)
    return graph.limits.model_copy(update=changes) if changes else None


@dataclass(frozen=True)
class Many:
    """Options that resume many runs."""

    every: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Resume all runs with one of the given --status, each with its own graph, tools and models.",
        ),
    ] = False
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            metavar="S",
            help="With --all: failed, exhausted, cancelled (with --retry), interrupted or paused. Repeatable.",
        ),
    ] = None
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="K=V", help="With --all: a label of the runs. Repeatable.")
    ] = None
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", min=1, help="With --all: how many runs at the same time.")
    ] = 20


def resume(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="The run's id. Not with --all.", show_default=False)
    ] = None,
    *,
    many: Many,
    retry: Annotated[
        bool,
        typer.Option(
            "--retry",
            help="Also continue a run that failed, was cancelled or spent a limit: failed steps run again.",
        ),
    ] = False,
    max_steps: options.MaxSteps = None,
    max_seconds: options.MaxSeconds = None,
    approve: options.Approve = None,
    pause_before: options.PauseBefore = None,
    pause_after: options.PauseAfter = None,
    accept_changes: Annotated[
        bool,
        typer.Option(
            "--accept-changes",
            help="Continue with changed tools, and in a graph that changed ahead of the run.",
        ),
    ] = False,
    wait: Annotated[
        float,
        typer.Option("--wait", metavar="S", min=0, help="Seconds to wait for another process that holds the run."),
    ] = 0.0,
    how: Migrating,
    then: options.Continuing,
) -> int:
    """Resume an interrupted or paused run until it ends or pauses.

    With --retry also one that failed, was cancelled or spent a limit. With --all every run of a --status, and of a
    --graph or --label. To answer questions, use `answer`, `approve` or `deny`.

    Example: orchestrator resume 3f2a9c1d
    """

    risk, changes = options.risk(approve), options.limits(max_steps, max_seconds)
    limits, migrate = Limits.model_validate(changes) if changes else None, migration_of(how)
    if many.every:
        if run is not None or not many.status:
            raise exits.UsageError("--all resumes many runs: give --status S, and no RUN")
        if then.traceback or pause_before or pause_after:
            raise exits.UsageError("--traceback, --pause-before and --pause-after are for one run")
        batch = Batch(
            many.status, options.pairs(many.label), retry, limits, risk, accept_changes, wait, many.concurrency, migrate
        )
        return resume_batch(batch, then)
    if run is None or many.status or many.label:
        raise exits.UsageError("give the id of a RUN, or --all with --status S and, if needed, --graph or --label")
    prepared = run_session.prepare(run, then, ended=FINAL - {"completed"} if retry else ())

    stops = _stops(prepared.code.graph, pause_before, pause_after)

    async def begin(executor: Executor, display: run_session.Display) -> Run:
        first = partial(
            executor.resume,
            run,
            approve=risk,
            accept_changes=accept_changes,
            wait=wait,
            retry=retry,
            limits=limits,
            migrate=migrate,
            **stops,
        )
        return await run_session.TerminalSession(executor, run, display.sink(), seen=prepared.run.seq).go(
            first, partial(executor.resume, run)
        )

    return run_session.drive(prepared.url, prepared.code, run, begin, prepared.display)


def recover(json: options.Json = False, store: options.Store = None) -> int:
    """Resume all runs whose process has ended.

    These are the runs that your command line started and that were interrupted, answered in the meantime, or are
    overdue. Exit code 1 if one of them could not be resumed, else 0, whatever their results.

    Example: orchestrator recover
    """

    url = storage.store_url(store)
    runs: list[Run] = []
    faults: list[str] = []
    if storage.exists(url):
        try:
            runs, faults = signals.run_async(partial(recovered, url))
        except signals.Interrupted:
            warn("interrupted; running runs can be recovered again")
            return exits.INTERRUPTED
    if json:
        out_json([document(one) for one in runs])
    else:
        for one in runs:
            out(f"{one.run_id}  {one.graph}  {one.status}")
    for fault in faults:
        warn(f"error: {fault}")
    if not runs and not faults:
        warn("there is nothing to recover")
    return exits.FAILED if faults else exits.COMPLETED


Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason, for the journal.")]


def pause(
    run: options.Run,
    reason: Reason = "",
    by: options.By = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Pause a run, whichever process drives it.

    Running steps finish, and no new step starts; then this command ends. `resume` continues the run.

    Example: orchestrator pause 3f2a9c1d
    """
    return _stop("pause", run, reason, by, json=json, store=store)


def cancel(
    run: options.Run,
    reason: Reason = "",
    by: options.By = None,
    engine: options.Engine = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Cancel a run, whichever process drives it.

    Finished steps stay in its journal.

    Example: orchestrator cancel 3f2a9c1d
    """

    return _stop("cancel", run, reason, by, json=json, store=store, engine=run_session.engine_of(engine))


def _stop(
    kind: str,
    run_id: str,
    reason: str,
    by: str | None,
    *,
    json: bool,
    store: str | None,
    engine: ServedEngine | None = None,
) -> int:

    async def act(executor: Executor) -> Run:
        stop = executor.pause if kind == "pause" else executor.cancel
        found = await stop(run_id, by=by if by is not None else environment.user_name(), reason=reason)
        await run_session.cancel_deliveries(engine, run_id)
        return found

    stopped = run_lookup.one_run(storage.store_url(store), run_id, act, writes=True)
    if json:
        out_json(document(stopped))
    else:
        out(f"{run_id}  {stopped.graph}  {stopped.status}")
    return exits.COMPLETED


async def recovered(url: str) -> tuple[list[Run], list[str]]:
    """Return the runs that were driven until they ended or paused, and why others could not be resumed."""

    groups: dict[Launch, list[str]] = {}
    faults: list[str] = []
    runs: list[Run] = []
    async with Executor(store=url, codec=storage.codec_of_environment()) as looking:
        for run_id in await looking.workers.recoverable():
            try:
                found = await looking.load(run_id)
                command = f"orchestrator resume {run_id}"
                launch = of_run(run_id, found.root_id, found.refs, url, Given(), command=command)
            except (exits.UsageError, OrchestratorError) as error:
                faults.append(f"{run_id}: {error_text(error)}")
            else:
                groups.setdefault(launch, []).append(run_id)

    async def resume_runs(launch: Launch, names: list[str]) -> None:
        try:
            code = launch.load()
        except (exits.UsageError, OrchestratorError) as error:
            faults.extend(f"{name}: {error_text(error)}" for name in names)
            return
        async with run_session.opened(url, code) as executor:
            driven = await executor.recover(only=names)
            left = set(names) - {run.run_id for run in driven}
            runs.extend(driven)
            # The executor has reported the reason for these, unless another process was first.
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
    """Resume runs, show the progress on stderr and print the result of each.

    Returns:
        0 if all of them completed or paused, else 1; 130 if it was interrupted.
    """

    try:
        check_statuses(batch.status, retry=batch.retry)
    except ValueError as error:
        said = str(error).replace("retry=True", "--retry").replace("status=", "--status ")
        raise exits.UsageError(said) from None
    url = storage.store_url(then.store)
    progress, code = _Progress(), exits.COMPLETED
    if storage.exists(url):
        try:
            with _shown(progress):
                signals.run_async(partial(_work, url, batch, then, progress))
        except signals.Interrupted:
            warn("interrupted; runs that were under way can be resumed")
            code = exits.INTERRUPTED
    _tell(progress, json=then.json)
    if code == exits.COMPLETED and any(one.status not in ("completed", "paused") for one in progress.over):
        code = exits.FAILED
    return code


async def _work(url: str, batch: Batch, then: Continuing, progress: _Progress) -> None:

    given = Given.of(then.graph, then.tools, then.model, then.trust)
    name = _name_of(given)
    groups: dict[Launch, list[RunInfo]] = {}
    known: set[str] = set()
    """Ids of runs whose own references lead to this code, so that commands for them need no options."""
    async with Executor(store=url, codec=storage.codec_of_environment()) as looking:
        found = await find(looking.store, looking.runs, batch.status, name, batch.labels, None)
        progress.total = len(found)
        for info in found:
            try:
                run = await looking.load(info.run_id)
                launch = _launch(run, url, given)
                if launch.is_found(run.root_id, run.refs, url):
                    known.add(info.run_id)
            except (exits.UsageError, OrchestratorError) as error:
                progress.note(_refused(info, error))
            else:
                groups.setdefault(launch, []).append(info)

    def tell(launch: Launch, one: ResumedRun) -> None:
        code = () if one.run_id in known else launch.options()
        progress.note(_worded(one, NextCommands(then.store, code)))

    for launch, infos in groups.items():
        try:
            code = launch.quiet().admitted().load()
        except (exits.UsageError, OrchestratorError) as error:
            for info in infos:
                progress.note(_refused(info, error))
            continue
        async with run_session.opened(url, code) as executor:
            await executor.resume_all(
                batch.status,
                only={info.run_id for info in infos},
                retry=batch.retry,
                limits=batch.limits,
                approve=batch.approve,
                accept_changes=batch.accept_changes,
                migrate=batch.migrate,
                wait=batch.wait,
                concurrency=batch.concurrency,
                on_progress=partial(_first, partial(tell, launch)),
            )


def _name_of(given: Given) -> str | None:
    """Return the name of the graph whose runs are meant: `--graph` is a name, or refers to a graph with one."""
    if given.graph is None or _is_name(given.graph):
        return given.graph
    return Given(graph=given.graph, trust=given.trust).new().load().graph.name


def _is_name(graph: str) -> bool:
    """Return True if it is a graph's name, not a reference to a module or file."""
    return graph.replace("-", "_").isidentifier()


def _launch(run: Run, url: str, given: Given) -> Launch:
    """Return the code of a run. A plain name in `--graph` only selects runs, if the run itself has references."""
    if given.graph is not None and _is_name(given.graph):
        try:
            return of_run(
                run.run_id, run.root_id, run.refs, url, Given(None, given.tools, given.model, given.trust, given.models)
            )
        except exits.UsageError:
            pass
    return of_run(run.run_id, run.root_id, run.refs, url, given)


def _first(tell: Callable[[ResumedRun], None], one: ResumedRun, _done: int, _all: int) -> None:
    tell(one)


def _worded(one: ResumedRun, commands: NextCommands) -> ResumedRun:
    """Return a run with its error in the wording of the command line."""
    error = one.exception
    if error is None:
        return one
    text = error_text(error, commands.store)
    if isinstance(error, GraphChanged) and error.options is not None:
        text = error.with_command(commands.resume(one.run_id, *error.options))
    return replace(one, error=f"{type(error).__name__}: {text}")


def _refused(info: RunInfo, error: Exception) -> ResumedRun:

    return ResumedRun(info.run_id, info.graph, info.status, "", f"{type(error).__name__}: {error_text(error)}")


# -- output ----------------------------------------------------------------------------------------------------------


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
