"""Ask the user at the terminal the questions of a run. Questions go to stderr, answers come from stdin.

The arguments of a call can be changed before it is approved: in the user's editor, or on one line.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio

from orchestrator.cli.environment import forget_what_was_typed
from orchestrator.cli.output import warn
from orchestrator.errors import InvalidAnswer, StaleAnswer
from orchestrator.kernel.question import Approve, Deny, Value
from orchestrator.kernel.records import Answered
from orchestrator.render.terminal.event_lines import question_text
from orchestrator.tools.validation import faults, kinds_taken
from orchestrator.views.call_questions import outcome_choices
from orchestrator.visible import exact
from orchestrator.visible import shown as visible

if TYPE_CHECKING:
    from orchestrator.executor import Executor
    from orchestrator.kernel.question import Answer, Question


QUIET = 0.5
"""Seconds between polls of a run that other processes may change."""
ASKABLE = ("approval", "input", "unknown_outcome")
"""Kinds of questions that the user can answer at the terminal; other kinds wait for something else."""


class NoAnswer(Exception):
    """Raised when the user closed the input instead of answering."""


async def put(
    executor: Executor, run_id: str, question: Question, ask: Callable[[Question], Awaitable[Answer]], by: str
) -> bool:
    """Ask a question until its answer is valid, and record it. Return True if this answer was accepted.

    The prompt ends as soon as the question is answered elsewhere, and names who answered.

    Args:
        ask: asks for an answer.

    Raises:
        NoAnswer: the user closed the input.
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
    """Return the user's answer; None if the question was closed meanwhile.

    Raises:
        NoAnswer: the user closed the input.
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
    """Cancel the prompt as soon as the run no longer waits for this answer."""
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
    """Return how a question was closed, and by whom."""

    upto = (await executor.store.info(run_id)).head
    for record in reversed(await executor.store.read(run_id, upto=upto)):
        if isinstance(record, Answered) and record.question == question.id:
            how = {Approve: "approved", Deny: "denied"}.get(type(record.answer), "answered")
            return visible(f"{how} by {'policy' if record.policy else record.by or 'another process'}")
    return "the run no longer waits for this"


def askable(questions: Iterable[Question]) -> list[Question]:
    """Return the questions to ask the user, in order."""
    return [question for question in questions if question.kind in ASKABLE]


class Asker:
    """Asks the user questions, and remembers the user's changes to the arguments of a call that is not approved yet."""

    def __init__(self) -> None:
        self._changed: dict[str, dict[str, object]] = {}

    async def ask(self, question: Question) -> Answer:
        """Show a question with its details, and read the answer.

        The fields of an object are asked for one by one. For an approval, `y` or `yes` approves, `e` first edits the
        call's arguments, and anything else denies; text after `n` is the reason.

        Raises:
            NoAnswer: the input ended.
        """
        warn(question_text(question))
        if question.kind == "approval":
            return await self._approval(question)
        if question.kind == "unknown_outcome":
            return await self._outcome(question)
        schema = question.schema_
        if schema is not None and isinstance(schema.get("properties"), dict) and schema["properties"]:
            return await _form(schema)
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
    """Return the denial that the user typed: `n` or `no`, followed by the reason."""

    word, _, reason = said.partition(" ")
    return Deny(reason=reason.strip() if word.lower().rstrip(",:") in ("n", "no") else "")


def value_of(question: Question, text: str) -> Answer:
    """Return the typed answer to a question other than an approval.

    It is read as JSON if the question's schema does not accept text, or the answer has a structure.
    """

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
            pass  # it may be meant as text; the question validates it
    return Value(value=text)


def outcome_of(question: Question, text: str) -> Answer:
    """Build the answer `happened` from a typed result: text if the schema accepts text, else JSON."""

    schema = question.schema_
    result: object = text
    if schema is None or faults(text, schema, schema):
        with suppress(ValueError, RecursionError):  # it may be meant as text; the question validates it
            result = json.loads(text)
    return Value(value={"choice": "happened", "result": result})


async def _form(schema: dict[str, Any]) -> Answer:
    """Read the fields of an object, one on each line; or the whole object, as JSON, on the first line.

    An empty line leaves out a field that is not required, or takes its default.
    """
    found: dict[str, object] = {}
    required = schema.get("required") or ()
    for name, field in schema["properties"].items():
        field = field if isinstance(field, dict) else {}
        while True:
            said = (await _line(f"{name}{_about(field, required=name in required)}: ")).strip()
            if not found and said.startswith("{"):
                with suppress(ValueError, RecursionError):
                    return Value(value=json.loads(said))
            if not said and ("default" in field or name not in required):
                found |= {name: field["default"]} if "default" in field else {}
                break
            value = _typed(said, field, schema)
            wrong = faults(value, field, schema)
            if not wrong:
                found[name] = value
                break
            warn(f"{name} {wrong[0].strip()}")
    return Value(value=found)


