"""What a model said, as the journal can keep it: a reply that was paid for is never lost for one odd value in it.

    lone surrogates              U+FFFD in their place, as decoders do
    arguments that are no JSON   `arguments` of the call is None, as for arguments that cannot be read
    other fields of a provider   left out
    costs without an end         left out

What was changed is listed in `Reply.details["altered"]`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from orchestrator.errors import ModelError
from orchestrator.graph.limits import Usage
from orchestrator.json import cleaned, storable
from orchestrator.models.messages import Reply, ToolCall
from orchestrator.values import FOREIGN_DEPTH, MAX_TOKENS, Unfit, check, fault_in

__all__ = ["received"]


def received(reply: Reply) -> Reply:
    """The reply, or one that can be journaled and read back equal.

    Raises:
        ModelError: its text is too long to be kept.
    """
    try:
        data = reply.model_dump(mode="json", exclude={"parsed"}, exclude_defaults=True, warnings=False)
        check(data, depth=FOREIGN_DEPTH)
        same = Reply.model_validate(data) == reply and _is_counted(reply.usage)
    except ValueError:
        same = False
    return reply if same else _altered(reply)


def _altered(reply: Reply) -> Reply:
    altered: list[JsonValue] = []
    text = _text(reply.text, "text", altered)
    try:
        check(text)
    except Unfit as error:
        raise ModelError(f"model {storable(reply.model)!r}: its reply cannot be stored: {error}") from None
    calls = tuple(_call(call, altered) for call in reply.tool_calls)
    extras = _fields(reply.extras, "extras", altered)
    details = _fields(reply.details, "details", altered)
    usage = _usage(reply.usage, altered)
    finish, model = _text(reply.finish, "finish", altered), _text(reply.model, "model", altered)
    if altered:
        details = {**details, "altered": altered}
    return reply.model_copy(
        update={
            "text": text, "tool_calls": calls, "extras": extras, "details": details, "usage": usage, "finish": finish,
            "model": model,
        }
    )  # fmt: skip


def _text(text: str, where: str, altered: list[JsonValue]) -> str:
    found = storable(text)
    if found.count("\ufffd") != text.count("\ufffd"):
        altered.append(f"{where}: half a surrogate pair was replaced")
    return found


def _call(call: ToolCall, altered: list[JsonValue]) -> ToolCall:
    where = f"the call of {storable(call.name)[:200]!r}"
    raw = _text(call.raw, f"{where}, raw", altered)
    arguments = call.arguments
    if arguments is not None:
        try:
            arguments = _value(arguments, f"{where}, arguments", altered)
        except Unfit as error:
            arguments = None
            raw = raw or f"[arguments that cannot be stored: {error}]"
            altered.append(f"{where}, arguments: left out, {error}")
    return ToolCall(
        id=_text(call.id, f"{where}, id", altered),
        name=_text(call.name, f"{where}, name", altered),
        arguments=arguments,
        raw=raw,
        extras=_fields(call.extras, f"{where}, extras", altered),
    )


def _fields(fields: Mapping[str, JsonValue], where: str, altered: list[JsonValue]) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {}
    for name, value in fields.items():
        try:
            found |= _value({name: value}, f"{where}, {storable(name)[:200]}", altered)
        except Unfit as error:
            altered.append(f"{where}, {storable(name)[:200]}: left out, {error}")
    return found


def _value(value: dict[str, JsonValue], where: str, altered: list[JsonValue]) -> dict[str, JsonValue]:
    """A JSON object as it can be kept. Raises `Unfit`."""
    try:
        found = to_jsonable_python(cleaned(value))
    except (ValueError, TypeError, RecursionError):
        raise Unfit(fault_in(value, FOREIGN_DEPTH) or "it has no JSON form") from None
    check(found, depth=FOREIGN_DEPTH)
    if found != value:
        altered.append(f"{where}: a value that JSON cannot represent was replaced")
    return cast("dict[str, JsonValue]", found)


def _usage(usage: Usage | None, altered: list[JsonValue]) -> Usage | None:
    if _is_counted(usage):
        return usage
    altered.append(f"usage: left out, because a number in it is not finite, or {MAX_TOKENS:,} or more")
    return None


def _is_counted(usage: Usage | None) -> bool:
    """Whether stores can add a usage up; True for none."""
    if usage is None:
        return True
    counts = (usage.steps, usage.calls, usage.input_tokens, usage.output_tokens)
    return math.isfinite(usage.cost) and math.isfinite(usage.seconds) and all(abs(n) < MAX_TOKENS for n in counts)
