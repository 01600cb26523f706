"""The command `replay`: how another graph, prompt or model would have changed recorded runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli import environment, exits, options, run_lookup, signals, storage
from orchestrator.cli.graph_refs import absolute
from orchestrator.cli.launch_refs import Given, load_model, of_run
from orchestrator.cli.output import error_text, out, out_json, out_table, redacted, warn
from orchestrator.cli.report import NextCommands, waiting_text
from orchestrator.cli.run_session import Display, TerminalSession, opened
from orchestrator.errors import OrchestratorError
from orchestrator.executor.replay import DEFAULT
from orchestrator.render.terminal.tables import Cell, Column
from orchestrator.views.replay_result import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.cli.launch_refs import Launch
    from orchestrator.executor import Executor, Replay, Run
    from orchestrator.executor.replay.running import Live
    from orchestrator.models import Model

_NAMED = re.compile(r"([^\W\d](?:[\w-]|[^\x00-\x7f])*)=(.+)", re.DOTALL)
"""`NAME=REF`, or `FIELD=JSON`."""
_LIVE: Mapping[str, Live] = {"never": "never", "ask": "ask", "always": "always"}
_ANSWER = 200
"""Characters of an answer shown in a table."""
_MOST = 10
"""First differences that are printed."""


@dataclass(frozen=True)
class Chosen:
    """Options that choose the runs to replay."""

    every: Annotated[bool, typer.Option("--all", help="Replay all runs that fit the next three options.")] = False
    graph_name: Annotated[
        str | None, typer.Option("--graph-name", metavar="G", help="With --all: runs of this graph, by name.")
    ] = None
    status: Annotated[str | None, typer.Option("--status", metavar="S", help="With --all: runs with this status.")] = (
        None
    )
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="K=V", help="With --all: runs with this label. Repeatable.")
    ] = None

    def ids(self, url: str, named: Sequence[str]) -> list[str]:
        """Return the ids of the runs that are named or chosen.

        Raises:
            UsageError: runs are named and chosen, or neither.
        """
        if bool(named) == self.every:
            raise exits.UsageError("name the runs to replay, or use --all, not both")
        if not self.every and (self.graph_name is not None or self.status is not None or self.label):
            raise exits.UsageError("--graph-name, --status and --label choose runs for --all")
        return (
            _all_runs(url, self.graph_name, self.status, options.pairs(self.label))
            if self.every
            else list(dict.fromkeys(named))
        )


def replay(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="RUN...", help="The ids of the runs.", show_default=False)
    ] = None,
    graph: Annotated[
        str | None, typer.Option("--graph", metavar="NEW", help="Another version of the graph, or another graph.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="[NAME=]REF",
            help="A model to replace the one that nodes use under NAME; without NAME the default one. Repeatable.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=JSON",
            help="Replace a field of the state that the run started with. Repeatable.",
        ),
    ] = None,
    live: Annotated[
        str,
        typer.Option(
            "--live",
            metavar="MODE",
            help="What to do about calls that the journal does not contain: never make them (the replay ends there), "
            "ask before each, or always make them.",
        ),
    ] = "never",
    *,
    chosen: Chosen,
    approve: Annotated[
        str | None,
        typer.Option(
            "--approve", metavar="RISK", help=f"Approve live calls of tools up to this risk: {options.RISKS}."
        ),
    ] = None,
    tools: options.RunTools = None,
    trust: options.Trust = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Replay runs from their journals, and compare.

    Results of calls, answers and times come from the journals; by default nothing is called, and no model is needed.
    Exit code 1 if an answer changed, or is not known because the replay ended early.

    Example: orchestrator replay 3f2a9c1d --graph new.py:graph
    """

    mode = _LIVE.get(live)
    if mode is None:
        raise exits.UsageError(f"--live {live}: use never, ask or always")
    url, found = storage.store_url(store), _Found()
    wanted = chosen.ids(url, runs or ())
    work = _Work(
        url,
        mode,
        Given.of(graph, tools, _for_runs(live, model or ()), trust),
        _models(model or ()),
        dict(_pair(one, "--set") for one in set_ or ()),
        options.risk(approve),
        json=json,
        store=store,
    )
    try:
        for launch, ids in work.grouped(wanted, found).items():
            signals.run_async(partial(work.replay_all, launch, ids, found))
    except signals.Interrupted:
        warn("interrupted; replays that were started can be resumed, `orchestrator runs` lists them")
        return exits.INTERRUPTED
    if json:
        out_json({"replays": [redacted(one.to_json()) for one in found.replays], "errors": found.errors})
    else:
        if found.replays:
            found.show_table()
            if more := found.differences():
                out(more)
        for error in found.errors:
            warn(f"error: {redacted(error['error'])}")
        if not found.replays and not found.errors:
            warn(f"no such runs in {storage.shown_url(url)}")
    return exits.FAILED if found.errors or any(one.answer_changed for one in found.replays) else exits.COMPLETED


