"""Writes requests as chat completions: messages, tools and their names, the form of the answer, options.

Providers take only some names of tools. Any other name, also one that a model made up, is sent in a form that they
take.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from orchestrator.json import frozen
from orchestrator.models.base import ModelRequest
from orchestrator.models.messages import OWN_PARTS, Image, Message, ToolCall, system
from orchestrator.models.profile import Profile
from orchestrator.models.strict import resolved, strict_schema, with_items

WRAP = "answer"
"""The property with an answer that is not a JSON object: at the root, providers accept only objects."""
NO_REPLY = "(empty reply)"
"""The content of an assistant's message that has neither text nor calls: some servers reject an empty one."""
_NAME = 64
"""Maximum number of characters of a tool's name."""
_unsafe = re.compile(r"[^a-zA-Z0-9_-]")


def body_of(request: ModelRequest, model: str, defaults: Mapping[str, object], profile: Profile) -> dict[str, Any]:
    """Return the body of a request. The request's options take precedence over the defaults."""
    messages, body = fields_of(request, defaults, profile)
    return renamed({"messages": _messages(messages, profile), **body, "model": model}, wire_names(request))


def fields_of(
    request: ModelRequest, defaults: Mapping[str, object], profile: Profile
) -> tuple[tuple[Message, ...], dict[str, Any]]:
    """Return the messages of a request, and the other fields of its body, with the tools' own names."""
    messages = request.messages
    body: dict[str, Any] = {}
    options: dict[str, Any] = {**defaults, **request.options}
    # The server's own tools do not replace the run's. They come last, so that the beginning stays the same.
    tools = [*(_tool(tool, profile) for tool in request.tools), *(options.pop("tools", None) or ())]
    if tools:
        body["tools"] = tools
    if request.output is not None:
        messages = (*messages, *_asked_for(request.output, profile, body))
    body.update(options)
    _fit(body, profile)
    return messages, body


def named_fields_of(
    request: ModelRequest, defaults: Mapping[str, object], profile: Profile, ids: re.Pattern[str] | None = None
) -> tuple[list[Message], dict[str, Any]]:
    """Like `fields_of`, with the names and ids that are sent. `ids`: see `with_fit_ids`; None: as they are."""
    given, body = fields_of(request, defaults, profile)
    messages = list(given) if ids is None else with_fit_ids(given, ids)
    names = wire_names(request)
    if not names:
        return messages, body
    del (renamed_body := renamed({"messages": (), **body}, names))["messages"]
    return [_renamed(message, names) for message in messages], renamed_body


def _renamed(message: Message, names: Mapping[str, str]) -> Message:
    """Return a message with the names that are sent."""
    if not message.tool_calls:
        name = names.get(message.name or "")
        return message if name is None else message.model_copy(update={"name": name})
    calls = [call.model_copy(update={"name": names.get(call.name, call.name)}) for call in message.tool_calls]
    return message.model_copy(update={"tool_calls": tuple(calls)})


def with_fit_ids(messages: Iterable[Message], fit: re.Pattern[str]) -> list[Message]:
    """Return messages in which each call has an id of its own that a server takes, and each result that of its call.

    An id depends only on the messages before it, so that the requests of a conversation begin with the same.

    Args:
        fit: matches the ids that the server takes. Among them are all of 1 to 64 letters, digits, `_` and `-`.
    """
    found = list(messages)
    sent: dict[str, str] = {}  # id -> the one that is sent for the last call with it
    taken: dict[str, int] = {}
    for at, message in enumerate(found):
        if message.tool_calls:
            given = [call.id for call in message.tool_calls]
        elif message.tool_call_id is not None:
            given = [message.tool_call_id]
        else:
            continue
        if message.tool_calls or given[0] not in sent:  # a result without its call is sent, too
            ids = [_distinct(one if fit.fullmatch(one) else _safe(one), taken) for one in given]
            for one, own in zip(given, ids, strict=True):
                sent[one] = own
        else:
            ids = [sent[given[0]]]
        if ids != given:
            found[at] = message.kept(("ids", *ids), partial(_with_ids, ids=ids))
    return found


