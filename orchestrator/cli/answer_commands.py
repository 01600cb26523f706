"""Commands that give a run what it waits for, and continue it: answer, approve, deny, send, watch."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import anyio
import typer
from msgspec import structs

from orchestrator.cli import environment, exits, options, report, run_lookup, run_session, storage, terminal_questions
from orchestrator.cli.output import error_text, out, out_line, quoted, redacted, warn
from orchestrator.cli.report import JsonLines, NextCommands, Sink, Tree, document, tell_status
from orchestrator.cli.terminal_questions import outcome_of, value_of
from orchestrator.cli.trust import note, was_shown
from orchestrator.errors import Ambiguous, GraphUnknown, QuestionUnknown, RunConflict, StaleAnswer
from orchestrator.executor.commands import MOST_ENDED, is_answerable, stale_or_unknown, unchecked
from orchestrator.executor.lease import is_held
from orchestrator.kernel.question import Approve, Deny, parts_of
from orchestrator.kernel.records import Asked, EventReceived
from orchestrator.kernel.status import FINAL
from orchestrator.render.terminal import texts
from orchestrator.render.terminal.event_lines import question_text
from orchestrator.views.call_questions import outcome_choices
from orchestrator.views.run import explainer_of
from orchestrator.views.untaken_events import unawaited
from orchestrator.visible import line

if TYPE_CHECKING:
    from orchestrator.engines import ServedEngine
    from orchestrator.executor import Event, Executor, Run
    from orchestrator.kernel.question import Answer, Question


def answer(
    run: options.Run,
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="Text, or JSON if the question expects it.", show_default=False)
    ],
    result: Annotated[
        str | None,
        typer.Option(
            "--result", metavar="RESULT", help="What the call returned, with happened: text if that fits, or JSON."
        ),
    ] = None,
    *,
    how: options.Answering,
    then: options.Continuing,
) -> int:
    """Answer a question of a run, and continue the run.

    What became of a call is answered with happened, which needs --result unless the call returns nothing; with failed,
    which fails the step; or with retry, which makes the call now.

    A value that starts with a minus sign comes last, after two minus signs: answer 3f2a9c1d -- -4

    Example: orchestrator answer 3f2a9c1d "in French, please"
    """

    def given(asked: Question) -> Answer:
        if result is not None and (asked.kind != "unknown_outcome" or value != "happened"):
            raise exits.UsageError("--result needs the answer `happened` to a question about the outcome of a call")
        if result == "TEXT" == outcome_choices(asked)[0].result:  # as in the printed command
            raise exits.UsageError("--result TEXT: replace TEXT with the result of the call")
        if result is not None:
            return outcome_of(asked, result)
        if asked.kind == "approval" and value not in asked.choices:
            commands = f"`orchestrator approve {run}` or `orchestrator deny {run}`"
            raise exits.UsageError(f"question {asked.id} takes approve or deny, not a value: use {commands}")
        return value_of(asked, value)

    return _answer(run, given, how, then)


def approve(
    run: options.Run,
    args: Annotated[
        str | None, typer.Option("--args", metavar="JSON", help="Replace all arguments of the call by these.")
    ] = None,
    *,
    how: options.Answering,
    then: options.Continuing,
) -> int:
    """Approve what a run asks, as shown, and continue the run.

    Example: orchestrator approve 3f2a9c1d
    """

    changed = options.parse_json(args, "--args") if args is not None else None
    if changed is not None and not isinstance(changed, dict):
        raise exits.UsageError('--args: give the arguments as a JSON object, such as {"path": "a.txt"}')
    yes = Approve(args=changed)
    return _answer(run, lambda _: yes, how, then)


def deny(
    run: options.Run,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason, for the agent.")] = "",
    *,
    how: options.Answering,
    then: options.Continuing,
) -> int:
    """Deny what a run asks, and continue the run.

    Example: orchestrator deny 3f2a9c1d --reason "not in production"
    """

    no = Deny(reason=reason)
    return _answer(run, lambda _: no, how, then)


def _answer(run_id: str, given: Callable[[Question], Answer], how: options.Answering, then: options.Continuing) -> int:

    risk, url, who = (
        options.risk(how.approve),
        storage.store_url(then.store),
        environment.user_name() if how.by is None else how.by,
    )
    if how.no_resume and risk is not None:
        raise exits.UsageError(
            "--approve takes effect when the run continues, and --no-resume does not continue it: omit one of them"
        )
    if how.engine is not None and not how.no_resume:
        raise exits.UsageError("with --engine, a worker continues the run: add --no-resume")
    engine = run_session.engine_of(how.engine) if how.no_resume else None
    seen = run_lookup.load(url, run_id)
    asked = _asked(seen, how.question, url)
    said = given(asked)
    next_commands = NextCommands(then.store)
    if how.question is None and said.type != "deny" and _risky(asked) and not was_shown(run_id, asked, url):
        raise exits.UsageError(
            f"run {run_id!r} asks a different question from the one you last saw. Read this one and name it:\n"
            + "\n  ".join((question_text(asked), *next_commands.answers(run_id, asked)))
        )

    async def tell(executor: Executor, *, resume: bool) -> Run:
        return await executor.answer(run_id, asked.id, said, by=who, digest=asked.digest, resume=resume)

    async def tell_workers(executor: Executor) -> Run:
        delivered = await tell(executor, resume=False)
        await run_session.submit(engine, run_id)
        return delivered

    if how.no_resume:
        delivered = run_lookup.one_run(url, run_id, tell_workers, writes=True)
        display = run_session.display_of(delivered, url, then.store, json=then.json)
        display = structs.replace(
            display, shows=False, next_commands=structs.replace(display.next_commands, code=run_session.typed(then))
        )
        if (delivered.queued or delivered.status == "interrupted") and not then.json:
            warn(f"{run_id} is answered; {run_session.continuation(engine, display.next_commands.resume(run_id))}")
        else:
            run_session.conclude(delivered, display)
        return exits.COMPLETED
    prepared = run_session.prepare(run_id, then, seen=seen)

    async def begin(executor: Executor, display: run_session.Display) -> Run:
        async def first() -> Run:
            if risk is None:
                return await tell(executor, resume=True)
            await tell(executor, resume=False)
            return await executor.resume(run_id, approve=risk)

        return await run_session.TerminalSession(executor, run_id, display.sink(), seen=seen.seq).go(
            first, partial(executor.resume, run_id)
        )

    return run_session.drive(url, prepared.code, run_id, begin, structs.replace(prepared.display, shows=False))


def _risky(question: Question) -> bool:
    """Return True if an approval may allow more than reading."""

    risk = parts_of(question.kind, question.payload).call.get("risk")
    return question.kind in ("approval", "unknown_outcome") and risk not in ("none", "read")


def _asked(run: Run, name: str | None, url: str) -> Question:
    """Return the question to answer.

    Raises:
        QuestionUnknown: the run never asked the named question, or any.
        StaleAnswer: the named question, or every question of the run, is closed.
        UsageError: several are open and no question was named.
    """
    if name is not None:
        found = [question for question in run.waiting if question.id == name]
        if not found:
            raise run_lookup.one_run(url, run.run_id, partial(_why_not, run=run, name=name))
        return found[0]
    found = [question for question in run.waiting if question.kind != "pause" and is_answerable(question)]
    if not found and any(question.event for question in run.waiting):
        waits = "\n".join(question_text(one) for one in run.waiting)
        raise StaleAnswer(
            f"run {run.run_id!r} has no open question; send it the event that it waits for with `send`:\n{waits}"
        )
    if not found:
        raise run_lookup.one_run(url, run.run_id, partial(_nothing_open, run=run))
    if len(found) > 1:
        note(run, url)
        listed = "\n".join(f"--question {line(question.id)}\n  {question_text(question)}" for question in found)
        raise exits.UsageError(f"run {run.run_id!r} has several open questions; choose one:\n{listed}")
    return found[0]


async def _nothing_open(executor: Executor, run: Run) -> QuestionUnknown | StaleAnswer:
    """Return the error for a run without open questions: all are closed, or there never were any."""

    hint = f"; `orchestrator resume {quoted([run.run_id])}` continues it" if run.waiting else ""
    records = await executor.store.read(run.run_id, upto=run.seq)
    if any(isinstance(record, Asked) for record in records):
        return StaleAnswer(f"run {run.run_id!r} ({run.status}) has no open question: each is answered once{hint}")
    unknown = QuestionUnknown(run.run_id, "")
    unknown.typed = f"run {run.run_id!r} ({run.status}) has asked no question{hint}"
    return unknown


async def _why_not(executor: Executor, run: Run, name: str) -> QuestionUnknown | StaleAnswer:
    return stale_or_unknown(run.run_id, name, await executor.store.read(run.run_id))


def send(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[RUN] EVENT [JSON]", help="The run's id (not with --label), the event's name, and its data."
        ),
    ],
    *,
    name: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Id of the event. Events with the same id count once."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="K=V", help="Send to the unfinished run with this label. Repeatable."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Send to every unfinished run with the labels.")] = False,
    by: options.By = None,
    no_resume: Annotated[
        bool, typer.Option("--no-resume", help="Record the event without continuing the run.")
    ] = False,
    engine: options.Engine = None,
    then: options.Continuing,
) -> int:
    """Send an event to a run, and continue the run.

    A run keeps the event until a step waits for it.

    Example: orchestrator send 3f2a9c1d paid '{"order": 7}' --id evt-1
    """

    if engine is not None and not no_resume:
        raise exits.UsageError("with --engine, a worker continues the run: add --no-resume")
    labels = options.pairs(label)
    run_id, event, data = _parts(words, labelled=bool(labels))
    if every and not labels:
        raise exits.UsageError("--all needs --label K=V")
    url, who = storage.store_url(then.store), environment.user_name() if by is None else by
    delivers = run_session.engine_of(engine) if no_resume else None

    async def tell(executor: Executor, *, to: str, resume: bool) -> Run:
        delivered = await executor.send(to, event, data, id=name, by=who, resume=resume)
        if not resume:
            await run_session.submit(delivers, to)
        return delivered

    codes = []
    for one in [run_id] if run_id is not None else _labelled(url, labels, name, every=every):
        again = name is not None and _has(url, one, name)
        if again:
            warn(f"run {one} has ended, and received the event {name!r} before: nothing is changed")
        code = (
            _kept(url, one, partial(tell, to=one, resume=False), then, delivers)
            if no_resume or again
            else _driven(url, one, partial(tell, to=one, resume=True), then)
        )
        codes.append(code)
        sent = run_lookup.load(url, one)
        _say_untaken(sent, event)
        if no_resume and not again and (said := unchecked(sent.machine, event)):
            warn(f"event {event!r}: {said}")
    return next((code for code in codes if code != exits.COMPLETED), exits.COMPLETED)


def _has(url: str, run_id: str, event_id: str) -> bool:
    """Return True if a run has ended and received an event of this id."""
    machine = run_lookup.load(url, run_id).machine
    return machine.ended is not None and event_id in machine.events.ids


def _say_untaken(run: Run, event: str) -> None:
    """Print why no step took the event, unless no node waits for it: then a warning was logged."""
    last = max((one.seq for one in run.records() if isinstance(one, EventReceived) and one.name == event), default=0)
    found = next((one for one in explainer_of(run).untaken() if one.seq == last), None)
    if found is not None and not unawaited(run.machine, event):
        warn(f"not taken: {found.line}")


def _kept(
    url: str,
    run_id: str,
    tell: Callable[[Executor], Awaitable[Run]],
    then: options.Continuing,
    engine: ServedEngine | None,
) -> int:
    """Record the event, and print how the run continues."""

    delivered = run_lookup.one_run(url, run_id, tell, writes=True)
    display = structs.replace(run_session.display_of(delivered, url, then.store, json=then.json), shows=False)
    if (delivered.queued or delivered.status == "interrupted") and not then.json:
        warn(f"{run_id} has the event; {run_session.continuation(engine, display.next_commands.resume(run_id))}")
    else:
        run_session.conclude(delivered, display)
    return exits.COMPLETED


def _driven(url: str, run_id: str, tell: Callable[[Executor], Awaitable[Run]], then: options.Continuing) -> int:
    """Send the event, and show the run's progress."""

    prepared = run_session.prepare(run_id, then)

    async def begin(executor: Executor, display: run_session.Display) -> Run:
        session = run_session.TerminalSession(executor, run_id, display.sink(), seen=prepared.run.seq)
        return await session.go(partial(tell, executor), partial(executor.resume, run_id))

    return run_session.drive(url, prepared.code, run_id, begin, structs.replace(prepared.display, shows=False))


