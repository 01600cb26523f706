"""Beginning runs, once per run id."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from orchestrator.errors import InvalidValue, RunExists
from orchestrator.executor.first_state import Recorded, initial_values
from orchestrator.executor.host.creation import create
from orchestrator.executor.host.host import Host
from orchestrator.executor.host.manner import AS_IT_IS, Manner
from orchestrator.executor.host.offered_tools import offered
from orchestrator.executor.host.recovery import check_risk, drive_on, take_up_free, wait_for
from orchestrator.executor.host.resumption import nodes_of
from orchestrator.executor.missing_tools import check_tools
from orchestrator.executor.resources import Resources, limits_cost
from orchestrator.graph.codec import as_json, shown
from orchestrator.graph.limits import Limits
from orchestrator.graph.model import GraphDefinition
from orchestrator.jsontypes import is_small
from orchestrator.kernel.records import Caller, RunStarted
from orchestrator.kernel.rules import RULES
from orchestrator.stores.base import Store
from orchestrator.values import check_kind, check_labels, new_labels
from orchestrator.views.run import Run

if TYPE_CHECKING:
    from orchestrator.executor.drive.drive import Drive


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run that is not in the store yet: its graph, and its first record."""

    graph: GraphDefinition
    started: RunStarted
    context: object = None
    """The value of `ctx.context` in its nodes."""

    async def check_same(self, store: Store) -> None:
        """Hold it against the run that has its id.

        Raises:
            RunExists: that is a run of another graph, or has another input.
        """
        run_id, name = self.started.run_id, self.graph.name
        (first,) = await store.read(run_id, limit=1)
        if isinstance(first, RunStarted) and first.run_id != run_id:
            raise RunExists(run_id, f"it is a fork, which began with records of run {first.run_id!r}") from None
        if not isinstance(first, RunStarted) or first.graph != name:
            raise RunExists(run_id, f"it is a run of graph {getattr(first, 'graph', '?')!r}") from None
        if not self._has_input_of(first):
            raise RunExists(run_id, f"it is a run of {name!r} with another input") from None

    def _has_input_of(self, first: RunStarted) -> bool:
        """Whether a run began with the same input. If it began in another version of the graph, fields that only one of
        them has do not count, as long as this input does not set them."""
        ours, theirs = self.started.values, first.values
        if first.structure == self.graph.structure:
            return ours == theirs
        schema = self.graph.schema
        added = {name: ours[name] for name in ours.keys() - theirs.keys()}
        if any(schema.field(name).required for name in added):
            return False
        defaults = {name: schema.field(name).codec.encode(schema.field(name).default()) for name in added}
        return added == defaults and all(ours[name] == theirs[name] for name in ours.keys() & theirs.keys())


async def new_run(
    host: Host,
    graph: GraphDefinition | str,
    given: object,
    run_id: str | None,
    labels: Mapping[str, str] | None,
    approve: str | None,
    limits: Limits | None,
    refs: Mapping[str, object] | None,
    caller: Caller | None = None,
    how: Manner = AS_IT_IS,
) -> NewRun:
    """What a run begins with. Arguments as of `Executor.start`."""
    check_risk(approve)
    check_kind(limits, Limits, "limits")
    name = os.urandom(8).hex() if run_id is None else check_new_id(run_id)
    graph = host.resources.graph(graph, name) if isinstance(graph, str) else graph
    host.resources.graphs.setdefault(graph.name, graph)
    host.resources.begun[graph.content] = graph
    limits = None if limits is None else graph.limits.changed(limits)
    _check_resources(host.resources, graph, limits)
    if is_small(given):
        values = initial_values(graph, given)
    else:
        from orchestrator.away import away

        values = await away(lambda: initial_values(graph, given))
    # those of a schedule were accepted when it was stored
    marks = (check_labels if isinstance(given, Recorded) else new_labels)(labels or {})
    context = how.context
    if context is None:
        context = await host.contexts.for_new(name, graph.name, marks, None if caller is None else caller.run_id)
    started = RunStarted(
        seq=1,
        ts=host.resources.clock.now(),
        run_id=name,
        graph=graph.name,
        structure=graph.structure,
        content=graph.content,
        values=dict(values),
        limits=limits,
        labels=marks,
        approve=approve,
        refs=_refs(host.resources, graph) if refs is None else as_json(dict(refs), "refs", inside=1),
        tools=offered(graph, host.resources.tools),
        holder=str(host.owner),
        rules=RULES,
        caller=caller,
        pause_before=nodes_of(graph, how.pause_before or (), "pause_before"),
        pause_after=nodes_of(graph, how.pause_after or (), "pause_after"),
        context=context is not None,
        by=how.by,
    )
    return NewRun(graph, started, context)


