"""Names of tools on the wire: providers take no spaces, so a name with spaces is sent with `_` in their place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.models.base import ModelRequest
from orchestrator.models.messages import Reply


def wire_names(request: ModelRequest) -> dict[str, str]:
    """What is sent for each name with spaces; no two tools are sent under one name."""
    offered = list(_offered(request))
    called = (call.name for message in request.messages for call in message.tool_calls)
    taken = {name for name in offered if " " not in name}
    found: dict[str, str] = {}
    for name in dict.fromkeys((*offered, *called)):
        if " " not in name:
            continue
        safe = name.replace(" ", "_")
        while safe in taken:
            safe += "_"
        taken.add(safe)
        found[name] = safe
    return found


def renamed(body: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """A body with the names that are sent. Parts that hold none are the same objects."""
    if not names:
        return body
    found = {**body, "messages": [_message(message, names) for message in body["messages"]]}
    if "tools" in body:
        found["tools"] = [_function(tool, names) for tool in body["tools"]]
    if isinstance(body.get("tool_choice"), Mapping):
        found["tool_choice"] = _function(body["tool_choice"], names)
    return found


def named_back(reply: Reply, request: ModelRequest) -> Reply:
    """A reply whose calls have the names that the tools have here."""
    back = {safe: name for name, safe in wire_names(request).items()} if reply.tool_calls else {}
    if not any(call.name in back for call in reply.tool_calls):
        return reply
    calls = [call.model_copy(update={"name": back.get(call.name, call.name)}) for call in reply.tool_calls]
    return reply.model_copy(update={"tool_calls": tuple(calls)})


def _offered(request: ModelRequest) -> Iterable[str]:
    for tool in request.tools:
        function: Any = tool.get("function")
        name = function.get("name") if isinstance(function, Mapping) else None
        if isinstance(name, str):
            yield name


def _message(message: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    if not message.get("tool_calls"):
        return message
    return {**message, "tool_calls": [_function(call, names) for call in message["tool_calls"]]}


def _function(holder: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    function = holder.get("function")
    if not isinstance(function, Mapping) or function.get("name") not in names:
        return dict(holder)
    return {**holder, "function": {**function, "name": names[function["name"]]}}