def _parts(words: list[str], *, labelled: bool) -> tuple[str | None, str, object]:
    """Return the run, the event and its data.

    Raises:
        UsageError: there are too few or too many words, or the data is not JSON.
    """
    rest = list(words)
    run_id = None if labelled else rest.pop(0)
    if not 1 <= len(rest) <= 2:
        wanted = "EVENT [JSON] with --label" if labelled else "RUN EVENT [JSON], or --label K=V instead of RUN"
        raise exits.UsageError(f"give {wanted}")
    return run_id, rest[0], options.parse_json(rest[1], "the data") if len(rest) == 2 else None


def _labelled(url: str, labels: dict[str, str], event_id: str | None, *, every: bool) -> list[str]:
    """Return the ids of the runs that get the event, or of one that has ended and received it before.

    Raises:
        Ambiguous: no run has the labels, or more than one where one is expected.
    """

    async def look(executor: Executor) -> list[str]:
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = await executor.runs(
                status=("running", "interrupted", "paused"), labels=labels, after=cursor, limit=200
            )
            found += [info.run_id for info in page.runs]
            cursor = page.cursor
            if cursor is None:
                return found

    async def ended(executor: Executor) -> list[str]:
        page = await executor.runs(status=tuple(FINAL), labels=labels, limit=MOST_ENDED)
        runs = [await executor.load(info.run_id) for info in page.runs]
        return [run.run_id for run in runs if event_id in run.machine.events.ids][:1]

    found = run_lookup.looking(url, look) if storage.exists(url) else []
    if not found and not every and event_id is not None and storage.exists(url):
        found = run_lookup.looking(url, ended)
    if not every and len(found) != 1:
        raise Ambiguous(labels, found)
    return found


