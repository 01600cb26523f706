"""The command that makes a new run from a moment of another one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED, INTERRUPTED, PAUSED, UsageError

if TYPE_CHECKING:
    from orchestrator.cli.run_session import Manner
    from orchestrator.executor import Executor, Run
    from orchestrator.kernel.question import Answer, Question


def fork(
    run: options.Run,
    at: Annotated[
        int | None,
        typer.Option(
            "--at", metavar="SEQ", min=1, help="The last record that the fork contains. Default: the last one."
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=JSON", help="Set a field of the state. Repeatable."),
    ] = None,
    branch: Annotated[
        str | None, typer.Option("--branch", metavar="PATH", help="The branch that --set is for. Needed inside a fork.")
    ] = None,
    answers: Annotated[
        list[str] | None,
        typer.Option(
            "--answer",
            metavar="[QUESTION=]JSON",
            help="Another answer for record SEQ; with QUESTION, an answer to one that is open there. Repeatable.",
        ),
    ] = None,
    result: Annotated[
        str | None, typer.Option("--result", metavar="JSON", help="Another result for the call of record SEQ.")
    ] = None,
    run_id: Annotated[str | None, typer.Option("--run-id", metavar="ID", help="Your own id for the fork.")] = None,
    label: options.Labels = None,
    no_start: Annotated[bool, typer.Option("--no-start", help="Make the fork without running it.")] = False,
    *,
    then: options.Continuing,
) -> int:
    """Make a new run from a moment of another one, and run it.

    What is settled is not done again. Calls that cannot be undone are asked about. With --graph, the fork continues in
    that version of the run's graph.

    Example: orchestrator fork 3f2a9c1d --at 12 --set 'topic="graphs"'
    """
    from orchestrator.cli.environment import new_run_id
    from orchestrator.cli.run_lookup import one_run
    from orchestrator.cli.run_session import TerminalSession, conclude, drive
    from orchestrator.cli.storage import store_url
    from orchestrator.cli.stored_run import manner_of, take
    from orchestrator.kernel.records import FINAL

    name, url = new_run_id(run_id), store_url(then.store)
    seen = one_run(url, run, partial(_looked_at, run_id=run, at=at))
    changes: dict[str, Any] = {
        "at": at,
        "update": dict(_pair(one) for one in set_ or ()) or None,
        "branch": branch,
        "result": None if result is None else options.parse_json(result, "--result"),
        **_answers(seen, answers or ()),
        "run_id": name,
        "labels": options.pairs(label),
        "start": False,
    }

    if no_start and then.graph is None:
        made = one_run(url, run, partial(_forked, parent=run, changes=changes), writes=True)
        conclude(made, manner_of(made, url, then.store, json=then.json))
        return COMPLETED
    taken = take(run, then, seen=seen.run, ended=FINAL)
    if then.graph is not None:
        changes["graph"] = taken.code.graph

    async def begin(executor: Executor, manner: Manner) -> Run:
        made = await _forked(executor, parent=run, changes=changes)
        if no_start:
            return made
        resume = partial(executor.resume, name)
        return await TerminalSession(executor, name, manner.sink(), seen=made.seq).go(resume, resume)

    code = drive(url, taken.code, name, begin, replace(taken.manner, shows=not no_start))
    return COMPLETED if no_start and code in (PAUSED, INTERRUPTED) else code  # the fork was made, and waits


class _Seen:
    """The run at the moment that is forked, and the questions that an answer may be for."""

    def __init__(self, run: Run, answered: Question | None) -> None:
        self.run, self.answered = run, answered
        self.opened = {question.id: question for question in run.waiting}


async def _looked_at(executor: Executor, run_id: str, at: int | None) -> _Seen:
    """The run as it was then, with the references to its code, and the question that record `at` answers."""
    from orchestrator.kernel.records import Answered, Asked

    run = await executor.load(run_id)
    if at is None or not 1 <= at <= run.seq:
        return _Seen(run, None)
    records = await executor.store.read(run_id, upto=at)
    last = records[-1]
    asked = {one.question.id: one.question for one in records if isinstance(one, Asked)}
    answered = asked.get(last.question) if isinstance(last, Answered) else None
    return _Seen(await executor.load(run_id, at), answered)


async def _forked(executor: Executor, parent: str, changes: dict[str, Any]) -> Run:
    """The fork, made and not begun.

    Raises:
        UsageError: an option does not fit the run.
    """
    from orchestrator.cli.output import warn
    from orchestrator.errors import InvalidAnswer, InvalidValue

    try:
        made = await executor.fork(parent, **changes)
    except InvalidAnswer:
        raise
    except InvalidValue as error:
        raise UsageError(str(error)) from None
    if made.parent is not None:
        warn(f"{made.run_id} is a fork of {made.parent.run_id}, from its record {made.parent.seq} on")
    return made


def _pair(text: str) -> tuple[str, object]:
    """A field and its value.

    Raises:
        UsageError: it has another form.
    """
    field, equals, value = text.partition("=")
    if not equals or not field:
        raise UsageError(f"--set {text}: use the form FIELD=JSON")
    try:
        return field, json.loads(value)
    except (ValueError, RecursionError):
        hint = f"--set '{field}={json.dumps(value)}'"
        raise UsageError(f"--set {text}: the value is not JSON; a text needs quotes: {hint}") from None


def _answers(seen: _Seen, given: Sequence[str]) -> dict[str, object]:
    """`answer` and `answers` of `Executor.fork`.

    Raises:
        UsageError: several answers are for one record.
    """
    found: dict[str, Answer] = {}
    alone: list[object] = []
    for text in given:
        name, equals, rest = text.partition("=")
        question = seen.opened.get(name) if equals else None
        if question is not None:
            found[name] = _answer(question, rest)
        else:
            alone.append(_answer(seen.answered, text))
    if len(alone) > 1:
        raise UsageError("--answer: one record has one answer; name open questions, --answer QUESTION=JSON")
    return {"answers": found, "answer": alone[0] if alone else None}


def _answer(question: Question | None, text: str) -> Answer:
    """An answer as it is typed: for an approval `approve`, `deny` or one of its choices, else text or JSON."""
    from orchestrator.cli.terminal_questions import value_of
    from orchestrator.kernel.question import Approve, Deny, Value

    words: dict[str, Callable[[], Answer]] = {"approve": Approve, "deny": Deny}
    if text in words:
        return words[text]()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return Value(value=text) if question is None else value_of(question, text)
    if isinstance(value, dict) and value.get("type") in words:
        kind = Approve if value["type"] == "approve" else Deny
        return kind.model_validate(value)
    return Value(value=value)
