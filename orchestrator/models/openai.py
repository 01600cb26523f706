"""Models behind an OpenAI-compatible server: OpenAI, Azure, vLLM, Ollama, llama.cpp, LiteLLM and others."""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias
from weakref import WeakKeyDictionary

import anyio
import anyio.lowlevel
from pydantic import SecretStr

from orchestrator.errors import ModelError, ModelMisconfigured, ModelUnavailable
from orchestrator.graph.limits import Retry
from orchestrator.models.base import ModelEvent, ModelRequest, Output, RequestModel, ToolLike, calling_key
from orchestrator.models.chat import (
    Assembly,
    Events,
    Piece,
    body_of,
    error_in,
    parsed,
    reply_from,
    reply_of,
    understood,
)
from orchestrator.models.faults import refusal
from orchestrator.models.messages import Message, Reply
from orchestrator.models.prices import Price, approximated, price_in
from orchestrator.models.profile import Profile, profile_of
from orchestrator.models.secrets import ENV, looked_up, without

if TYPE_CHECKING:
    from ssl import SSLContext

    from httpx2 import Response
    from openai import AsyncOpenAI

Key: TypeAlias = "str | SecretStr | Callable[[], str | Awaitable[str]]"
"""A key; `env:NAME`, to read it from the environment at each request; or a function, sync or async, that gives it."""

_LAST_WORDS = 2.0
"""Seconds that a server gets, behind the end of its reply, to tell the usage."""


@cache
def _trusted() -> SSLContext:
    """Whom TLS connections trust. Reading the certificates takes as long as a short request, so it is done once."""
    from httpx2 import create_ssl_context

    return create_ssl_context()


@dataclass(frozen=True)
class _Call:
    """One request on its way: what is sent, and what must not be told of it."""

    body: dict[str, Any]
    headers: dict[str, str]
    secrets: tuple[str, ...]

    def clean(self, words: str) -> str:
        """Words of a server or client for an error message: without keys and other things sent as headers."""
        return without(words, self.secrets)


