"""The work of one attempt: its node runs inline, in a thread or as an effect, or the graph inside opens or lands.

A step whose node says `cache=seconds` may have the result of an earlier one. The key is a digest of the node's content
and code, the models and tools that it may use, and what it reads: the state fields, the items of open maps, the failure
that led to it. The look into the cache is an effect, so a run that is resumed, a replay and a fork get what was found
then. A replay asks only what the replayed run asked, and writes nothing.

A result is kept only if it depends on nothing else, as far as is seen: not if the node read the run's id, labels or
context, used memory, waited for an answer or event, called something irreversible, or had a call that failed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast
from weakref import WeakKeyDictionary

import anyio.to_thread
from pydantic import BaseModel

from orchestrator import __version__
from orchestrator.calls import call_in_thread, current_fence, pass_fence, pass_fence_in_thread, waits_at_fence
from orchestrator.errors import (
    GraphUnknown,
    InvalidInput,
    InvalidOutcome,
    InvalidUpdate,
    MemoryFull,
    StoreError,
    StoreUnavailable,
)
from orchestrator.executor.concurrency import Place
from orchestrator.executor.effects.effect import Attempt, Effect
from orchestrator.executor.failures import Lost, TryAgain, decide
from orchestrator.executor.run_log import RunLog
from orchestrator.executor.step_context import StepContext
from orchestrator.graph.codec import as_json, shown
from orchestrator.graph.function import node_code_digest
from orchestrator.graph.isolation import listed
from orchestrator.graph.model import Node, node_data
from orchestrator.graph.names import plain_name
from orchestrator.graph.outcome import RESERVED, Failing, Outcome
from orchestrator.graph.signatures import is_awaitable
from orchestrator.graph.state import StateSchema, fields_form
from orchestrator.graph.versions import state_shape
from orchestrator.json import JsonObject, canonical, digest
from orchestrator.kernel.ledger import did_irreversible
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.queries import reduced_values, start_fault, validate_outcome
from orchestrator.kernel.records import Failure, GraphOpened, StepDone
from orchestrator.kernel.state import Activation, FrameResult
from orchestrator.redaction import without_known_in
from orchestrator.stores.items import Item, ItemWrite
from orchestrator.values import MAX_NAME

logger = logging.getLogger("orchestrator.steps")

_NOT_CONTENT = frozenset({"cache", "retry", "timeout", "join", "rest", "pool", "reads"})
"""Fields of a node that do not change what a step comes to; of `reads` the values are in the key."""

_shapes: WeakKeyDictionary[Plan, str] = WeakKeyDictionary()


async def cached(attempt: Attempt, context: StepContext, run: Callable[[], Awaitable[object]]) -> object:
    """The result of a node from the cache; else what the node returns, which is then kept.

    Args:
        attempt: the attempt.
        context: the node's context.
        run: runs the node.
    """
    namespace, key = namespace_of(attempt), _key(attempt)
    look = _effect("cache.get", key, lambda _: _get(attempt, namespace, key), "read")
    found = await context.effects.perform(look) if _is_asked(attempt, context, look) else None
    if isinstance(found, Mapping):
        attempt.cached = True
        return Recorded(str(found["outcome"]), found["update"], dict(found["ops"]))
    attempt.varies = ""
    result = await run()
    if isinstance(result, Failing):
        return result
    outcome, update, ops = landed(attempt, result)
    kept = {"outcome": outcome, "update": dict(update), "ops": ops}
    why = "it contains a secret" if without_known_in(kept) is not kept else _varies(attempt)
    if why:
        logger.info("run %s: the result of %s is not kept: %s", attempt.log.run_id, attempt.activation.node, why)
        return result
    keep = _effect("cache.put", key, lambda call: _put(attempt, namespace, key, kept, call), "idempotent")
    if _is_asked(attempt, context, keep):
        await context.effects.perform(keep)
    return result


def namespace_of(attempt: Attempt) -> tuple[str, str]:
    """Return the namespace of a node's results: the names of its graph and of the node."""
    graph = attempt.activation.frame.plan.graph
    name = "" if graph is None else graph.name
    printable = name if name and name.isprintable() else ascii(name)
    return printable[:MAX_NAME], attempt.activation.node


