"""The forms in which the vendors' servers answer, as their documentation has them: one class for each interface.

https://platform.openai.com/docs/api-reference/chat, https://platform.openai.com/docs/api-reference/responses,
https://platform.claude.com/docs/en/api/messages, https://ai.google.dev/api/generate-content
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from orchestrator import OpenAIModel
from orchestrator.models import AnthropicModel, GeminiModel
from orchestrator.models.server import ServerModel
from tests.models.peers import KEY
from tests.support.wire import Raw, Seen, called, chunk, said, sse

SIGNED = "c2lnbmVkLWJ5LXRoZS12ZW5kb3I="
"""What a vendor adds to a thought, and wants back unchanged."""


_TOKEN = {
    "token": "yes", "logprob": -0.1, "bytes": [121, 101, 115],
    "top_logprobs": [{"token": "yes", "logprob": -0.1}, {"token": "no", "logprob": -2.5}],
}  # fmt: skip


@dataclass(frozen=True)
class Says:
    """What a model says in one reply."""

    text: str = ""
    thought: str = ""
    calls: Sequence[tuple[str, str, dict[str, Any]]] = ()
    """Id, name, arguments."""
    end: str = ""
    """`cut`, `refused` or a word of the server; by default the end of a complete reply."""
    usage: tuple[int, int, int, int] = (30, 5, 20, 0)
    """Tokens: input, output, of the input cached and written to the cache."""


@dataclass(frozen=True)
class Told:
    """What a request tells the model in one message, the same for all interfaces."""

    role: str
    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    """Name and arguments of each call."""
    signed: bool = False
    """Whether the thoughts of a message came back as they were given."""
    images: int = 0


class Vendor(ABC):
    """One interface: a model that uses it, and how its server answers."""

    name: str
    named: str
    """A model of the vendor."""
    unthinking = ""
    """A model that gives log probabilities."""
    thinks = True
    """Whether thoughts come back to the server with what makes them valid."""
    writes_cache = True
    """Whether the usage has the tokens that were written to the cache."""
    schema_field: str
    """How an error names the part of a request with the schema."""
    too_long = "Your input exceeds the context window of this model. Please adjust your input and try again."
    logprobs: ClassVar[dict[str, Any] | None] = None
    """The answer `yes` with log probabilities; None if the interface has none."""

    def place(self, url: str) -> str:
        """Return the address for a model. `url`: that of a loopback server, which ends in `/v1`."""
        return url

    @abstractmethod
    def model(self, url: str, name: str | None = None, key: str | None = KEY, **options: Any) -> ServerModel:
        """Return a model at a server. `url`: that of a loopback server, which ends in `/v1`."""

    @abstractmethod
    def whole(self, says: Says) -> dict[str, Any]:
        """Return the answer to a request that asks for a whole reply."""

    @abstractmethod
    def events(self, says: Says) -> Iterator[dict[str, Any]]:
        """Yield the events of a streamed answer, the text in pieces of three characters."""

    def stream(self, says: Says) -> Raw:
        """Return a streamed answer."""
        return Raw(parts=[self.framed(list(self.events(says)))])

    def framed(self, events: Sequence[dict[str, Any]], *, ends: bool = True) -> bytes:
        """Return events as the server frames them. `ends`: whether the end of the stream follows."""
        return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events).encode()

    def answer(self, seen: Seen, says: Says) -> Raw | dict[str, Any]:
        """Return the answer in the form that a request asks for."""
        return self.stream(says) if seen.body.get("stream") else self.whole(says)

    @abstractmethod
    def refusal(self, status: int, words: str) -> dict[str, Any]:
        """Return the body of an error."""

    @abstractmethod
    def told(self, body: dict[str, Any]) -> list[Told]:
        """Return what a request tells."""

    @abstractmethod
    def tools(self, body: dict[str, Any]) -> list[tuple[str, Any]]:
        """Return the names and schemas of the tools of a request."""

    @abstractmethod
    def schema(self, body: dict[str, Any]) -> Any:
        """Return the schema of the answer that a request asks for; None if it asks for text."""


def pieces(text: str) -> list[str]:
    return [text[at : at + 3] for at in range(0, len(text), 3)]


class Chat(Vendor):
    """Chat completions."""

    name, named, unthinking, thinks = "chat", "gpt-4o", "gpt-4o", False
    schema_field = "response_format"
    logprobs: ClassVar = said("yes") | {
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "yes"},
                     "logprobs": {"content": [_TOKEN]}}]
    }  # fmt: skip
    _ends: ClassVar = {"cut": "length", "refused": "content_filter"}

    def model(self, url: str, name: str | None = None, key: str | None = KEY, **options: Any) -> ServerModel:
        return OpenAIModel(name or self.named, url, key, **options)

    def _usage(self, says: Says) -> dict[str, Any]:
        given, made, cached, written = says.usage
        details = {"cached_tokens": cached, "cache_write_tokens": written}
        return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made,
                "prompt_tokens_details": details}  # fmt: skip

    def _calls(self, says: Says) -> list[dict[str, Any]]:
        return [
            {"id": key, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for key, name, arguments in says.calls
        ]

    def whole(self, says: Says) -> dict[str, Any]:
        found = called(*self._calls(says), content=says.text) if says.calls else said(says.text)
        if says.thought:
            found["choices"][0]["message"]["reasoning_content"] = says.thought
        if says.end:
            found["choices"][0]["finish_reason"] = self._ends.get(says.end, says.end)
        return {**found, "usage": self._usage(says)}

    def events(self, says: Says) -> Iterator[dict[str, Any]]:
        for piece in pieces(says.thought):
            yield chunk({"reasoning_content": piece})
        for piece in pieces(says.text):
            yield chunk({"content": piece})
        for at, call in enumerate(self._calls(says)):
            yield chunk({"tool_calls": [{"index": at, **call}]})
        end = self._ends.get(says.end, says.end) or ("tool_calls" if says.calls else "stop")
        yield chunk(finish=end)
        yield chunk(usage=self._usage(says))

    def framed(self, events: Sequence[dict[str, Any]], *, ends: bool = True) -> bytes:
        return sse(*events, done=ends)

    def refusal(self, status: int, words: str) -> dict[str, Any]:
        return {"error": {"message": words, "type": "error", "param": None, "code": None}}

    def told(self, body: dict[str, Any]) -> list[Told]:
        found = []
        for one in body["messages"]:
            content = one["content"]
            parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
            calls = [(call["function"]["name"], call["function"]["arguments"]) for call in one.get("tool_calls", ())]
            text = "".join(part.get("text", "") for part in parts)
            images = sum(part["type"] == "image_url" for part in parts)
            found.append(Told(one["role"], text, tuple(calls), "reasoning_content" in one, images))
        return found

    def tools(self, body: dict[str, Any]) -> list[tuple[str, Any]]:
        return [(tool["function"]["name"], tool["function"]["parameters"]) for tool in body["tools"]]

    def schema(self, body: dict[str, Any]) -> Any:
        form = body.get("response_format", {})
        return form["json_schema"]["schema"] if form.get("type") == "json_schema" else None


class Responses(Vendor):
    """OpenAI's Responses API."""

    name, named, unthinking = "responses", "gpt-5", "gpt-4o"
    schema_field = "text.format"
    logprobs: ClassVar = {
        "id": "resp_1", "status": "completed", "error": None, "model": "gpt-4o",
        "output": [{"type": "message", "id": "msg_1", "role": "assistant",
                    "content": [{"type": "output_text", "text": "yes", "annotations": [], "logprobs": [_TOKEN]}]}],
    }  # fmt: skip

    def model(self, url: str, name: str | None = None, key: str | None = KEY, **options: Any) -> ServerModel:
        return OpenAIModel(name or self.named, url, key, api="responses", **options)

    def _items(self, says: Says) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        if says.thought:
            summary = [{"type": "summary_text", "text": says.thought}]
            found.append({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": SIGNED})
        if says.text:
            part = {"type": "output_text", "text": says.text, "annotations": []}
            if says.end == "refused":
                part = {"type": "refusal", "refusal": says.text}
            found.append({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
                          "content": [part]})  # fmt: skip
        found += [
            {"type": "function_call", "id": f"fc_{key}", "call_id": key, "name": name,
             "arguments": json.dumps(arguments), "status": "completed"}
            for key, name, arguments in says.calls
        ]  # fmt: skip
        return found

    def whole(self, says: Says) -> dict[str, Any]:
        given, made, cached, written = says.usage
        usage = {"input_tokens": given, "output_tokens": made, "total_tokens": given + made,
                 "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
                 "output_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
        ends: dict[str, Any] = {"cut": ("incomplete", "max_output_tokens")}
        status, reason = ends.get(says.end, ("completed" if says.end in ("", "refused") else says.end, None))
        return {
            "id": "resp_1", "object": "response", "created_at": 1, "status": status, "error": None, "model": self.named,
            "incomplete_details": reason and {"reason": reason}, "instructions": None, "output": self._items(says),
            "parallel_tool_calls": True, "previous_response_id": None, "store": False, "tools": [], "usage": usage,
        }  # fmt: skip

    def events(self, says: Says) -> Iterator[dict[str, Any]]:
        answer = self.whole(says)
        yield {"type": "response.created", "response": {**answer, "status": "in_progress", "output": []}}
        for at, item in enumerate(answer["output"]):
            empty: dict[str, Any] = {"content": [], "summary": [], "arguments": ""}
            yield {"type": "response.output_item.added", "output_index": at, "item": {**item, **empty}}
            kinds = {"reasoning": ("reasoning_summary_text", says.thought), "message": ("output_text", says.text)}
            if says.end == "refused":
                kinds["message"] = ("refusal", says.text)
            kind, text = kinds.get(item["type"], ("function_call_arguments", item.get("arguments", "")))
            for piece in pieces(text):
                yield {"type": f"response.{kind}.delta", "item_id": item["id"], "output_index": at, "delta": piece}
            yield {"type": "response.output_item.done", "output_index": at, "item": item}
        status = answer["status"] if answer["status"] in ("completed", "incomplete") else "completed"
        yield {"type": f"response.{status}", "response": answer}

    def refusal(self, status: int, words: str) -> dict[str, Any]:
        return {"error": {"message": words, "type": "error", "param": None, "code": None}}

    def told(self, body: dict[str, Any]) -> list[Told]:
        """The items of one message of the model are together."""
        found: list[Told] = []
        signed, text, calls = False, "", []
        for item in [*body["input"], {"type": "end"}]:
            kind, role = item.get("type"), item.get("role")
            if kind == "reasoning":
                signed = item["encrypted_content"] == SIGNED
            elif role == "assistant":
                text = item["content"]
            elif kind == "function_call":
                calls.append((item["name"], item["arguments"]))
            else:
                if signed or text or calls:
                    found.append(Told("assistant", text, tuple(calls), signed))
                    signed, text, calls = False, "", []
                if kind == "end":
                    continue
                content = item.get("output", item.get("content"))
                parts = content if isinstance(content, list) else [{"type": "input_text", "text": content}]
                words = "".join(part.get("text", "") for part in parts)
                images = sum(part["type"] == "input_image" for part in parts)
                found.append(Told(role or "tool", words, images=images))
        return found

    def tools(self, body: dict[str, Any]) -> list[tuple[str, Any]]:
        return [(tool["name"], tool["parameters"]) for tool in body["tools"]]

    def schema(self, body: dict[str, Any]) -> Any:
        form = body.get("text", {}).get("format", {})
        return form["schema"] if form.get("type") == "json_schema" else None


class Anthropic(Vendor):
    """Anthropic's Messages API."""

    name, named = "anthropic", "claude-opus-4-6"
    schema_field = "output_config.format"
    too_long = "prompt is too long: 210000 tokens > 200000 maximum"
    _ends: ClassVar = {"cut": "max_tokens", "refused": "refusal"}

    def model(self, url: str, name: str | None = None, key: str | None = KEY, **options: Any) -> ServerModel:
        return AnthropicModel(name or self.named, url, key, **options)

    def whole(self, says: Says) -> dict[str, Any]:
        given, made, cached, written = says.usage
        content: list[dict[str, Any]] = []
        if says.thought:
            content.append({"type": "thinking", "thinking": says.thought, "signature": SIGNED})
        if says.text:
            content.append({"type": "text", "text": says.text})
        content += [
            {"type": "tool_use", "id": key, "name": name, "input": arguments} for key, name, arguments in says.calls
        ]
        usage = {"input_tokens": given - cached - written, "cache_read_input_tokens": cached,
                 "cache_creation_input_tokens": written, "output_tokens": made}  # fmt: skip
        end = self._ends.get(says.end, says.end) or ("tool_use" if says.calls else "end_turn")
        return {"id": "msg_1", "type": "message", "role": "assistant", "model": self.named, "content": content,
                "stop_reason": end, "stop_sequence": None, "usage": usage}  # fmt: skip

    def events(self, says: Says) -> Iterator[dict[str, Any]]:
        answer = self.whole(says)
        usage, content, end = answer["usage"], answer.pop("content"), answer["stop_reason"]
        begun = {**answer, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
        yield {"type": "message_start", "message": begun}
        yield {"type": "ping"}
        for at, block in enumerate(content):
            kind = block["type"]
            field, name = {"thinking": ("thinking", "thinking"), "text": ("text", "text")}.get(
                kind, ("input", "input_json")
            )
            empty = {field: {} if field == "input" else "", **({"signature": ""} if kind == "thinking" else {})}
            yield {"type": "content_block_start", "index": at, "content_block": {**block, **empty}}
            text = json.dumps(block["input"]) if field == "input" else block[field]
            part = "partial_json" if field == "input" else field
            for piece in pieces(text):
                yield {"type": "content_block_delta", "index": at, "delta": {"type": f"{name}_delta", part: piece}}
            if kind == "thinking":
                signed = {"type": "signature_delta", "signature": SIGNED}
                yield {"type": "content_block_delta", "index": at, "delta": signed}
            yield {"type": "content_block_stop", "index": at}
        yield {"type": "message_delta", "delta": {"stop_reason": end, "stop_sequence": None},
               "usage": {"output_tokens": usage["output_tokens"]}}  # fmt: skip
        yield {"type": "message_stop"}

    def refusal(self, status: int, words: str) -> dict[str, Any]:
        kinds = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
                 404: "not_found_error", 429: "rate_limit_error", 503: "overloaded_error",
                 529: "overloaded_error"}  # fmt: skip
        return {"type": "error", "error": {"type": kinds.get(status, "api_error"), "message": words},
                "request_id": "req_1"}  # fmt: skip

    def told(self, body: dict[str, Any]) -> list[Told]:
        found = [Told("system", block["text"]) for block in body.get("system", ())]
        for one in body["messages"]:
            text, calls, signed, images = "", [], False, 0
            for block in one["content"]:
                if block["type"] == "thinking":
                    signed = block["signature"] == SIGNED
                elif block["type"] == "tool_use":
                    calls.append((block["name"], json.dumps(block["input"])))
                elif block["type"] == "tool_result":
                    inner = block.get("content", [])
                    words = "".join(part.get("text", "") for part in inner)
                    found.append(Told("tool", words, images=sum(part["type"] == "image" for part in inner)))
                else:
                    text, images = text + block.get("text", ""), images + (block["type"] == "image")
            if text or calls or images:
                found.append(Told(one["role"], text, tuple(calls), signed, images))
        return found

    def tools(self, body: dict[str, Any]) -> list[tuple[str, Any]]:
        return [(tool["name"], tool["input_schema"]) for tool in body["tools"]]

    def schema(self, body: dict[str, Any]) -> Any:
        return body.get("output_config", {}).get("format", {}).get("schema")


class Gemini(Vendor):
    """Google's Gemini API."""

    name, named, unthinking, writes_cache = "gemini", "gemini-3-pro-preview", "gemini-2.5-flash", False
    schema_field = "response_json_schema"
    too_long = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
    _ends: ClassVar = {"cut": "MAX_TOKENS", "refused": "SAFETY"}
    logprobs: ClassVar = {
        "candidates": [{
            "content": {"role": "model", "parts": [{"text": "yes"}]}, "finishReason": "STOP",
            "logprobsResult": {
                "chosenCandidates": [{"token": "yes", "tokenId": 1, "logProbability": -0.1}],
                "topCandidates": [{"candidates": [{"token": "yes", "logProbability": -0.1},
                                                  {"token": "no", "logProbability": -2.5}]}],
            },
        }]
    }  # fmt: skip

    def model(self, url: str, name: str | None = None, key: str | None = KEY, **options: Any) -> ServerModel:
        return GeminiModel(name or self.named, url, key, **options)

    def _parts(self, says: Says) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = [{"text": says.thought, "thought": True}] if says.thought else []
        if says.text:
            found.append({"text": says.text})
        found += [{"functionCall": {"id": key, "name": name, "args": arguments}} for key, name, arguments in says.calls]
        if says.thought and says.calls:
            next(part for part in found if "functionCall" in part)["thoughtSignature"] = SIGNED
        return found

    def _rest(self, says: Says) -> dict[str, Any]:
        given, made, cached, _ = says.usage
        usage = {"promptTokenCount": given, "candidatesTokenCount": made - 1, "thoughtsTokenCount": 1,
                 "cachedContentTokenCount": cached, "totalTokenCount": given + made}  # fmt: skip
        return {"usageMetadata": usage, "modelVersion": self.named, "responseId": "r1"}

    def whole(self, says: Says) -> dict[str, Any]:
        end = self._ends.get(says.end, says.end) or "STOP"
        candidate = {"content": {"role": "model", "parts": self._parts(says)}, "finishReason": end, "index": 0}
        return {"candidates": [candidate], **self._rest(says)}

    def events(self, says: Says) -> Iterator[dict[str, Any]]:
        for part in self._parts(says):
            for piece in pieces(part["text"]) if "text" in part else [None]:
                shown = part if piece is None else {**part, "text": piece}
                yield {"candidates": [{"content": {"role": "model", "parts": [shown]}, "index": 0}], **self._rest(says)}
        end = self._ends.get(says.end, says.end) or "STOP"
        last = {"content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": end, "index": 0}
        yield {"candidates": [last], **self._rest(says)}

    def framed(self, events: Sequence[dict[str, Any]], *, ends: bool = True) -> bytes:
        return sse(*events, done=False)

    def answer(self, seen: Seen, says: Says) -> Raw | dict[str, Any]:
        return self.stream(says) if "streamGenerateContent" in seen.path else self.whole(says)

    def refusal(self, status: int, words: str) -> dict[str, Any]:
        names = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
                 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}  # fmt: skip
        return {"error": {"code": status, "message": words, "status": names.get(status, "INTERNAL")}}

    def told(self, body: dict[str, Any]) -> list[Told]:
        found = [Told("system", part["text"]) for part in body.get("systemInstruction", {}).get("parts", ())]
        for one in body["contents"]:
            text, calls, signed, images = "", [], False, 0
            for part in one["parts"]:
                signed = signed or part.get("thoughtSignature") == SIGNED
                if "functionCall" in part:
                    calls.append((part["functionCall"]["name"], json.dumps(part["functionCall"]["args"])))
                elif "functionResponse" in part:
                    found.append(Told("tool", part["functionResponse"]["response"]["result"]))
                else:
                    text, images = text + part.get("text", ""), images + ("inlineData" in part)
            if text or calls or images:
                role = {"model": "assistant"}.get(one["role"], one["role"])
                found.append(Told(role, text, tuple(calls), signed, images))
        return found

    def tools(self, body: dict[str, Any]) -> list[tuple[str, Any]]:
        return [(one["name"], one["parametersJsonSchema"]) for one in body["tools"][0]["functionDeclarations"]]

    def schema(self, body: dict[str, Any]) -> Any:
        return body.get("generationConfig", {}).get("responseJsonSchema")


VENDORS: dict[str, Vendor] = {vendor.name: vendor for vendor in (Chat(), Responses(), Anthropic(), Gemini())}
