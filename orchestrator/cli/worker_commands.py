"""Commands about runs that workers drive: worker, workers, enqueue, schedule."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import anyio
import typer

from orchestrator import engines
from orchestrator.cli import environment, exits, options, run_lookup, storage, traces
from orchestrator.cli.graph_refs import importing, module_from_name
from orchestrator.cli.launch_refs import Given
from orchestrator.cli.output import out, out_json, out_made, out_table, redacted, row_document, warn
from orchestrator.cli.run_input import input_of
from orchestrator.cli.run_session import engine_of, new_run_id, opened, submit
from orchestrator.cli.signals import run_async
from orchestrator.cli.trust import journal_seal
from orchestrator.cli.trust import seal as sealed
from orchestrator.errors import InvalidValue
from orchestrator.executor import App, WorkerHealth
from orchestrator.graph.refs import attribute, module_named, module_of_file
from orchestrator.render.terminal.tables import Cell, Column, worker_table
from orchestrator.stores.fair_claims import Turns
from orchestrator.values import utc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence

    from orchestrator.engines import ServedEngine
    from orchestrator.executor import Executor, WorkerInfo
    from orchestrator.stores import RunInfo, Schedule


@dataclass(frozen=True)
class Share:
    """Options that say which runs a worker drives, and how many at the same time."""

    slots: Annotated[
        int, typer.Option("--slots", metavar="N", min=1, help="Maximum number of runs at the same time.")
    ] = 20
    graph: Annotated[
        list[str] | None,
        typer.Option("--graphs", metavar="NAME", help="Only runs of this graph; repeatable.", show_default=False),
    ] = None
    graph_slots: Annotated[
        list[str] | None,
        typer.Option(
            "--graph-slots",
            metavar="NAME=N",
            help="Maximum number of runs of a graph at the same time; repeatable.",
            show_default=False,
        ),
    ] = None
    fair_by: Annotated[
        str | None,
        typer.Option("--fair-by", metavar="LABEL", help="Runs take turns by the values of this label."),
    ] = None


def worker(
    app: Annotated[
        str,
        typer.Option(
            "--app", metavar="MODULE:ATTR", help="An `App`, or a function that returns one.", show_default=False
        ),
    ],
    *,
    share: Share,
    grace: Annotated[
        float, typer.Option("--grace", metavar="S", min=0, help="Seconds that steps have to finish after SIGTERM.")
    ] = 10.0,
    health: Annotated[
        str | None,
        typer.Option(
            "--health", metavar="[HOST:]PORT", help="Serve /healthz, /readyz and /metrics there. HOST: 127.0.0.1."
        ),
    ] = None,
    engine: options.Engine = None,
    poll: Annotated[
        float | None,
        typer.Option(
            "--poll",
            metavar="S",
            help="Seconds between polls for runs. Default: 1, with an engine 30.",
            show_default=False,
        ),
    ] = None,
    store: options.Store = None,
) -> int:
    """Drive runs that no process drives, until SIGTERM or Ctrl-C.

    These are runs of the app's graphs that were enqueued, answered or interrupted, and whose time has come. Several
    workers can share a store. With --engine, an engine delivers them, and the worker looks only now and then for
    what it did not deliver. At SIGTERM the worker takes no more runs, lets steps end, and exits with code 0.

    Example: orchestrator worker --app shop.agents:app
    """

    url, by = storage.store_url(store), engine_of(engine)
    if poll is not None and not poll > 0:
        raise exits.UsageError(f"--poll {poll}: use a number above 0")
    if by is not None and (share.graph_slots or share.fair_by):
        raise exits.UsageError(
            "--graph-slots and --fair-by need a worker without --engine: an engine decides what comes next"
        )
    found = _app(app)
    unknown = [name for name in share.graph or () if name not in {one.name for one in found.graphs}]
    if unknown:
        known = ", ".join(one.name for one in found.graphs) or "none"
        raise exits.UsageError(f"--graphs {unknown[0]}: {app} has no such graph; it has {known}")
    bounds = _bounds(share.graph_slots or (), share.graph or [one.name for one in found.graphs])
    if share.fair_by is not None:
        _check_label(share.fair_by)
    work = _Work(share.slots, share.graph, bounds, share.fair_by, grace, poll, by)
    with _probes(health) as probes:
        anyio.run(partial(_work, found, url, work, probes))
    return exits.COMPLETED


@contextmanager
def _probes(address: str | None) -> Iterator[WorkerHealth]:
    """Serve the health of a worker at an address, if given.

    Raises:
        UsageError: the address is invalid, or cannot be bound.
    """

    health = WorkerHealth()
    if address is None:
        yield health
        return
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not port.isdecimal() or int(port) > 65535:
        raise exits.UsageError(f"--health {address}: use PORT or HOST:PORT, such as 127.0.0.1:9090")
    with ExitStack() as stack:
        try:
            bound = stack.enter_context(health.serving(host, int(port)))
        except OSError as error:
            raise exits.UsageError(f"--health {address}: {error.strerror or error}; use another address") from None
        warn(f"health: http://{host}:{bound}/healthz, /readyz and /metrics")
        yield health


class _Work(NamedTuple):
    slots: int
    graphs: list[str] | None
    graph_slots: dict[str, int]
    fair_by: str | None
    grace: float
    poll: float | None
    engine: ServedEngine | None

    async def on(self, executor: Executor, stop: anyio.Event, health: WorkerHealth) -> None:
        """Drive runs with an executor."""
        if self.engine is None:
            await executor.work(
                slots=self.slots,
                graphs=self.graphs,
                graph_slots=self.graph_slots,
                fair_by=self.fair_by,
                grace=self.grace,
                poll=self.poll or 1.0,
                stop=stop,
                health=health,
            )
            return

        try:
            await engines.work(
                executor,
                self.engine,
                slots=self.slots,
                graphs=self.graphs,
                grace=self.grace,
                poll=self.poll or engines.POLL,
                stop=stop,
                health=health,
            )
        finally:
            await self.engine.aclose()


def _bounds(given: Iterable[str], graphs: Collection[str]) -> dict[str, int]:
    """Return the maximum number of runs of each graph.

    Raises:
        UsageError: an entry is not a graph of the worker with a number.
    """
    found: dict[str, int] = {}
    for text in given:
        name, _, number = text.rpartition("=")
        if not number.isdecimal() or int(number) < 1:
            raise exits.UsageError(f"--graph-slots {text}: use NAME=N with N of 1 or more, such as report=2")
        if name not in graphs:
            raise exits.UsageError(f"--graph-slots {text}: the worker has {', '.join(graphs) or 'no graphs'}")
        found[name] = int(number)
    return found


def _check_label(name: str) -> None:

    try:
        Turns(name)
    except InvalidValue as error:
        raise exits.UsageError(f"--fair-by {name}: {error}") from None


async def _work(app: App, url: str, work: _Work, health: WorkerHealth) -> None:

    _log_runs()
    stop = anyio.Event()
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with anyio.create_task_group() as tasks:

            async def listen() -> None:
                async for number in signals:
                    if stop.is_set():
                        tasks.cancel_scope.cancel()
                    warn(f"{signal.Signals(number).name}: no more runs are started; another signal interrupts them")
                    stop.set()

            tasks.start_soon(listen)
            with traces.of_environment() as tracing:
                executor = app.executor(
                    url,
                    seal=journal_seal(url, make=True),
                    on_change=environment.on_change(),
                    restored_at=environment.restored_at(),
                    codec=storage.codec_of_environment(),
                    tracing=tracing,
                )
                async with executor:
                    names = ", ".join(work.graphs or [one.name for one in app.graphs])
                    warn(f"a worker for {names} on {storage.shown_url(url)}")
                    await work.on(executor, stop, health)
            tasks.cancel_scope.cancel()
    warn("the worker has ended; its runs were released")


def _log_runs() -> None:
    """Print a line on stderr for each run, and for each problem."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warn(str(redacted(record.getMessage())))

    log = logging.getLogger("orchestrator.worker")
    log.setLevel(logging.INFO)
    log.addHandler(Lines())
    log.propagate = False