def _with_ids(message: Message, ids: Sequence[str]) -> Message:
    """Return a message with these ids of its calls, or with this one of its result."""
    if not message.tool_calls:
        return message.model_copy(update={"tool_call_id": ids[0]})
    calls = zip(message.tool_calls, ids, strict=True)
    return message.model_copy(update={"tool_calls": tuple(call.model_copy(update={"id": one}) for call, one in calls)})


def _messages(messages: Sequence[Message], profile: Profile) -> list[dict[str, Any]]:
    """Return all messages. Pictures from tools are put into a user message after the results, as only those may have
    pictures."""
    found: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    for message in messages:
        if message.role != "tool" and shown:
            found.append({"role": "user", "content": shown})
            shown = []
        if message.role == "tool" and message.images:
            if profile.images:
                whose = f"What the tool {message.name or 'that was called'} shows (call {message.tool_call_id}):"
                shown += [{"type": "text", "text": whose}, *map(_image, message.images)]
            message = message.model_copy(update={"images": ()})
        found.append(message.kept(("chat", profile.system_role), partial(_message, profile=profile)))
    return [*found, {"role": "user", "content": shown}] if shown else found


def _image(image: Image) -> dict[str, Any]:
    return {"type": "image_url", "image_url": image.model_dump(exclude_none=True)}


def _fit(body: dict[str, Any], profile: Profile) -> None:
    """Rename options for the server, and remove those that it does not support."""
    if "max_tokens" in body:
        body[profile.max_tokens] = body.pop("max_tokens")
    if not body.get("tools"):  # providers reject these options in a request without tools
        body.pop("tool_choice", None)
        body.pop("parallel_tool_calls", None)
    if not profile.stop:
        body.pop("stop", None)
    if not profile.parallel_calls:
        body.pop("parallel_tool_calls", None)
    if body.get("logprobs") is True and profile.logprobs:
        body.setdefault("top_logprobs", profile.logprobs)
    elif not profile.logprobs:
        body.pop("logprobs", None)
        body.pop("top_logprobs", None)
    choice = body.get("tool_choice")
    if not profile.tool_choice_required and (choice == "required" or isinstance(choice, Mapping)):
        body["tool_choice"] = "auto"


def _tool(tool: Mapping[str, Any], profile: Profile) -> dict[str, Any]:
    written: dict[str, Any] = frozen(tool).kept(
        ("chat", profile.strict_tools), partial(_function, strict_tools=profile.strict_tools)
    )
    return written


def _function(tool: Mapping[str, Any], strict_tools: bool) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping) or not function.get("parameters"):
        return dict(tool)
    strict = strict_schema(function["parameters"], nullable=True) if strict_tools else None
    if strict is None:
        return {**tool, "function": {**function, "parameters": with_items(function["parameters"])}}
    return {**tool, "function": {**function, "parameters": strict, "strict": True}}


def _asked_for(output: Mapping[str, Any], profile: Profile, body: dict[str, Any]) -> list[Message]:
    """Ask for an answer in a schema: by a field of the body, by a message, or both."""
    schema, strict = _answer_schema(output, profile)
    if profile.output == "json_schema":
        written = {"name": "answer", "schema": schema, "strict": strict}
        body["response_format"] = {"type": "json_schema", "json_schema": written}
        return []
    if profile.output == "json_object":
        body["response_format"] = {"type": "json_object"}
    words = "Answer with one JSON object and with nothing else. It has to fit this JSON Schema:\n"
    return [system(words + json.dumps(schema, ensure_ascii=False))]


def _answer_schema(output: Mapping[str, Any], profile: Profile) -> tuple[dict[str, Any], bool]:
    """Return the schema to ask for, and whether OpenAI's strict mode accepts it."""
    defs = {"$defs": output["$defs"]} if "$defs" in output else {}
    if is_object(output):  # a root reference is replaced by its target, as providers reject it
        schema = {**resolved(output, output), **defs}
    else:
        inner = {key: value for key, value in output.items() if key != "$defs"}
        schema = {"type": "object", "properties": {WRAP: inner}, "required": [WRAP], "additionalProperties": False}
        schema |= defs
    strict = strict_schema(schema)
    if strict is None:
        return with_items(schema), False
    bounded = strict if profile.strict_output else strict_schema(schema, bounds=True)
    return bounded or strict, bounded == strict


