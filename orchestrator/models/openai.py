"""Models behind an OpenAI-compatible server: OpenAI, Azure, vLLM, Ollama, llama.cpp, LiteLLM and others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self
from weakref import WeakKeyDictionary

import anyio
import anyio.lowlevel
from pydantic import SecretStr

from orchestrator.errors import ModelError, ModelUnavailable
from orchestrator.models.base import ModelRequest, RequestModel, calling_key
from orchestrator.models.chat import body_of, reply_of
from orchestrator.models.faults import refusal
from orchestrator.models.messages import Reply

if TYPE_CHECKING:
    from ssl import SSLContext

    from openai import AsyncOpenAI

_ENV = "env:"


@cache
def _trusted() -> SSLContext:
    """Whom TLS connections trust. Reading the certificates takes as long as a short request, so it is done once."""
    from httpx2 import create_ssl_context

    return create_ssl_context()


class OpenAIModel(RequestModel):
    """A model that is asked by chat completions.

    The `openai` package is loaded, and a key looked for, when the first request is made. It never retries by
    itself: that is the executor's part, and journaled. `stream` gives the reply when it is whole.

    Connections are kept for further requests in the same event loop; `aclose`, or `async with model:`, closes them.
    """

    def __init__(
        self,
        name: str,
        base_url: str | None = None,
        api_key: str | SecretStr | None = None,
        *,
        timeout: float = 60,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, object] | None = None,
        **options: Any,
    ) -> None:
        """
        Args:
            name: the provider's name of the model.
            base_url: the server, such as `http://127.0.0.1:11434/v1`; else `OPENAI_BASE_URL`, else OpenAI's.
            api_key: the key, or `env:NAME` to read it from the environment at each request; else
                `OPENAI_API_KEY`. A server named by `base_url` can do without.
            timeout: seconds that one request may take.
            headers: sent with every request.
            extra_body: fields of the provider's own, sent with every request.
            options: parameters of every request, such as `temperature`; those of a call come before them.
        """
        self.name = name
        self.base_url = base_url
        self.timeout = timeout
        self.options = options
        self._key = SecretStr(api_key) if isinstance(api_key, str) else api_key
        self._headers = dict(headers or {})
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

    async def aclose(self) -> None:
        """Close the connections of the running event loop; a later request opens new ones."""
        found = self._clients.pop(anyio.lowlevel.current_token().native_token, None)
        if found is not None:
            await found.close()

    async def respond(self, request: ModelRequest) -> Reply:
        """Ask the server. See `Model.complete`."""
        key = self._api_key()
        text, failure = await self._post(key, body_of(request, self.name, {**self._extra_body, **self.options}))
        # Raised out here, so that no error carries the client's own as context: those hold the key.
        if failure is not None:
            raise failure
        return reply_of(text, self.name, clean=lambda words: self._clean(words, key))

    async def _post(self, key: str, body: dict[str, Any]) -> tuple[str, ModelError | None]:
        """The server's answer as text, or what went wrong."""
        import httpx2  # late: both take long to load
        import openai

        try:
            client = self._client()
            with anyio.fail_after(self.timeout):
                response = await client.chat.completions.with_raw_response.create(
                    model=self.name,
                    messages=body.pop("messages"),
                    extra_body=body,
                    extra_headers={"Authorization": f"Bearer {key}", **_idempotency(), **self._headers},
                )
                return response.http_response.text, None
        except (TimeoutError, openai.APITimeoutError):
            why = f"no answer within {self.timeout:g} s; give it more time with timeout="
            return "", ModelUnavailable(f"model {self.name!r}: {why}")
        except openai.APIStatusError as error:
            words = self._clean(error.message, key)
            return "", refusal(self.name, error.status_code, words, error.code, error.response.headers)
        except openai.APIConnectionError as error:
            cause = error.__cause__
            if isinstance(cause, httpx2.UnsupportedProtocol):
                return "", ModelError(f"model {self.name!r}: {cause}; write base_url as http://host:port/v1")
            words = self._clean(str(cause or error) or type(cause).__name__, key)
            return "", ModelUnavailable(f"model {self.name!r}: the server cannot be reached ({words}); is it running?")
        except (openai.OpenAIError, httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            return "", ModelError(f"model {self.name!r}: {self._clean(str(error), key)}")

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
            http_client=DefaultAsyncHttpxClient(timeout=self.timeout, verify=_trusted()),
        )
        port = client.base_url.port
        if port is not None and not 0 < port < 1 << 16:  # nobody below looks: asyncio fails with an error of its own
            raise InvalidURL(f"base_url {self.base_url!r} has no port between 1 and 65535")
        self._clients[loop] = client
        return client

    def _api_key(self) -> str:
        given = self._key.get_secret_value() if self._key is not None else _ENV + "OPENAI_API_KEY"
        if not given.startswith(_ENV):
            return given
        variable = given.removeprefix(_ENV)
        found = os.environ.get(variable)
        if found:
            return found
        if self._key is None and (self.base_url or os.environ.get("OPENAI_BASE_URL")):
            return "none"  # servers of one's own want no key, and the client wants some text
        raise ModelError(
            f"model {self.name!r} has no key: set the environment variable {variable}, or give api_key='env:NAME'"
        )

    def _clean(self, words: str, key: str) -> str:
        """Words of a server or client for an error message: without the key and other things sent as headers."""
        for secret in (key, *self._headers.values()):
            if len(secret) >= 6:
                words = words.replace(secret, "***")
        return words


def _idempotency() -> dict[str, str]:
    """What tells a server that keeps such keys that this call was made before, so that it is paid for once."""
    key = calling_key.get()
    return {} if key is None else {"Idempotency-Key": key}
