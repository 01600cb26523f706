"""Models behind servers: requests are written, replies completed, what a server refuses is asked for in another way.

`ServerModel` has what all of them do; the `Wire` of a vendor has what differs. `ModelConnection` transfers requests and
answers within the time limits.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, NoReturn, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import SecretStr

from orchestrator.errors import ModelError, ModelMisconfigured, ReplyIncomplete
from orchestrator.graph.limits import Retry
from orchestrator.models.base import ModelEvent, ModelRequest, RequestModel, calling_key
from orchestrator.models.chat import Piece, counts, understood, unfinished
from orchestrator.models.connection import ModelConnection
from orchestrator.models.known import Known, known
from orchestrator.models.messages import Reply
from orchestrator.models.prices import Price, approximated, least_tokens, price_in
from orchestrator.models.profile import Profile, weaker
from orchestrator.models.reading import ThoughtScreen
from orchestrator.models.wire import HTTPCall, Wire
from orchestrator.redaction import ENV, know, looked_up

log = logging.getLogger("orchestrator")
Key: TypeAlias = "str | SecretStr | Callable[[], str | Awaitable[str]]"
"""A key; `env:NAME`, read from the environment at each request; or a function, sync or async, that returns it."""


class ServerModel(RequestModel):
    """Base class of the models behind servers. The class of a vendor sets `wire`.

    The first request loads the vendor's package and looks up the key. The model itself never retries: the executor
    does, according to `retry`, and journals each attempt.

    Connections are reused by further requests in the same event loop; `aclose`, or `async with model:`, closes them.
    """

    wire: Wire
    """The interface of the server."""

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
            base_url: the server, such as `http://127.0.0.1:11434/v1`. Default: the address in the vendor's environment
                variable, else the vendor's own server. A query in it is sent with every request, like `query`.
            api_key: see `Key`. Default: that in the vendor's environment variable. A server named by `base_url` may
                need none.
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
            ValueError: an option would replace what the run sends, such as its messages.
        """
        refused = self.wire.refused({**(extra_body or {}), **options})
        if refused is not None:
            raise ValueError(f"model {name!r}: {refused}")
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
        self._connection = ModelConnection(self.wire, name, base_url, timeout, query or {}, max_reply_bytes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

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
        return self._profile or self.default_profile

    @profile.setter
    def profile(self, profile: Profile) -> None:
        self._profile, self._found, self._reported = profile, None, False

    @property
    def default_profile(self) -> Profile:
        """Return the profile that follows from the names of the model and its server."""
        return self.wire.profile(self.name, self._connection.address)

    @property
    def window(self) -> int | None:
        """Return the tokens of the context window: those of the profile, else of the model's name; None if unknown.

        Names are known with the extra `prices`, for the servers of known providers.
        """
        return self.profile.window or self._known.window

    @property
    def takes_seed(self) -> bool:
        """Return True if a request may have the option `seed`."""
        return self.wire.takes_seed

    @property
    def price(self) -> Price | None:
        """Return the model's price: the given one, else that of the model's name, as for `window`; None if unknown."""
        return self._price or self._known.price

    @price.setter
    def price(self, price: Price | None) -> None:
        self._price = price

    @property
    def _known(self) -> Known:
        return known(self.name, self._connection.address or self.wire.url)

    def reply_limit(self, options: Mapping[str, object]) -> int | None:
        """Return the most tokens of the reply to a request with these options; None if nothing sets a limit.

        The server keeps so many tokens of the context window free.
        """
        body = self.wire.body(ModelRequest((), options=dict(options)), self.name, self._defaults, self.profile)
        return self.wire.reply_limit(body)

    @property
    def _defaults(self) -> dict[str, Any]:
        return {**self._extra_body, **self.options}

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
            if isinstance(found, Reply):
                return self._told(found, request)
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
        found = await self._connection.get(call)
        return found if isinstance(found, dict) else None

    async def _call(self, request: ModelRequest, profile: Profile) -> HTTPCall:
        refused = self.wire.refused(request.options)
        if refused is not None:
            raise ModelError(f"model {self.name!r}: {refused}")
        body = self.wire.body(request, self.name, self._defaults, profile)
        own = {name: self._header(name, value) for name, value in self._headers.items()}
        key = self.wire.headers(await self._api_key())
        sent = {**key, **self._idempotency(profile), **own}
        keys = [sent[name].removeprefix("Bearer ") for name in key]
        for secret in (*(one.strip() for one in keys), *_user_info(self.base_url)[:1]):
            know(secret)  # so that it is redacted in the journal if a model repeats it
        told = (*keys, *own.values(), *_user_info(self.base_url))
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
            "least %d): use TextProtocol, on the command line --model '%s:%s?protocol=json', or a server and model "
            "that support tools; `orchestrator model try` finds out",
            self.name,
            given,
            least,
            self.wire.ref,
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
        places = [ENV + name for name in self.wire.keys] if self._key is None else [self._key.get_secret_value()]
        found = next((found for place in places if (found := looked_up(place)) is not None and found.strip()), None)
        if found is not None:
            return self._fit("the key", found)
        if self._key is None and self._connection.address:
            return "none"  # local servers need no key, but the client requires one
        variable = places[0].removeprefix(ENV) if places[0].startswith(ENV) else self.wire.keys[0]
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