def _key(attempt: Attempt) -> str:
    """The digest of all that the result depends on."""
    activation, spec, resources = attempt.activation, attempt.spec, attempt.resources
    plan = activation.frame.plan
    values = plan.schema.dump(activation.values)
    content = {name: value for name, value in node_data(spec).items() if name not in _NOT_CONTENT}
    models: list[object] = []
    if spec.asks_model:
        alias = attempt.setting("model")
        model = resources.model if alias is None else resources.models.get(alias)
        models = [alias, getattr(model, "name", None)]
    tools: list[list[str]] = []
    if spec.sees_tools:
        names, own = attempt.setting("tools"), attempt.own_tools()
        there = {**resources.tool_map, **own}
        tools = sorted([one.name, one.schema_digest] for one in there.values() if names is None or one.name in names)
    error = activation.error
    return digest(
        {
            "library": __version__,
            "content": content,
            "code": node_code_digest(spec),
            "state": _shape(plan),
            "models": models,
            "tools": tools,
            "reads": {name: value for name, value in values.items() if spec.reads is None or name in spec.reads},
            "items": as_json([*activation.items], "the items of a map", inside=1),
            "error": None if error is None else [error.type, error.message],
        }
    )


def _shape(plan: Plan) -> str:
    found = _shapes.get(plan)
    if found is None:
        found = _shapes[plan] = digest(state_shape(plan.schema))
    return found


def _varies(attempt: Attempt) -> str:
    """Why a result may depend on more than its key; empty: it does not, as far as is known."""
    activation = attempt.activation
    if attempt.varies:
        return f"it used {attempt.varies}"
    if activation.answers or activation.took:
        return "it waited for an answer or an event"
    if attempt.failed_calls:
        return "a call failed"
    for entry in attempt.log.machine.ledger.of(activation.key):
        settled = entry.settled
        if entry.intended.effect == "irreversible" or (settled is not None and did_irreversible(settled.result)):
            return "it did what cannot be undone"
    return ""


def _effect(name: str, key: str, access: Callable[[str], Awaitable[object]], kind: str) -> Effect[object]:
    async def run(call: str) -> object:
        waits_at_fence(call)
        await pass_fence()
        return await access(call)

    return Effect[object](
        kind="effect",
        name=name,
        effect=cast("Any", kind),
        request={"key": key},
        run=run,
        encode=lambda value: value,
        decode=lambda value: value,
    )


async def _get(attempt: Attempt, namespace: tuple[str, str], key: str) -> object:
    try:
        item = await attempt.log.journal.store.item("cache", namespace, key)
    except StoreUnavailable as error:
        raise attempt.signalled(Lost(error)) from error
    except StoreError as error:
        logger.warning("%s", error)
        return None
    if item is None:
        return None
    found = json.loads(item.data)
    fits = isinstance(found, dict) and isinstance(found.get("update"), dict) and isinstance(found.get("ops"), dict)
    return {**found, "created": item.updated} if fits else None


async def _put(attempt: Attempt, namespace: tuple[str, str], key: str, kept: Mapping[str, object], call: str) -> object:
    item = Item(namespace, key, canonical(kept))
    try:
        await attempt.log.journal.store.put_item(
            "cache",
            item,
            lifetime=attempt.spec.cache,
            write=ItemWrite(attempt.log.run_id, call),
            most=attempt.resources.memory.max_cache,
            evict=True,
        )
    except StoreUnavailable as error:
        raise attempt.signalled(Lost(error)) from error
    except MemoryFull:
        return False  # larger than the whole cache
    return True


def _is_asked(attempt: Attempt, context: StepContext, effect: Effect[Any]) -> bool:
    """True if an access is made. A replay makes only those that the replayed run made."""
    replay, activation = attempt.log.replay, attempt.activation
    if replay is None:
        return True
    if context.effects.is_due(effect)[1]:
        return True  # the replay's own journal has it
    if replay.is_live(activation):
        return False
    return replay.call(activation, effect.kind, effect.name, effect.digest, effect.request) is not None


