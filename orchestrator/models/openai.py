"""Models behind an OpenAI-compatible server: OpenAI, Azure, vLLM, Ollama, llama.cpp, LiteLLM and others.

`OpenAIModel` writes requests and completes replies; `ModelConnection` transfers them within the time limits.
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlsplit
from weakref import WeakKeyDictionary

import anyio
import anyio.lowlevel
from pydantic import SecretStr

from orchestrator.errors import ModelError, ModelMisconfigured, ModelUnavailable, ReplyIncomplete
from orchestrator.graph.limits import Retry
from orchestrator.models.base import ModelEvent, ModelRequest, RequestModel, calling_key
from orchestrator.models.chat import (
    Assembly,
    EventDecoder,
    Piece,
    body_of,
    broken_off,
    chunk_of,
    counts,
    error_in,
    is_end,
    reply_from,
    reply_to,
    understood,
    unfinished,
)
from orchestrator.models.http_errors import is_loading, refusal, words_of
from orchestrator.models.known import known
from orchestrator.models.messages import Reply
from orchestrator.models.prices import Price, approximated, least_tokens, price_in
from orchestrator.models.profile import Profile, profile_of, weaker
from orchestrator.models.reading import ThoughtScreen
from orchestrator.redaction import ENV, know, looked_up, without
from orchestrator.user_code import pass_fence

if TYPE_CHECKING:
    from ssl import SSLContext

    from httpx2 import Response
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletionMessageParam


log = logging.getLogger("orchestrator")
T = TypeVar("T")
Key: TypeAlias = "str | SecretStr | Callable[[], str | Awaitable[str]]"
"""A key; `env:NAME`, read from the environment at each request; or a function, sync or async, that returns it."""


class OpenAIModel(RequestModel):
    """A model behind an OpenAI-compatible server, by chat completions.

    The first request loads the `openai` package and looks up the key. The model itself never retries: the executor
    does, according to `retry`, and journals each attempt.

    Connections are reused by further requests in the same event loop; `aclose`, or `async with model:`, closes them.
    """

    def __init__(
        self,
        name: str,
        base_url: str | None = None,
        api_key: Key | None = None,
        *,
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
            options: parameters of every request, such as `temperature`; those of a call take precedence.
        """
        self.name = name
        self.base_url = base_url
        self.timeout = timeout
        self.options = options
        self.retry = retry
        self._price = price_in(price, name)
        self.streams = streams
        self._profile = profile
        self._found: Profile | None = None
        """The profile found by refusals, in place of the given one."""
        self._reported = False
        self._tools_seen = False
        self._key = SecretStr(api_key) if isinstance(api_key, str) else api_key
        self._headers = dict(headers or {})
        self._extra_body = dict(extra_body or {})
        self._connection = ModelConnection(name, base_url, timeout, query or {}, max_reply_bytes)

    def __repr__(self) -> str:
        return f"OpenAIModel({self.name!r})"

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be pickled or copied, as it may hold a key: make a new one where it is needed"
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def profile(self) -> Profile:
        """Return the features of the model and its server."""
        return self._profile or profile_of(self.name, self._address)

    @profile.setter
    def profile(self, profile: Profile) -> None:
        self._profile, self._found, self._reported = profile, None, False

    @property
    def window(self) -> int | None:
        """Return the tokens of the context window: those of the profile, else of the model's name; None if unknown.

        Names are known with the extra `prices`, for the servers of known providers.
        """
        return self.profile.window or known(self.name, self._address).window

    @property
    def price(self) -> Price | None:
        """Return the model's price: the given one, else that of the model's name, as for `window`; None if unknown."""
        return self._price or known(self.name, self._address).price

    @price.setter
    def price(self, price: Price | None) -> None:
        self._price = price

    @property
    def _address(self) -> str | None:
        return self.base_url or os.environ.get("OPENAI_BASE_URL")

    async def aclose(self) -> None:
        """Close the connections of the running event loop; a later request opens new ones."""
        await self._connection.aclose()

    # -- asking --------------------------------------------------------------------------------------------------

    async def respond(self, request: ModelRequest) -> Reply:
        """See `RequestModel.respond`. Asks the server."""
        while True:
            profile = self._found or self.profile
            call = await self._call(request, profile)
            found = await self._connection.post(call)
            # Raised outside the handler, so that no error has the client's own as context: those contain the key.
            if isinstance(found, str):
                return self._told(reply_to(found, self.name, clean=call.clean), request)
            if not self._goes_on(found, request, profile):
                raise found

    async def _stream_request(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the pieces of the reply; one piece if the server does not stream."""
        reply: Reply | None = None
        screen = ThoughtScreen()
        async with aclosing(self._read(request)) as found:
            async for one in found:
                if isinstance(one, Reply):
                    reply = one
                else:
                    text, thought = screen.feed(one.text)
                    if text or thought or one.reasoning:
                        yield ModelEvent(text=text, reasoning=one.reasoning + thought)
        assert reply is not None  # `_read` ends with a reply unless it yields an error
        text, thought = screen.rest()
        if text or thought:
            yield ModelEvent(text=text, reasoning=thought)
        yield ModelEvent(reply=request.parse(self._told(reply, request)))

    async def _read(self, request: ModelRequest) -> AsyncGenerator[Piece | Reply]:
        """Yield the pieces of the server's answer, and finally the reply."""
        while True:
            profile = self._found or self.profile
            async with aclosing(self._connection.read(await self._call(request, profile))) as found:
                async for one in found:
                    if not isinstance(one, ModelError):
                        yield one
                    elif self._goes_on(one, request, profile):
                        break
                    else:
                        raise one
                else:
                    return

    def _goes_on(self, error: ModelError, request: ModelRequest, profile: Profile) -> bool:
        """Return True if the request is to be made again, because the server refused the way in which it asks for an
        answer in a schema, and there is another way. It is used from now on."""
        found = None if request.output is None else weaker(profile, error.flag, self.profile.model_fields_set)
        if found is None:
            return False
        if profile == (self._found or self.profile):  # otherwise another request has found one meanwhile
            self._found = found
        return True

    def _report(self, found: Profile) -> None:
        """Warn once that the server refused a schema, and how structured output is now requested."""
        self._reported, before = True, self.profile
        changes = [
            f"{flag}={getattr(found, flag)!r}"
            for flag in ("output", "strict_output")
            if getattr(found, flag) != getattr(before, flag)
        ]
        log.warning(
            "model %r: the server refused a schema; answers are now asked for as with Profile(%s): set it, "
            "which saves the refused requests",
            self.name,
            ", ".join(changes),
        )

    async def list_models(self) -> object:
        """Return the server's list of models as it answers it; None if it gives none."""
        call = await self._call(ModelRequest(()), self.profile)
        found = await self._connection.get("/models", call)
        return found if isinstance(found, dict) else None

    async def _call(self, request: ModelRequest, profile: Profile) -> HTTPCall:
        body = body_of(request, self.name, {**self._extra_body, **self.options}, profile)
        if request.pieces:
            body["stream"] = True
            if profile.stream_usage:
                body.setdefault("stream_options", {"include_usage": True})
        own = {name: self._header(name, value) for name, value in self._headers.items()}
        sent = {"Authorization": f"Bearer {await self._api_key()}", **self._idempotency(profile), **own}
        key = sent["Authorization"].removeprefix("Bearer ").strip()
        for secret in (key, *_user_info(self.base_url)[:1]):
            know(secret)  # so that it is redacted in the journal if a model repeats it
        told = (sent["Authorization"].removeprefix("Bearer "), *own.values(), *_user_info(self.base_url))
        return HTTPCall(body, sent, (*told, *self._connection.query.values()))

    def _told(self, reply: Reply, request: ModelRequest) -> Reply:
        """Return the reply with missing usage and cost filled in.

        Raises:
            ReplyIncomplete: it cannot be taken as complete.
        """
        reply = understood(reply, request, self.profile)
        if self._found is not None and not self._reported:
            self._report(self._found)
        if request.tools and not self._tools_seen:
            self._check_tools(request, reply)
        usage = reply.usage or approximated(request, reply, *counts(reply.details.get("usage")))
        price = self.price
        if price is not None:
            usage = usage.model_copy(update={"cost": price.of(usage), "cache_savings": price.saved(usage)})
        why = unfinished(reply, request, self.profile)
        if why is not None:
            raise ReplyIncomplete(f"model {self.name!r}: {why}", usage=usage)
        return reply.model_copy(update={"usage": usage})

    def _check_tools(self, request: ModelRequest, reply: Reply) -> None:
        """Warn once if the server reports fewer input tokens than a request with these tools can have."""
        self._tools_seen = bool(reply.tool_calls)
        if self._tools_seen or reply.usage is None or not reply.usage.input_tokens:
            return
        given, cached, least = reply.usage.input_tokens, reply.usage.cached_tokens, least_tokens(request)
        if given + (cached if cached > given else 0) >= least:  # some gateways do not count what is cached
            return
        self._tools_seen = True
        log.warning(
            "model %r: tools do not seem to reach the model (the server counts %d input tokens, and the request has at "
            "least %d): use TextProtocol, on the command line --model 'openai:%s?protocol=json', or a server and model "
            "that support tools; `orchestrator model try` finds out",
            self.name,
            given,
            least,
            self.name,
        )

    def _idempotency(self, profile: Profile) -> dict[str, str]:
        """Return the header by which a server recognises a repeated call, so that it is charged once."""
        key = calling_key.get()
        if key is not None and profile is self._found:  # another body than the one that was refused under this key
            key += f"-{profile.output}{'-strict' * profile.strict_output}"
        return {} if key is None else {"Idempotency-Key": key}

    # -- secrets -------------------------------------------------------------------------------------------------

    async def _api_key(self) -> str:
        if self._key is not None and not isinstance(self._key, SecretStr):
            made = self._key()
            return self._fit("the key", await made if inspect.isawaitable(made) else made)
        given = ENV + "OPENAI_API_KEY" if self._key is None else self._key.get_secret_value()
        found = looked_up(given)
        if found is not None and found.strip():
            return self._fit("the key", found)
        if self._key is None and (self.base_url or os.environ.get("OPENAI_BASE_URL")):
            return "none"  # local servers need no key, but the client requires one
        variable = given.removeprefix(ENV) if given.startswith(ENV) else "OPENAI_API_KEY"
        raise ModelMisconfigured(
            f"model {self.name!r} has no key: set the environment variable {variable}, or pass api_key='env:NAME'"
        )

    def _header(self, name: str, given: str) -> str:
        found = looked_up(given)
        if found is None:
            raise ModelMisconfigured(
                f"model {self.name!r}: header {name!r} is {given}, and the environment has no such variable: set it"
            )
        return self._fit(f"header {name!r}", found)

    def _fit(self, what: str, value: str) -> str:
        """Return a value for a header, without surrounding white space such as the end of a file's line."""
        bare = value.strip()
        if not bare.isascii() or not bare.isprintable():
            raise ModelMisconfigured(f"model {self.name!r}: {what} has characters that no header can have")
        return bare


def _user_info(base_url: str | None) -> list[str]:
    """Return the user name and password in an address."""
    try:
        parts = urlsplit(base_url or "")
        return [part for part in (parts.password, parts.username) if part]
    except ValueError:
        return []


def _parted(base_url: str | None) -> tuple[str | None, dict[str, str]]:
    """Return an address without its query, and the query. None: the address in the environment, if there is one."""
    address = base_url or os.environ.get("OPENAI_BASE_URL") or None
    if address is None or "?" not in address:
        return address, {}
    address, _, query = address.partition("?")
    return address, dict(parse_qsl(query.partition("#")[0], keep_blank_values=True))


# -- the connection to the server --------------------------------------------------------------------------------------


_BELOW: tuple[ChatCompletionMessageParam, ...] = ()
"""For the client's `messages`, which the body replaces. The client inspects every part of its arguments, which takes
most of the time of a call for a long conversation."""
_CONNECT = 10.0
"""Seconds to wait for a connection."""
_POLL = 1.0
"""Seconds between two requests to a server that still loads the model."""
_LAST_WORDS = 2.0
"""Seconds that a server has, after the end of its reply, to send the usage."""
_DRAIN = 0.2
"""Seconds that it has, after its last event, to end the answer, so that its connection can be reused."""


@cache
def _trusted() -> SSLContext:
    """Return the TLS settings. They are cached, because reading the certificates takes as long as a short request."""
    from httpx2 import create_ssl_context

    return create_ssl_context()


@dataclass(frozen=True)
class HTTPCall:
    """The content of one request, and the secrets that must not appear in messages."""

    body: dict[str, Any] = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    def clean(self, words: str) -> str:
        """Return a message of a server or client for an error message: without keys and other values of headers."""
        return without(words, self.secrets)


class _Patience:
    """The seconds that are left to wait for a reply. The time in which a stream's reader is busy does not count."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds

    def at_most(self, seconds: float) -> None:
        self._left = min(self._left, seconds)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """
        Raises:
            TimeoutError: no time is left.
        """
        began = anyio.current_time()
        with anyio.fail_after(max(0.0, self._left)):
            yield
        self._left -= anyio.current_time() - began


class ModelConnection:
    """The connection of one model to its server. Clients are made on demand, one for each event loop."""

    def __init__(self, name: str, base_url: str | None, timeout: float, query: Mapping[str, str], limit: int) -> None:
        self.name, self.base_url, self.timeout, self.limit = name, base_url, timeout, limit
        self._query = dict(query)
        self._clients: WeakKeyDictionary[object, AsyncOpenAI] = WeakKeyDictionary()

    @property
    def query(self) -> dict[str, str]:
        """Return the query of every request: that of the address, and the given one."""
        return {**_parted(self.base_url)[1], **self._query}

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        found = self._clients.pop(anyio.lowlevel.current_token().native_token, None)
        if found is not None:
            await found.close()

    async def post(self, call: HTTPCall) -> str | ModelError:
        """Return the server's answer as text, or the error."""
        try:
            create = self._client().chat.completions.with_raw_response.create
            await pass_fence()
            with anyio.fail_after(self.timeout):
                response = await self._when_loaded(
                    lambda: create(model=self.name, messages=_BELOW, extra_body=call.body, extra_headers=call.headers)
                )
                return response.http_response.text
        except Exception as error:
            return self._failure(error, call)

    async def get(self, path: str, call: HTTPCall) -> object:
        """Return the server's answer to a GET, as plain JSON; None if it gives none."""
        import httpx2
        import openai

        try:
            options: Any = {"headers": call.headers}
            with anyio.fail_after(min(self.timeout, _CONNECT)):
                return await self._client().get(path, cast_to=object, options=options)
        except (openai.OpenAIError, httpx2.HTTPError, TimeoutError, ValueError):
            return None

    async def read(self, call: HTTPCall) -> AsyncGenerator[Piece | Reply | ModelError]:
        """Yield the pieces of the server's answer, and finally the reply or the error."""
        assembly, events = Assembly(), EventDecoder()
        patience = _Patience(self.timeout)
        failure: ModelError | None = None
        try:
            async with self._opened(call, patience) as response:
                if "event-stream" not in response.headers.get("content-type", ""):
                    with patience.waiting():
                        await response.aread()
                    reply = reply_to(response.text, self.name, clean=call.clean)
                    yield Piece(reply.text)
                    yield reply
                    return
                async with aclosing(self._events(response, assembly, events, patience)) as found:
                    async for data in found:
                        piece = assembly.add(chunk_of(data, self.name, call.clean))
                        if assembly.error is not None:
                            raise error_in(assembly.error, self.name, call.clean)
                        if piece.text or piece.reasoning:
                            yield piece
        except Exception as error:
            failure = self._failure(error, call)
        if assembly.whole:
            yield reply_from(assembly.answer(), self.name, clean=call.clean)  # complete, even if an error followed
        else:
            yield failure or broken_off(assembly, events, self.name, call.clean)

    async def _events(
        self, response: Response, assembly: Assembly, events: EventDecoder, patience: _Patience
    ) -> AsyncGenerator[str]:
        """Yield the data of the events of a stream, up to its end or its end marker."""
        from orchestrator.models.http_client import Counted, exhausted

        done, counted = False, Counted(self.name, self.limit)
        received = response.aiter_bytes()
        try:
            while True:
                with patience.waiting():
                    data = await anext(received, None)
                counted.add(data or b"")
                for text in () if done else events.rest() if data is None else events.feed(data):
                    ended = assembly.finish is not None
                    done = assembly.done = is_end(text)
                    if done:
                        break
                    yield text
                    if assembly.finish is not None and not ended:
                        patience.at_most(_LAST_WORDS)
                if done:
                    patience.at_most(_DRAIN)
                if data is None:
                    return
        finally:
            await exhausted(received, response)

    @asynccontextmanager
    async def _opened(self, call: HTTPCall, patience: _Patience) -> AsyncGenerator[Response]:
        """Return the answer with its body not yet read."""
        create = self._client().chat.completions.with_streaming_response.create

        async def opened() -> tuple[Any, Response]:
            opening = create(model=self.name, messages=_BELOW, extra_body=call.body, extra_headers=call.headers)
            return opening, (await opening.__aenter__()).http_response

        await pass_fence()
        with patience.waiting():
            opening, response = await self._when_loaded(opened)
        try:
            yield response
        finally:
            with anyio.move_on_after(1, shield=True):  # also when cancelled, so that the server stops generating
                await opening.__aexit__(None, None, None)

    async def _when_loaded(self, request: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a request, which is repeated while the server says that it still loads the model."""
        import openai  # imported late: it takes long to load

        end, warned = anyio.current_time() + self.timeout, False
        while True:
            try:
                return await request()
            except openai.APIStatusError as error:
                if not is_loading(error.status_code, error.response.text) or anyio.current_time() + _POLL >= end:
                    raise
            if not warned:
                log.warning("model %r: the server is loading the model; waiting up to %g s", self.name, self.timeout)
                warned = True
            await anyio.sleep(_POLL)
            await pass_fence()

    def _failure(self, error: Exception, call: HTTPCall) -> ModelError:
        """Return the `ModelError` for an error of the client.

        Raises:
            Exception: the error, if it is not one of the known errors of a request.
        """
        import httpx2  # imported late: both take long to load
        import openai

        this = f"model {self.name!r}"
        match error:
            case ModelError():
                return error
            case openai.APITimeoutError() if isinstance(error.__cause__, httpx2.ConnectTimeout):
                return ModelUnavailable(f"{this}: the server cannot be reached (no connection within {_CONNECT:g} s)")
            case TimeoutError() | openai.APITimeoutError() | httpx2.TimeoutException():
                why = f"no answer within {self.timeout:g} s; give it more time with timeout="
                return ModelUnavailable(f"{this}: {why}")
            case openai.APIStatusError():
                words, names = words_of(error.response.text, error.status_code)
                return refusal(self.name, error.status_code, call.clean(words), names, error.response.headers)
            case openai.APIConnectionError():
                cause = error.__cause__
                if isinstance(cause, ModelError):  # raised by our own client
                    return cause
                if isinstance(cause, httpx2.UnsupportedProtocol):
                    return ModelMisconfigured(f"{this}: {cause}; write base_url as http://host:port/v1")
                if isinstance(cause, httpx2.LocalProtocolError):  # its message names the fault, such as a header
                    return ModelMisconfigured(f"{this}: a header cannot be sent: check it for invalid characters")
                if isinstance(cause, httpx2.DecodingError):
                    return ModelUnavailable(f"{this}: the server's answer cannot be decompressed")
                words = call.clean(str(cause or error) or type(cause).__name__)
                return ModelUnavailable(f"{this}: the server cannot be reached ({words}); is it running?")
            case httpx2.DecodingError():
                return ModelUnavailable(f"{this}: the server's answer cannot be decompressed")
            case httpx2.TransportError():  # during a stream
                return ModelUnavailable(f"{this}: the connection was lost ({call.clean(str(error))})")
            case httpx2.InvalidURL():
                return ModelMisconfigured(f"{this}: {call.clean(str(error))}; write base_url as http://host:port/v1")
            case openai.OpenAIError() | httpx2.HTTPError():
                return ModelError(f"{this}: {call.clean(str(error))}")
            case UnicodeEncodeError():  # in a key or a header
                return ModelError(f"{this}: {call.clean(str(error))}")
            case ValueError() | RecursionError():
                why = call.clean(str(error))
                return ModelUnavailable(f"{this}: the server's stream cannot be read ({why})")
        raise error

    def _client(self) -> AsyncOpenAI:
        """Return the client of the running event loop, as connections cannot be shared between loops."""
        from httpx2 import InvalidURL, Timeout
        from openai import AsyncOpenAI

        from orchestrator.models.http_client import BoundedClient

        loop = anyio.lowlevel.current_token().native_token
        known = self._clients.get(loop)
        if known is not None:
            return known
        # A separate HTTP client: the default one, when it is collected late, starts tasks in whatever loop runs then.
        client = AsyncOpenAI(
            api_key="unused",  # each request has its own: a key may change while other requests are in progress
            base_url=_parted(self.base_url)[0],
            max_retries=0,
            default_query=self.query,
            # A key must not be sent to another server by a redirect.
            http_client=BoundedClient(
                self.name,
                self.limit,
                timeout=Timeout(self.timeout, connect=min(self.timeout, _CONNECT)),
                verify=_trusted(),
                follow_redirects=False,
            ),
        )
        port = client.base_url.port
        if port is not None and not 0 < port < 1 << 16:  # not checked elsewhere: asyncio fails with an error of its own
            raise InvalidURL(f"base_url has port {port}, which is not between 1 and 65535")
        self._clients[loop] = client
        return client
