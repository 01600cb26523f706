"""Report of a run: its events while it is driven, its result, and the commands that continue it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from msgspec import Struct

from orchestrator._lazy import lazy_modules
from orchestrator.cli.explain_command import hint
from orchestrator.cli.output import out, out_json, out_line, quoted, redacted, shell_command, warn
from orchestrator.errors import StoreCorrupt
from orchestrator.render.terminal import texts
from orchestrator.render.terminal.event_lines import EventLines, question_text
from orchestrator.render.terminal.texts import can_draw
from orchestrator.stores.places import shown_url
from orchestrator.views.call_questions import outcome_choices
from orchestrator.views.tracebacks import place_of
from orchestrator.views.worker_info import moment
from orchestrator.visible import behind, exact, line, narrow

if TYPE_CHECKING:
    from orchestrator.executor import Event, Executor, Run
    from orchestrator.kernel.question import Question
    from orchestrator.render.terminal import tree as trees
else:  # a tree is shown only on a terminal
    (trees,) = lazy_modules("orchestrator.render.terminal", "tree")


class Sink(Protocol):
    """Destination of the events of a run while it is driven."""

    async def meet(self, executor: Executor, run_id: str, seen: int) -> None:
        """Set the run whose events follow; `seen`: the last record already read."""

    def show(self, event: Event) -> None:
        """Show one event, in order."""

    def hold(self) -> None:
        """Stop drawing while the run waits, for a question or the result."""


class Plain:
    """Prints a line of text for each event of interest to a user."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._lines = EventLines()

    async def meet(self, executor: Executor, run_id: str, seen: int) -> None:
        """Do nothing: this display needs no data about the run beforehand."""

    def show(self, event: Event) -> None:
        text = self._lines.text(event)
        if text is not None:
            self._write(text)

    def hold(self) -> None:
        """Do nothing: printed lines stay."""


class Transcript(Plain):
    """Prints every event of a style in full: a line with its time, publisher and name, then its data."""

    def show(self, event: Event) -> None:
        data: Any = redacted(event.to_json())
        head = f"[time: {data['timestamp']}] [id: {data['id']}] [event: {data['event']}]"
        facts = [f"{name}: {value}" for name, value in data["data"].items() if value is not None]
        self._write("\n".join((head, *facts, "")))


_BEFORE = 400
"""Latest records of a long run that a tree shows; it counts the steps before them."""


class Tree:
    """Shows the run as a tree that is redrawn as it grows; lines of text where no tree can be drawn.

    Args:
        write: prints a line of text.
        stream: stream of the output.
    """

    def __init__(self, write: Callable[[str], None], stream: TextIO) -> None:
        self._stream = stream
        self._plain = Plain(write)
        self._screen: trees.Screen | None = None
        self._until = 0
        """Number of records already read when the first output is shown."""

    async def meet(self, executor: Executor, run_id: str, seen: int) -> None:
        self._screen = None
        if not can_draw(self._stream):
            return

        with suppress(StoreCorrupt):  # lines show the readable part, and then the location of the damage
            run = await executor.load(run_id)
            self._until = max(seen, run.seq - _BEFORE)
            screen = trees.Screen(run.plan, self._stream)
            async for event in executor.events(run_id):
                if event.seq is None or event.seq > self._until:
                    break
                screen.past(event)
            screen.begin()
            self._screen = screen

    def show(self, event: Event) -> None:
        if self._screen is None:
            self._plain.show(event)
        elif event.type == "migrated" and not self._screen.knows(event):  # the run continues with another graph
            self._screen.hold()
            self._screen = None
            self._plain.show(event)
        elif event.seq is None or event.seq > self._until:
            self._screen.show(event)

    def hold(self) -> None:
        (self._screen or self._plain).hold()


class JsonLines:
    """Prints every event as a line of JSON on stdout."""

    async def meet(self, executor: Executor, run_id: str, seen: int) -> None:
        pass

    def show(self, event: Event) -> None:
        out_line(redacted(event.to_json()))

    def hold(self) -> None:
        pass


class NextCommands(Struct, frozen=True):
    """Writes the commands that continue a run, with the options that they need."""

    store: str | None = None
    """The value of `--store`; None if the next command does not need it. A password in it is not shown."""
    code: tuple[str, ...] = ()
    """`--graph`, `--tools` and `--model`, if the run's own references will not be used."""
    gone: bool = False
    """True if the store ends with this command, so the run cannot be continued."""

    def resume(self, run_id: str, *options: str) -> str:
        """Return the command that resumes a run."""
        return shell_command("resume", run_id, *options, *self.code, *self._where())

    def fork(self, run_id: str, *options: str) -> str:
        """Return the command that forks a run."""
        return shell_command("fork", run_id, *options, *self.code, *self._where())

    def traceback(self, run_id: str) -> str:
        """Return the command that shows the traceback of a run that failed."""
        return shell_command("show", run_id, "--traceback", *self._where())

    def answers(self, run_id: str, question: Question) -> list[str]:
        """Return the commands that answer a question: one, or one for each choice."""
        tail = ("--question", line(question.id), *self.code, *self._where())
        return [
            shell_command("answer", run_id, one.choice, *tail, *(("--result", one.result) if one.result else ()))
            for one in outcome_choices(question)
        ] or [self._answer(run_id, question)]

    def _answer(self, run_id: str, question: Question) -> str:
        tail = ("--question", line(question.id), *self.code, *self._where())
        if question.kind == "approval":
            return shell_command("approve", run_id, *tail)
        if question.kind == "event" and question.event:
            data = quoted([line(exact(dict(question.match)))]) if question.match else "JSON"
            options = quoted([*self.code, *self._where()])
            sent = shell_command("send", run_id, line(question.event))
            return f"{sent} {data} {options}".rstrip()
        if question.kind in ("pause", "timer"):
            return shell_command("resume", run_id, *self.code, *self._where())
        return f"{shell_command('answer', run_id)} {_sample(question)}{' ' if tail else ''}{quoted(tail)}"

    def _where(self) -> tuple[str, ...]:
        return ("--store", shown_url(self.store)) if self.store is not None else ()


