"""The command `fork`, and the options that move a run to another version of its graph (`resume` has them as well)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from msgspec import structs
from pydantic import ValidationError

from orchestrator.cli import environment, exits, options, run_lookup, storage
from orchestrator.cli.graph_refs import importing
from orchestrator.cli.options import parse_json
from orchestrator.cli.output import warn
from orchestrator.cli.run_session import TerminalSession, conclude, display_of, drive, new_run_id, prepare
from orchestrator.cli.terminal_questions import value_of
from orchestrator.executor import Migration
from orchestrator.graph.codec import explain
from orchestrator.graph.refs import attribute, module_of_file, resolve
from orchestrator.graph.versions import state_shape
from orchestrator.kernel.question import Approve, Deny, Value
from orchestrator.kernel.records import Answered, Asked
from orchestrator.kernel.status import FINAL

if TYPE_CHECKING:
    from orchestrator.cli.run_session import Display
    from orchestrator.executor import Executor, Run
    from orchestrator.graph.model import GraphDefinition
    from orchestrator.kernel.question import Answer, Question


STATE = "state."
"""Prefix of state fields, to tell them from nodes with the same name."""
FORK = "fork."
"""Prefix of nodes in `--rename` that stand for the forks opened there, not for the nodes."""


Rename = Annotated[
    list[str] | None,
    typer.Option(
        "--rename",
        metavar="OLD=NEW",
        help="Continue at node NEW where the run was at OLD. state.OLD=NEW renames a state field; fork.OLD=NEW the "
        "node at which running branches forked. Repeatable.",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        "--drop",
        metavar="NAME",
        help="Give up the value of a state field, state.NAME, or a join of an open fork. Repeatable.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=JSON", help="The value of a new state field. Repeatable."),
]
Migrate = Annotated[
    str | None,
    typer.Option(
        "--migrate",
        metavar="REF",
        help="A Migration, or a function of the old state, as module:attr or file.py:attr.",
    ),
]


@dataclass(frozen=True)
class ForkMigrating:
    """Migration options of a command that has a `--set` of its own."""

    rename: Rename = None
    drop: Drop = None
    migrate: Migrate = None


@dataclass(frozen=True)
class Migrating(ForkMigrating):
    """Migration options of a command that continues a run."""

    set_: Set = None


def migration_of(given: Migrating, directory: str | None = None) -> Migration | None:
    """Return the migration that the options describe; None without options.

    Args:
        given: the options.
        directory: directory searched for a module that is not installed. Default: the current directory.

    Raises:
        UsageError: an option cannot be read.
        GraphUnknown: the function of `--migrate` is not found.
    """

    if not any((given.rename, given.drop, given.set_, given.migrate)):
        return None
    found = _referred(given.migrate, directory or os.getcwd()) if given.migrate is not None else Migration()
    nodes, joins, forks = dict(found.nodes), dict(found.joins), dict(found.forks)
    state = dict(found.state) if isinstance(found.state, Mapping) else {}
    drop = list(found.drop)
    for text in given.rename or ():
        old, new = _halves(text, "--rename", "OLD=NEW")
        if old.startswith(STATE):
            state[new.removeprefix(STATE)] = old.removeprefix(STATE)
            continue
        if old.startswith(FORK):
            forks[old.removeprefix(FORK)] = new.removeprefix(FORK)
            continue
        joins[old] = new
        if old != new:
            nodes[old] = new
    for name in given.drop or ():
        if name.startswith(STATE):
            drop.append(name.removeprefix(STATE))
        else:
            joins[name] = None
    for text in given.set_ or ():
        name, value = _halves(text, "--set", "FIELD=JSON")
        state[name.removeprefix(STATE)] = _Constant(parse_json(value, f"--set {name}"))
    if callable(found.state) and state:
        raise exits.UsageError(
            "--migrate names a function of the state: it returns all fields, so omit --rename state. and --set"
        )
    return replace(found, nodes=nodes, joins=joins, forks=forks, drop=tuple(drop), state=state or found.state)


class _Constant:
    """A migration function that ignores the old state and returns a fixed value."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __call__(self, values: dict[str, object]) -> object:
        return self._value


def _halves(text: str, option: str, form: str) -> Sequence[str]:
    old, equals, new = text.partition("=")
    if not equals or not old or not new:
        raise exits.UsageError(f"{option} {text}: use the form {form}")
    return old, new


def _referred(ref: str, directory: str) -> Migration:

    place, colon, name = ref.partition(":")
    if not colon or not place or not name:
        raise exits.UsageError(f"--migrate {ref}: use module:attr or file.py:attr")
    environment.import_for(ref, directory)
    with importing(f"migration {ref}"):
        found: Any = attribute(module_of_file(place), name) if place.endswith(".py") else resolve(ref)
    if isinstance(found, Migration):
        return found
    if callable(found) or isinstance(found, Mapping):
        return Migration(state=cast(Any, found))
    raise exits.UsageError(f"--migrate {ref}: it is a {type(found).__name__}, not a Migration, a mapping or a function")