def call_node(attempt: Attempt, context: StepContext, state: object) -> Awaitable[object]:
    """Run a node. The result of an irreversible one may come from an earlier call in the journal.

    Not a coroutine function: another coroutine around a node's own would cost every step that waits.
    """
    spec, resources = attempt.spec, attempt.resources
    if spec._is_bare and resources.gate is None:
        return spec._begin(state, context)
    gates = resources.gates_of(spec.pool)
    if gates:
        return _in_place(attempt, context, state, Place(*gates))
    return _run_node(attempt, context, state)


async def _in_place(attempt: Attempt, context: StepContext, state: object, place: Place) -> object:
    attempt.place = place
    async with place:
        if attempt.spec.effect != "pure" and not attempt.held:
            await attempt.ensure_held()
        return await _run_node(attempt, context, state)


def _run_node(attempt: Attempt, context: StepContext, state: object) -> Awaitable[object]:
    if attempt.spec.effect == "irreversible":
        return _as_effect(attempt, context, state)
    if attempt.spec.cache is not None:
        return cached(attempt, context, partial(_plainly, attempt, context, state))
    return _plainly(attempt, context, state)


async def _as_effect(attempt: Attempt, context: StepContext, state: object) -> object:
    async def run(key: str) -> object:
        if attempt.spec.sync_fn is None:
            await pass_fence()
        else:
            waits_at_fence(key)
        result = await _plainly(attempt, context, state)
        # Checked by type: a proxy may raise when its class is read, and the call has returned.
        return decided(attempt, cast("Failing[Any]", result)) if issubclass(type(result), Failing) else result

    def encode(result: object) -> object:
        outcome, values, ops = landed(attempt, result)
        reduced_values(attempt.activation, values, ops)  # raises what the reducer raises
        return {"outcome": outcome, "update": values, "ops": ops}

    def validate(found: object) -> object:
        return encode(recorded(given_result(attempt.activation.frame.plan.schema, found)))

    effect = Effect[object](
        kind="effect",
        name=attempt.activation.node,
        effect="irreversible",
        request={},
        run=run,
        encode=encode,
        decode=recorded,
        validate=validate,
        returns=partial(result_schema, attempt),
    )
    return await context.effects.perform(effect)


def _plainly(attempt: Attempt, context: StepContext, state: object) -> Awaitable[object]:
    spec = attempt.spec
    function = spec.sync_fn
    if function is None:
        return spec._begin(state, context)
    if spec.effect == "pure":
        return _inline(context, function, state)
    return _threaded(attempt, context, function, state)


async def _threaded(
    attempt: Attempt, context: StepContext, function: Callable[[Any, Any], object], state: object
) -> object:
    (found,) = await anyio.to_thread.run_sync(
        _in_thread, attempt, context, function, state, abandon_on_cancel=True, limiter=attempt.resources.threads
    )
    return await found if is_awaitable(found) else found


def _in_thread(
    attempt: Attempt, context: StepContext, function: Callable[[Any, Any], object], state: object
) -> tuple[object]:
    """Run a node's function in a thread; its result comes in a tuple, as trio refuses coroutines returned from threads.

    While it waited for the thread, another process may have taken over the run.
    """
    pass_fence_in_thread(current_fence.get() if attempt.spec.effect == "irreversible" else attempt)
    return (call_in_thread(function, state, context),)


async def _inline(context: StepContext, function: Callable[[Any, Any], object], state: object) -> object:
    found = function(state, context)
    return await found if is_awaitable(found) else found


# -- subgraphs --------------------------------------------------------------------------------------------------------


class Maps(Protocol):
    """The mappings of input and update of a node that contains a graph."""

    def inner_input(self, state: object, item: object) -> Mapping[str, object]:
        """Return the inner graph's input, from the state and the item of the map that the node runs in."""
        ...

    def outer_update(self, values: Mapping[str, object]) -> Mapping[str, object]:
        """Return the node's update, from the inner graph's last values."""
        ...


def _maps(node: Node) -> Maps:
    if not callable(getattr(node, "inner_input", None)) or not callable(getattr(node, "outer_update", None)):
        raise GraphUnknown(f"node kind {node.kind!r} has a graph inside: define inner_input and outer_update")
    return cast(Maps, node)


