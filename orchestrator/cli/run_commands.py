"""Commands that begin runs, go on with them, and stop them: run, resume, recover, pause, cancel."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli import options
from orchestrator.cli.engines import cancel as cancel_deliveries
from orchestrator.cli.engines import engine_of
from orchestrator.cli.environment import user_name
from orchestrator.cli.exits import COMPLETED, FAILED, INTERRUPTED, UsageError
from orchestrator.cli.interrupts import Interrupted, run_async
from orchestrator.cli.launch import Given
from orchestrator.cli.migration_options import Migrating, migration_of
from orchestrator.cli.options import input_of
from orchestrator.cli.output import out, out_json, warn
from orchestrator.cli.recovery import Batch, recovered, resume_batch
from orchestrator.cli.report import NextCommands, document
from orchestrator.cli.run_lookup import one_run
from orchestrator.cli.run_session import Display, TerminalSession, drive, new_run_id, prepare
from orchestrator.cli.storage import exists, place, store_url
from orchestrator.cli.trust import seal as sealed
from orchestrator.errors import InvalidValue, RunUnknown
from orchestrator.executor.resuming import nodes_of
from orchestrator.graph.limits import Limits
from orchestrator.kernel.status import FINAL

if TYPE_CHECKING:
    from orchestrator.engines import ServedEngine
    from orchestrator.executor import Executor, Run
    from orchestrator.graph_class import Graph


def run(
    graph: options.Graph,
    question: options.QuestionText = None,
    input: options.Input = None,  # noqa: A002  the name of the option
    tools: options.Tools = None,
    model: options.Model = None,
    trust: options.Trust = None,
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

    risk, labels, url = options.risk(approve), options.pairs(label), store_url(store)
    launch = Given.of(graph, tools, model, trust).new()
    code = launch.load()
    given = input_of(code.graph, question, input)
    stops = _stops(code.graph, pause_before, pause_after)
    code.graph.initial(given)  # a fault in the input is told before there is a run
    limits = _limits(code.graph, max_steps, max_seconds)
    name = new_run_id(run_id)
    refs = launch.refs()
    seal = sealed(name, refs, url)
    next_commands = NextCommands(store, () if seal else launch.options(), gone=place(url) is None)

    async def begin(executor: Executor, display: Display) -> Run:
        start = partial(
            executor.start, code.graph, given, run_id=name, labels=labels, approve=risk, limits=limits,
            refs={**refs, "seal": seal} if seal else refs, **stops,
        )  # fmt: skip
        joined = run_id is not None and await _exists(executor, name)
        # The run is there before its events are followed; `start` of the same id and input then waits for it.
        await executor.submit(*start.args, **start.keywords)
        if joined:
            warn(f"run {name} exists already: it is shown from its beginning, and continued unless it has ended")
        return await TerminalSession(executor, name, display.sink(), seen=0).go(start, partial(executor.resume, name))

    return drive(url, code, name, begin, Display(next_commands, json=json, events=events, traceback=traceback))


async def _exists(executor: Executor, run_id: str) -> bool:

    try:
        await executor.store.info(run_id)
    except RunUnknown:
        return False
    return True


def _stops(graph: Graph, before: list[str] | None, after: list[str] | None) -> dict[str, Any]:
    """The nodes at which a run pauses, as arguments; an empty name takes all of them away."""

    found: dict[str, Any] = {}
    try:
        for name, given in (("pause_before", before), ("pause_after", after)):
            if given:
                found[name] = nodes_of(graph, [one for one in given if one], "--" + name.replace("_", "-"))
    except InvalidValue as error:
        raise UsageError(str(error)) from None
    return found


def _limits(graph: Graph, steps: int | None, seconds: float | None) -> Limits | None:
    changes = options.limits(steps, seconds)
    return graph.limits.model_copy(update=changes) if changes else None


def resume(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="The run's id. Not with --all.", show_default=False)
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Resume all runs with one of the given --status, each in its own code.")
    ] = False,
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            metavar="S",
            help="With --all: failed, exhausted, cancelled (with --retry), interrupted or paused. Repeatable.",
        ),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="K=V", help="With --all: a label of the runs. Repeatable.")
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", min=1, help="With --all: how many runs at the same time.")
    ] = 20,
    retry: Annotated[
        bool,
        typer.Option(
            "--retry",
            help="Also continue a run that failed, was cancelled or spent a limit: what failed is done again.",
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
    *,
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
    if every:
        if run is not None or not status:
            raise UsageError("--all resumes many runs: give --status S, and no RUN")
        if then.traceback or pause_before or pause_after:
            raise UsageError("--traceback, --pause-before and --pause-after are for one run")
        batch = Batch(status, options.pairs(label), retry, limits, risk, accept_changes, wait, concurrency, migrate)
        return resume_batch(batch, then)
    if run is None or status or label:
        raise UsageError("give the id of a RUN; or --all with --status S, and --graph or --label as you need")
    prepared = prepare(run, then, ended=FINAL - {"completed"} if retry else ())

    stops = _stops(prepared.code.graph, pause_before, pause_after)

    async def begin(executor: Executor, display: Display) -> Run:
        first = partial(
            executor.resume, run, approve=risk, accept_changes=accept_changes, wait=wait, retry=retry, limits=limits,
            migrate=migrate, **stops,
        )  # fmt: skip
        return await TerminalSession(executor, run, display.sink(), seen=prepared.run.seq).go(
            first, partial(executor.resume, run)
        )

    return drive(prepared.url, prepared.code, run, begin, prepared.display)


def recover(json: options.Json = False, store: options.Store = None) -> int:
    """Resume all runs that were left behind.

    These are the runs that your command line started and that were interrupted, answered in the meantime, or are
    overdue. Exit code 1 if one of them could not be resumed, else 0, whatever their results.

    Example: orchestrator recover
    """

    url = store_url(store)
    runs: list[Run] = []
    faults: list[str] = []
    if exists(url):
        try:
            runs, faults = run_async(partial(recovered, url))
        except Interrupted:
            warn("interrupted; running runs can be recovered again")
            return INTERRUPTED
    if json:
        out_json([document(one) for one in runs])
    else:
        for one in runs:
            out(f"{one.run_id}  {one.graph}  {one.status}")
    for fault in faults:
        warn(f"error: {fault}")
    if not runs and not faults:
        warn("there is nothing to recover")
    return FAILED if faults else COMPLETED


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

    return _stop("cancel", run, reason, by, json=json, store=store, engine=engine_of(engine))


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
        found = await stop(run_id, by=by if by is not None else user_name(), reason=reason)
        await cancel_deliveries(engine, run_id)
        return found

    stopped = one_run(store_url(store), run_id, act, writes=True)
    if json:
        out_json(document(stopped))
    else:
        out(f"{run_id}  {stopped.graph}  {stopped.status}")
    return COMPLETED
