"""What differs from one kind of server to another: the vendor's client, the forms of requests and of answers.

A `Wire` has no state. `ServerModel` completes requests and replies with it, `ModelConnection` transfers them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from orchestrator.models.base import ModelRequest
from orchestrator.models.chat import StreamAssembly
from orchestrator.models.messages import Reply
from orchestrator.models.prices import reply_limit
from orchestrator.models.profile import Profile, profile_of
from orchestrator.redaction import without

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response
    from openai import AsyncOpenAI


@dataclass(frozen=True)
class HTTPCall:
    """The content of one request, and the secrets that must not appear in messages."""

    body: dict[str, Any] = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    def clean(self, words: str) -> str:
        """Return a message of a server or client for an error message: without keys and other values of headers."""
        return without(words, self.secrets)


class Wire(ABC):
    """The interface of one kind of server."""

    ref: ClassVar[str]
    """The word before the colon in references, such as `openai:gpt-4o-mini`."""
    package: ClassVar[str]
    """The vendor's package."""
    extra: ClassVar[str | None] = None
    """The extra of this library that installs the package; None if it is always installed."""
    keys: ClassVar[tuple[str, ...]]
    """Environment variables with the key, the first one that is set."""
    address: ClassVar[str]
    """Environment variable with the address of the server."""
    url: ClassVar[str]
    """The vendor's own server, by which the prices and windows of its models are known."""
    takes_seed: ClassVar[bool] = False
    """True if a request may have the option `seed`."""
    conversation: ClassVar[str] = "messages"
    """The field of a request with the conversation."""
    objects: ClassVar[tuple[str, ...]] = ()
    """The fields of a request that are objects, and that this library adds to."""

    @abstractmethod
    def client(self, base_url: str | None, query: Mapping[str, str], http: AsyncClient) -> Any:
        """Return the vendor's client, which sends its requests through `http` and repeats none."""

    @abstractmethod
    async def send(self, client: Any, model: str, call: HTTPCall, *, pieces: bool) -> Response:
        """Send a request and return the answer. The body of a stream of events is not yet read."""

    @abstractmethod
    def body(
        self, request: ModelRequest, model: str, defaults: Mapping[str, object], profile: Profile
    ) -> dict[str, Any]:
        """Return the body of a request. The request's options take precedence over the defaults."""

    def refused(self, options: Mapping[str, object]) -> str | None:
        """Return why options, of a model or of one request, cannot be sent; None if they can."""
        if self.conversation in options:
            return f"{self.conversation}= would replace the conversation of the run: leave it out"
        if not are_objects(options.get("tools")):
            return (
                "tools= are the server's own tools, a list of objects as its documentation has them; give functions "
                "to the executor or the node"
            )
        wrong = next((name for name in self.objects if not are_objects([options.get(name) or {}])), None)
        return None if wrong is None else f"{wrong}= is an object, as in the vendor's documentation"

    def reply_limit(self, body: Mapping[str, Any]) -> int | None:
        """Return the most tokens of the reply to a request with this body; None if it sets no limit."""
        return reply_limit(body)

    @abstractmethod
    def reply(self, answer: Mapping[str, Any], model: str, clean: Callable[[str], str] = str) -> Reply:
        """Return the reply in an answer.

        Raises:
            ModelError: the answer is an error, or contains no reply.
        """

    @abstractmethod
    def assembly(self) -> StreamAssembly:
        """Return an assembly for the chunks of one answer."""

    def headers(self, key: str) -> dict[str, str]:
        """Return the headers with the key."""
        return {"Authorization": f"Bearer {key}"}

    def profile(self, model: str, base_url: str | None) -> Profile:
        """Return the default profile of a model. `base_url`: None for the vendor's own server."""
        return Profile()

    async def listed(self, client: Any, model: str, call: HTTPCall) -> object:
        """Return what the server says about its models, as plain JSON."""
        return await client.get("/models", cast_to=object, options={"headers": call.headers})


def are_objects(value: object) -> bool:
    """Return True for a list of objects, as an option has them, and for None."""
    return value is None or (isinstance(value, list | tuple) and all(isinstance(one, Mapping) for one in value))


async def sent_by(resource: Any, call: HTTPCall, *, pieces: bool, **required: Any) -> Response:
    """Send a request by a resource of the clients of OpenAI and Anthropic, which are made by the same generator.

    Args:
        required: the arguments that the client requires, all of which the body replaces. The client inspects every part
            of its arguments, which takes most of the time of a call for a long conversation.
    """
    if pieces:
        opening = resource.with_streaming_response.create(**required, extra_body=call.body, extra_headers=call.headers)
        response: Response = (await opening.__aenter__()).http_response
    else:
        raw = await resource.with_raw_response.create(**required, extra_body=call.body, extra_headers=call.headers)
        response = raw.http_response
    return response


class OpenAIWire(Wire):
    """What both interfaces of OpenAI's servers share."""

    package, keys, address = "openai", ("OPENAI_API_KEY",), "OPENAI_BASE_URL"
    url = "https://api.openai.com/v1"

    def client(self, base_url: str | None, query: Mapping[str, str], http: AsyncClient) -> AsyncOpenAI:
        """See `Wire.client`."""
        from openai import AsyncOpenAI  # imported late: it takes long to load

        # Each request has its own key: it may change while other requests are in progress.
        return AsyncOpenAI(api_key="unused", base_url=base_url, max_retries=0, default_query=query, http_client=http)

    def profile(self, model: str, base_url: str | None) -> Profile:
        """See `Wire.profile`."""
        return profile_of(model, base_url)