class OpenAIModel(RequestModel):
    """A model that is asked by chat completions.

    The `openai` package is loaded, and a key looked for, when the first request is made. It never retries by
    itself: that is the executor's part, by `retry`, and journaled.

    Connections are kept for further requests in the same event loop; `aclose`, or `async with model:`, closes them.
    """

    def __init__(
        self,
        name: str,
        base_url: str | None = None,
        api_key: Key | None = None,
        *,
        timeout: float = 60,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        extra_body: Mapping[str, object] | None = None,
        profile: Profile | None = None,
        retry: Retry | None = Retry(),  # noqa: B008  it is frozen
        price: Price | Mapping[str, Price] | None = None,
        streams: bool = True,
        **options: Any,
    ) -> None:
        """
        Args:
            name: the provider's name of the model.
            base_url: the server, such as `http://127.0.0.1:11434/v1`; else `OPENAI_BASE_URL`, else OpenAI's.
            api_key: see `Key`; else `OPENAI_API_KEY`. A server named by `base_url` can do without.
            timeout: seconds that a request may take; of a streamed reply, seconds until its next piece.
            headers: sent with every request; a value may be `env:NAME`.
            query: sent with every request in its address, such as Azure's `api-version`.
            extra_body: fields of the provider's own, sent with every request.
            profile: what the model and its server can do; else it is made out from their names.
            retry: which failed calls the executor makes again. None: none. A node's own `retry` comes before it.
            price: the model's price, or a table of prices by the names of models.
            streams: whether replies are read piece by piece while somebody watches the run.
            options: parameters of every request, such as `temperature`; those of a call come before them.
        """
        self.name = name
        self.base_url = base_url
        self.timeout = timeout
        self.options = options
        self.retry = retry
        self.price = price_in(price, name)
        self.streams = streams
        self._profile = profile
        self._key = SecretStr(api_key) if isinstance(api_key, str) else api_key
        self._headers = dict(headers or {})
        self._query = dict(query or {})
        self._extra_body = dict(extra_body or {})
        self._clients: WeakKeyDictionary[object, AsyncOpenAI] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"OpenAIModel({self.name!r})"

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be pickled or copied, as it may hold a key: make a new one where it is needed"
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def profile(self) -> Profile:
        """What the model and its server can do."""
        return self._profile or profile_of(self.name, self.base_url or os.environ.get("OPENAI_BASE_URL"))

    async def aclose(self) -> None:
        """Close the connections of the running event loop; a later request opens new ones."""
        found = self._clients.pop(anyio.lowlevel.current_token().native_token, None)
        if found is not None:
            await found.close()

    # -- asking --------------------------------------------------------------------------------------------------

    async def respond(self, request: ModelRequest) -> Reply:
        """Ask the server. See `Model.complete`."""
        call = await self._call(request)
        found = await self._post(call)
        # Raised out here, so that no error carries the client's own as context: those hold the key.
        if isinstance(found, ModelError):
            raise found
        return self._told(reply_of(found, self.name, clean=call.clean), request)

    async def stream(
        self,
        messages: str | Sequence[Message],
        tools: Iterable[ToolLike] = (),
        output: Output = None,
        *,
        task: str | None = None,
        **options: Any,
    ) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`. A server that does not stream after all gives the reply in one piece."""
        request = ModelRequest.of(messages, tools, output, task=task, options=options, pieces=True)
        call = await self._call(request)
        reply: Reply | None = None
        async with aclosing(self._read(call)) as found:
            async for one in found:
                if isinstance(one, ModelError):
                    raise one
                if isinstance(one, Reply):
                    reply = one
                else:
                    yield ModelEvent(text=one.text, reasoning=one.reasoning)
        assert reply is not None  # the last that `_read` gives, if it gives no error
        yield ModelEvent(reply=request.parse(self._told(reply, request)))

    async def _call(self, request: ModelRequest) -> _Call:
        profile = self.profile
        body = body_of(request, self.name, {**self._extra_body, **self.options}, profile)
        if request.pieces:
            body["stream"] = True
            if profile.stream_usage:
                body.setdefault("stream_options", {"include_usage": True})
        key = await self._api_key()
        own = {name: self._header(name, value) for name, value in self._headers.items()}
        headers = {"Authorization": f"Bearer {key}", **_idempotency(), **own}
        return _Call(body, headers, (key, *own.values()))

    def _told(self, reply: Reply, request: ModelRequest) -> Reply:
        """The reply with what its server left unsaid: how many tokens, and what they cost."""
        reply = understood(reply, request, self.profile)
        usage = reply.usage or approximated(request, reply)
        if self.price is not None:
            usage = usage.model_copy(update={"cost": self.price.of(usage, _cached(reply))})
        return reply.model_copy(update={"usage": usage})

    # -- the wire ------------------------------------------------------------------------------------------------

    async def _post(self, call: _Call) -> str | ModelError:
        """The server's answer as text, or what went wrong."""
        try:
            client = self._client()
            with anyio.fail_after(self.timeout):
                body = dict(call.body)
                response = await client.chat.completions.with_raw_response.create(
                    model=self.name, messages=body.pop("messages"), extra_body=body, extra_headers=call.headers
                )
                return response.http_response.text
        except Exception as error:
            return self._failure(error, call)

    async def _read(self, call: _Call) -> AsyncGenerator[Piece | Reply | ModelError]:
        """The pieces of the server's answer; as the last thing the reply, or what went wrong."""
        assembly = Assembly()
        failure: ModelError | None = None
        try:
            async with self._opened(call) as response:
                if "event-stream" not in response.headers.get("content-type", ""):
                    with anyio.fail_after(self.timeout):
                        await response.aread()
                    reply = reply_of(response.text, self.name, clean=call.clean)
                    yield Piece(reply.text)
                    yield reply
                    return
                async with aclosing(self._chunks(response, assembly)) as chunks:
                    async for chunk in chunks:
                        if not isinstance(chunk, dict):
                            raise ValueError("a piece of it is no JSON object")
                        if chunk.get("error"):
                            raise error_in(chunk["error"], self.name, call.clean)
                        piece = assembly.add(chunk)
                        if piece.text or piece.reasoning:
                            yield piece
        except Exception as error:
            failure = self._failure(error, call)
        if assembly.finish is not None:
            yield reply_from(assembly.answer(), self.name, clean=call.clean)  # whole, whatever came behind it
        elif failure is not None:
            yield failure
        else:
            why = "the stream ended before the reply was whole (it gave no finish_reason)"
            yield ModelUnavailable(f"model {self.name!r}: {why}")

    async def _chunks(self, response: Response, assembly: Assembly) -> AsyncGenerator[Any]:
        """The chunks of a stream, up to its end or the word that says so."""
        events, done = Events(), False
        received = response.aiter_bytes()
        try:
            while True:
                left = self.timeout if assembly.finish is None else min(self.timeout, _LAST_WORDS)
                with anyio.fail_after(left):
                    data = await anext(received, None)
                for text in events.rest() if data is None else events.feed(data):
                    done = done or text.startswith("[DONE]")
                    if not done:
                        yield parsed(text)
                if data is None:
                    return
        finally:
            await _exhausted(received, response)

    @asynccontextmanager
    async def _opened(self, call: _Call) -> AsyncGenerator[Response]:
        """The answer, its body not read yet."""
        body = dict(call.body)
        opening = self._client().chat.completions.with_streaming_response.create(
            model=self.name, messages=body.pop("messages"), extra_body=body, extra_headers=call.headers
        )
        with anyio.fail_after(self.timeout):
            response = (await opening.__aenter__()).http_response
        try:
            yield response
        finally:
            with anyio.move_on_after(1, shield=True):  # also when cancelled: the server is to stop writing
                await opening.__aexit__(None, None, None)

    def _failure(self, error: Exception, call: _Call) -> ModelError:
        """What went wrong, in words of ours.

        Raises:
            Exception: the error, if it is none that a request can end in.
        """
        import httpx2  # late: both take long to load
        import openai

        this = f"model {self.name!r}"
        match error:
            case ModelError():
                return error
            case TimeoutError() | openai.APITimeoutError() | httpx2.TimeoutException():
                why = f"no answer within {self.timeout:g} s; give it more time with timeout="
                return ModelUnavailable(f"{this}: {why}")
            case openai.APIStatusError():
                words = call.clean(error.message.removeprefix(f"Error code: {error.status_code} - "))
                return refusal(self.name, error.status_code, words, error.code, error.response.headers)
            case openai.APIConnectionError():
                cause = error.__cause__
                if isinstance(cause, httpx2.UnsupportedProtocol):
                    return ModelMisconfigured(f"{this}: {cause}; write base_url as http://host:port/v1")
                words = call.clean(str(cause or error) or type(cause).__name__)
                return ModelUnavailable(f"{this}: the server cannot be reached ({words}); is it running?")
            case httpx2.TransportError():  # in the middle of a stream
                return ModelUnavailable(f"{this}: the connection broke off ({call.clean(str(error))})")
            case httpx2.InvalidURL():
                return ModelMisconfigured(f"{this}: {call.clean(str(error))}; write base_url as http://host:port/v1")
            case openai.OpenAIError() | httpx2.HTTPError():
                return ModelError(f"{this}: {call.clean(str(error))}")
            case UnicodeEncodeError():  # a key or a header
                return ModelError(f"{this}: {call.clean(str(error))}")
            case ValueError() | RecursionError():
                why = call.clean(str(error))
                return ModelUnavailable(f"{this}: the server's stream holds what cannot be read ({why})")
        raise error

    def _client(self) -> AsyncOpenAI:
        """The client of the running event loop: connections cannot be shared between loops."""
        from httpx2 import InvalidURL
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        loop = anyio.lowlevel.current_token().native_token
        known = self._clients.get(loop)
        if known is not None:
            return known
        # An HTTP client of our own: the default one, when collected late, starts tasks in whatever loop runs then.
        client = AsyncOpenAI(
            api_key="unused",  # each request brings its own: a key may change while others are on their way
            base_url=self.base_url,
            max_retries=0,
            default_query=self._query,
            http_client=DefaultAsyncHttpxClient(timeout=self.timeout, verify=_trusted()),
        )
        port = client.base_url.port
        if port is not None and not 0 < port < 1 << 16:  # nobody below looks: asyncio fails with an error of its own
            raise InvalidURL(f"base_url {self.base_url!r} has no port between 1 and 65535")
        self._clients[loop] = client
        return client

    # -- secrets -------------------------------------------------------------------------------------------------

    async def _api_key(self) -> str:
        if self._key is not None and not isinstance(self._key, SecretStr):
            made = self._key()
            return await made if inspect.isawaitable(made) else made
        given = ENV + "OPENAI_API_KEY" if self._key is None else self._key.get_secret_value()
        found = looked_up(given)
        if found is not None:
            return found
        if self._key is None and (self.base_url or os.environ.get("OPENAI_BASE_URL")):
            return "none"  # servers of one's own want no key, and the client wants some text
        variable = given.removeprefix(ENV)
        raise ModelMisconfigured(
            f"model {self.name!r} has no key: set the environment variable {variable}, or give api_key='env:NAME'"
        )

    def _header(self, name: str, given: str) -> str:
        found = looked_up(given)
        if found is None:
            raise ModelMisconfigured(
                f"model {self.name!r}: header {name!r} is {given}, and the environment has no such variable: set it"
            )
        return found


async def _exhausted(received: AsyncIterator[bytes], response: Response) -> None:
    """End what reads a response: left where it stands, some of httpx2's generators would only be found as garbage."""
    with anyio.move_on_after(1, shield=True), suppress(Exception):
        await response.aclose()
        while True:
            await anext(received)


def _idempotency() -> dict[str, str]:
    """What tells a server that keeps such keys that this call was made before, so that it is paid for once."""
    key = calling_key.get()
    return {} if key is None else {"Idempotency-Key": key}


def _cached(reply: Reply) -> int:
    """How many of the input tokens the provider had in its cache."""
    told = reply.details.get("usage")
    details = told.get("prompt_tokens_details") if isinstance(told, dict) else None
    found = details.get("cached_tokens") if isinstance(details, dict) else None
    return found if isinstance(found, int) else 0
