"""Cache of step results: a step whose node has `cache=seconds` may reuse the result of an earlier one.

The key is a digest of the node's content and code, the models and tools that it may use, and what it reads: the state
fields, the items of open maps, the failure that led to it. The access to the cache is an effect, so a run that is
resumed, a replay and a fork get the same result. A replay makes only the accesses that the replayed run made, and
writes nothing.

A result is kept only if it depends on nothing else, as far as can be seen: not if the node read the run's id, labels or
context, used memory, waited for an answer or event, called something irreversible, or had a call that failed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast
from weakref import WeakKeyDictionary

from orchestrator import __version__
from orchestrator.errors import MemoryFull, StoreError, StoreUnavailable
from orchestrator.executor.calls.effect import Attempt, Effect
from orchestrator.executor.failures import Lost
from orchestrator.executor.node_result import Recorded, landed
from orchestrator.executor.step_context import StepContext
from orchestrator.graph.codec import as_json
from orchestrator.graph.function import node_code_digest
from orchestrator.graph.model import node_data
from orchestrator.graph.outcome import Failing
from orchestrator.graph.versions import state_shape
from orchestrator.json import canonical, digest
from orchestrator.kernel.ledger import did_irreversible
from orchestrator.kernel.plan import Plan
from orchestrator.redaction import without_known_in
from orchestrator.stores.items import Item, ItemWrite
from orchestrator.user_code import pass_fence, waits_at_fence
from orchestrator.values import MAX_NAME

logger = logging.getLogger("orchestrator.steps")

_NOT_CONTENT = frozenset({"cache", "retry", "timeout", "join", "rest", "pool", "reads"})
"""Fields of a node that do not affect a step's result; the values of `reads` are in the key."""

_shapes: WeakKeyDictionary[Plan, str] = WeakKeyDictionary()


async def cached(attempt: Attempt, context: StepContext, run: Callable[[], Awaitable[object]]) -> object:
    """Return the result of a node from the cache; else run the node, and store its result.

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
    """Return the digest of everything that the result depends on."""
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
    """Return why a result may depend on more than its key; empty if it does not, as far as is known."""
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
    """Return True if an access is made. A replay makes only those that the replayed run made."""
    replay, activation = attempt.log.replay, attempt.activation
    if replay is None:
        return True
    if context.effects.is_due(effect)[1]:
        return True  # the replay's own journal has it
    if replay.is_live(activation):
        return False
    return replay.call(activation, effect.kind, effect.name, effect.digest, effect.request) is not None
