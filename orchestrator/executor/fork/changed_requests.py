"""The changed request of a fork: one call of a model is made again, with other messages or options.

The fork begins at the record of the call's intent, so the call counts as not made there. Its step runs again and makes
the same request; what is sent instead is in the record `forked` (`ChangedRequest`). So the step resumes, retries and
is replayed like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from pydantic import ValidationError

from orchestrator.errors import InvalidValue, StaleAnswer
from orchestrator.graph.codec import as_json, explain
from orchestrator.json import digest
from orchestrator.kernel import records as r
from orchestrator.kernel.requests import Requests
from orchestrator.models.messages import Message, user
from orchestrator.values import MAX_REQUEST_BYTES

_KEPT = ("tools", "output", "task")
"""Parts of a request that the code of its step reads the reply by: a fork does not change them."""


async def intent_at(read: Any, at: int | None) -> int:
    """Return the record of the intent of the model call that record `at` is about.

    Args:
        read: returns the records up to a number.
        at: the record of the call, of its reply, or of the end of a step that made one call.

    Raises:
        InvalidValue: there is no such call, or more than one.
    """
    if at is None:
        raise _fault("request= needs at=: the record of a call of a model", "--request needs --at SEQ: the record")
    records: Sequence[r.Record] = await read(at)
    return intent_of(records, at).seq


def intent_of(records: Sequence[r.Record], at: int) -> r.EffectIntended:
    """Return the intent of the model call that the last record is about; see `intent_at`."""
    last = records[-1]
    where = f"record {at} of the run is {last.type}"
    if isinstance(last, r.EffectIntended | r.EffectSettled):
        (call,) = [one for one in records if isinstance(one, r.EffectIntended) and one.key == last.key][-1:]
        return _model_call(call, where)
    if not isinstance(last, r.StepDone | r.StepFailed):
        raise _fault(f"{where}: a request is changed at a call of a model, its reply, or the end of its step")
    calls = [
        one
        for one in records
        if isinstance(one, r.EffectIntended)
        and (one.activation, one.attempt) == (last.activation, last.attempt)
        and one.kind == "model"
        and not one.again
        and not one.inside
    ]
    if not calls:
        raise _fault(f"{where}: the step made no call of a model")
    if len(calls) > 1:
        listed = ", ".join(str(one.seq) for one in calls)
        raise _fault(f"{where}: the step made {len(calls)} calls of models; name the record of one: {listed}")
    return calls[0]


def _model_call(call: r.EffectIntended, where: str) -> r.EffectIntended:
    if call.kind != "model":
        raise _fault(f"{where}, of a call of {call.kind} {call.name!r}: only requests to models can be changed")
    if call.inside:
        raise _fault(f"{where}: a tool made this call, so it has no step of its own; change the step that calls it")
    if call.taken is not None:
        raise _fault(f"{where}: a replay took its reply from record {call.taken} of the replayed run; fork that run")
    return call


def request_at(requests: Requests, call: r.EffectIntended) -> dict[str, Any]:
    """Return the request of a call with all its messages, as plain JSON.

    Raises:
        InvalidValue: the journal does not have all messages.
    """
    found = requests.whole(call)
    found["messages"] = [{key: one[key] for key in one if key != "digest"} for one in found["messages"]]
    if any(one.get("role") == "missing" for one in found["messages"]):
        raise _fault(f"record {call.seq}: the journal does not have all messages of this request")
    return found


def changed(
    records: Sequence[r.Record], call: r.EffectIntended, given: object, digests: Iterable[str] | None, reply: object
) -> r.ChangedRequest:
    """Return the changed request of a fork, checked.

    Args:
        records: the parent's records up to the call.
        call: the call.
        given: `messages`, `options`, or both.
        digests: digests of requests that were shown; None: any.
        reply: the parent's reply; None: it has none.

    Raises:
        InvalidValue: it is no valid request, or changes nothing.
        StaleAnswer: the request is none of those that were shown.
    """
    if digests is not None and call.digest not in digests:
        raise StaleAnswer(f"record {call.seq}: its request is not the one that was shown; read it again")
    requests = Requests(records)
    before, made = request_at(requests, call), request_at(requests, _own_call(records, call))
    if not isinstance(given, Mapping) or not given:
        raise _fault("a request is an object with messages, options, or both")
    for name, value in given.items():
        if name in ("messages", "options") or (name in _KEPT and value == before.get(name)):
            continue
        why = "the code of the step reads the reply by it" if name in _KEPT else "a request has messages and options"
        raise _fault(f"{str(name)[:80]!r} cannot be changed: {why}")
    options = given.get("options", before.get("options") or {})
    if not isinstance(options, Mapping):
        raise _fault('options is an object of parameters for the provider, such as {"temperature": 0}')
    known = {digest(one): one for one in before["messages"]}
    messages = _messages(given.get("messages", before["messages"]), known)
    if messages == before["messages"] and options == (before.get("options") or {}):
        raise _fault("the request is the one that was made: change a message or an option")
    own = {digest(one) for one in made["messages"]}
    sent = [{"ref": name} if (name := digest(one)) in own else one for one in messages]
    whole = {"messages": sent, "options": dict(options)}
    request = cast("dict[str, object]", as_json(whole, "the request", inside=2, size=MAX_REQUEST_BYTES))
    return r.ChangedRequest(
        activation=call.activation,
        digest=digest(made),
        occurrence=call.occurrence,
        seq=call.seq,
        request=request,
        reply=reply,
    )


def _own_call(records: Sequence[r.Record], call: r.EffectIntended) -> r.EffectIntended:
    """Return the call with the request that the step makes: what was sent may have been changed by a fork before."""
    for record in reversed(records[: call.seq]):
        asked = record.asked if isinstance(record, r.Forked) else None
        if asked is not None and (asked.activation, asked.occurrence) == (call.activation, call.occurrence):
            before = records[asked.seq - 1]
            assert isinstance(before, r.EffectIntended)
            return _own_call(records, before)
    return call


def _messages(given: object, known: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages as plain JSON. `known`: those of the request, by digest."""
    listed = [user(given)] if isinstance(given, str) else given
    if not isinstance(listed, list | tuple) or not listed:
        raise _fault("messages is a text or a list of messages, at least one")
    return [_message(one, at, known) for at, one in enumerate(listed)]


def _message(given: object, at: int, known: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    if isinstance(given, Mapping) and given.keys() == {"ref"}:
        if str(given["ref"]) not in known:
            raise _fault(f"messages.{at}: the request has no message {str(given['ref'])[:80]!r}")
        return known[str(given["ref"])]
    try:
        fields = (
            {key: value for key, value in given.items() if key != "digest"} if isinstance(given, Mapping) else given
        )
        return Message.model_validate(fields).model_dump(mode="json", exclude_defaults=True)
    except ValidationError as error:
        raise _fault(f"messages.{at} is no message: {explain(error)}") from None


def _fault(text: str, command: str | None = None) -> InvalidValue:
    error = InvalidValue(text, where="request")
    return error if command is None else error.on_command_line(command)
