"""Requests on their way to an OpenAI-compatible server and answers on their way back: connections, time, faults."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import anyio
import anyio.lowlevel

from orchestrator.calls import pass_fence
from orchestrator.errors import ModelError, ModelMisconfigured, ModelUnavailable
from orchestrator.models.chat import Assembly, EventDecoder, Piece, error_in, parsed, reply_from, reply_of
from orchestrator.models.http_errors import refusal
from orchestrator.models.messages import Reply
from orchestrator.models.secrets import without

if TYPE_CHECKING:
    from ssl import SSLContext

    from httpx2 import Response
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletionMessageParam

_BELOW: tuple[ChatCompletionMessageParam, ...] = ()
"""For the client's `messages`: the body brings them. The client looks at each part of what it is given itself, which
for a long conversation takes longer than all the rest of a call."""
_LAST_WORDS = 2.0
"""Seconds that a server gets, behind the end of its reply, to tell the usage."""
_DRAIN = 0.2
"""Seconds that it gets, behind its last word, to end the answer, so that its connection can be used again."""


@cache
def _trusted() -> SSLContext:
    """Whom TLS connections trust. Reading the certificates takes as long as a short request, so it is done once."""
    from httpx2 import create_ssl_context

    return create_ssl_context()


@dataclass(frozen=True)
class HTTPCall:
    """One request: what is sent, and the secrets that must not appear in messages."""

    body: dict[str, Any] = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    def clean(self, words: str) -> str:
        """Words of a server or client for an error message: without keys and other things sent as headers."""
        return without(words, self.secrets)


class ModelConnection:
    """The connection of one model to its server. Clients are made on demand, one for each event loop."""

    def __init__(self, name: str, base_url: str | None, timeout: float, query: Mapping[str, str], limit: int) -> None:
        self.name, self.base_url, self.timeout, self.query, self.limit = name, base_url, timeout, dict(query), limit
        self._clients: WeakKeyDictionary[object, AsyncOpenAI] = WeakKeyDictionary()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        found = self._clients.pop(anyio.lowlevel.current_token().native_token, None)
        if found is not None:
            await found.close()

    async def post(self, call: HTTPCall) -> str | ModelError:
        """The server's answer as text, or what went wrong."""
        try:
            client = self._client()
            await pass_fence()
            with anyio.fail_after(self.timeout):
                response = await client.chat.completions.with_raw_response.create(
                    model=self.name, messages=_BELOW, extra_body=call.body, extra_headers=call.headers
                )
                return response.http_response.text
        except Exception as error:
            return self._failure(error, call)

    async def read(self, call: HTTPCall) -> AsyncGenerator[Piece | Reply | ModelError]:
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
                            raise ValueError("a part of it is not a JSON object")
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
            why = "the stream ended before the reply was complete (it has no finish_reason)"
            yield ModelUnavailable(f"model {self.name!r}: {why}")

    async def _chunks(self, response: Response, assembly: Assembly) -> AsyncGenerator[object]:
        """The chunks of a stream, up to its end or the word that says so."""
        from orchestrator.models.http_client import Counted, exhausted

        events, done, counted = EventDecoder(), False, Counted(self.name, self.limit)
        received = response.aiter_bytes()
        deadline = anyio.current_time() + self.timeout
        try:
            while True:
                with anyio.fail_after(max(0.0, deadline - anyio.current_time())):
                    data = await anext(received, None)
                counted.add(data or b"")
                for text in () if done else events.rest() if data is None else events.feed(data):
                    ended = assembly.finish is not None
                    done = text.startswith("[DONE]")
                    if done:
                        break
                    yield parsed(text)
                    # Comments keep nobody waiting for ever, and neither does what follows the end of a reply.
                    if assembly.finish is None:
                        deadline = anyio.current_time() + self.timeout
                    elif not ended:
                        deadline = anyio.current_time() + min(self.timeout, _LAST_WORDS)
                if done:
                    deadline = min(deadline, anyio.current_time() + _DRAIN)
                if data is None:
                    return
        finally:
            await exhausted(received, response)

    @asynccontextmanager
    async def _opened(self, call: HTTPCall) -> AsyncGenerator[Response]:
        """The answer, its body not read yet."""
        opening = self._client().chat.completions.with_streaming_response.create(
            model=self.name, messages=_BELOW, extra_body=call.body, extra_headers=call.headers
        )
        await pass_fence()
        with anyio.fail_after(self.timeout):
            response = (await opening.__aenter__()).http_response
        try:
            yield response
        finally:
            with anyio.move_on_after(1, shield=True):  # also when cancelled: the server is to stop writing
                await opening.__aexit__(None, None, None)

    def _failure(self, error: Exception, call: HTTPCall) -> ModelError:
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
                if isinstance(cause, ModelError):  # of our own client
                    return cause
                if isinstance(cause, httpx2.UnsupportedProtocol):
                    return ModelMisconfigured(f"{this}: {cause}; write base_url as http://host:port/v1")
                if isinstance(cause, httpx2.LocalProtocolError):  # its words hold what is wrong, such as a header
                    return ModelMisconfigured(f"{this}: a header cannot be sent: check it for invalid characters")
                if isinstance(cause, httpx2.DecodingError):
                    return ModelUnavailable(f"{this}: the server's answer cannot be decompressed")
                words = call.clean(str(cause or error) or type(cause).__name__)
                return ModelUnavailable(f"{this}: the server cannot be reached ({words}); is it running?")
            case httpx2.DecodingError():
                return ModelUnavailable(f"{this}: the server's answer cannot be decompressed")
            case httpx2.TransportError():  # in the middle of a stream
                return ModelUnavailable(f"{this}: the connection was lost ({call.clean(str(error))})")
            case httpx2.InvalidURL():
                return ModelMisconfigured(f"{this}: {call.clean(str(error))}; write base_url as http://host:port/v1")
            case openai.OpenAIError() | httpx2.HTTPError():
                return ModelError(f"{this}: {call.clean(str(error))}")
            case UnicodeEncodeError():  # a key or a header
                return ModelError(f"{this}: {call.clean(str(error))}")
            case ValueError() | RecursionError():
                why = call.clean(str(error))
                return ModelUnavailable(f"{this}: the server's stream cannot be read ({why})")
        raise error

    def _client(self) -> AsyncOpenAI:
        """The client of the running event loop: connections cannot be shared between loops."""
        from httpx2 import InvalidURL
        from openai import AsyncOpenAI

        from orchestrator.models.http_client import BoundedClient

        loop = anyio.lowlevel.current_token().native_token
        known = self._clients.get(loop)
        if known is not None:
            return known
        # An HTTP client of our own: the default one, when collected late, starts tasks in whatever loop runs then.
        client = AsyncOpenAI(
            api_key="unused",  # each request brings its own: a key may change while others are on their way
            base_url=self.base_url,
            max_retries=0,
            default_query=self.query,
            # A key must not follow a redirect to another server.
            http_client=BoundedClient(
                self.name, self.limit, timeout=self.timeout, verify=_trusted(), follow_redirects=False
            ),
        )
        port = client.base_url.port
        if port is not None and not 0 < port < 1 << 16:  # nobody below looks: asyncio fails with an error of its own
            raise InvalidURL(f"base_url has port {port}, which is not between 1 and 65535")
        self._clients[loop] = client
        return client
