"""Models behind an OpenAI-compatible server: OpenAI, Azure, vLLM, Ollama, llama.cpp, LiteLLM and others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.graph.limits import Retry
from orchestrator.models.base import ModelRequest
from orchestrator.models.chat import Assembly, StreamAssembly, body_of, reply_from
from orchestrator.models.messages import Reply
from orchestrator.models.prices import Price
from orchestrator.models.profile import Profile
from orchestrator.models.responses import ResponsesWire
from orchestrator.models.server import Key, ServerModel
from orchestrator.models.wire import HTTPCall, OpenAIWire, sent_by

if TYPE_CHECKING:
    from httpx2 import Response
    from openai import AsyncOpenAI


class OpenAIModel(ServerModel):
    """A model behind an OpenAI-compatible server, by chat completions or by the Responses API."""

    def __init__(
        self,
        name: str,
        base_url: str | None = None,
        api_key: Key | None = None,
        *,
        api: Literal["chat", "responses"] = "chat",
        timeout: float = 600,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        extra_body: Mapping[str, object] | None = None,
        profile: Profile | None = None,
        retry: Retry | None = Retry(),  # noqa: B008  it is frozen
        price: Price | Mapping[str, Price] | None = None,
        streams: bool = True,
        max_reply_bytes: int = 64 * 1024 * 1024,
        **options: Any,
    ) -> None:
        """
        Args:
            name: the provider's name of the model.
            base_url: the server, such as `http://127.0.0.1:11434/v1`. Default: `OPENAI_BASE_URL`, else OpenAI's. A
                query in it is sent with every request, like `query`.
            api_key: see `Key`. Default: `OPENAI_API_KEY`. A server named by `base_url` may need none.
            api: `chat` for chat completions, which most servers have; `responses` for the Responses API, by which
                OpenAI's reasoning models keep their thoughts over tool calls. The server stores nothing: the journal
                has the conversation.
            timeout: seconds to wait for a whole reply, streamed or not, including the time in which the server still
                loads the model.
            headers: sent with every request; a value may be `env:NAME`.
            query: sent with every request in its address, such as Azure's `api-version`.
            extra_body: provider-specific fields, sent with every request.
            profile: what the model and its server support. Default: derived from their names.
            retry: which failed calls the executor retries. None: no calls. A node's own `retry` takes precedence.
            price: the model's price, or a table of prices by model names. Default: see `price`.
            streams: whether to read replies in pieces while the run is watched.
            max_reply_bytes: maximum number of bytes of an answer, unpacked; for a streamed answer including the data
                around its pieces. A longer answer is a `ReplyTooLarge`.
            options: parameters of every request, such as `temperature`; those of a call take precedence. `tools` are
                the server's own tools, which are offered besides those of the run.

        Raises:
            ValueError: `api` is unknown, or an option would replace what the run sends, such as its messages.
        """
        if api not in ("chat", "responses"):
            raise ValueError(f"api={api!r} is neither 'chat' nor 'responses'")
        self.wire = ChatWire() if api == "chat" else ResponsesWire()
        super().__init__(
            name,
            base_url,
            api_key,
            timeout=timeout,
            headers=headers,
            query=query,
            extra_body=extra_body,
            profile=profile,
            retry=retry,
            price=price,
            streams=streams,
            max_reply_bytes=max_reply_bytes,
            **options,
        )


class ChatWire(OpenAIWire):
    """Chat completions."""

    ref = "openai"
    takes_seed = True

    async def send(self, client: AsyncOpenAI, model: str, call: HTTPCall, *, pieces: bool) -> Response:
        """See `Wire.send`."""
        return await sent_by(client.chat.completions, call, pieces=pieces, model=model, messages=())

    def body(
        self, request: ModelRequest, model: str, defaults: Mapping[str, object], profile: Profile
    ) -> dict[str, Any]:
        """See `Wire.body`."""
        body = body_of(request, model, defaults, profile)
        if request.pieces:
            body["stream"] = True
            if profile.stream_usage:
                body.setdefault("stream_options", {"include_usage": True})
        return body

    def reply(self, answer: Mapping[str, Any], model: str, clean: Callable[[str], str] = str) -> Reply:
        """See `Wire.reply`."""
        return reply_from(answer, model, clean=clean)

    def assembly(self) -> StreamAssembly:
        """See `Wire.assembly`."""
        return Assembly()