def _check_resources(given: Resources, graph: GraphDefinition, limits: Limits | None) -> None:
    """Refuse a graph that needs more than is there, see `Resources.check`."""
    if limits is not None or not given.passed.holds("resources", graph, given.tools):
        given.check(graph, limits)
        if limits is None and not limits_cost(graph, None):  # the prices of models may change
            given.passed.note("resources", graph, given.tools)


async def begin(
    host: Host,
    graph: GraphDefinition | str,
    given: object,
    run_id: str | None,
    labels: Mapping[str, str] | None,
    approve: str | None,
    limits: Limits | None,
    refs: Mapping[str, object] | None,
    caller: Caller | None = None,
    how: Manner = AS_IT_IS,
) -> Drive | str:
    """A new run, taken up; or the id of the one that exists already. Arguments as of `Executor.start`."""
    new = await new_run(host, graph, given, run_id, labels, approve, limits, refs, caller, how)
    passed, tools = host.resources.passed, host.resources.tools
    if not passed.holds("tools", new.graph, tools):
        check_tools(new.graph, tools)
        passed.note("tools", new.graph, tools)
    try:
        live = await create(host, new.graph, new.started)
        live.log.context = new.context
        return live
    except RunExists:
        await new.check_same(host.store)
        return new.started.run_id


async def join(host: Host, run_id: str, how: Manner = AS_IT_IS) -> Run:
    """Go on with a run that exists if no executor drives it; else follow it until it ends or pauses."""
    while True:
        live = await take_up_free(host, run_id, how)
        if live is not None:
            return await drive_on(host, live)
        run = await wait_for(host, run_id, None)
        if run.status != "interrupted":
            return run


def _refs(given: Resources, graph: GraphDefinition) -> dict[str, object]:
    model = None if given.model is None else given.model.name
    tools = [tool.name for tool in given.tools]
    _check_names(graph.name, tuple(tools), model)
    return {"graph": graph.name, "tools": tools, "model": model}


@lru_cache(maxsize=64)
def _check_names(*names: object) -> None:
    """Refuse names that cannot be journaled: see `as_json`. The same ones are looked at once."""
    as_json(list(names), "refs", inside=1)


def check_new_id(run_id: str) -> str:
    """The id, if it is one that a new run can have.

    Raises:
        InvalidValue: it is none, or commands would take it for an option.
    """
    if check_run_id(run_id).startswith("-"):
        raise InvalidValue(f"run id {shown(run_id)}: take one that does not begin with '-'", where="run_id")
    return run_id


def check_run_id(run_id: str) -> str:
    """The id, if it is one that a run can have.

    Raises:
        InvalidValue: it is none.
    """
    check_kind(run_id, str, "run_id")
    if not 0 < len(run_id) <= 200 or not run_id.isprintable() or any(sign in " @/\\" for sign in run_id):
        raise InvalidValue(
            f"run id {shown(run_id)}: take 1 to 200 printable characters without spaces, '@', '/' and '\\'",
            where="run_id",
        )
    if run_id in (".", ".."):  # no address leads to it: browsers take them for folders
        raise InvalidValue(f"run id {shown(run_id)}: take one that can stand in an address", where="run_id")
    return run_id
