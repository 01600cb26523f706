"""`check GRAPH --against runs`: the runs that a new version of a graph would refuse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.cli.exits import UsageError
from orchestrator.cli.graph_refs import absolute, graph_from_ref
from orchestrator.cli.interrupts import run_async
from orchestrator.cli.report import NextCommands
from orchestrator.cli.storage import codec_of_environment, exists, shown_url, store_url
from orchestrator.cli.trust import trusted
from orchestrator.executor import Executor
from orchestrator.visible import line

if TYPE_CHECKING:
    from orchestrator.executor import VersionCheck

RUNS = "runs"
"""The value of `--against` that means the store of `--store`."""


@dataclass(frozen=True)
class CheckedRuns:
    """The runs of a store that were compared with a version of their graph."""

    all: Sequence[VersionCheck]
    commands: NextCommands
    graph: str
    trust: Sequence[str]
    url: str

    @property
    def refused(self) -> list[VersionCheck]:
        """Runs that would be refused, those that need most first."""
        found = [one for one in self.all if one.refused]
        return sorted(found, key=lambda one: one.grade != "migration")

    def command(self, one: VersionCheck) -> str | None:
        """The command that continues a run in the new version; None if none is known."""
        if one.options is None:
            return None
        known = one.refs.get("graph") == self.graph and trusted(one.root_id, one.refs, self.url)
        modules = [word for module in self.trust for word in ("--trust", module)]
        own = () if known else ("--graph", self.graph, *modules)
        return self.commands.resume(one.run_id, *one.options, *own)


def runs_against(graph: str, trust: Sequence[str], against: str, store: str | None) -> CheckedRuns:
    """Compare the runs of a store with a graph.

    Args:
        graph: the reference of the graph. Its code is imported.
        trust: modules that a graph file may name code of.
        against: `runs`, or the URL of a store.
        store: the value of `--store`.

    Raises:
        UsageError: there is no such store.
        GraphUnknown, UntrustedCode: the graph's code is missing, or not trusted.
    """

    if against != RUNS and "://" not in against:
        raise UsageError(f"--against {against}: use runs, or the URL of a store")
    where = store if against == RUNS else against
    url = store_url(where)
    if where is not None and not exists(url):
        raise UsageError(f"--against {against}: there is no store at {shown_url(url)}")
    found = graph_from_ref(graph, None, trust)

    async def compare() -> list[VersionCheck]:
        async with Executor(url, codec=codec_of_environment()) as executor:
            return await executor.graphs.check_runs(found)

    checked = run_async(compare) if exists(url) else []
    return CheckedRuns(checked, NextCommands(where), absolute(graph), trust, url)


def refused_data(runs: CheckedRuns) -> dict[str, object]:
    """The runs as plain JSON: those that would be refused, and those that could not be read."""
    return {
        "runs": len(runs.all),
        "refused": [
            {
                "run_id": one.run_id,
                "status": one.status,
                "at": list(one.at),
                "grade": one.grade,
                "changes": list(one.changes),
                "command": runs.command(one),
                "guesses": list(one.guesses),
                "undecided": {name: list(found) for name, found in one.undecided.items()},
            }
            for one in runs.refused
        ],
        "unread": [{"run_id": one.run_id, "fault": one.fault} for one in runs.all if one.fault],
    }


def _ways(command: str | None, one: VersionCheck) -> Iterator[str]:
    """Yield lines with the ways to continue a run."""
    if command is not None:
        yield f"to continue it: {command}"
    elif not one.undecided:
        yield "no command is known that continues it"
    for name, found in one.undecided.items():
        listed = line(" or ".join(found))
        yield f"state field {line(name)} may have become {listed}: name one with --rename state.{line(name)}=NEW"
        yield f"  of `resume`, or give its value up with --drop state.{line(name)}"
    if command is not None and one.guesses:
        yield "this is a guess, check it first:"
        yield from (f"  {line(guess)}" for guess in one.guesses)


def refused_text(runs: CheckedRuns) -> Iterator[str]:
    """The runs as lines of text."""
    yield f"  {len(runs.refused)} of {len(runs.all)} runs would be refused"
    for one in runs.refused:
        yield f"  {one.grade:<10} {line(one.run_id)}  {one.status} at {line(', '.join(one.at))}"
        yield from (f"    - {line(change)}" for change in one.changes)
        yield from (f"    {text}" for text in _ways(runs.command(one), one))
    for one in runs.all:
        if one.fault:
            yield f"  unread     {line(one.run_id)}: {line(one.fault)}"
