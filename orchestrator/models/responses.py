"""The Responses API of OpenAI's servers: requests are written in it, and answers read, whole or streamed.

https://platform.openai.com/docs/api-reference/responses. Nothing is stored at the server (`store` is false), and no
request refers to an earlier one: the journal has the conversation. So a model's thoughts come back to it as the
reasoning items that it gave, encrypted ones too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.errors import ModelUnavailable
from orchestrator.json import storable
from orchestrator.models.base import ModelRequest
from orchestrator.models.chat import Piece, StreamAssembly, error_in
from orchestrator.models.chat.reply import error_of, usage_of, word_in
from orchestrator.models.chat.request import arguments_text, named_fields_of
from orchestrator.models.messages import Image, Message, Reply
from orchestrator.models.parts import Part, called, listed, parts_of, reply_of_parts, some
from orchestrator.models.profile import Profile, profile_of, reasons
from orchestrator.models.wire import HTTPCall, OpenAIWire, sent_by

if TYPE_CHECKING:
    from httpx2 import Response
    from openai import AsyncOpenAI

_DETAILS = ("id", "usage", "service_tier", "incomplete_details", "input_transformations")
"""Fields of an answer that are kept; most others repeat the request."""
_STORED = ("store", "previous_response_id", "conversation")
"""Options by which the server would keep the conversation."""
_IDS = re.compile(r".{1,64}", re.DOTALL)
_MOST = ("max_tokens", "max_completion_tokens")
_TEXTS = ("response.output_text.delta", "response.refusal.delta")
_THOUGHTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_ENDS = ("response.completed", "response.incomplete", "response.failed")


class ResponsesWire(OpenAIWire):
    """The Responses API."""

    ref = "responses"
    conversation = "input"
    objects = ("reasoning", "text")

    async def send(self, client: AsyncOpenAI, model: str, call: HTTPCall, *, pieces: bool) -> Response:
        """See `Wire.send`."""
        return await sent_by(client.responses, call, pieces=pieces, model=model, input="")

    def profile(self, model: str, base_url: str | None) -> Profile:
        """See `Wire.profile`."""
        return profile_of(model, base_url).model_copy(update={"stop": False, "stream_usage": False})

    def body(
        self, request: ModelRequest, model: str, defaults: Mapping[str, object], profile: Profile
    ) -> dict[str, Any]:
        """See `Wire.body`."""
        messages, fields = named_fields_of(request, defaults, profile, _IDS)
        thinks = reasons(model)
        items = [item for message in messages for item in items_of(message, profile, thinks=thinks)]
        body = {"input": items, **_options(fields), "model": model, "store": False}
        if thinks:  # servers refuse this for other models
            body["include"] = [*body.get("include", ()), "reasoning.encrypted_content"]
        if request.pieces:
            body["stream"] = True
        return body

    def refused(self, options: Mapping[str, object]) -> str | None:
        """See `Wire.refused`."""
        found = next((name for name in _STORED if options.get(name)), None)
        if found is not None:
            return (
                f"{found}= refers to what the server stores, and nothing is stored there: each request has the whole "
                "conversation, from the journal; leave it out"
            )
        if not isinstance(options.get("include") or [], list | tuple):
            return "include= is a list of texts"
        return super().refused(options)

    def reply(self, answer: Mapping[str, Any], model: str, clean: Callable[[str], str] = str) -> Reply:
        """See `Wire.reply`."""
        error = error_of(answer)
        if error:
            raise error_in(error, model, clean, otherwise=400)
        output = answer.get("output")
        if not isinstance(output, list):
            raise ModelUnavailable(f"model {model!r}: the server's answer has no output")
        items = [item for item in output if isinstance(item, Mapping)]
        contents = [part for item in items if item.get("type") == "message" for part in listed(item.get("content"))]
        incomplete, finish = answer.get("incomplete_details"), answer.get("status")
        if isinstance(incomplete, Mapping):
            finish = incomplete.get("reason")
        elif any("refusal" in part for part in contents):
            finish = "refusal"
        return reply_of_parts(
            map(_part, items),
            self.ref,
            finish=word_in(finish),
            usage=usage_of(answer.get("usage")),
            details=some(answer, _DETAILS),
            logprobs=[entry for part in contents for entry in listed(part.get("logprobs"))],
            model=str(answer.get("model") or model),
        )

    def assembly(self) -> StreamAssembly:
        """See `Wire.assembly`."""
        return ResponseAssembly()


# -- requests ----------------------------------------------------------------------------------------------------------


def items_of(message: Message, profile: Profile, *, thinks: bool) -> list[dict[str, Any]]:
    """Return the items of a message, which are made once. `thinks`: whether the model reads encrypted thoughts."""
    key = (ResponsesWire.ref, profile.system_role, profile.images, thinks)
    return message.kept(key, lambda one: [*_items(one, profile, thinks)])


def _items(message: Message, profile: Profile, thinks: bool) -> Iterator[dict[str, Any]]:
    if message.role == "assistant":
        for part in parts_of(message, ResponsesWire.ref):
            if thinks or not part.rest.get("encrypted_content"):
                yield from _written(part)
    elif message.role == "tool":
        output = _content(message) if message.images and profile.images else message.content
        yield {"type": "function_call_output", "call_id": str(message.tool_call_id), "output": output}
    else:
        role = profile.system_role if message.role == "system" else message.role
        yield {"role": role, "content": _content(message) if message.images else message.content}


def _content(message: Message) -> list[dict[str, Any]]:
    text = [{"type": "input_text", "text": message.content}] if message.content else []
    return [*text, *map(_image, message.images)]


def _image(image: Image) -> dict[str, Any]:
    return {"type": "input_image", "image_url": image.url, "detail": image.detail or "auto"}


def _written(part: Part) -> Iterator[dict[str, Any]]:
    """Yield the item of a part of a model's message. Thoughts that only summarise are known to the server no more."""
    if part.call is not None:
        own = {"call_id": part.call.id, "name": part.call.name, "arguments": arguments_text(part.call)}
        yield {**part.rest, "type": "function_call", **own}
    elif part.kind == "text":
        yield {**part.rest, "role": "assistant", "content": part.text}
    elif part.kind == "item":
        yield dict(part.rest)
    elif "content" in part.rest:
        yield {**part.rest, "content": [{"type": "reasoning_text", "text": part.text}]}
    elif part.rest.get("encrypted_content"):
        yield dict(part.rest)