def _app(ref: str) -> App:
    """Return the app that a reference names.

    Raises:
        UsageError: there is no such app.
    """

    place, colon, name = ref.partition(":")
    if not colon:
        raise exits.UsageError(f"--app {ref}: use module:attr or file.py:attr")
    environment.import_for(ref, os.getcwd())
    with importing(place):
        module = module_of_file(place) if place.endswith(".py") else module_from_name(module_named(place))
        found = attribute(module, name)
        if callable(found) and not isinstance(found, App):
            found = found()
    if not isinstance(found, App):
        raise exits.UsageError(f"--app {ref}: it is neither an App nor a function that returns one")
    return found


_PARKED = 100
"""Maximum number of parked runs in the list."""
_NAMED = 5
"""Maximum number of parked runs in text output."""


def workers(json: options.Json = False, store: options.Store = None) -> int:
    """List the workers of a store and the runs that they hold.

    Other processes that hold runs are listed, too. The list says whether each is alive. Parked runs are named.

    Example: orchestrator workers --store sqlite:///runs.db
    """

    url = storage.store_url(store)

    async def found(executor: Executor) -> tuple[Sequence[WorkerInfo], Sequence[RunInfo]]:
        return await executor.workers.list(), await executor.workers.parked(limit=_PARKED)

    working, parked = run_lookup.looking(url, found) if storage.exists(url) else ([], [])
    if json:
        out_json({"workers": [one.to_json() for one in working], "parked": [row_document(one) for one in parked]})
        return exits.COMPLETED
    if working:
        out_made(partial(worker_table, working))
    else:
        warn(f"no workers in {storage.shown_url(url)}")
    if parked:
        names = ", ".join(one.run_id for one in parked[:_NAMED]) + (", ..." if len(parked) > _NAMED else "")
        count = f"{len(parked)} or more" if len(parked) == _PARKED else len(parked)
        warn(f"parked runs: {count} ({names}): `orchestrator why RUN` explains one, `resume RUN` continues it")
    return exits.COMPLETED


