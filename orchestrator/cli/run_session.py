"""Drive a run from the command line: find its code, show progress, ask its questions, print its result.

Alternatively, leave it to workers, and submit it to the command's engine, if any.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Literal

import anyio
from msgspec import Struct, structs

from orchestrator.cli import environment, exits, report, run_lookup, signals, storage, terminal_questions, traces
from orchestrator.cli.launch_refs import Code, Given, Launch, of_run
from orchestrator.cli.options import Continuing
from orchestrator.cli.output import discard_output, error_text, out_line, redacted, shell_command, warn
from orchestrator.cli.report import NextCommands
from orchestrator.cli.trust import journal_seal, note
from orchestrator.cli.trust import seal as sealed
from orchestrator.engines import engine_at
from orchestrator.errors import (
    EngineUnavailable,
    GraphChanged,
    InvalidValue,
    ModelError,
    RunConflict,
    RunEnded,
    RunUnknown,
)
from orchestrator.executor import Executor
from orchestrator.executor.lease import is_held
from orchestrator.executor.start import check_new_id
from orchestrator.kernel.status import FINAL

if TYPE_CHECKING:
    from orchestrator.engines import ServedEngine
    from orchestrator.executor import Run


class Display(Struct, frozen=True):
    """How a command displays a run."""

    next_commands: report.NextCommands
    json: bool = False
    events: bool = False
    shows: bool = True
    """True if printed questions count as read by the user. False for commands that answer: users may repeat these
    without reading the next question.
    """
    traceback: bool = False
    """True if the traceback of a failed node is printed."""
    fork_again: Callable[..., str] = shell_command
    """Writes the command that forks the run, with more options."""

    def sink(self) -> report.Sink:
        """Return the destination of events."""
        return report.JsonLines() if self.events else report.Tree(warn, sys.stderr)


class TerminalSession:
    """Drives one run until it ends or asks a question that cannot be answered at this terminal."""

    def __init__(self, executor: Executor, run_id: str, sink: report.Sink, *, seen: int) -> None:
        self._executor, self._run_id, self._sink = executor, run_id, sink
        self._seen = seen
        self._left = False
        self._asker = terminal_questions.Asker()

    async def go(self, first: Callable[[], Awaitable[Run]], again: Callable[[], Awaitable[Run]]) -> Run:
        """Await `first`, then `again` for as long as the user answers questions."""
        await self._sink.meet(self._executor, self._run_id, self._seen)
        run = await self._watched(first)
        while run.status == "paused" and environment.on_terminal() and not self._left and await self._ask(run):
            run = await self._watched(partial(self._continue, again))
        return run

    async def _continue(self, again: Callable[[], Awaitable[Run]]) -> Run:
        """Await `again`; if another process drives the run, such as the one that answered, wait for that process."""
        while True:
            if not is_held(await self._executor.store.lease(self._run_id)):
                run = await self._executor.load(self._run_id)
                if run.status in FINAL:
                    return run
                with suppress(RunConflict):  # another process has just taken over the run
                    return await again()
            await anyio.sleep(terminal_questions.QUIET)

    async def _watched(self, act: Callable[[], Awaitable[Run]]) -> Run:
        """Await `act` and meanwhile show the run's events, all of them before it returns."""
        try:
            return await self._shown(act)
        finally:
            self._sink.hold()

    async def _shown(self, act: Callable[[], Awaitable[Run]]) -> Run:
        runs: list[Run] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow)
            runs.append(await act())
            tasks.cancel_scope.cancel()
        await self._show(follow=False)
        return runs[0]

    async def _follow(self) -> None:
        await self._show(follow=True)

    async def _show(self, *, follow: bool) -> None:
        async for event in self._executor.events(self._run_id, after=self._seen, follow=follow):
            if event.seq is not None:
                self._seen = event.seq
            self._sink.show(event)

    async def _ask(self, run: Run) -> bool:
        """Ask the open questions. Return True if any was answered, here or elsewhere."""
        answered = elsewhere = False
        try:
            for question in terminal_questions.askable(run.waiting):
                here = await terminal_questions.put(
                    self._executor, self._run_id, question, self._asker.ask, environment.user_name()
                )
                answered, elsewhere = answered or here, elsewhere or not here
        except terminal_questions.NoAnswer:
            self._left = True
        if elsewhere:
            await anyio.sleep(terminal_questions.QUIET)  # the process that answered may continue the run
        return answered or elsewhere


