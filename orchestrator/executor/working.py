"""The work of one attempt: running the node, inline or in a thread or as an effect, and reading what it returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from pydantic import BaseModel

from orchestrator.errors import InvalidOutcome, InvalidUpdate
from orchestrator.executor.effect import Effect
from orchestrator.executor.places import Place
from orchestrator.graph.codec import shown
from orchestrator.graph.outcome import RESERVED, Outcome
from orchestrator.jsontypes import JsonObject

if TYPE_CHECKING:
    from orchestrator.executor.stepping import StepContext


async def work(context: StepContext, state: object) -> object:
    """What a node returns; of an irreversible one maybe what the journal says that it returned."""
    gate = context.live.given.gate
    if gate is not None:
        context.place = Place(gate)
        async with context.place:
            return await _run_node(context, state)
    if context.spec.effect == "irreversible":
        return await _run_node(context, state)
    # The way that nearly all steps go, without a further call.
    spec = context.spec
    function = spec.sync_fn
    if function is None:
        return await spec.run(state, context)
    if spec.effect == "pure":
        return function(state, context)
    return await _in_thread(context, function, state)


async def _run_node(context: StepContext, state: object) -> object:
    spec = context.spec
    if spec.effect != "irreversible":
        return await _plainly(context, state)

    async def run(key: str) -> object:
        return await _plainly(context, state)

    def encode(result: object) -> object:
        outcome, values, ops = encoded(context, result)
        return {"outcome": outcome, "update": values, "ops": ops}

    def taken(found: object) -> object:
        said = _recorded(found)
        schema = context.activation.frame.plan.schema
        values, ops = schema.encode_update(said.update)
        fault = context.live.machine.probe(context.activation, said.outcome, values, ops)
        if fault is not None:
            raise InvalidOutcome(fault.message)
        return {"outcome": said.outcome, "update": values, "ops": {**said.ops, **ops}}

    effect = Effect[object](
        kind="effect", name=context.node, effect="irreversible", request={}, run=run, encode=encode,
        decode=_recorded, taken=taken,
    )  # fmt: skip
    return await context.ledger.perform(effect)


async def _plainly(context: StepContext, state: object) -> object:
    function = context.spec.sync_fn
    if function is None:
        return await context.spec.run(state, context)
    if context.spec.effect == "pure":
        return function(state, context)
    return await _in_thread(context, function, state)


async def _in_thread(context: StepContext, function: Callable[[Any, Any], object], state: object) -> object:
    threads = context.live.given.threads
    return await anyio.to_thread.run_sync(function, state, context, abandon_on_cancel=True, limiter=threads)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What the journal says that an irreversible node returned."""

    outcome: str
    update: JsonObject
    ops: dict[str, str]


def _recorded(found: object) -> _Recorded:
    if not isinstance(found, Mapping) or "outcome" not in found:
        # A person said that it happened, and gave an update at most.
        return _Recorded("done", found if isinstance(found, Mapping) else {}, {})
    return _Recorded(str(found["outcome"]), found.get("update") or {}, dict(found.get("ops") or {}))


def encoded(context: StepContext, result: object) -> tuple[str, JsonObject, dict[str, str]]:
    """What a node returned, checked: outcome, update as JSON, and how fields of it are taken."""
    if isinstance(result, _Recorded):
        return result.outcome, result.update, result.ops
    outcome, update = _read(context.node, result)
    writes = context.spec.writes
    if writes is not None and update and not writes.issuperset(update):
        others = ", ".join(sorted(set(update) - writes))
        raise InvalidUpdate(
            f"{context.node} updates {others}, and says that it writes only {', '.join(sorted(writes))}"
        )
    values, ops = context.activation.frame.plan.schema.encode_update(update)
    return outcome, values, ops


def _read(node: str, result: object) -> tuple[str, Mapping[str, object] | None]:
    """Outcome and update of what a node returned."""
    if result is None:
        return "done", None
    if isinstance(result, Outcome):
        if result.name in RESERVED:
            raise InvalidOutcome(
                f"{node} returned outcome {result.name!r}, which is reserved for failures: raise an error instead"
            )
        return result.name, result.update
    if isinstance(result, Mapping):
        return "done", result
    if isinstance(result, BaseModel):
        raise InvalidUpdate(
            f"{node} returned a whole {type(result).__name__}: return only what changed, such as {{'field': value}}"
        )
    raise InvalidUpdate(f"{node} returned {shown(result)}: return an Outcome, a mapping of state fields, or None")