def subgraph_step(log: RunLog, activation: Activation, node: Node) -> GraphOpened | StepDone | Failure:
    """Return the record for an activation of a subgraph's node: its graph starts, has ended, or failed."""
    child = activation.child
    if child is None:
        return _opened(log, activation, node)
    if child.status == "failed":
        words = "it failed"
        return child.error or Failure(type="StepError", message=words, node=activation.node, path=activation.path)
    return _landed(log, activation, node, child)


def _opened(log: RunLog, activation: Activation, node: Node) -> GraphOpened:
    plan = activation.frame.plan
    if activation.merged:
        plan.schema.check(activation.values)
    state = plan.schema.view(activation.values, node.reads)
    given = _maps(node).inner_input(state, activation.item)
    inner = plan.sub[activation.node]
    values = dict(inner.schema.initial(given))
    fault = start_fault(inner.topology, values)
    if fault is not None:
        raise InvalidInput(f"input of the graph inside {activation.node}: START {fault}")
    return GraphOpened(**log.at(activation), attempt=activation.attempt, values=values)


def _outcome(node: Node, child: FrameResult) -> str | None:
    """Return the outcome after the graph inside a node; None if the node has none for this ending."""
    decide_outcome = getattr(node, "outer_outcome", None)
    found: str | None = "done" if decide_outcome is None else decide_outcome(child.entered)
    return found


def _landed(log: RunLog, activation: Activation, node: Node, child: FrameResult) -> StepDone | Failure:
    plan = activation.frame.plan
    if child.status == "completed":
        plan.sub[activation.node].schema.check(child.values)
    update = _maps(node).outer_update({name: listed(value) for name, value in child.values.items()})
    if node.writes is not None and not node.writes.issuperset(update):
        raise InvalidUpdate(f"{activation.node} updates more than it says that it writes: {', '.join(update)}")
    values, ops = plan.schema.encode_update(update)
    exhausted = child.status == "exhausted"
    # A graph that spent its own limits does not end those around it, and its results are kept. An edge may distinguish
    # the cases; else the record, and `ctx.error` after the node, name the spent limit.
    outcome = "exhausted" if exhausted and plan.topology.has_route(activation.node, "exhausted") else None
    outcome = outcome or _outcome(node, child)
    if outcome is None:
        if exhausted and child.error is not None:
            return child.error
        ways = ", ".join(map(repr, child.entered)) or "no outcome: a map had no items"
        raise InvalidOutcome(
            f"{activation.node}: END of the graph inside was entered by {ways}, and the node declares "
            f"{', '.join(map(repr, node.outcomes))} only: add it, or 'done' for all others"
        )
    fault = validate_outcome(activation, outcome, values, ops)
    if fault is not None:
        raise InvalidOutcome(fault.message)
    reduced = reduced_values(activation, values, ops)
    stamp = log.at(activation)
    return StepDone(
        **stamp,
        outcome=outcome,
        update=dict(values),
        ops=ops,
        reduced=None if reduced is None else dict(reduced),
        attempt=activation.attempt,
        started=stamp["ts"],
        ended=stamp["ts"],
        error=child.error if exhausted else None,
    )


@dataclass(frozen=True, slots=True)
class Recorded:
    """The result of a node, from the journal or from the cache."""

    outcome: str
    update: JsonObject
    ops: dict[str, str]


def recorded(found: object) -> Recorded:
    """Return the result of an irreversible node, from the journal or from a person."""
    if not isinstance(found, Mapping) or "outcome" not in found:
        # A person answered that the call happened, and gave at most an update.
        return Recorded("done", found if isinstance(found, Mapping) else {}, {})
    return Recorded(str(found["outcome"]), found.get("update") or {}, dict(found.get("ops") or {}))