def drive(
    url: str, code: Code, run_id: str, begin: Callable[[Executor, Display], Awaitable[Run]], display: Display
) -> int:
    """Start a run with `begin`, drive it, print its result, and return the exit code."""

    async def work() -> Run:
        async with opened(url, code) as executor:
            return await begin(executor, display)

    try:
        run = signals.run_async(work)
    except signals.Interrupted:
        return _interrupted(url, code, run_id, display)
    except (BrokenPipeError, GraphChanged, ModelError, ExceptionGroup) as group:
        error = exits.alone(group)
        if isinstance(error, GraphChanged) and error.options is not None:
            command = display.next_commands.resume(run_id, *error.options)
            if error.verb == "fork":
                command = display.fork_again(*error.options)
            warn(f"error: {redacted(error.with_command(command))}")
            return exits.FAILED
        if isinstance(error, ModelError):
            warn(f"error: {redacted(error_text(error))}")
            return _interrupted(url, code, run_id, display, exit_code=exits.FAILED)
        if not isinstance(error, BrokenPipeError):
            raise
        discard_output()  # the reader of the events has disconnected
        return _interrupted(url, code, run_id, display)
    return _concluded(run, _knowing(run, url, code, display), exits.of_status(run.status))


def conclude(run: Run, display: Display) -> None:
    """Print a run's result as the display specifies."""
    if display.shows or not run.waiting:
        note(run, storage.store_url(display.next_commands.store))
    if display.events:
        out_line(report.document(run))
        report.tell_status(run, display.next_commands)
    else:
        report.tell(run, display.next_commands, json=display.json)
    if display.traceback:
        report.tell_traceback(run)


def _knowing(run: Run, url: str, code: Code, display: Display) -> Display:
    """Return the display with commands that name no code, if the run's own references now resolve to it."""
    if not code.launch.is_found(run.root_id, run.refs, url):
        return display
    return structs.replace(display, next_commands=structs.replace(display.next_commands, code=()))


def _interrupted(url: str, code: Code, run_id: str, display: Display, *, exit_code: int = exits.INTERRUPTED) -> int:
    try:
        run = run_lookup.load(url, run_id)
    except RunUnknown:
        warn(
            "interrupted; the store was in memory"
            if display.next_commands.gone
            else "interrupted before the run started"
        )
        return exit_code
    result = exits.of_status(run.status) if run.status in FINAL else exit_code
    return _concluded(run, _knowing(run, url, code, display), result)


def _concluded(run: Run, display: Display, code: int) -> int:
    with signals.telling(code):
        try:
            conclude(run, display)
        except BrokenPipeError:
            discard_output()
    return code


@asynccontextmanager
async def opened(
    url: str,
    code: Code,
    *further: Code,
    awake: bool = False,
    streams: Literal["watched", "always"] = "watched",
    writes: bool = True,
) -> AsyncIterator[Executor]:
    """Open an executor with a run's code. `ORCHESTRATOR_ON_CHANGE=strict` makes it refuse a graph that changed.

    Args:
        further: code with other graphs, and the same tools and model.
        awake: whether it resumes waiting runs automatically. A command that ends with its run does not.
        streams: see `Executor`.
        writes: whether anything is journaled. A command that only reads needs no key for seals.

    Raises:
        UsageError: `ORCHESTRATOR_ON_CHANGE` is neither `continue` nor `strict`.
    """

    strictness = environment.on_change()
    launches = {one.graph.name: one.launch for one in (code, *further)}
    graphs = [code.graph, *(one.graph for one in further)]
    async with closing_model(code):
        seal = journal_seal(url, make=writes)
        with traces.of_environment() as tracing:
            async with Executor(
                store=url,
                graphs=graphs,
                model=code.model,
                models=code.models,
                tools=code.tools,
                on_change=strictness,
                restored_at=environment.restored_at(),
                refs=partial(_named, launches, url),
                seal=seal,
                codec=storage.codec_of_environment(),
                idle="awake" if awake else "sleep",
                streams=streams,
                tracing=tracing,
            ) as executor:
                yield executor


def _named(
    launches: Mapping[str, Launch], url: str, root_id: str, graph: str, has: Mapping[str, object]
) -> Mapping[str, object] | None:
    """Return the references to store with a run, sealed; None if its existing ones suffice, or none can be sealed."""
    launch = launches.get(graph)
    if launch is None or launch.is_found(root_id, has, url):
        return None
    refs = launch.refs()
    seal = sealed(root_id, refs, url)
    return None if seal is None else {**refs, "seal": seal}


