"""Models of Google, by the Gemini API: requests are written in it, and answers read, whole or streamed.

https://ai.google.dev/api/generate-content. The signatures of a model's thoughts stand at the parts of its message that
follow from them, such as a call. They go back to it there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from orchestrator.errors import ModelUnavailable
from orchestrator.graph.limits import Usage
from orchestrator.json import paired, storable
from orchestrator.models.base import ModelRequest
from orchestrator.models.chat import Piece, StreamAssembly, error_in
from orchestrator.models.chat.reply import count_in, error_of, word_in
from orchestrator.models.chat.request import NO_REPLY, named_fields_of
from orchestrator.models.messages import Image, Message, Reply
from orchestrator.models.parts import Part, called, listed, parts_of, reply_of_parts, some, turns_of
from orchestrator.models.prices import reply_limit
from orchestrator.models.profile import Profile
from orchestrator.models.server import ServerModel
from orchestrator.models.wire import HTTPCall, Wire, are_objects

if TYPE_CHECKING:
    from google.genai import Client
    from httpx2 import AsyncClient, Response

_DETAILS = ("responseId", "usageMetadata", "promptFeedback")
_SIGNATURE = "thoughtSignature"
_NO_SIGNATURE = "skip_thought_signature_validator"
"""Stands for the signature of a call that another model made; see https://ai.google.dev/gemini-api/docs/thought-signatures.
"""
_UNSIGNED = ("gemini-1", "gemini-2", "gemma")
"""How the names of models begin that require no signatures."""
_OPTIONS = {
    "max_tokens": "maxOutputTokens",
    "max_completion_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "logprobs": "responseLogprobs",
    "top_logprobs": "logprobs",
}
"""Options by the names of chat completions -> fields of `generationConfig`."""
_SYSTEM = ("systemInstruction", "system_instruction")
"""Names of the option with the system prompt, as the vendor's documentation writes it."""
_VERSIONS = ("v1", "v1beta", "v1alpha")
"""Versions of the interface, at the end of an address; without one, the package chooses."""
_CHOICES = {"required": "ANY", "none": "NONE"}


