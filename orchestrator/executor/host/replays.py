"""Replays of runs: a new run that takes its results from the journal of another one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from orchestrator.errors import InvalidValue, RunExists
from orchestrator.executor.host.creation import create
from orchestrator.executor.host.host import Host
from orchestrator.executor.host.offered_tools import offered
from orchestrator.executor.host.reader import load
from orchestrator.executor.host.start import check_run_id, join
from orchestrator.executor.resources import Resources
from orchestrator.executor.tape import DEFAULT, Live
from orchestrator.graph.definition import GraphDefinition
from orchestrator.kernel.records import Forked, RunStarted
from orchestrator.models.base import Model
from orchestrator.views.replay_result import Replay, replay_of
from orchestrator.views.run import Run


@dataclass(frozen=True)
class Order:
    """What is to be replayed, and how; see `Executor.replay`."""

    parent: str
    live: Live = "never"
    graph: GraphDefinition | str | None = None
    models: Mapping[str, Model] | None = None
    update: Mapping[str, object] | None = None
    run_id: str | None = None


async def replay(host: Host, order: Order) -> Replay:
    """See `Executor.replay`."""
    if order.live not in ("never", "ask", "always"):
        raise ValueError(f"live={order.live!r}: use 'never', 'ask' or 'always'")
    name = os.urandom(8).hex() if order.run_id is None else check_run_id(order.run_id)
    parent = await load(host, order.parent)
    graph = _graph_of(host, order, parent)
    resources = with_models(host.resources, order.models or {})
    resources.check(graph, models=False)
    host.resources.begun[graph.content] = graph
    started, forked = _first_records(host, order, parent, graph, name)
    try:
        live = await create(host, graph, started, forked, own=resources)
    except RunExists:
        await _check_same(host, name, forked)
        await join(host, name)
    else:
        await host.drive(live)
    return await replayed(host, name)


async def replayed(host: Host, run_id: str) -> Replay:
    """See `Executor.replayed`."""
    run = await load(host, run_id)
    fork = run.machine.fork
    if fork is None or fork.relation != "replay":
        raise InvalidValue(f"run {run_id!r} is not a replay of another run", where="run_id")
    parent = await load(host, fork.parent)
    read = host.store.read
    return replay_of(parent, await read(fork.parent, upto=parent.seq), run, await read(run_id, upto=run.seq))


def with_models(resources: Resources, models: Mapping[str, Model]) -> Resources:
    """What an executor was given, with other models."""
    named = {name: model for name, model in models.items() if name != DEFAULT or name in resources.models}
    own = models.get(DEFAULT) if DEFAULT not in resources.models else None
    return replace(resources, model=own or resources.model, models={**resources.models, **named})


def _graph_of(host: Host, order: Order, parent: Run) -> GraphDefinition:
    """The graph that the replay runs in.

    Raises:
        GraphUnknown: its code is missing.
    """
    given = order.graph
    if isinstance(given, GraphDefinition):
        return given
    own = host.resources.version(parent.graph, parent.machine.structure, parent.machine.content)
    if given is None and own is not None:
        return own
    return host.resources.graph(given or parent.graph, parent.run_id)


def _first_records(
    host: Host, order: Order, parent: Run, graph: GraphDefinition, name: str
) -> tuple[RunStarted, Forked]:
    """The first record of the replayed run as it is with this graph, and the record of the replay.

    Raises:
        InvalidInput: the values that the run began with do not fit the graph's state.
    """
    first = parent.machine.started
    assert first is not None
    values = {**first.values, **(order.update or {})}
    if graph.structure != first.structure:  # fields that the graph does not have any more are left out
        values = {field: value for field, value in values.items() if field in graph.schema.fields}
    now = host.resources.clock.now()
    started = first.model_copy(
        update={
            "ts": now, "seal": "", "run_id": name, "graph": graph.name, "structure": graph.structure,
            "content": graph.content,
            "values": dict(graph.schema.initial(values)), "labels": {}, "approve": None,
            "tools": offered(graph, host.resources.tools), "holder": str(host.owner), "caller": None,
        }
    )  # fmt: skip
    forked = Forked(
        seq=2, ts=now, run_id=name, parent=order.parent, at=0, root=name, relation="replay",
        live=order.live, models={alias: model.name for alias, model in (order.models or {}).items()},
    )  # fmt: skip
    return started, forked


async def _check_same(host: Host, name: str, wanted: Forked) -> None:
    """Accept a run of the same id if it is the same replay.

    Raises:
        RunExists: it is not.
    """
    found = (await load(host, name)).machine.fork
    if found is None or found.model_copy(update={"ts": wanted.ts, "seal": ""}) != wanted:
        raise RunExists(name, f"it is not this replay of run {wanted.parent!r}")