def result_schema(attempt: Attempt) -> JsonObject:
    """Return the JSON Schema of a person's answer in place of an irreversible node's result."""
    schema, writes = attempt.activation.frame.plan.schema, attempt.spec._may_update
    found = fields_form(schema, schema.fields if writes is None else writes, update=True)
    outcomes, shared = list(attempt.spec.outcomes), found.pop("$defs")
    named = {"outcome": {"type": "string", "enum": outcomes}, "update": {"anyOf": [found, {"type": "null"}]}}
    whole = {"type": "object", "properties": named, "required": ["outcome"]}
    ways = [found, whole] if outcomes == ["done"] else [whole, found]  # the first alternative becomes the form
    return {"anyOf": [*ways, {"type": "null"}] if "done" in outcomes else [whole], "$defs": shared}


def given_result(schema: StateSchema, found: object) -> dict[str, Any]:
    """Encode the result that a person gave for an irreversible node, in its journaled form.

    Raises:
        InvalidUpdate: a value does not fit the state.
    """
    given = recorded(found)
    values, ops = schema.encode_update(given.update)
    return {"outcome": given.outcome, "update": values, "ops": {**given.ops, **ops}}


def landed(attempt: Attempt, result: object) -> tuple[str, JsonObject, dict[str, str]]:
    """Check the result of a node: its outcome, its update as JSON, and how its fields are merged.

    Raises:
        InvalidOutcome: the outcome leads nowhere, or its reducers do not take the update.
        InvalidUpdate: a value does not fit the state, or the node may not update its field.
    """
    activation = attempt.activation
    outcome: str
    update: Mapping[str, object] | None
    if type(result) is Recorded:
        outcome, values, ops = result.outcome, result.update, result.ops
    else:
        if type(result) is Outcome and result.name not in RESERVED:  # the most common case
            outcome, update = result.name, result.update
        else:
            if isinstance(result, Failing):
                result = decided(attempt, result)
            outcome, update = _read(activation.node, result)
        if update:
            _check_declared(attempt, update)
        values, ops = activation.frame.plan.schema.encode_update(update)
    fault = validate_outcome(activation, outcome, values, ops)
    if fault is None:
        return outcome, values, ops
    plain = plain_name(outcome)
    if plain != outcome and outcome not in attempt.spec.outcomes:
        return landed(attempt, Recorded(plain, values, ops))
    raise InvalidOutcome(fault.message)


def _check_declared(attempt: Attempt, update: Mapping[str, object]) -> None:
    """Refuse fields that the node does not declare: by `writes`, its function's return type, or its class's `fills`.

    Raises:
        InvalidUpdate: there is such a field.
    """
    writes = attempt.spec._may_update
    if writes is not None and not writes.issuperset(update):
        others = ", ".join(map(str, sorted(update.keys() - writes, key=str)))
        only = f"only {', '.join(sorted(writes))}" if writes else "nothing"
        raise InvalidUpdate(f"{attempt.activation.node} updates {others}, and says that it writes {only}")


def decided(attempt: Attempt, failing: Failing[Any]) -> Outcome[Any]:
    """Resolve an outcome that represents a failure: an edge names it, or another one is taken.

    Raises:
        Exception: its error, if the node is retried or no edge takes the failure.
    """
    activation, retry = attempt.activation, attempt.spec.retry
    named = activation.frame.plan.topology.has_route(activation.node, failing.name)
    if not named and failing.otherwise is not None:
        return Outcome(failing.otherwise, failing.update)
    again = None if retry is None else decide(retry, failing.error, activation.attempt, 0.5)
    if not named or isinstance(again, TryAgain):
        raise failing.error
    return failing


def _read(node: str, result: object) -> tuple[str, Mapping[str, object] | None]:
    """Return outcome and update of a node's return value."""
    if result is None:
        return "done", None
    if isinstance(result, Outcome):
        if result.name in RESERVED:
            raise InvalidOutcome(
                f"{node} returned outcome {result.name!r}, which is reserved for failures: raise an error instead"
            )
        return result.name, result.update
    if type(result) is dict or isinstance(result, Mapping):
        return "done", result
    if isinstance(result, BaseModel):
        raise InvalidUpdate(
            f"{node} returned a whole {type(result).__name__}: return only what changed, such as {{'field': value}}"
        )
    raise InvalidUpdate(f"{node} returned {shown(result)}: return an Outcome, a mapping of state fields, or None")