class GeminiWire(Wire):
    """The Gemini API."""

    ref, package, extra = "gemini", "google.genai", "gemini"
    takes_seed = True
    conversation = "contents"
    objects = ("generationConfig", "thinkingConfig", "thinking", "toolConfig")
    keys, address = ("GEMINI_API_KEY", "GOOGLE_API_KEY"), "GOOGLE_GEMINI_BASE_URL"
    url = "https://generativelanguage.googleapis.com"

    def client(self, base_url: str | None, query: Mapping[str, str], http: AsyncClient) -> Client:
        """See `Wire.client`."""
        import httpx2
        from google.genai import Client
        from google.genai.types import HttpOptions  # imported late: it takes very long to load

        place, _, version = (base_url or "").rstrip("/").rpartition("/")
        if version not in _VERSIONS:
            place, version = base_url or "", ""
        # It sends nothing by the second client, which is not async. Without one it makes one, which reads certificates.
        unused = httpx2.Client(transport=httpx2.MockTransport(lambda request: httpx2.Response(500)))
        options = HttpOptions(
            base_url=place or None, api_version=version or None, httpx_async_client=http, httpx_client=unused
        )
        return Client(api_key="unused", vertexai=False, http_options=options)  # each request has its own key

    async def send(self, client: Client, model: str, call: HTTPCall, *, pieces: bool) -> Response:
        """See `Wire.send`."""
        from google.genai.types import HttpOptions

        from orchestrator.models.http_client import answers

        # What the package offers above this builds objects of every part of a request and an answer, and drops what it
        # does not know.
        api = client._api_client
        send, verb = api.async_request, "generateContent"
        if pieces:
            send, verb = api.async_request_streamed, "streamGenerateContent?alt=sse"
        with answers() as found:
            await send("post", f"{_place(model)}:{verb}", dict(call.body), HttpOptions(headers=call.headers))
        return found[-1]

    async def listed(self, client: Client, model: str, call: HTTPCall) -> object:
        """See `Wire.listed`."""
        from google.genai.types import HttpOptions

        from orchestrator.models.http_client import answers

        with answers() as found:
            await client._api_client.async_request("get", _place(model), {}, HttpOptions(headers=call.headers))
        return {"data": [{"id": model, **found[-1].json()}]}

    def headers(self, key: str) -> dict[str, str]:
        """See `Wire.headers`."""
        return {"x-goog-api-key": key}

    def profile(self, model: str, base_url: str | None) -> Profile:
        """See `Wire.profile`."""
        return Profile(stream_usage=False, logprobs=0)

    def body(
        self, request: ModelRequest, model: str, defaults: Mapping[str, object], profile: Profile
    ) -> dict[str, Any]:
        """See `Wire.body`."""
        messages, fields = named_fields_of(request, defaults, profile)
        signs = not model.removeprefix("models/").startswith(_UNSIGNED)
        system, turns = turns_of(messages, lambda message: _turn(message, profile, signs))
        own = _system(fields)
        body = {"contents": [{"role": role, "parts": parts} for role, parts in turns], **_options(fields)}
        if own or system:
            body["systemInstruction"] = {"parts": [*own, *({"text": message.content} for message in system)]}
        return body

    def refused(self, options: Mapping[str, object]) -> str | None:
        """See `Wire.refused`."""
        for name in _SYSTEM:
            given = options.get(name, "")
            if not isinstance(given, str) and not (isinstance(given, Mapping) and are_objects(given.get("parts"))):
                return f"{name}= is a text, or {{'parts': [{{'text': ...}}]}}"
        return super().refused(options)

    def reply_limit(self, body: Mapping[str, Any]) -> int | None:
        """See `Wire.reply_limit`."""
        return reply_limit({"max_output_tokens": body.get("generationConfig", {}).get("maxOutputTokens")})

    def reply(self, answer: Mapping[str, Any], model: str, clean: Callable[[str], str] = str) -> Reply:
        """See `Wire.reply`."""
        error = error_of(answer)
        if error:
            raise error_in(error, model, clean, otherwise=400, key=self.keys[0])
        feedback, candidates = answer.get("promptFeedback"), listed(answer.get("candidates"))
        blocked = feedback.get("blockReason") if isinstance(feedback, Mapping) else None
        if not candidates and not blocked:
            raise ModelUnavailable(f"model {model!r}: the server's answer has no candidates")
        candidate = candidates[0] if candidates else {"finishReason": "content_filter"}
        content = candidate.get("content")
        parts = listed(content.get("parts")) if isinstance(content, Mapping) else []
        return reply_of_parts(
            map(_part, parts),
            self.ref,
            finish=word_in(candidate.get("finishReason")),
            usage=_usage(answer.get("usageMetadata")),
            details=some(answer, _DETAILS) | some(candidate, ("finishMessage", "groundingMetadata")),
            logprobs=_logprobs(candidate.get("logprobsResult")),
            model=str(answer.get("modelVersion") or model),
        )

    def assembly(self) -> StreamAssembly:
        """See `Wire.assembly`."""
        return CandidateAssembly()


class GeminiModel(ServerModel):
    """A model of Google by the Gemini API, by the package `google-genai`, which the extra `gemini` installs.

    The key is in `GEMINI_API_KEY` or `GOOGLE_API_KEY`, and the address in `GOOGLE_GEMINI_BASE_URL`, unless they are
    given. Options have the names of chat completions (`max_tokens`, `stop`, `tool_choice`), or are fields of a request
    or of its `generationConfig`, such as `thinkingConfig={"includeThoughts": True}`.
    """

    wire = GeminiWire()


def _place(model: str) -> str:
    return quote(model if "/" in model else f"models/{model}", safe="/")


# -- requests ----------------------------------------------------------------------------------------------------------