def _sample(question: Question) -> str:
    return quoted([line("|".join(question.choices))]) if question.choices else "VALUE"


def document(run: Run, *, output: bool = True) -> dict[str, object]:
    """Return the result document, redacted; `output`: whether the output is left unredacted.

    It is left unredacted as the result of a command that runs, and redacted when a run is shown later.
    """
    made = run.to_json()
    return made | {name: redacted(made[name]) for name in run.REDACTED if name != "output" or not output}


def tell(run: Run, next_commands: NextCommands, *, json: bool) -> None:
    """Print the result on stdout, and further information and commands on stderr."""
    if json:
        out_json(document(run))
    elif run.status in ("completed", "exhausted"):
        out(texts.plain(run.output), exact=True)
    tell_status(run, next_commands)


def tell_status(run: Run, next_commands: NextCommands) -> None:
    """Print on stderr why the run stopped, and the exact command that continues it."""
    if run.status in ("paused", "interrupted") and next_commands.gone:
        asked = "".join(f"\n{question_text(question)}" for question in run.waiting)
        warn(f"{run.run_id} was {run.status}, and is lost: its store was in memory. Name a file with --store{asked}")
    elif run.status == "paused":
        text = waiting_text(run.run_id, run.waiting, next_commands)
        warn(hint(text, *(question.kind for question in run.waiting)))
    elif run.status == "interrupted":
        warn(f"{run.run_id} was interrupted; to continue:\n  {next_commands.resume(run.run_id)}")
    elif run.status == "failed":
        place = f" at {narrow(run.error.node)}" if run.error is not None and run.error.node else ""
        at = f"\n{found}" if (found := place_text(run)) else ""
        warn(hint(f"{run.run_id} failed{place}: {behind(str(redacted(str(run.error))))}{at}"))
        again = "" if next_commands.gone else next_text(run, next_commands)
        if again:
            warn(again)
    elif run.status == "exhausted":
        why = behind(str(redacted(run.error.message))) if run.error else "a limit was spent"
        steps, calls = texts.counted(run.steps, "step"), texts.counted(run.usage.calls, "call")
        after = f"after {steps}, {calls} and {texts.duration(run.seconds)}"
        warn(hint(f"{run.run_id} is exhausted: {why}, {after}; its output is the last one it had", "exhausted"))
    elif run.status == "cancelled":
        warn(f"{run.run_id} {'diverged' if run.ended_diverged else 'was cancelled'}")
    elif run.queued:
        due = "" if run.standby is None or run.standby.due is None else f" from {moment(run.standby.due)} on"
        warn(f"{run.run_id} waits to be taken up{due}; to continue it here:\n  {next_commands.resume(run.run_id)}")
    elif run.status == "running":
        warn(f"{run.run_id} is driven by another process")


def place_text(run: Run) -> str:
    """Return the line of the user's code where a run failed, with its file; empty if it failed elsewhere."""
    place = "" if run.error is None else place_of(run.error.traceback)
    return narrow(str(redacted(place.replace(f'"{Path.cwd()}{os.sep}', '"'))))


def tell_traceback(run: Run) -> None:
    """Print on stderr the traceback of the error that a run failed with, if known."""
    if run.error is not None and run.error.traceback:
        warn(str(redacted(run.error.traceback)))


def waiting_text(run_id: str, questions: Sequence[Question], next_commands: NextCommands | None) -> str:
    """Return the open questions of a paused run, each with the command that answers it.

    Args:
        run_id: the run.
        questions: its open questions.
        next_commands: writes the commands; None: no commands are shown.
    """
    lines = [f"{run_id} is paused and waits for:"]
    for question in questions:
        lines += [f"  {line}" for line in question_text(question).splitlines()]
        if next_commands is not None:
            lines += [f"    {command}" for command in next_commands.answers(run_id, question)]
    return "\n".join(lines)


def next_text(run: Run, next_commands: NextCommands) -> str:
    """Return the commands that answer a run's questions or continue it; empty if there are none."""
    if run.waiting:
        commands = [one for question in run.waiting for one in next_commands.answers(run.run_id, question)]
        return "\n  ".join(("to answer it:" if len(run.waiting) == 1 else "to answer them:", *commands))
    if run.status == "interrupted" or run.queued:
        return f"to continue it:\n  {next_commands.resume(run.run_id)}"
    if run.status == "failed" and (run.parent is None or run.parent.relation == "fork"):
        again = f"to run the failed step again:\n  {next_commands.resume(run.run_id, '--retry')}"
        if run.error is not None and "is not an available tool" in run.error.message:
            command = next_commands.resume(run.run_id, "--retry", "--tools", "FILE.py")
            return f"{again}\nif the tool is yours, name its file:\n  {command}"
        if not place_text(run):
            return again
        return f"to see the whole traceback:\n  {next_commands.traceback(run.run_id)}\n{again}"
    return ""
