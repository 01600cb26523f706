"""The result of a node: its outcome and its update, checked against the graph and the state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from pydantic import BaseModel

from orchestrator.errors import InvalidOutcome, InvalidUpdate
from orchestrator.executor.calls.effect import Attempt
from orchestrator.executor.retries import TryAgain, decide
from orchestrator.graph.codec import shown
from orchestrator.graph.names import plain_name
from orchestrator.graph.outcome import RESERVED, Failing, Outcome
from orchestrator.graph.state import StateSchema, fields_form
from orchestrator.json import JsonObject
from orchestrator.kernel.queries import validate_outcome


class Recorded(Struct, frozen=True):
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
        writes = attempt.spec._may_update
        if update and writes is not None and not writes.issuperset(update):
            raise _undeclared(activation.node, writes, update)
        values, ops = activation.frame.plan.schema.encode_update(update)
    fault = validate_outcome(activation, outcome, values, ops)
    if fault is None:
        return outcome, values, ops
    plain = plain_name(outcome)
    if plain != outcome and outcome not in attempt.spec.outcomes:
        return landed(attempt, Recorded(plain, values, ops))
    raise InvalidOutcome(fault.message)


def _undeclared(node: str, writes: frozenset[str], update: Mapping[str, object]) -> InvalidUpdate:
    """Return the error for fields that a node declares neither in `writes` nor by its return type or class."""
    others = ", ".join(map(str, sorted(update.keys() - writes, key=str)))
    only = f"only {', '.join(sorted(writes))}" if writes else "nothing"
    return InvalidUpdate(f"{node} updates {others}, but declares that it writes {only}")


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
    raise InvalidUpdate(
        f"{node} returned {shown(result)}: return a mapping of state fields, such as {{'field': value}}, "
        "an Outcome, or None"
    )
