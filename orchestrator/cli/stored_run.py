"""Taking up a run that is in the store: looking at it, and finding the code to go on with."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.cli.approvals import approvals
from orchestrator.cli.exits import UsageError
from orchestrator.cli.launch import Code, Given, Launch, of_run
from orchestrator.cli.options import Continuing
from orchestrator.cli.report import NextCommands
from orchestrator.cli.run_lookup import load, one_run
from orchestrator.cli.run_session import Manner
from orchestrator.cli.storage import store_url
from orchestrator.errors import RunEnded
from orchestrator.kernel.status import FINAL

if TYPE_CHECKING:
    from orchestrator.executor import Run


@dataclass(frozen=True)
class Taken:
    """A run that is about to go on."""

    url: str
    run: Run
    code: Code
    manner: Manner


def take(run_id: str, then: Continuing, *, seen: Run | None = None, ended: Collection[str] = ()) -> Taken:
    """Look at a run, if it was not `seen` just now, and import what it needs to go on.

    Args:
        run_id: the run's id.
        then: the options of the command.
        seen: the run.
        ended: how it may have ended.

    Raises:
        RunUnknown: there is no such run.
        RunEnded: it is over.
        UsageError: its own references may not be followed, and none were given.
        GraphUnknown: something that it needs is not there any more.
    """
    url = store_url(then.store)
    run = seen if seen is not None else load(url, run_id)
    if run.status in FINAL and run.status not in ended:
        raise RunEnded(run_id, run.status)
    try:
        launch = of_run(run_id, run.root_id, run.refs, url, Given.of(then.graph, then.tools, then.model, then.trust))
    except UsageError as error:
        said = one_run(url, run_id, partial(approvals, run=run))
        listed = "".join(f"\n  {line}" for line in said)
        raise UsageError(f"{error}\nIts recorded approvals:{listed}" if said else str(error)) from None
    launch = launch.admitted()
    manner = manner_of(run, url, then.store, json=then.json, launch=launch)
    return Taken(url, run, launch.load(), replace(manner, traceback=then.traceback))


def typed(then: Continuing) -> tuple[str, ...]:
    """The code that the options of a command name, as options of the next one."""
    one = {"--graph": then.graph}
    many = {"--tools": then.tools, "--model": then.model, "--trust": then.trust}
    words = [word for name, value in one.items() if value is not None for word in (name, value)]
    return (*words, *(word for name, values in many.items() for value in values or () for word in (name, value)))


def manner_of(run: Run, url: str, store: str | None, *, json: bool, launch: Launch | None = None) -> Manner:
    """How to tell of a run that is in the store; with the code that it was told to go on in, unless it knows that."""
    known = launch is None or launch.is_found(run.root_id, run.refs, url)
    return Manner(NextCommands(store, () if known or launch is None else launch.options()), json=json)
