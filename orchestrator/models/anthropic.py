"""Models of Anthropic, by its Messages API: requests are written in it, and answers read, whole or streamed.

https://platform.claude.com/docs/en/api/messages. A model's thoughts are signed blocks. They go back to it where they
stood, redacted ones too, with the calls that they led to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.errors import ModelUnavailable
from orchestrator.graph.limits import Usage
from orchestrator.json import paired, storable
from orchestrator.models.base import ModelRequest
from orchestrator.models.chat import Piece, StreamAssembly, error_in
from orchestrator.models.chat.reply import count_in, error_of, word_in
from orchestrator.models.chat.request import NO_REPLY, named_fields_of
from orchestrator.models.messages import Image, Message, Reply
from orchestrator.models.parts import Part, called, listed, parts_of, reply_of_parts, some, turns_of
from orchestrator.models.profile import Profile
from orchestrator.models.server import ServerModel
from orchestrator.models.wire import HTTPCall, Wire, are_objects

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from httpx2 import AsyncClient, Response

_MOST = 16_384
"""Default of `max_tokens`, which the server requires."""
_DETAILS = ("id", "usage", "stop_sequence", "stop_details", "container")
_IDS = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CACHE = "cache_control"
_MARK = {"type": "ephemeral"}


class AnthropicWire(Wire):
    """The Messages API."""

    ref, package, extra = "anthropic", "anthropic", "anthropic"
    keys, address = ("ANTHROPIC_API_KEY",), "ANTHROPIC_BASE_URL"
    url = "https://api.anthropic.com"
    objects = ("thinking", "output_config", "cache_control")

    def client(self, base_url: str | None, query: Mapping[str, str], http: AsyncClient) -> AsyncAnthropic:
        """See `Wire.client`."""
        from anthropic import AsyncAnthropic  # imported late: it takes long to load

        return AsyncAnthropic(
            api_key="unused",  # each request has its own
            base_url=None if base_url is None else base_url.rstrip("/").removesuffix("/v1"),
            max_retries=0,
            default_query=query,
            http_client=http,
            open_telemetry=False,
        )

    async def send(self, client: AsyncAnthropic, model: str, call: HTTPCall, *, pieces: bool) -> Response:
        """See `Wire.send`."""
        import httpx2

        # As bytes, because the client copies every part of an object, which takes half of the time of a call.
        response: Response = await client.post(
            "/v1/messages",
            cast_to=httpx2.Response,
            content=json.dumps(call.body, ensure_ascii=False).encode(errors="replace"),
            options={"headers": {"Content-Type": "application/json", **call.headers}},
            stream=pieces,
        )
        return response

    async def listed(self, client: AsyncAnthropic, model: str, call: HTTPCall) -> object:
        """See `Wire.listed`."""
        options: Any = {"headers": call.headers}
        found: Any = await client.get(f"/v1/models/{model}", cast_to=object, options=options)
        return {"data": [{**found, "id": model}]}  # the server's id may have a date

    def profile(self, model: str, base_url: str | None) -> Profile:
        """See `Wire.profile`."""
        return Profile(strict_output=True, parallel_calls=True, stream_usage=False, logprobs=0)

    def body(
        self, request: ModelRequest, model: str, defaults: Mapping[str, object], profile: Profile
    ) -> dict[str, Any]:
        """See `Wire.body`."""
        messages, fields = named_fields_of(request, {"max_tokens": _MOST, **defaults}, profile, _IDS)
        first, turns = turns_of(messages, lambda message: _turn(message, profile))
        system = [*_system(fields.pop("system", None)), *(_text(one.content) for one in first if one.content)]
        body = {"messages": [{"role": role, "content": blocks} for role, blocks in turns], **_options(fields)}
        if system:
            body["system"] = system
        # A request that another one follows, which begins with it, is read from the cache then.
        follows = bool(request.tools) or any(message.role == "assistant" for message in messages)
        mark = body.setdefault(_CACHE, _MARK if follows else None)
        if mark is None:
            del body[_CACHE]
        else:
            _mark(body.get("system") or body.get("tools") or [], mark)
        if request.pieces:
            body["stream"] = True
        return {**body, "model": model}

    def refused(self, options: Mapping[str, object]) -> str | None:
        """See `Wire.refused`."""
        system = options.get("system")
        if not isinstance(system, str) and not are_objects(system):
            return "system= is a text, or a list of blocks such as {'type': 'text', 'text': ...}"
        return super().refused(options)

    def reply(self, answer: Mapping[str, Any], model: str, clean: Callable[[str], str] = str) -> Reply:
        """See `Wire.reply`."""
        error = error_of(answer)
        if error:
            raise error_in(error, model, clean, otherwise=400, key=self.keys[0])
        if not isinstance(answer.get("content"), list):
            raise ModelUnavailable(f"model {model!r}: the server's answer has no content")
        return reply_of_parts(
            map(_part, listed(answer["content"])),
            self.ref,
            finish=word_in(answer.get("stop_reason")),
            usage=_usage(answer.get("usage")),
            details=some(answer, _DETAILS),
            model=str(answer.get("model") or model),
        )

    def assembly(self) -> StreamAssembly:
        """See `Wire.assembly`."""
        return MessageAssembly()


class AnthropicModel(ServerModel):
    """A model of Anthropic, by the package `anthropic`, which the extra `anthropic` installs.

    The key is in `ANTHROPIC_API_KEY`, and the address in `ANTHROPIC_BASE_URL`, unless they are given. Options are those
    of the Messages API, such as `thinking={"type": "adaptive"}`, or have the names of chat completions (`stop`,
    `tool_choice`, `reasoning_effort`). `system` stands before the run's system messages. Where they are absent,
    `max_tokens` is 16,384, and the prompt is marked for the cache (`cache_control`; None marks nothing) if the request
    offers tools or continues a conversation.
    """

    wire = AnthropicWire()


# -- requests ----------------------------------------------------------------------------------------------------------


def _turn(message: Message, profile: Profile) -> tuple[str, list[dict[str, Any]]]:
    """Return the role of a message, and its blocks. System messages within a conversation are the user's."""
    if message.role == "assistant":
        blocks = [block for part in parts_of(message, AnthropicWire.ref) if (block := _written(part)) is not None]
        return "assistant", blocks or [_text(NO_REPLY)]
    shown = message.images if profile.images or message.role == "user" else ()
    blocks = [*([_text(message.content)] if message.content.strip() else ()), *map(_image, shown)]
    if message.role != "tool":
        return "user", blocks or [_text("(empty)")]
    result = {"type": "tool_result", "tool_use_id": str(message.tool_call_id)}
    return "user", [{**result, "content": blocks} if blocks else result]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _system(given: Any) -> list[dict[str, Any]]:
    """Return the blocks of the option `system`: a text, or a list of blocks."""
    return [_text(given)] if isinstance(given, str) and given else [dict(block) for block in given or ()]


