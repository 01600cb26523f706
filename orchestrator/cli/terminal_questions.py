"""Asking the person at the terminal what a run waits for. Questions go to stderr, answers come from stdin."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from orchestrator.cli.environment import forget_what_was_typed
from orchestrator.cli.output import warn
from orchestrator.cli.words import visible
from orchestrator.errors import InvalidAnswer, StaleAnswer
from orchestrator.render.terminal.questions import question_text
from orchestrator.views.call_questions import outcome_choices

if TYPE_CHECKING:
    from orchestrator.executor import Executor
    from orchestrator.kernel.question import Answer, Question

QUIET = 0.5
"""Seconds after which it is looked again what other processes do with a run."""
ASKABLE = ("approval", "input", "unknown_outcome")
"""Kinds of questions that a person at the terminal can answer; others wait for something else."""


class NoAnswer(Exception):
    """Raised when the person closed the input instead of answering."""


async def put(
    executor: Executor, run_id: str, question: Question, ask: Callable[[Question], Awaitable[Answer]], by: str
) -> bool:
    """Ask a question until its answer is valid, and record that; whether this answer was the one that counts.

    The prompt ends as soon as the question is answered elsewhere, and says by whom.

    Args:
        ask: asks for an answer.

    Raises:
        NoAnswer: there is nobody to answer.
    """
    while True:
        try:
            answer = await _while_open(executor, run_id, question, ask)
            if answer is None:
                warn(f"\n{await _answered(executor, run_id, question)}")
                return False
            await executor.answer(run_id, question.id, answer, by=by, digest=question.digest, resume=False)
        except InvalidAnswer as error:
            warn(f"error: {error}")
        except StaleAnswer as error:
            if await _is_open(executor, run_id, question):  # asked again, about something else
                warn(f"error: {error}")
            else:
                warn(await _answered(executor, run_id, question))
            return False
        else:
            return True


async def _while_open(
    executor: Executor, run_id: str, question: Question, ask: Callable[[Question], Awaitable[Answer]]
) -> Answer | None:
    """The person's answer; None if the question was closed meanwhile.

    Raises:
        NoAnswer: the person closed the input.
    """
    given: list[Answer] = []
    left = False
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_until_closed, executor, run_id, question, tasks.cancel_scope)
        try:
            given.append(await ask(question))
        except NoAnswer:
            left = True
        tasks.cancel_scope.cancel()
    if left:
        raise NoAnswer
    return given[0] if given else None


async def _until_closed(executor: Executor, run_id: str, question: Question, scope: anyio.CancelScope) -> None:
    """Call off the asking as soon as the run waits for this no more."""
    head = 0
    while not scope.cancel_called:
        found = (await executor.store.info(run_id)).head
        if found != head:
            head = found
            if not await _is_open(executor, run_id, question):
                scope.cancel()
        await anyio.sleep(QUIET)


async def _is_open(executor: Executor, run_id: str, question: Question) -> bool:
    return any(one.id == question.id for one in (await executor.load(run_id)).waiting)


async def _answered(executor: Executor, run_id: str, question: Question) -> str:
    """How a question was closed, and by whom."""
    from orchestrator.kernel.question import Approve, Deny
    from orchestrator.kernel.records import Answered

    upto = (await executor.store.info(run_id)).head
    for record in reversed(await executor.store.read(run_id, upto=upto)):
        if isinstance(record, Answered) and record.question == question.id:
            how = {Approve: "approved", Deny: "denied"}.get(type(record.answer), "answered")
            return visible(f"{how} by {'policy' if record.policy else record.by or 'another process'}")
    return "the run does not wait for this any more"


def askable(questions: Iterable[Question]) -> list[Question]:
    """The questions to put to the person, in order."""
    return [question for question in questions if question.kind in ASKABLE]


class Asker:
    """Puts questions to the person, and remembers how they changed the arguments of a call that is not approved yet."""

    def __init__(self) -> None:
        self._changed: dict[str, dict[str, object]] = {}

    async def ask(self, question: Question) -> Answer:
        """Show a question with all that it is about, and read the answer.

        Of an approval, `y` or `yes` is yes, `e` changes a call's arguments first, and anything else is no; what stands
        behind `n` is the reason.

        Raises:
            NoAnswer: the input ended.
        """
        warn(question_text(question))
        if question.kind == "approval":
            return await self._approval(question)
        if question.kind == "unknown_outcome":
            return await self._outcome(question)
        return value_of(question, await _line("> "))

    async def _outcome(self, question: Question) -> Answer:
        choices = {one.choice: one for one in outcome_choices(question)}
        forget_what_was_typed()
        while True:
            said = (await _line(f"What became of it? [{'/'.join(choices)}] ")).strip()
            one = choices.get(said)
            if one is not None and one.dangerous:
                forget_what_was_typed()
                if (await _line(f"{one.label}? {one.hint} Type yes to call it: ")).strip().lower() != "yes":
                    continue
            if one is None or not one.result:
                return value_of(question, said)
            if result := await _line(f"Its result ({one.result}): "):
                return outcome_of(question, result)

    async def _approval(self, question: Question) -> Answer:
        from orchestrator.cli.argument_editor import edited
        from orchestrator.kernel.question import Approve, Value

        args = question.payload.get("args")
        call = isinstance(args, dict) and "tool" in question.payload and not question.choices
        keys = "/".join(("y", "n", *(["e"] if call else []), *question.choices))
        forget_what_was_typed()
        while True:
            said = (await _line(f"Approve? [{keys}] ")).strip()
            if said in question.choices:
                return Value(value=said)
            if said.lower() in ("y", "yes"):
                return Approve(args=self._changed.get(question.id))
            if not call or said.lower() not in ("e", "edit"):
                return denial_of(said)
            assert isinstance(args, dict)
            found = await edited(self._changed.get(question.id, args), _line)
            if found is not None:
                self._changed[question.id] = found


def denial_of(said: str) -> Answer:
    """What a person typed instead of a yes: `n` or `no`, and behind it the reason."""
    from orchestrator.kernel.question import Deny

    word, _, reason = said.partition(" ")
    return Deny(reason=reason.strip() if word.lower().rstrip(",:") in ("n", "no") else "")


def value_of(question: Question, text: str) -> Answer:
    """What a person typed, as the answer to a question that is no approval.

    It is read as JSON where the question's schema takes no text, or the answer has a structure.
    """
    from orchestrator.kernel.question import Value
    from orchestrator.tools.validation import kinds_taken

    if text in question.choices:
        return Value(value=text)
    schema = question.schema_
    structured = question.kind == "unknown_outcome" or (
        schema is not None and "string" not in kinds_taken(schema, schema)
    )
    if structured:
        try:
            return Value(value=json.loads(text))
        except ValueError:
            pass  # it may be meant as text; whether that fits, the question knows
    return Value(value=text)


def outcome_of(question: Question, text: str) -> Answer:
    """Build the answer `happened` from a typed result: text if the schema accepts text, else JSON."""
    from orchestrator.kernel.question import Value
    from orchestrator.tools.validation import faults

    schema = question.schema_
    result: object = text
    if schema is None or faults(text, schema, schema):
        with suppress(ValueError, RecursionError):  # it may be meant as a text; whether that fits, the question knows
            result = json.loads(text)
    return Value(value={"choice": "happened", "result": result})


async def _line(prompt: str) -> str:
    """A line from the terminal. Waits for the file, not in a thread, so a signal ends it."""
    sys.stderr.write(visible(prompt))
    sys.stderr.flush()
    fd = sys.stdin.fileno()
    await anyio.wait_readable(fd)
    data = os.read(fd, 65536)
    if not data:
        warn("")
        raise NoAnswer
    return data.decode(errors="replace").rstrip("\r\n")