def _options(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of chat completions, except for messages, as those of this interface."""
    found = dict(fields)
    if "tools" in found:
        found["tools"] = [_flat(tool, strict=False) for tool in found["tools"]]
    if isinstance(found.get("tool_choice"), Mapping):
        found["tool_choice"] = _flat(found["tool_choice"])
    form, effort = found.pop("response_format", None), found.pop("reasoning_effort", None)
    if isinstance(form, Mapping):
        written = {"type": form["type"], **form.get("json_schema", {})}
        found["text"] = {**found.get("text", {}), "format": written}
    if effort is not None:
        found["reasoning"] = {**(found.get("reasoning") or {}), "effort": effort}
    for name in _MOST:
        if name in found:
            found["max_output_tokens"] = found.pop(name)
    if found.pop("logprobs", False):
        found["include"] = [*found.get("include", ()), "message.output_text.logprobs"]
    return found


def _flat(holder: Mapping[str, Any], **defaults: object) -> dict[str, Any]:
    """Return a tool or a choice of one, whose fields stand in `function` in chat completions."""
    function = holder.get("function")
    return {"type": "function", **defaults, **function} if isinstance(function, Mapping) else dict(holder)


# -- answers -----------------------------------------------------------------------------------------------------------


def _part(item: Mapping[str, Any]) -> Part:
    kind = item.get("type")
    if kind == "function_call":
        return called(item.get("call_id"), item.get("name"), item.get("arguments"), some(item, ("namespace", "caller")))
    if kind == "message":
        texts = (part.get("refusal") or part.get("text") for part in listed(item.get("content")))
        return Part("text", "".join(text for text in texts if isinstance(text, str)), rest=some(item, ("phase",)))
    if kind != "reasoning":
        return Part("item", rest=some(item, item))
    rest = some(item, ("type", "id", "encrypted_content")) | {"summary": listed(item.get("summary"))}
    thoughts = _texts(item.get("content"))
    if thoughts:  # models with open weights; their thoughts are kept once, as the text of the part
        return Part("thought", "".join(thoughts), rest=rest | {"content": []})
    return Part("thought", "\n\n".join(_texts(item.get("summary"))), rest=rest)


def _texts(parts: object) -> list[str]:
    return [part["text"] for part in listed(parts) if isinstance(part.get("text"), str)]


class ResponseAssembly(StreamAssembly):
    """An answer, assembled from the events of its stream: the last one has all of it."""

    def __init__(self) -> None:
        super().__init__()
        self._items: dict[int, Any] = {}
        self._answer: Mapping[str, Any] = {}

    def add(self, chunk: Mapping[str, Any]) -> Piece:
        """See `StreamAssembly.add`."""
        kind, delta, answer = chunk.get("type"), chunk.get("delta"), chunk.get("response")
        if kind in _TEXTS and isinstance(delta, str):
            return Piece(storable(delta))
        if kind in _THOUGHTS and isinstance(delta, str):
            return Piece("", storable(delta))
        if kind == "response.output_item.done" and isinstance(chunk.get("output_index"), int):
            self._items[chunk["output_index"]] = chunk.get("item")
        if kind in _ENDS and isinstance(answer, Mapping):
            self._answer, self.error = answer, answer.get("error")
            self.finish = None if self.error else str(kind)
        return Piece()

    def answer(self) -> dict[str, Any]:
        """See `StreamAssembly.answer`."""
        return {**self._answer, "output": self._answer.get("output") or [self._items[at] for at in sorted(self._items)]}