def _image(image: Image) -> dict[str, Any]:
    data = image.inline
    if data is None:
        return {"type": "image", "source": {"type": "url", "url": image.url}}
    return {"type": "image", "source": {"type": "base64", "media_type": data[0], "data": data[1]}}


def _written(part: Part) -> dict[str, Any] | None:
    """Return the block of a part of a model's message; None for those that the server refuses."""
    if part.call is not None:
        call = part.call
        arguments = {"not_a_json_object": call.raw} if call.arguments is None else call.arguments
        return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments, **part.rest}
    if part.kind == "item":
        return dict(part.rest)
    if part.kind == "thought":
        signed = part.rest.get("signature")
        return {"type": "thinking", "thinking": part.text, "signature": signed} if signed else None
    return _text(part.text) if part.text.strip() else None


def _options(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of chat completions, except for messages, as those of this interface."""
    found = dict(fields)
    if "tools" in found:
        found["tools"] = [_tool(tool) for tool in found["tools"]]
    choice, parallel = found.pop("tool_choice", None), found.pop("parallel_tool_calls", None)
    if choice is not None or parallel is False:
        found["tool_choice"] = _choice(choice, parallel, found.get("thinking"))
    form, effort = found.pop("response_format", None), found.pop("reasoning_effort", None)
    output = dict(found.get("output_config") or {})
    if isinstance(form, Mapping) and "json_schema" in form:
        output["format"] = {"type": "json_schema", "schema": form["json_schema"]["schema"]}
    if effort is not None:
        output["effort"] = effort
    if output:
        found["output_config"] = output
    if "max_completion_tokens" in found:
        found["max_tokens"] = found.pop("max_completion_tokens")
    stop = found.pop("stop", None)
    if stop:
        found["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    return found


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return dict(tool)
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    return {**some(function, ("name", "description", "strict")), "input_schema": schema}


_CHOICES = {"required": "any", "none": "none"}


def _choice(choice: object, parallel: object, thinking: object) -> dict[str, Any]:
    """Return the choice of tools. A model that thinks cannot be made to call one."""
    free = not isinstance(thinking, Mapping) or thinking.get("type") == "disabled"
    found: dict[str, Any] = {"type": _CHOICES.get(str(choice), "auto")}
    if isinstance(choice, Mapping):
        function = choice.get("function")
        found = {"type": "tool", "name": function["name"]} if isinstance(function, Mapping) else dict(choice)
    if not free and found["type"] in ("any", "tool"):
        found = {"type": "auto"}
    return found if parallel is not False or found["type"] == "none" else {**found, "disable_parallel_tool_use": True}


def _mark(blocks: Sequence[dict[str, Any]], mark: object) -> None:
    """Mark the last of the system's blocks, or of the tools, as the end of what stays the same."""
    if blocks:
        blocks[-1][_CACHE] = mark


# -- answers -----------------------------------------------------------------------------------------------------------


def _part(block: Mapping[str, Any]) -> Part:
    kind = block.get("type")
    if kind == "text":
        return Part("text", str(block.get("text") or ""))
    if kind == "thinking":
        return Part("thought", str(block.get("thinking") or ""), rest=some(block, ("signature",)))
    if kind == "tool_use":
        return called(block.get("id"), block.get("name"), block.get("input"), some(block, ("caller",)))
    return Part("item", rest=some(block, block))


def _usage(written: object) -> Usage | None:
    """Return the usage. Its input tokens include those of the cache, which the server counts apart."""
    fields = written if isinstance(written, Mapping) else {}
    given, made = count_in(fields.get("input_tokens")), count_in(fields.get("output_tokens"))
    if given is None or made is None:
        return None
    read, kept = (count_in(fields.get(f"cache_{kind}_input_tokens")) or 0 for kind in ("read", "creation"))
    return Usage(input_tokens=given + read + kept, output_tokens=made, cached_tokens=read, written_tokens=kept)


class MessageAssembly(StreamAssembly):
    """An answer, assembled from the events of its stream."""

    def __init__(self) -> None:
        super().__init__()
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}

    def add(self, chunk: Mapping[str, Any]) -> Piece:
        """See `StreamAssembly.add`."""
        message, block, delta, at = (chunk.get(key) for key in ("message", "content_block", "delta", "index"))
        usage = chunk.get("usage")
        if isinstance(message, Mapping):
            self._message.update(message)
        if isinstance(usage, Mapping):
            before = self._message.get("usage")
            self._message["usage"] = {**(before if isinstance(before, Mapping) else {}), **some(usage, usage)}
        if isinstance(block, Mapping) and isinstance(at, int):
            self._blocks[at] = dict(block)
        if not isinstance(delta, Mapping):
            return Piece()
        if isinstance(at, int):
            return self._delta(at, delta)
        self._message.update(some(delta, delta))
        self.finish = word_in(delta.get("stop_reason")) or self.finish
        return Piece()

    def _delta(self, at: int, delta: Mapping[str, Any]) -> Piece:
        for name in _PIECES:
            if isinstance(delta.get(name), str):
                self._pieces.setdefault((at, name), []).append(delta[name])
        text, thought = delta.get("text"), delta.get("thinking")
        return Piece(*(storable(one) if isinstance(one, str) else "" for one in (text, thought)))

    def answer(self) -> dict[str, Any]:
        """See `StreamAssembly.answer`."""
        for (at, name), pieces in self._pieces.items():
            block = self._blocks.setdefault(at, {})
            begun = block.get(_PIECES[name])
            block[_PIECES[name]] = paired("".join([begun if isinstance(begun, str) else "", *pieces]))
        content = [self._blocks[at] for at in sorted(self._blocks)]
        return {**self._message, "content": content}


_PIECES = {"text": "text", "thinking": "thinking", "signature": "signature", "partial_json": "input"}
"""Fields of a delta -> the field of the block that they add to."""
