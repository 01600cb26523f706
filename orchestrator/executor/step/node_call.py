"""The work of one attempt: running the node, inline or in a thread or as an effect, and reading what it returned."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from pydantic import BaseModel

from orchestrator.errors import InvalidOutcome, InvalidUpdate
from orchestrator.executor.concurrency import Place
from orchestrator.executor.effects.effect import Effect
from orchestrator.executor.step.failure import wait_before
from orchestrator.fence import current_fence, pass_fence, pass_fence_in_thread, waits_at_fence
from orchestrator.graph.codec import shown
from orchestrator.graph.outcome import RESERVED, Failing, Outcome
from orchestrator.jsontypes import JsonObject

if TYPE_CHECKING:
    from orchestrator.executor.step.context import StepContext


def work(context: StepContext, state: object) -> Awaitable[object]:
    """What a node returns; of an irreversible one maybe what the journal says that it returned.

    No coroutine itself: each one around a node's own would cost every step that waits.
    """
    gate = context.live.resources.gate
    if gate is not None:
        return _in_place(context, state, Place(gate))
    return _run_node(context, state)


async def _in_place(context: StepContext, state: object, place: Place) -> object:
    context.place = place
    async with place:
        if context.spec.effect != "pure" and not context.held:
            await context.ensure_held()
        return await _run_node(context, state)


def _run_node(context: StepContext, state: object) -> Awaitable[object]:
    if context.spec.effect == "irreversible":
        return _once(context, state)
    return _plainly(context, state)


async def _once(context: StepContext, state: object) -> object:
    async def run(key: str) -> object:
        if context.spec.sync_fn is None:
            await pass_fence()
        else:
            waits_at_fence(key)
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


def _plainly(context: StepContext, state: object) -> Awaitable[object]:
    spec = context.spec
    function = spec.sync_fn
    if function is None:
        return spec._begin(state, context)
    if spec.effect == "pure":
        return _here(context, function, state)
    threads = context.live.resources.threads
    return anyio.to_thread.run_sync(_in_thread, context, function, state, abandon_on_cancel=True, limiter=threads)


def _in_thread(context: StepContext, function: Callable[[Any, Any], object], state: object) -> object:
    """Run a node's function. While it waited for this thread, the run may have been taken over."""
    pass_fence_in_thread(current_fence.get() if context.spec.effect == "irreversible" else context)
    return function(state, context)


async def _here(context: StepContext, function: Callable[[Any, Any], object], state: object) -> object:
    return function(state, context)


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
    activation = context.activation
    if isinstance(result, Failing):
        result = _decided(context, result)
    outcome, update = _read(activation.node, result)
    writes = context.spec.writes
    if writes is not None and update and not writes.issuperset(update):
        others = ", ".join(sorted(set(update) - writes))
        raise InvalidUpdate(
            f"{activation.node} updates {others}, and says that it writes only {', '.join(sorted(writes))}"
        )
    values, ops = activation.frame.plan.schema.encode_update(update)
    return outcome, values, ops


def _decided(context: StepContext, failing: Failing[Any]) -> Outcome[Any]:
    """What becomes of an outcome that stands for a failure: an edge names it, or another one is taken.

    Raises:
        Exception: its error, where the node is tried again, or nothing takes it.
    """
    activation, retry = context.activation, context.spec.retry
    named = activation.frame.plan.topology.has_route(activation.node, failing.name)
    if not named and failing.otherwise is not None:
        return Outcome(failing.otherwise, failing.update)
    if not named or (retry is not None and wait_before(retry, activation.attempt, failing.error, 0.5) is not None):
        raise failing.error
    return failing


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
