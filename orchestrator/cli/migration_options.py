"""`--rename`, `--drop`, `--set` and `--migrate`: how a run moves to a version of its graph that it does not fit."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, cast

import typer

from orchestrator.cli.environment import import_for
from orchestrator.cli.exits import UsageError
from orchestrator.cli.graph_refs import importing
from orchestrator.cli.options import parse_json
from orchestrator.executor import Migration
from orchestrator.graph.refs import attribute, module_of_file, resolve

STATE = "state."
"""Prefix of names of state fields, which nodes may have, too."""
FORK = "fork."
"""Prefix of names of nodes that fork, for their open forks."""


Rename = Annotated[
    list[str] | None,
    typer.Option(
        "--rename",
        metavar="OLD=NEW",
        help="The run continues at node NEW where it was at OLD; state.OLD=NEW for a state field; fork.OLD=NEW for "
        "the node that branches under way forked at. Repeatable.",
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
    """The options of a command that has another `--set`."""

    rename: Rename = None
    drop: Drop = None
    migrate: Migrate = None


@dataclass(frozen=True)
class Migrating(ForkMigrating):
    """The options of a command that continues a run."""

    set_: Set = None


def migration_of(given: Migrating, directory: str | None = None) -> Migration | None:
    """The migration that options describe; None if there are none.

    Args:
        given: the options.
        directory: where a module that is not installed is looked for. Default: the current directory.

    Raises:
        UsageError: an option cannot be read.
        GraphUnknown: `--migrate` leads nowhere.
    """

    if not any((given.rename, given.drop, given.set_, given.migrate)):
        return None
    found = _referred(given.migrate, directory or os.getcwd()) if given.migrate is not None else Migration()
    nodes, joins, forks = dict(found.nodes), dict(found.joins), dict(found.forks)
    state = dict(found.state) if isinstance(found.state, Mapping) else {}
    drop = list(found.drop)
    for text in given.rename or ():
        old, new = _pair(text, "--rename", "OLD=NEW")
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
        name, value = _pair(text, "--set", "FIELD=JSON")
        state[name.removeprefix(STATE)] = _Constant(parse_json(value, f"--set {name}"))
    if callable(found.state) and state:
        raise UsageError(
            "--migrate names a function of the state: it gives all fields, without --rename state. or --set"
        )
    return replace(found, nodes=nodes, joins=joins, forks=forks, drop=tuple(drop), state=state or found.state)


class _Constant:
    """A function of the old state that gives one value."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __call__(self, values: dict[str, object]) -> object:
        return self._value


def _pair(text: str, option: str, form: str) -> Sequence[str]:
    old, equals, new = text.partition("=")
    if not equals or not old or not new:
        raise UsageError(f"{option} {text}: use the form {form}")
    return old, new


def _referred(ref: str, directory: str) -> Migration:

    place, colon, name = ref.partition(":")
    if not colon or not place or not name:
        raise UsageError(f"--migrate {ref}: use module:attr or file.py:attr")
    import_for(ref, directory)
    with importing(f"migration {ref}"):
        found: Any = attribute(module_of_file(place), name) if place.endswith(".py") else resolve(ref)
    if isinstance(found, Migration):
        return found
    if callable(found) or isinstance(found, Mapping):
        return Migration(state=cast(Any, found))
    raise UsageError(f"--migrate {ref}: it is a {type(found).__name__}, not a Migration, a mapping or a function")