class Watch:
    """A run that is watched.

    Args:
        by: name of the user who answers questions at this terminal.
        asks: whether questions are asked at this terminal.
        store: as given by `--store`, for printed commands.
    """

    def __init__(self, run_id: str, by: str, *, json: bool, asks: bool, store: str | None = None) -> None:
        self.asks, self.seen = asks, 0
        self._store = store
        self._run_id, self._by = run_id, by
        self._sink: Sink = JsonLines() if json else Tree(out, sys.stdout)
        self._asker = terminal_questions.Asker()
        self._left = ""
        """Last message printed about a run without progress."""

    async def until_it_ends_or_can_continue(self, executor: Executor) -> Run:
        """Show events until the run ends, or until it was answered here and no other process continues it."""
        await self._sink.meet(executor, self._run_id, self.seen)
        events = executor.events(self._run_id, after=self.seen, follow=True)
        try:
            while True:
                event: Event | None = None
                with anyio.move_on_after(terminal_questions.QUIET):
                    event = await anext(events, None)
                    if event is None:
                        break
                if event is not None:
                    self.seen = event.seq or self.seen
                    self._sink.show(event)
                elif await self._stands_still(executor):
                    break
        finally:
            self._sink.hold()
        return await executor.load(self._run_id)

    async def _stands_still(self, executor: Executor) -> bool:
        """Ask the open questions of a run without new events.

        Return True if a question was answered here and no other process continues the run.
        """
        info = await executor.store.info(self._run_id)
        if info.status in FINAL or info.head > self.seen:
            return False  # the remaining events are already in the store
        if info.status == "running" and is_held(await executor.store.lease(self._run_id)):
            return False
        run = await executor.load(self._run_id)
        if run.status == "paused":
            questions = terminal_questions.askable(run.waiting) if self.asks else []
            if questions:
                return await self._ask(executor, questions)
        self._say(run)
        return False

    def _say(self, run: Run) -> None:

        said = f"{run.status} {run.seq}"
        if said != self._left and (run.status in ("paused", "interrupted") or run.queued):
            self._left = said
            self._sink.hold()
            note(run, storage.store_url(self._store))
            report.tell_status(run, report.NextCommands(self._store))

    # -- asking --------------------------------------------------------------------------------------------------

    async def _ask(self, executor: Executor, questions: list[Question]) -> bool:
        """Ask the questions. Return True if any was answered and no other process continues the run."""
        self._sink.hold()
        answered = False
        try:
            for question in questions:
                put = terminal_questions.put(executor, self._run_id, question, self._asker.ask, self._by)
                answered = await put or answered
        except terminal_questions.NoAnswer:
            self.asks = False  # from now on the user only watches
            return answered
        return answered and not is_held(await executor.store.lease(self._run_id))


