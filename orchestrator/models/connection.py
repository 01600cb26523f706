"""The connection of a model to its server: clients, time limits, and errors in the server's words.

The clients of all vendors send through `BoundedClient`, which raises what goes wrong. So errors are read in one place,
whatever a vendor's package makes of them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl
from weakref import WeakKeyDictionary

import anyio
import anyio.lowlevel

from orchestrator.errors import ModelError, ModelMisconfigured, ModelUnavailable, install_command
from orchestrator.models.chat import (
    EventDecoder,
    Piece,
    StreamAssembly,
    broken_off,
    chunk_of,
    error_in,
    is_end,
    reply_to,
)
from orchestrator.models.http_errors import delay_in, is_loading, refusal, words_of
from orchestrator.models.messages import Reply
from orchestrator.models.wire import HTTPCall, Wire
from orchestrator.user_code import pass_fence

if TYPE_CHECKING:
    from ssl import SSLContext

    from httpx2 import AsyncClient, Response

log = logging.getLogger("orchestrator")
T = TypeVar("T")


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


def divided(base_url: str | None) -> tuple[str | None, dict[str, str]]:
    """Return an address without its query, and the query."""
    if base_url is None or "?" not in base_url:
        return base_url, {}
    base_url, _, query = base_url.partition("?")
    return base_url, dict(parse_qsl(query.partition("#")[0], keep_blank_values=True))


class ModelConnection:
    """The connection of one model to its server. Clients are made on demand, one for each event loop."""

    def __init__(
        self, wire: Wire, name: str, base_url: str | None, timeout: float, query: Mapping[str, str], limit: int
    ) -> None:
        self.wire, self.name, self.timeout, self.limit = wire, name, timeout, limit
        self._base_url = base_url
        self._query = dict(query)
        self._clients: WeakKeyDictionary[object, tuple[Any, AsyncClient]] = WeakKeyDictionary()

    @property
    def address(self) -> str | None:
        """Return the address of the server: the given one, else that in the environment; None: the vendor's own."""
        return self._base_url or os.environ.get(self.wire.address) or None

    @property
    def query(self) -> dict[str, str]:
        """Return the query of every request: that of the address, and the given one."""
        return {**divided(self.address)[1], **self._query}

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        found = self._clients.pop(anyio.lowlevel.current_token().native_token, None)
        if found is not None:
            await found[1].aclose()

    async def post(self, call: HTTPCall) -> Reply | ModelError:
        """Return the server's reply, or the error."""
        try:
            client = self._client()
            await pass_fence()
            with anyio.fail_after(self.timeout):
                response = await self._when_loaded(lambda: self.wire.send(client, self.name, call, pieces=False))
            text = response.text
        except Exception as error:
            return self._failure(error, call)
        return self._reply(text, call)

    async def get(self, call: HTTPCall) -> object:
        """Return what the server says about its models, as plain JSON; None if it says nothing."""
        try:
            with anyio.fail_after(min(self.timeout, _CONNECT)):
                return await self.wire.listed(self._client(), self.name, call)
        except Exception as error:
            self._failure(error, call)
            return None

    async def read(self, call: HTTPCall) -> AsyncGenerator[Piece | Reply | ModelError]:
        """Yield the pieces of the server's answer, and finally the reply or the error."""
        assembly, events, key = self.wire.assembly(), EventDecoder(), self.wire.keys[0]
        patience = _Patience(self.timeout)
        failure: ModelError | None = None
        began = False
        try:
            async with self._opened(call, patience) as response:
                began = True
                if "event-stream" not in response.headers.get("content-type", ""):
                    with patience.waiting():
                        await response.aread()
                    reply = self._reply(response.text, call)
                    if isinstance(reply, Reply):
                        yield Piece(reply.text)
                    yield reply
                    return
                async with aclosing(self._events(response, assembly, events, patience)) as found:
                    async for data in found:
                        piece = assembly.add(chunk_of(data, self.name, call.clean, key=key))
                        if assembly.error is not None:
                            raise error_in(assembly.error, self.name, call.clean, key=key)
                        if piece.text or piece.reasoning:
                            yield piece
        except Exception as error:
            failure = self._failure(error, call, began=began)
        if assembly.whole:
            yield self.wire.reply(assembly.answer(), self.name, call.clean)  # complete, even if an error followed
        else:
            yield failure or broken_off(assembly, events, self.name, call.clean)

    def _reply(self, text: str, call: HTTPCall) -> Reply | ModelError:
        """Return the reply in an answer, or the error."""
        try:
            wire = self.wire
            return reply_to(
                text, self.name, clean=call.clean, assembly=wire.assembly, read=wire.reply, key=wire.keys[0]
            )
        except ModelError as error:
            return error

    async def _events(
        self, response: Response, assembly: StreamAssembly, events: EventDecoder, patience: _Patience
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
        client = self._client()
        await pass_fence()
        with patience.waiting():
            response = await self._when_loaded(lambda: self.wire.send(client, self.name, call, pieces=True))
        try:
            yield response
        finally:
            with anyio.move_on_after(1, shield=True):  # also when cancelled, so that the server stops generating
                await response.aclose()

    async def _when_loaded(self, request: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a request, which is repeated while the server says that it still loads the model."""
        end, warned = anyio.current_time() + self.timeout, False
        while True:
            try:
                return await request()
            except Exception as error:
                refused = _refused(error)
                loading = refused is not None and is_loading(refused.status_code, refused.text)
                if not loading or anyio.current_time() + _POLL >= end:
                    raise
            if not warned:
                log.warning("model %r: the server is loading the model; waiting up to %g s", self.name, self.timeout)
                warned = True
            await anyio.sleep(_POLL)
            await pass_fence()

    def _failure(self, error: Exception, call: HTTPCall, *, began: bool = False) -> ModelError:
        """Return the `ModelError` for an error of the client.

        Args:
            began: whether the answer has begun.

        Raises:
            Exception: the error, if it is not one of the known errors of a request.
        """
        import httpx2  # imported late: it takes long to load

        this = f"model {self.name!r}"
        refused = _refused(error)
        if refused is not None:
            words, names = words_of(refused.text, refused.status_code)
            headers = {**delay_in(refused.text), **refused.headers}
            key = self.wire.keys[0]
            return refusal(self.name, refused.status_code, call.clean(words), names, headers, key=key)
        match cause := _cause(error):
            case ModelError():
                return cause
            case httpx2.ConnectTimeout():
                return ModelUnavailable(f"{this}: the server cannot be reached (no connection within {_CONNECT:g} s)")
            case TimeoutError() | httpx2.TimeoutException():
                why = f"no answer within {self.timeout:g} s; give it more time with timeout="
                return ModelUnavailable(f"{this}: {why}")
            case httpx2.UnsupportedProtocol() | httpx2.InvalidURL():
                return ModelMisconfigured(f"{this}: {call.clean(str(cause))}; write base_url as http://host:port/v1")
            case httpx2.LocalProtocolError() if not began:  # its message names the fault, such as a header
                return ModelMisconfigured(f"{this}: a header cannot be sent: check it for invalid characters")
            case httpx2.DecodingError():
                return ModelUnavailable(f"{this}: the server's answer cannot be decompressed")
            case httpx2.TransportError() if began:
                return ModelUnavailable(f"{this}: the connection was lost ({call.clean(str(cause))})")
            case httpx2.TransportError():
                words = call.clean(str(cause) or type(cause).__name__)
                return ModelUnavailable(f"{this}: the server cannot be reached ({words}); is it running?")
            case UnicodeEncodeError() | httpx2.HTTPError():  # in a key or a header
                return ModelError(f"{this}: {call.clean(str(cause))}")
            case ValueError() | RecursionError():
                why = call.clean(str(cause))
                return ModelUnavailable(f"{this}: the server's stream cannot be read ({why})")
        if type(cause).__module__.partition(".")[0] == self.wire.package.partition(".")[0]:
            return ModelError(f"{this}: {call.clean(str(cause))}")
        raise error

    def _client(self) -> Any:
        """Return the client of the running event loop, as connections cannot be shared between loops."""
        from httpx2 import URL, InvalidURL, Timeout

        from orchestrator.models.http_client import BoundedClient

        loop = anyio.lowlevel.current_token().native_token
        known = self._clients.get(loop)
        if known is not None:
            return known[0]
        # A separate HTTP client: the default one, when it is collected late, starts tasks in whatever loop runs then.
        http = BoundedClient(
            self.name,
            self.limit,
            timeout=Timeout(self.timeout, connect=min(self.timeout, _CONNECT)),
            verify=_trusted(),
            follow_redirects=False,  # a key must not be sent to another server by a redirect
        )
        try:
            client = self.wire.client(divided(self.address)[0], self.query, http)
        except ImportError as error:
            if self.wire.extra is None:
                raise
            raise ModelMisconfigured(
                f"model {self.name!r} needs the package {self.wire.package!r}, which cannot be imported ({error}): "
                f"{install_command(self.wire.extra)}"
            ) from None
        port = URL(divided(self.address)[0] or "").port
        if port is not None and not 0 < port < 1 << 16:  # not checked elsewhere: asyncio fails with an error of its own
            raise InvalidURL(f"base_url has port {port}, which is not between 1 and 65535")
        self._clients[loop] = client, http
        return client


def _cause(error: BaseException) -> BaseException:
    """Return the error of the HTTP client in an error of a vendor's client."""
    import httpx2

    from orchestrator.models.http_client import Refused

    while not isinstance(error, ModelError | Refused | httpx2.HTTPError | httpx2.InvalidURL | TimeoutError):
        if error.__cause__ is None:
            break
        error = error.__cause__
    return error


def _refused(error: BaseException) -> Response | None:
    """Return the answer with which the server refused a request; None for other errors."""
    from orchestrator.models.http_client import Refused

    cause = _cause(error)
    return cause.response if isinstance(cause, Refused) else None