def _turn(message: Message, profile: Profile, signs: bool) -> tuple[str, list[dict[str, Any]]]:
    """Return the role of a message, and its parts. System messages within a conversation are the user's."""
    if message.role == "assistant":
        written = [part for one in parts_of(message, GeminiWire.ref) if (part := _written(one)) is not None]
        calls = [part for part in written if "functionCall" in part]
        if signs and calls and not any(_SIGNATURE in part for part in written):
            calls[0][_SIGNATURE] = _NO_SIGNATURE
        return "model", written or [{"text": NO_REPLY}]
    shown = [_image(image) for image in message.images] if profile.images or message.role == "user" else []
    if message.role != "tool":
        text = [{"text": message.content}] if message.content.strip() else []
        return "user", [*text, *shown] or [{"text": "(empty)"}]
    response = {"id": message.tool_call_id, "name": message.name or "", "response": {"result": message.content}}
    if shown:
        shown.insert(0, {"text": f"What the tool {message.name or 'that was called'} shows:"})
    return "user", [{"functionResponse": response}, *shown]


def _image(image: Image) -> dict[str, Any]:
    inline = image.inline
    if inline is None:
        return {"fileData": {"fileUri": image.url}}
    return {"inlineData": {"mimeType": inline[0], "data": inline[1]}}


def _written(part: Part) -> dict[str, Any] | None:
    """Return the part of a part of a model's message; None for one that the server refuses."""
    if part.call is not None:
        arguments = {"not_a_json_object": part.call.raw} if part.call.arguments is None else part.call.arguments
        return {"functionCall": {"id": part.call.id, "name": part.call.name, "args": arguments}, **part.rest}
    if part.kind == "item":
        return dict(part.rest)
    thought = {"thought": True} if part.kind == "thought" else {}
    return {"text": part.text, **thought, **part.rest} if part.rest or (part.text and not thought) else None


def _system(fields: dict[str, Any]) -> list[dict[str, Any]]:
    """Take the option with the system prompt out of the fields, and return its parts."""
    given = [found for name in _SYSTEM if (found := fields.pop(name, None))]
    return [
        dict(part) for one in given for part in ([{"text": one}] if isinstance(one, str) else one.get("parts") or ())
    ]