def watch(
    run: options.Run,
    no_ask: Annotated[bool, typer.Option("--no-ask", help="Do not ask the run's questions.")] = False,
    by: options.By = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Watch a run until it ends, whichever process drives it.

    On a terminal it shows a tree that is redrawn while the run continues, and asks the run's questions. If no other
    process drives the run, it continues here. Without a terminal it prints lines of text; with --json, the lines of
    events --follow.

    Example: orchestrator watch 3f2a9c1d
    """

    url = storage.store_url(store)
    asks = environment.on_terminal() and not no_ask and not json
    watching = Watch(run, by if by is not None else environment.user_name(), json=json, asks=asks, store=store)
    found = run_lookup.one_run(url, run, watching.until_it_ends_or_can_continue, writes=asks)
    while found.status not in FINAL:
        if (found.status == "interrupted" or found.queued) and watching.asks:
            code = _continue(found, url, store, watching)
            if code is not None:
                return code
        found = run_lookup.one_run(url, run, watching.until_it_ends_or_can_continue, writes=asks)
    if json:
        out_line(document(found, output=False))
        return exits.COMPLETED
    if found.status in ("completed", "exhausted"):
        out(str(redacted(texts.plain(found.output))))
    tell_status(found, NextCommands(store))
    return exits.COMPLETED


def _continue(run: Run, url: str, store: str | None, watching: Watch) -> int | None:
    """Continue an answered run here.

    Return the exit code; None if another process drives the run or it cannot continue here.
    """

    try:
        prepared = run_session.prepare(run.run_id, options.Continuing(store=store), seen=run)
    except (exits.UsageError, GraphUnknown) as error:
        warn(f"the answer is recorded, and a process with the run's code can continue the run: {error_text(error)}")
        watching.asks = False
        return None

    async def begin(executor: Executor, display: run_session.Display) -> Run:
        again = partial(executor.resume, run.run_id)
        return await run_session.TerminalSession(executor, run.run_id, display.sink(), seen=watching.seen).go(
            again, again
        )

    try:
        code = run_session.drive(url, prepared.code, run.run_id, begin, prepared.display)
    except RunConflict:  # another process resumed it first
        return None
    return code if code in (exits.INTERRUPTED, exits.CONFLICT) else exits.COMPLETED