@dataclass(frozen=True)
class Changed:
    """Options that change what the fork continues from."""

    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=JSON",
            help="Set a field of the state, also one that only the version of --graph has. Repeatable.",
        ),
    ] = None
    branch: Annotated[
        str | None, typer.Option("--branch", metavar="PATH", help="The branch that --set is for. Needed inside a fork.")
    ] = None
    answers: Annotated[
        list[str] | None,
        typer.Option(
            "--answer",
            metavar="[QUESTION=]JSON",
            help="Replace the answer in record SEQ; with QUESTION, answer that question, which is open there. "
            "Repeatable.",
        ),
    ] = None
    result: Annotated[
        str | None, typer.Option("--result", metavar="JSON", help="Replace the result of the call in record SEQ.")
    ] = None
    request: Annotated[
        str | None,
        typer.Option(
            "--request",
            metavar="FILE|JSON",
            help="Make the model call of record SEQ again with another request: JSON with messages, options, or both, "
            "or a file with it; - for stdin. `show RUN --at SEQ --request` prints the request that was made.",
        ),
    ] = None
    pause: Annotated[
        bool | None,
        typer.Option(
            "--pause/--no-pause",
            help="Pause when the steps that were running at record SEQ have ended. Default: only with --request.",
            show_default=False,
        ),
    ] = None


def fork(
    run: options.Run,
    at: Annotated[
        int | None,
        typer.Option(
            "--at", metavar="SEQ", min=1, help="The last record that the fork contains. Default: the last one."
        ),
    ] = None,
    *,
    changed: Changed,
    run_id: Annotated[str | None, typer.Option("--run-id", metavar="ID", help="Your own id for the fork.")] = None,
    label: options.Labels = None,
    no_start: Annotated[bool, typer.Option("--no-start", help="Make the fork without running it.")] = False,
    how: ForkMigrating,
    then: options.Continuing,
) -> int:
    """Start a new run from a record of another run.

    What is settled is not done again. Calls that cannot be undone are asked about. With --graph, the fork continues in
    that version of the run's graph; --rename, --drop and --migrate move it there if it does not fit.

    Example: orchestrator fork 3f2a9c1d --at 12 --set 'topic="graphs"'
    """

    name, url = new_run_id(run_id), storage.store_url(then.store)
    seen = run_lookup.one_run(url, run, partial(_looked_at, run_id=run, at=at))
    values = dict(_pair(one) for one in changed.set_ or ())
    changes: dict[str, Any] = {
        "at": at,
        "update": values or None,
        "branch": changed.branch,
        "result": None if changed.result is None else options.parse_json(changed.result, "--result"),
        "request": None if changed.request is None else _request(changed.request),
        "pause": changed.pause,
        **_answers(seen, changed.answers or ()),
        "run_id": name,
        "labels": options.pairs(label),
        "start": False,
    }

    if no_start and then.graph is None and not any((how.rename, how.drop, how.migrate)):
        made = run_lookup.one_run(url, run, partial(_forked, parent=run, changes=changes), writes=True)
        conclude(made, display_of(made, url, then.store, json=then.json))
        return exits.COMPLETED
    prepared = prepare(run, then, seen=seen.run, ended=FINAL)
    changes |= _move(seen.run, prepared.code.graph, values, how, named=then.graph is not None)
    given = _given(changed, how, run_id=run_id, label=label)
    if no_start:
        given.append("--no-start")
    code = prepared.display.next_commands.code or ("--graph", prepared.code.launch.graph)
    again = structs.replace(prepared.display.next_commands, code=code)
    display = structs.replace(prepared.display, shows=not no_start, fork_again=partial(again.fork, run, *given))

    async def begin(executor: Executor, display: Display) -> Run:
        made = await _forked(executor, parent=run, changes=changes)
        if no_start:
            return made
        resume = partial(executor.resume, name)
        return await TerminalSession(executor, name, display.sink(), seen=made.seq).go(resume, resume)

    result_code = drive(url, prepared.code, name, begin, display)
    if no_start and result_code in (exits.PAUSED, exits.INTERRUPTED):
        return exits.COMPLETED  # the fork exists, and is paused
    return result_code