def _options(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of chat completions, except for messages, as those of this interface."""
    found = dict(fields)
    config = dict(found.pop("generationConfig", None) or {})
    declared = [tool["function"] for tool in found.get("tools", ()) if "function" in tool]
    others = [dict(tool) for tool in found.pop("tools", ()) if "function" not in tool]
    if declared or others:
        functions = [{"functionDeclarations": list(map(_declaration, declared))}] if declared else []
        found["tools"] = [*functions, *others]
    if declared and others:  # the server refuses both kinds without it
        found["toolConfig"] = {"includeServerSideToolInvocations": True, **found.get("toolConfig", {})}
    choice, form = found.pop("tool_choice", None), found.pop("response_format", None)
    if choice is not None:
        found["toolConfig"] = {**found.get("toolConfig", {}), "functionCallingConfig": _choice(choice)}
    if isinstance(form, Mapping):
        config["responseMimeType"] = "application/json"
        if "json_schema" in form:
            config["responseJsonSchema"] = form["json_schema"]["schema"]
    stop = found.pop("stop", None)
    if stop:
        config["stopSequences"] = [stop] if isinstance(stop, str) else list(stop)
    found.pop("parallel_tool_calls", None)
    for name, own in _OPTIONS.items():
        if name in found:
            config[own] = found.pop(name)
    for name in ("mediaResolution", "responseModalities"):
        if name in found:
            config[name] = found.pop(name)
    thinking = [config.pop("thinkingConfig", None), *(found.pop(name, None) for name in ("thinking", "thinkingConfig"))]
    effort = found.pop("reasoning_effort", None)
    thinking.append(None if effort is None else {"thinkingLevel": effort})
    if any(thinking):
        config["thinkingConfig"] = {name: value for one in thinking for name, value in (one or {}).items()}
    return {**found, "generationConfig": config} if config else found


def _declaration(function: Mapping[str, Any]) -> dict[str, Any]:
    schema = function.get("parameters")
    return {**some(function, ("name", "description")), **({"parametersJsonSchema": schema} if schema else {})}


def _choice(choice: object) -> dict[str, Any]:
    function = choice.get("function") if isinstance(choice, Mapping) else None
    if isinstance(function, Mapping):
        return {"mode": "ANY", "allowedFunctionNames": [function["name"]]}
    return {"mode": _CHOICES.get(str(choice), "AUTO")}


# -- answers -----------------------------------------------------------------------------------------------------------


def _part(part: Mapping[str, Any]) -> Part:
    call, text = part.get("functionCall"), part.get("text")
    rest = some(part, (_SIGNATURE,))
    if isinstance(call, Mapping):
        return called(call.get("id"), call.get("name"), call.get("args"), rest)
    if isinstance(text, str):
        return Part("thought" if part.get("thought") is True else "text", text, rest=rest)
    return Part("item", rest=some(part, part))


def _usage(written: object) -> Usage | None:
    """Return the usage. Its output tokens include those of thoughts, which the server counts apart."""
    fields = written if isinstance(written, Mapping) else {}
    given = count_in(fields.get("promptTokenCount"))
    made = [count_in(fields.get(name)) for name in ("candidatesTokenCount", "thoughtsTokenCount")]
    if given is None or made == [None, None]:
        return None
    extra = count_in(fields.get("toolUsePromptTokenCount")) or 0
    cached = count_in(fields.get("cachedContentTokenCount")) or 0
    return Usage(input_tokens=given + extra, output_tokens=sum(filter(None, made)), cached_tokens=cached)


def _logprobs(written: object) -> list[dict[str, Any]]:
    """Return the log probabilities in the form of chat completions."""
    fields = written if isinstance(written, Mapping) else {}
    tops = [listed(top.get("candidates")) for top in listed(fields.get("topCandidates"))]
    chosen = listed(fields.get("chosenCandidates"))
    tops += [[]] * (len(chosen) - len(tops))
    return [{**_token(token), "top_logprobs": list(map(_token, top))} for token, top in zip(chosen, tops, strict=False)]


def _token(written: Mapping[str, Any]) -> dict[str, Any]:
    return {"token": written.get("token"), "logprob": written.get("logProbability")}


class CandidateAssembly(StreamAssembly):
    """An answer, assembled from the chunks of its stream, each of which has some parts of the message."""

    def __init__(self) -> None:
        super().__init__()
        self._answer: dict[str, Any] = {}
        self._candidate: dict[str, Any] = {}
        self._parts: list[dict[str, Any]] = []
        self._texts: list[list[str]] = []

    def add(self, chunk: Mapping[str, Any]) -> Piece:
        """See `StreamAssembly.add`."""
        self._answer.update(some(chunk, chunk))
        feedback = chunk.get("promptFeedback")
        if isinstance(feedback, Mapping) and feedback.get("blockReason"):
            self.finish = "content_filter"
        shown = {True: "", False: ""}
        for candidate in listed(chunk.get("candidates"))[:1]:
            self._candidate.update(some(candidate, candidate))
            self.finish = word_in(candidate.get("finishReason")) or self.finish
            content = candidate.get("content")
            for part in listed(content.get("parts")) if isinstance(content, Mapping) else ():
                self._add(part)
                if isinstance(part.get("text"), str):
                    shown[part.get("thought") is True] += part["text"]
        return Piece(storable(shown[False]), storable(shown[True]))

    def _add(self, part: Mapping[str, Any]) -> None:
        """Add a part: the continuation of the last one if both are text, or both thoughts, and that is not signed."""
        last = self._parts[-1] if self._parts else {}
        alike = "text" in part and "text" in last and part.get("thought") == last.get("thought")
        if alike and _SIGNATURE not in last:
            last.update({name: value for name, value in part.items() if name != "text"})
        else:
            self._parts.append(dict(part))
            self._texts.append([])
        if isinstance(part.get("text"), str):
            self._texts[-1].append(part["text"])

    def answer(self) -> dict[str, Any]:
        """See `StreamAssembly.answer`."""
        parts = [
            {**part, "text": paired("".join(texts))} if texts else part
            for part, texts in zip(self._parts, self._texts, strict=True)
        ]
        candidates = [{**self._candidate, "content": {"parts": parts}}] if self._candidate else []
        return {**self._answer, "candidates": candidates}