def enqueue(
    graph: options.Graph,
    question: options.QuestionText = None,
    input: options.Input = None,  # noqa: A002  the name of the option
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="When it starts: ISO 8601, UTC by default, or Unix seconds."),
    ] = None,
    tools: options.Tools = None,
    model: options.Model = None,
    trust: options.Trust = None,
    run_id: options.RunId = None,
    label: options.Labels = None,
    approve: options.Approve = None,
    engine: options.Engine = None,
    store: options.Store = None,
) -> int:
    """Add a run that a worker, or `recover`, starts. Prints its id.

    Example: orchestrator enqueue tool_user "What is 20+(2*4)?" --at 2027-01-01T09:00
    """

    risk, labels, url = options.risk(approve), options.pairs(label), storage.store_url(store)
    due, by = _time(at), engine_of(engine)
    launch = Given.of(graph, tools, model, trust).new().quiet()  # this command calls no model
    code = launch.load()
    given = input_of(code.graph, question, input)
    name = new_run_id(run_id)
    refs = launch.refs()
    seal = sealed(name, refs, url)

    async def put() -> str:
        async with opened(url, code) as executor:
            added = await executor.enqueue(
                code.graph,
                given,
                run_id=name,
                labels=labels,
                approve=risk,
                at=due,
                refs={**refs, "seal": seal} if seal else refs,
            )
            await submit(by, added, due)
            return added

    out(run_async(put))
    return exits.COMPLETED


def _time(text: str | None) -> float | None:
    """Return a time in Unix seconds.

    Raises:
        UsageError: the text is not a time.
    """
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise exits.UsageError(f"--at {text}: use a date and time as ISO 8601, or Unix seconds") from None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


@dataclass(frozen=True)
class Other:
    """Options that list or change schedules, in place of making one."""

    list_: Annotated[bool, typer.Option("--list", help="List the schedules of the store.")] = False
    remove: Annotated[str | None, typer.Option("--remove", metavar="NAME", help="Remove a schedule.")] = None
    pause: Annotated[str | None, typer.Option("--pause", metavar="NAME", help="Pause a schedule.")] = None
    resume: Annotated[str | None, typer.Option("--resume", metavar="NAME", help="Resume a paused schedule.")] = None

    def named(self) -> list[tuple[Callable[[Executor, str], Awaitable[object]], str]]:
        """Return what to do with which schedule."""
        acts = ((_removed, self.remove), (_paused, self.pause), (_resumed, self.resume))
        return [(act, name) for act, name in acts if name is not None]