def is_object(schema: Mapping[str, Any]) -> bool:
    return resolved(schema, schema).get("type") == "object"


def _message(message: Message, profile: Profile) -> dict[str, Any]:
    role = profile.system_role if message.role == "system" else message.role
    written: dict[str, Any] = {"role": role, "content": message.content}
    if message.images:
        text = [{"type": "text", "text": message.content}] if message.content else []
        written["content"] = [*text, *map(_image, message.images)]
    if message.role != "assistant" or message.tool_calls:
        # Reasoning that precedes a tool call must be sent back with the call. Some servers reject reasoning from
        # earlier turns.
        # What another interface gave is not sent to this one.
        written = {**(message.extras if message.extras.keys().isdisjoint(OWN_PARTS) else {}), **written}
    if message.tool_calls:
        written["content"] = message.content or None
        # Some servers parse the arguments that they are sent, and answer 500 if these are not JSON.
        functions = [{"name": call.name, "arguments": arguments_text(call)} for call in message.tool_calls]
        written["tool_calls"] = [
            {**call.extras, "id": call.id, "type": "function", "function": function}
            for call, function in zip(message.tool_calls, functions, strict=True)
        ]
    elif message.role == "assistant" and not message.content.strip():
        written["content"] = NO_REPLY
    if message.tool_call_id is not None:
        written["tool_call_id"] = message.tool_call_id
    elif message.name is not None:
        written["name"] = message.name
    return written


def arguments_text(call: ToolCall) -> str:
    if call.arguments is None:
        return json.dumps({"not_a_json_object": call.raw}, ensure_ascii=False)
    return call.raw or json.dumps(call.arguments, ensure_ascii=False)


def _safe(name: str) -> str:
    """Return a name, or an id, in a form that providers take."""
    return _unsafe.sub("_", name)[:_NAME] or "_"


def _distinct(name: str, taken: dict[str, int]) -> str:
    """Return a name that is not taken, and take it: the name itself, or one that begins like it.

    Args:
        taken: taken names -> number of further ones that were made of each.
    """
    if name not in taken:
        taken[name] = 0
        return name
    found = name
    while found in taken:
        taken[name] += 1
        end = "_" if taken[name] == 1 else f"_{taken[name]}"
        found = name[: _NAME - len(end)] + end
    taken[found] = 0
    return found


def wire_names(request: ModelRequest) -> dict[str, str]:
    """Return the name that is sent for each name that providers do not take; names stay distinct."""
    names = dict.fromkeys(offered_names(request))
    names |= {call.name: None for message in request.messages for call in message.tool_calls}
    unsafe = [name for name in names if not 0 < len(name) <= _NAME or _unsafe.search(name)]
    if not unsafe:
        return {}
    taken = dict.fromkeys(names.keys() - set(unsafe), 0)
    return {name: _distinct(_safe(name), taken) for name in unsafe}


def renamed(body: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a body with the names that are sent. Parts without names are shared, not copied."""
    if not names:
        return body
    found = {**body, "messages": [_renamed_message(message, names) for message in body["messages"]]}
    if "tools" in body:
        found["tools"] = [_renamed_function(tool, names) for tool in body["tools"]]
    if isinstance(body.get("tool_choice"), Mapping):
        found["tool_choice"] = _renamed_function(body["tool_choice"], names)
    return found


def offered_names(request: ModelRequest) -> Iterable[str]:
    """Yield the names of the offered tools."""
    for tool in request.tools:
        function: Any = tool.get("function")
        name = function.get("name") if isinstance(function, Mapping) else None
        if isinstance(name, str):
            yield name


def _renamed_message(message: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    if not message.get("tool_calls"):
        return message
    return {**message, "tool_calls": [_renamed_function(call, names) for call in message["tool_calls"]]}


def _renamed_function(holder: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    function = holder.get("function")
    if not isinstance(function, Mapping) or function.get("name") not in names:
        return dict(holder)
    return {**holder, "function": {**function, "name": names[function["name"]]}}