def _about(field: dict[str, Any], *, required: bool) -> str:
    """Describe a field for the person who fills it in."""
    choices = field.get("enum")
    kind = "/".join(map(str, choices)) if isinstance(choices, list) else str(field.get("type", ""))
    empty = f"empty: {json.dumps(field['default'])}" if "default" in field else "" if required else "may be empty"
    said = [str(field.get("description", "")), kind, empty]
    return f" ({'; '.join(one for one in said if one)})" if any(said) else ""


def _typed(said: str, field: dict[str, Any], schema: dict[str, Any]) -> object:
    """Return a typed value of a field: text if the field takes text, else JSON, or yes and no."""
    if "string" in kinds_taken(field, schema):
        return said
    if field.get("type") == "boolean" and said.lower() in ("y", "yes", "n", "no"):
        return said.lower().startswith("y")
    try:
        return json.loads(said)
    except (ValueError, RecursionError):
        return said  # the field refuses it


async def _line(prompt: str) -> str:
    """Read a line from the terminal. It waits for the file, not in a thread, so a signal ends it."""
    sys.stderr.write(visible(prompt))
    sys.stderr.flush()
    fd = sys.stdin.fileno()
    await anyio.wait_readable(fd)
    data = os.read(fd, 65536)
    if not data:
        warn("")
        raise NoAnswer
    return data.decode(errors="replace").rstrip("\r\n")


Args = dict[str, object]


async def edited(args: Args, line: Callable[[str], Awaitable[str]]) -> Args | None:
    """Return the arguments that the user edited; None if they are unchanged, or not a JSON object.

    Args:
        args: the current arguments.
        line: asks for a line of text, if neither `VISUAL` nor `EDITOR` is set.
    """
    text = json.dumps(args, ensure_ascii=False, indent=2)
    editor = _editor()
    if editor is None:
        said = (await line("args (one line of JSON; empty: unchanged)> ")).strip()
        return _parsed(said, args) if said else None
    found = await _with_editor(editor, text)
    return None if found is None else _parsed(found, args)


def _editor() -> list[str] | None:
    said = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    try:
        return shlex.split(said) or None if said else None
    except ValueError:
        warn(f"VISUAL or EDITOR is not a command line: {said}")
        return None


async def _with_editor(editor: list[str], text: str) -> str | None:
    """Return the text of a file after the editor; None, with a warning, if the editor failed."""
    with tempfile.TemporaryDirectory(prefix="orchestrator-") as folder:
        file = anyio.Path(folder, "args.json")  # only this user can read the folder
        await file.write_text(text + "\n", encoding="utf-8")
        try:
            with _left_alone():
                # Stdout may be a file for the result; questions are asked on stderr, which is a terminal.
                done = await anyio.run_process(
                    [*editor, str(file)],
                    stdin=sys.stdin.fileno(),
                    stdout=sys.stderr.fileno(),
                    stderr=sys.stderr.fileno(),
                    check=False,
                )
        except OSError as error:
            warn(f"{editor[0]} cannot be started: {error.strerror}; set VISUAL or EDITOR to an editor")
            return None
        if done.returncode:
            warn(f"{editor[0]} exited with code {done.returncode}: nothing is changed")
            return None
        try:
            return await file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            warn(f"the file from {editor[0]} cannot be read: {error}")
            return None


@contextmanager
def _left_alone() -> Iterator[None]:
    """Leave Ctrl-C to the editor while it is open. The handler does nothing: an ignored signal would be inherited."""
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _parsed(text: str, before: Args) -> Args | None:
    try:
        found = json.loads(text)
    except ValueError as error:
        warn(f"this is not JSON: {error}")
        return None
    if not isinstance(found, dict):
        warn('give the arguments as a JSON object, such as {"path": "a.txt"}')
        return None
    if found == before:
        warn("nothing is changed")
        return None
    for name in dict.fromkeys((*before, *found)):
        if name not in found:
            warn(f"  - {name}  {exact(before[name])}")
        elif name not in before:
            warn(f"  + {name}  {exact(found[name])}")
        elif found[name] != before[name]:
            warn(f"  ~ {name}  {exact(before[name])} -> {exact(found[name])}")
    return found