def _given(changed: Changed, how: ForkMigrating, *, run_id: str | None, label: Sequence[str] | None) -> list[str]:
    """Return the options that describe the fork, as typed, except `--at`, which the error message already has."""
    one = {
        "--branch": changed.branch,
        "--result": changed.result,
        "--request": changed.request,
        "--run-id": run_id,
        "--migrate": how.migrate,
    }
    many = {
        "--set": changed.set_,
        "--answer": changed.answers,
        "--label": label,
        "--rename": how.rename,
        "--drop": how.drop,
    }
    words = [word for name, value in one.items() if value is not None for word in (name, value)]
    if changed.pause is not None:
        words.append("--pause" if changed.pause else "--no-pause")
    return words + [word for name, values in many.items() for value in values or () for word in (name, value)]


def _move(
    moment: Run, graph: GraphDefinition, values: Mapping[str, object], how: ForkMigrating, *, named: bool
) -> dict[str, Any]:
    """Return the arguments `graph`, `migrate` and `update` of `Executor.fork`. |

    Args:
        moment: the run at the forked record.
        graph: the graph that the fork continues in.
        values: those of `--set`.
        how: the migration options.
        named: whether `--graph` names the version.
    """

    new = [name for name in values if _is_new(moment.definition, graph, name)]
    given = [f"{name}={json.dumps(values[name])}" for name in new]
    migrate = migration_of(Migrating(how.rename, how.drop, how.migrate, given))
    update = {name: value for name, value in values.items() if name not in new}
    if not named and migrate is None:
        return {}
    return {"graph": graph, "migrate": migrate, "update": update or None}


def _is_new(old: GraphDefinition, new: GraphDefinition, name: str) -> bool:
    """Return True if a state field is new in the new version, or has another type there."""
    shapes = [_fields(old), _fields(new)]
    return name in shapes[1] and shapes[0].get(name) != shapes[1][name]


def _fields(graph: GraphDefinition) -> Mapping[str, Any]:

    found: Any = state_shape(graph.schema)["fields"]
    return found if isinstance(found, Mapping) else {}


class _Seen:
    """The run at the forked record, and the questions that an answer may be for."""

    def __init__(self, run: Run, answered: Question | None) -> None:
        self.run, self.answered = run, answered
        self.opened = {question.id: question for question in run.waiting}


async def _looked_at(executor: Executor, run_id: str, at: int | None) -> _Seen:
    """Return the run at that time, with the references to its code, and the question that record `at` answers."""

    run = await executor.load(run_id)
    if at is None or not 1 <= at <= run.seq:
        return _Seen(run, None)
    records = await executor.store.read(run_id, upto=at)
    last = records[-1]
    asked = {one.question.id: one.question for one in records if isinstance(one, Asked)}
    answered = asked.get(last.question) if isinstance(last, Answered) else None
    return _Seen(await executor.load(run_id, at), answered)


async def _forked(executor: Executor, parent: str, changes: dict[str, Any]) -> Run:
    """Create the fork without starting it."""

    made = await executor.fork(parent, **changes, by=environment.user_name())
    if made.parent is not None:
        warn(f"{made.run_id} is a fork of {made.parent.run_id}, from its record {made.parent.seq} on")
    return made


def _request(given: str) -> object:
    """Return the request that was given as JSON, in a file, or, for `-`, on stdin.

    Raises:
        UsageError: it cannot be read.
    """
    if given.lstrip().startswith("{"):
        return options.parse_json(given, "--request")
    try:
        text = sys.stdin.read() if given == "-" else Path(given).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise exits.UsageError(f"--request {given}: {error}") from None
    return options.parse_json(text, f"--request {given}")


def _pair(text: str) -> tuple[str, object]:
    """Return a field and its value.

    Raises:
        UsageError: the text does not have the form `FIELD=JSON`.
    """
    field, equals, value = text.partition("=")
    if not equals or not field:
        raise exits.UsageError(f"--set {text}: use the form FIELD=JSON")
    try:
        return field, json.loads(value)
    except (ValueError, RecursionError):
        hint = f"--set '{field}={json.dumps(value)}'"
        raise exits.UsageError(f"--set {text}: the value is not JSON; a string needs quotes: {hint}") from None


def _answers(seen: _Seen, given: Sequence[str]) -> dict[str, object]:
    """Return the arguments `answer` and `answers` of `Executor.fork`.

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
        raise exits.UsageError("--answer: one record has one answer; name open questions, --answer QUESTION=JSON")
    return {"answers": found, "answer": alone[0] if alone else None}


def _answer(question: Question | None, text: str) -> Answer:
    """Parse a typed answer: for an approval `approve`, `deny` or one of its choices, else text or JSON."""

    words: dict[str, Callable[[], Answer]] = {"approve": Approve, "deny": Deny}
    if text in words:
        return words[text]()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return Value(value=text) if question is None else value_of(question, text)
    if isinstance(value, dict) and value.get("type") in words:
        kind = Approve if value["type"] == "approve" else Deny
        try:
            return kind.model_validate(value)
        except ValidationError as error:
            raise exits.UsageError(f"--answer {text}: {explain(error)}") from None
    return Value(value=value)