def schedule(
    graph: Annotated[
        str | None,
        typer.Argument(
            metavar="GRAPH",
            help="A shipped name, module:attr, module, file.py:attr, or a YAML or JSON file.",
            show_default=False,
        ),
    ] = None,
    cron: Annotated[
        str | None,
        typer.Argument(metavar="CRON", help="Minute, hour, day of month, month, day of week.", show_default=False),
    ] = None,
    question: options.QuestionText = None,
    input: options.Input = None,  # noqa: A002  the name of the option
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The schedule's name. Default: the graph's name.")
    ] = None,
    timezone: Annotated[
        str, typer.Option("--timezone", metavar="TZ", help="The time zone of CRON, such as Europe/Vienna.")
    ] = "UTC",
    catch_up: Annotated[
        str,
        typer.Option(
            "--catch-up", metavar="skip|one|all", help="Which missed times start runs when a worker is available again."
        ),
    ] = "skip",
    label: options.Labels = None,
    approve: options.Approve = None,
    trust: options.Trust = None,
    *,
    other: Other,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Start runs of a graph at given times, by workers.

    The schedule is a row of the store. `orchestrator worker` starts its runs; no time fires twice.

    Example: orchestrator schedule reports.py:daily "30 6 * * 1-5" --timezone Europe/Vienna
    """

    url = storage.store_url(store)
    named = other.named()
    if other.list_ or named:
        if graph is not None or len(named) + other.list_ > 1:
            raise exits.UsageError("--list, --remove, --pause and --resume take no GRAPH, and cannot be combined")
        if named:
            ((act, known),) = named
            return _done(url, act, known)
        found = run_lookup.looking(url, lambda executor: executor.schedules.list()) if storage.exists(url) else []
        if json:
            out_json([_row(one) for one in found])
        elif found:
            _show(found)
        return exits.COMPLETED
    if graph is None or cron is None:
        raise exits.UsageError(
            "name a GRAPH and a CRON expression, or use --list, --remove NAME, --pause NAME or --resume NAME"
        )
    made = _made(url, graph, cron, question, input, name, timezone, catch_up, label, approve, trust)
    if json:
        out_json(_row(made))
    else:
        _show([made])
    return exits.COMPLETED


def _made(
    url: str,
    graph: str,
    cron: str,
    question: str | None,
    given: str | None,
    name: str | None,
    timezone: str,
    catch_up: str,
    label: list[str] | None,
    approve: str | None,
    trust: list[str] | None,
) -> Schedule:

    risk, labels = options.risk(approve), options.pairs(label)
    found = Given.of(graph, None, None, trust).new().quiet().load().graph
    values = input_of(found, question, given)

    async def put(executor: Executor) -> Schedule:
        try:
            return await executor.schedules.put(
                found, cron, values, name=name, timezone=timezone, catch_up=catch_up, labels=labels, approve=risk
            )
        except (InvalidValue, ImportError) as error:
            raise exits.UsageError(str(error)) from None

    return run_lookup.looking(url, put, writes=True)


def _done(url: str, act: Callable[[Executor, str], Awaitable[object]], name: str) -> int:

    async def work(executor: Executor) -> object:
        try:
            return await act(executor, name)
        except ImportError as error:
            raise exits.UsageError(str(error)) from None

    if not storage.exists(url) or not run_lookup.looking(url, work, writes=True):
        warn(f"error: there is no schedule {name!r} in {storage.shown_url(url)}")
        return exits.UNKNOWN
    return exits.COMPLETED


def _removed(executor: Executor, name: str) -> Awaitable[object]:
    return executor.schedules.delete(name)


def _paused(executor: Executor, name: str) -> Awaitable[object]:
    return executor.schedules.pause(name)


def _resumed(executor: Executor, name: str) -> Awaitable[object]:
    return executor.schedules.resume(name)


def _row(one: Schedule) -> dict[str, object]:
    return {
        "name": one.name,
        "graph": one.graph,
        "cron": one.cron,
        "timezone": one.timezone,
        "catch_up": one.catch_up,
        "next_at": one.next_at,
        "labels": dict(one.labels),
        "values": dict(one.values),
        "approve": one.approve,
        "paused": one.paused,
    }


_TIME = "%Y-%m-%d %H:%M:%SZ"


def _show(schedules: Sequence[Schedule]) -> None:
    columns = (
        Column("schedule"),
        Column("graph", least=12),
        Column("cron"),
        Column("timezone", least=12),
        Column("next"),
    )
    rows = [
        (
            one.name,
            one.graph,
            one.cron,
            one.timezone,
            Cell("paused", "yellow") if one.paused else f"{utc(one.next_at):{_TIME}}",
        )
        for one in schedules
    ]
    out_table(columns, rows)