@asynccontextmanager
async def closing_model(code: Code) -> AsyncIterator[None]:
    """Close the models of the code at the end, if they can be closed."""
    try:
        yield
    finally:
        for model in (code.model, *code.models.values()):
            close = getattr(model, "aclose", None)
            if close is not None:
                with anyio.CancelScope(shield=True):
                    await close()


class Prepared(Struct, frozen=True):
    """A run that is ready to continue."""

    url: str
    run: Run
    code: Code
    display: Display


def prepare(run_id: str, then: Continuing, *, seen: Run | None = None, ended: Collection[str] = ()) -> Prepared:
    """Read a run, unless it was just `seen`, and import the code that it needs to continue.

    Args:
        run_id: the run's id.
        then: the options of the command.
        seen: the run.
        ended: the final statuses that are accepted.

    Raises:
        RunUnknown: there is no such run.
        RunEnded: it has ended.
        UsageError: its own references may not be used, and none were typed.
        GraphUnknown: code that it needs no longer exists.
    """
    url = storage.store_url(then.store)
    run = seen if seen is not None else run_lookup.load(url, run_id)
    if run.status in FINAL and run.status not in ended:
        raise RunEnded(run_id, run.status)
    try:
        launch = of_run(run_id, run.root_id, run.refs, url, Given.of(then.graph, then.tools, then.model, then.trust))
    except exits.UsageError as error:
        said = run_lookup.one_run(url, run_id, partial(run_lookup.approvals, run=run))
        listed = "".join(f"\n  {line}" for line in said)
        raise exits.UsageError(f"{error}\nIts recorded approvals:{listed}" if said else str(error)) from None
    launch = launch.admitted()
    display = display_of(run, url, then.store, json=then.json, launch=launch)
    return Prepared(url, run, launch.load(), structs.replace(display, traceback=then.traceback))


def typed(then: Continuing) -> tuple[str, ...]:
    """Return the code that the options of a command name, as options of the next command."""
    one = {"--graph": then.graph}
    many = {"--tools": then.tools, "--model": then.model, "--trust": then.trust}
    words = [word for name, value in one.items() if value is not None for word in (name, value)]
    return (*words, *(word for name, values in many.items() for value in values or () for word in (name, value)))


def display_of(run: Run, url: str, store: str | None, *, json: bool, launch: Launch | None = None) -> Display:
    """Return how to display a stored run. Its commands name the code, unless the run's own references find it."""
    known = launch is None or launch.is_found(run.root_id, run.refs, url)
    return Display(NextCommands(store, () if known or launch is None else launch.options()), json=json)


def new_run_id(given: str | None) -> str:
    """Return the id of a new run: the typed one, or a random one.

    Raises:
        UsageError: the typed id is not valid.
    """

    if given is None:
        return secrets.token_hex(8)
    try:
        return check_new_id(given)
    except ValueError as error:
        raise exits.UsageError(f"--run-id: {error}") from None


def engine_of(given: str | None) -> ServedEngine | None:
    """Return the engine of `--engine`, else of `ORCHESTRATOR_ENGINE`; None without either.

    Raises:
        UsageError: the URL is not that of an engine, or its extra is not installed.
    """
    url = given or os.environ.get("ORCHESTRATOR_ENGINE")
    if not url:
        return None

    try:
        return engine_at(url)
    except (InvalidValue, ImportError) as error:
        raise exits.UsageError(f"--engine {url}: {error}") from None


def continuation(engine: ServedEngine | None, resume: str) -> str:
    """Return how an answered run continues, as text. `resume`: the command that continues it here."""
    return f"to continue:\n  {resume}" if engine is None else "a worker continues it"


async def submit(engine: ServedEngine | None, run_id: str, at: float | None = None) -> None:
    """Submit a run for delivery, if there is an engine. `at`: when, in Unix seconds; None: immediately."""

    if engine is None:
        return
    try:
        await engine.submit(run_id, at=at)
    except EngineUnavailable as error:
        warn(f"{run_id} is in the store, and a worker will find it; it was not submitted: {error}")
    finally:
        await engine.aclose()


async def cancel_deliveries(engine: ServedEngine | None, run_id: str) -> None:
    """Cancel the deliveries of a run, if there is an engine."""

    if engine is None:
        return
    try:
        await engine.cancel(run_id)
    except EngineUnavailable as error:
        warn(f"{run_id} is cancelled; its deliveries stay with the engine, and do nothing: {error}")
    finally:
        await engine.aclose()
