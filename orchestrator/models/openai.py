"""Models behind an OpenAI-compatible server: OpenAI, Azure, vLLM, Ollama, llama.cpp, LiteLLM and others."""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, NoReturn, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import SecretStr

from orchestrator.errors import ModelError, ModelMisconfigured
from orchestrator.graph.limits import Retry
from orchestrator.models.base import ModelEvent, ModelRequest, RequestModel, calling_key
from orchestrator.models.chat import body_of, counts, reply_of, understood
from orchestrator.models.connection import HTTPCall, ModelConnection
from orchestrator.models.messages import Reply
from orchestrator.models.prices import Price, approximated, price_in
from orchestrator.models.profile import Profile, profile_of
from orchestrator.models.secrets import ENV, looked_up
from orchestrator.redaction import know

Key: TypeAlias = "str | SecretStr | Callable[[], str | Awaitable[str]]"
"""A key; `env:NAME`, to read it from the environment at each request; or a function, sync or async, that gives it."""


class OpenAIModel(RequestModel):
    """A model behind an OpenAI-compatible server, by chat completions.

    The first request loads the `openai` package and looks up the key. The model never retries by itself: the executor
    does, according to `retry`, and journals each attempt.

    Connections are reused by further requests in the same event loop; `aclose`, or `async with model:`, closes them.
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
        max_reply_bytes: int = 64 * 1024 * 1024,
        **options: Any,
    ) -> None:
        """
        Args:
            name: the provider's name of the model.
            base_url: the server, such as `http://127.0.0.1:11434/v1`. Default: `OPENAI_BASE_URL`, else OpenAI's.
            api_key: see `Key`. Default: `OPENAI_API_KEY`. A server named by `base_url` may need none.
            timeout: seconds that a request may take; for a streamed reply, seconds until its next piece.
            headers: sent with every request; a value may be `env:NAME`.
            query: sent with every request in its address, such as Azure's `api-version`.
            extra_body: provider-specific fields, sent with every request.
            profile: what the model and its server support. Default: derived from their names.
            retry: which failed calls the executor retries. None: none. A node's own `retry` takes precedence.
            price: the model's price, or a table of prices by model names.
            streams: whether to read replies in pieces while the run is watched.
            max_reply_bytes: the most bytes of an answer, unpacked; for a streamed answer including everything around
                its pieces. A longer answer is a `ReplyTooLarge`.
            options: parameters of every request, such as `temperature`; those of a call take precedence.
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
        """What the model and its server support."""
        return self._profile or profile_of(self.name, self.base_url or os.environ.get("OPENAI_BASE_URL"))

    async def aclose(self) -> None:
        """Close the connections of the running event loop; a later request opens new ones."""
        await self._connection.aclose()

    # -- asking --------------------------------------------------------------------------------------------------

    async def respond(self, request: ModelRequest) -> Reply:
        """See `RequestModel.respond`. Asks the server."""
        call = await self._call(request)
        found = await self._connection.post(call)
        # Raised out here, so that no error carries the client's own as context: those hold the key.
        if isinstance(found, ModelError):
            raise found
        return self._told(reply_of(found, self.name, clean=call.clean), request)

    async def _stream_request(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """If the server does not stream, the reply is one piece."""
        call = await self._call(request)
        reply: Reply | None = None
        async with aclosing(self._connection.read(call)) as found:
            async for one in found:
                if isinstance(one, ModelError):
                    raise one
                if isinstance(one, Reply):
                    reply = one
                else:
                    yield ModelEvent(text=one.text, reasoning=one.reasoning)
        assert reply is not None  # the last that `_read` gives, if it gives no error
        yield ModelEvent(reply=request.parse(self._told(reply, request)))

    async def _call(self, request: ModelRequest) -> HTTPCall:
        profile = self.profile
        body = body_of(request, self.name, {**self._extra_body, **self.options}, profile)
        if request.pieces:
            body["stream"] = True
            if profile.stream_usage:
                body.setdefault("stream_options", {"include_usage": True})
        own = {name: self._header(name, value) for name, value in self._headers.items()}
        sent = {"Authorization": f"Bearer {await self._api_key()}", **_idempotency(), **own}
        key = sent["Authorization"].removeprefix("Bearer ").strip()
        for secret in (key, *_user_info(self.base_url)[:1]):
            know(secret)  # a model that repeats it is not to bring it into the journal
        told = (sent["Authorization"].removeprefix("Bearer "), *own.values(), *_user_info(self.base_url))
        return HTTPCall(body, sent, (*told, *self._connection.query.values()))

    def _told(self, reply: Reply, request: ModelRequest) -> Reply:
        """The reply with what its server left unsaid: how many tokens, and what they cost."""
        reply = understood(reply, request, self.profile)
        usage = reply.usage or approximated(request, reply, *counts(reply.details.get("usage")))
        if self.price is not None:
            usage = usage.model_copy(update={"cost": self.price.of(usage, _cached(reply))})
        return reply.model_copy(update={"usage": usage})

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
            return "none"  # servers of one's own want no key, and the client wants some text
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
        """A value that goes into a header: without the white space around it, such as the end of a file's line."""
        bare = value.strip()
        if not bare.isascii() or not bare.isprintable():
            raise ModelMisconfigured(f"model {self.name!r}: {what} has characters that no header can have")
        return bare


def _user_info(base_url: str | None) -> list[str]:
    """Name and password in an address."""
    try:
        parts = urlsplit(base_url or "")
        return [part for part in (parts.password, parts.username) if part]
    except ValueError:
        return []


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
