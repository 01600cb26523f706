"""Commands that answer what a run waits for, and go on with it: answer, approve, deny."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED, UsageError

if TYPE_CHECKING:
    from orchestrator.cli.run_session import Manner
    from orchestrator.errors import QuestionUnknown, StaleAnswer
    from orchestrator.executor import Executor, Run
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

    A value that begins with a minus sign comes last, after two of them: answer 3f2a9c1d -- -4

    Example: orchestrator answer 3f2a9c1d "in French, please"
    """
    from orchestrator.cli.terminal_questions import outcome_of, value_of
    from orchestrator.views.call_questions import outcome_choices

    def given(asked: Question) -> Answer:
        if result is not None and (asked.kind != "unknown_outcome" or value != "happened"):
            raise UsageError("--result goes with the value `happened`, to a question what became of a call")
        if result == "TEXT" == outcome_choices(asked)[0].result:  # as the printed command has it
            raise UsageError("--result TEXT: replace TEXT by what the call returned")
        if result is not None:
            return outcome_of(asked, result)
        if asked.kind == "approval" and value not in asked.choices:
            commands = f"`orchestrator approve {run}` or `orchestrator deny {run}`"
            raise UsageError(f"question {asked.id} takes approve or deny, not a value: use {commands}")
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
    from orchestrator.kernel.question import Approve

    changed = options.parse_json(args, "--args") if args is not None else None
    if changed is not None and not isinstance(changed, dict):
        raise UsageError('--args: give the arguments as a JSON object, such as {"path": "a.txt"}')
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
    from orchestrator.kernel.question import Deny

    no = Deny(reason=reason)
    return _answer(run, lambda _: no, how, then)


def _answer(run_id: str, given: Callable[[Question], Answer], how: options.Answering, then: options.Continuing) -> int:
    from orchestrator.cli.engines import engine_of, going_on, submit
    from orchestrator.cli.environment import user_name
    from orchestrator.cli.output import warn
    from orchestrator.cli.report import NextCommands
    from orchestrator.cli.run_lookup import load, one_run
    from orchestrator.cli.run_session import TerminalSession, conclude, drive
    from orchestrator.cli.shown_questions import was_shown
    from orchestrator.cli.storage import store_url
    from orchestrator.cli.stored_run import manner_of, take, typed
    from orchestrator.render.terminal.questions import question_text

    risk, url, who = options.risk(how.approve), store_url(then.store), user_name() if how.by is None else how.by
    if how.no_resume and risk is not None:
        raise UsageError(
            "--approve takes effect when the run continues, and --no-resume does not continue it: omit one of them"
        )
    if how.engine is not None and not how.no_resume:
        raise UsageError("--engine has a worker continue the run: add --no-resume, so that this command does not")
    engine = engine_of(how.engine) if how.no_resume else None
    seen = load(url, run_id)
    asked = _asked(seen, how.question, url)
    said = given(asked)
    next_commands = NextCommands(then.store)
    if how.question is None and said.type != "deny" and _risky(asked) and not was_shown(run_id, asked, url):
        raise UsageError(
            f"run {run_id!r} asks a different question from the one you last saw. Read this one and name it:\n"
            "\n  ".join((question_text(asked), *next_commands.answers(run_id, asked)))
        )

    async def tell(executor: Executor, *, resume: bool) -> Run:
        return await executor.answer(run_id, asked.id, said, by=who, digest=asked.digest, resume=resume)

    async def tell_workers(executor: Executor) -> Run:
        told = await tell(executor, resume=False)
        await submit(engine, run_id)
        return told

    if how.no_resume:
        told = one_run(url, run_id, tell_workers, writes=True)
        manner = manner_of(told, url, then.store, json=then.json)
        manner = replace(manner, shows=False, next_commands=replace(manner.next_commands, code=typed(then)))
        if (told.queued or told.status == "interrupted") and not then.json:
            warn(f"{run_id} is answered; {going_on(engine, manner.next_commands.resume(run_id))}")
        else:
            conclude(told, manner)
        return COMPLETED
    taken = take(run_id, then, seen=seen)

    async def begin(executor: Executor, manner: Manner) -> Run:
        async def first() -> Run:
            if risk is None:
                return await tell(executor, resume=True)
            await tell(executor, resume=False)
            return await executor.resume(run_id, approve=risk)

        return await TerminalSession(executor, run_id, manner.sink(), seen=seen.seq).go(
            first, partial(executor.resume, run_id)
        )

    return drive(url, taken.code, run_id, begin, replace(taken.manner, shows=False))


def _risky(question: Question) -> bool:
    """Whether a yes allows more than reading, or may."""
    from orchestrator.kernel.question import parts_of

    risk = parts_of(question.kind, question.payload).call.get("risk")
    return question.kind in ("approval", "unknown_outcome") and risk not in ("none", "read")


def _asked(run: Run, name: str | None, url: str) -> Question:
    """The question that is to be answered.

    Raises:
        QuestionUnknown: the run never asked the one of this name, or anything.
        StaleAnswer: it, or whatever the run asked, is closed.
        UsageError: several are open and none was named.
    """
    from orchestrator.cli import words
    from orchestrator.cli.run_lookup import one_run
    from orchestrator.cli.shown_questions import note
    from orchestrator.errors import StaleAnswer
    from orchestrator.executor.commands import is_answerable
    from orchestrator.render.terminal.questions import question_text

    if name is not None:
        found = [question for question in run.waiting if question.id == name]
        if not found:
            raise one_run(url, run.run_id, partial(_why_not, run=run, name=name))
        return found[0]
    found = [question for question in run.waiting if question.kind != "pause" and is_answerable(question)]
    if not found and any(question.event for question in run.waiting):
        waits = "\n".join(question_text(one) for one in run.waiting)
        raise StaleAnswer(f"run {run.run_id!r} asks nothing; `send` sends it the event that it waits for:\n{waits}")
    if not found:
        raise one_run(url, run.run_id, partial(_nothing_open, run=run))
    if len(found) > 1:
        note(run, url)
        listed = "\n".join(f"--question {words.line(question.id)}\n  {question_text(question)}" for question in found)
        raise UsageError(f"run {run.run_id!r} has several open questions; choose one:\n{listed}")
    return found[0]


async def _nothing_open(executor: Executor, run: Run) -> QuestionUnknown | StaleAnswer:
    """Why a run that asks nothing takes no answer: what it asked is closed, or it never asked anything."""
    from orchestrator.cli.words import quoted
    from orchestrator.errors import QuestionUnknown, StaleAnswer
    from orchestrator.kernel.records import Asked

    hint = f"; `orchestrator resume {quoted([run.run_id])}` continues it" if run.waiting else ""
    records = await executor.store.read(run.run_id, upto=run.seq)
    if any(isinstance(record, Asked) for record in records):
        return StaleAnswer(f"run {run.run_id!r} ({run.status}) has no open question: each is answered once{hint}")
    unknown = QuestionUnknown(run.run_id, "")
    unknown.typed = f"run {run.run_id!r} ({run.status}) has asked nothing{hint}"
    return unknown


async def _why_not(executor: Executor, run: Run, name: str) -> QuestionUnknown | StaleAnswer:
    from orchestrator.executor.commands import stale_or_unknown

    return stale_or_unknown(run.run_id, name, await executor.store.read(run.run_id))