@dataclass
class _Found:
    """The result of a replay."""

    replays: list[Replay] = field(default_factory=list)
    errors: list[dict[str, str]] = field(default_factory=list)

    def fail(self, run_id: str, error: Exception) -> None:
        """Record why a run could not be replayed."""

        self.errors.append({"run_id": run_id, "error": f"run {run_id!r} cannot be replayed: {error_text(error)}"})

    def show_table(self) -> None:
        """Print a row for each replay."""

        least = {"graph": 12, "result": 16, "answer before": 13, "answer after": 13}
        columns = [Column(name, least.get(name), right=number > 4) for number, name in enumerate(COLUMNS)]
        rows: list[list[Cell | str]] = []
        for one in self.replays:
            run, graph, result, *rest = one.cells(_ANSWER)
            rows.append([run, graph, Cell(result, "green" if one.same else "yellow"), *rest])
        out_table(columns, rows)

    def differences(self) -> str:
        """Return all differences of one run, or the first difference of each of several."""
        lines: list[str] = []
        differ = [one for one in self.replays if not one.same]
        if len(self.replays) == 1 and differ:
            return f"\n{differ[0].diff.to_text()}"
        for one in differ[:_MOST]:
            first = one.diff.first
            if first is not None:
                lines += ["", f"{one.parent.run_id}: {first.line}", *(f"    {line}" for line in first.lines)]
        return "\n".join(lines)


@dataclass(frozen=True)
class _Work:
    """Options of a replay."""

    url: str
    live: Live
    given: Any
    models: Mapping[str, str]
    update: Mapping[str, object]
    approve: str | None
    json: bool
    store: str | None

    def grouped(self, run_ids: Sequence[str], found: _Found) -> dict[Launch, list[str]]:
        """Group the runs by the code that they need.

        Raises:
            RunUnknown: there is no such run.
            UsageError: the only run's own references may not be used, and none were typed.
        """

        groups: dict[Launch, list[str]] = {}
        for run_id in run_ids:
            run = run_lookup.load(self.url, run_id)
            try:
                launch = of_run(run_id, run.root_id, run.refs, self.url, self.given)
            except exits.UsageError as error:
                if len(run_ids) == 1:
                    raise
                found.fail(run_id, error)
                continue
            groups.setdefault(replace(launch, by_default=False).admitted(), []).append(run_id)
        return groups

    async def replay_all(self, launch: Launch, run_ids: Sequence[str], found: _Found) -> None:
        """Replay runs that need the same code."""

        if self.live == "never":
            launch = replace(launch, models=tuple((name, "offline") for name, _ in launch.models))
        code = launch.load()
        models: dict[str, Model] = {name: load_model(ref) for name, ref in self.models.items()}
        async with opened(self.url, code) as executor:
            for run_id in run_ids:
                try:
                    made = await executor.replay(
                        run_id,
                        code.graph if self.given.graph is not None else None,
                        models or None,
                        dict(self.update) or None,
                        approve=self.approve,
                        live=self.live,
                        by=environment.user_name(),
                    )
                    found.replays.append(await self._asked(executor, made))
                except OrchestratorError as error:
                    if len(run_ids) == 1:
                        raise
                    found.fail(run_id, error)

    async def _asked(self, executor: Executor, made: Replay) -> Replay:
        """Ask the questions of a replay at the terminal, or print the commands that answer them."""

        run = made.run
        if run.status != "paused" or made.same:
            return made
        if environment.on_terminal() and not self.json:
            display = Display(NextCommands(self.store))

            async def as_it_is() -> Run:
                return await executor.load(run.run_id)

            async def again() -> Run:
                return await executor.resume(run.run_id)

            await TerminalSession(executor, run.run_id, display.sink(), seen=run.seq).go(as_it_is, again)
            made = await executor.replays.load(run.run_id)
        if made.run.status == "paused" and not self.json:
            warn(str(redacted(waiting_text(run.run_id, made.run.waiting, NextCommands(self.store)))))
        return made


def _for_runs(live: str, given: Sequence[str]) -> list[str]:
    """Return models for opening the runs. Without live calls, no default model is needed."""

    models = [one.removeprefix(f"{DEFAULT}=") for one in given]
    return ["offline", *filter(_NAMED.fullmatch, models)] if live == "never" else models


def _models(given: Sequence[str]) -> dict[str, str]:
    """Return `--model` as names and references; one without a name is for nodes that name no model."""

    found: dict[str, str] = {}
    for one in given:
        match = _NAMED.fullmatch(one)
        name, ref = (match[1], match[2]) if match is not None else (DEFAULT, one)
        found[name] = absolute(ref)
    return found


def _pair(text: str, option: str) -> tuple[str, object]:
    """Return a field and its value.

    Raises:
        UsageError: the text does not have the form `FIELD=JSON`.
    """
    match = _NAMED.fullmatch(text)
    if match is None:
        raise exits.UsageError(f"{option} {text}: use the form FIELD=JSON")
    return match[1], options.parse_json(match[2], option)


def _all_runs(url: str, graph: str | None, status: str | None, labels: Mapping[str, str]) -> list[str]:
    """Return the ids of all matching runs, oldest first, without replays and runs called by others."""

    async def listed(executor: Executor) -> list[str]:
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = await executor.runs(status=status, graph=graph, labels=dict(labels), after=cursor, limit=200)
            found += [one.run_id for one in page.runs if one.parent is None or one.parent.relation == "fork"]
            cursor = page.cursor
            if cursor is None:
                return found[::-1]

    try:
        return run_lookup.looking(url, listed) if storage.exists(url) else []
    except ValueError as error:
        raise exits.UsageError(str(error)) from None
