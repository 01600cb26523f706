"""Middleware: layers around a model that see each request on its way in and each reply on its way out.

    with_middleware(model, outer, inner)

    complete, stream -> outer.handle -> inner.handle -> model.complete, model.stream

A layer is one async generator around an `ask` that leads to the next one. Whether the caller wants the reply whole or
in pieces is part of the request (`ModelRequest.pieces`), so a layer is written once. The journal is outside all layers:
their work is part of one effect, whose reply is journaled.
"""

from __future__ import annotations

import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path
from typing import Any, Protocol, cast

from pydantic_core import PydanticSerializationError, to_jsonable_python

from orchestrator.errors import ModelError
from orchestrator.json import cleaned
from orchestrator.models.base import Model, ModelEvent, ModelInterface, ModelRequest, Wrapping, bare, closing, streamed
from orchestrator.models.messages import Reply
from orchestrator.user_code import pass_fence


class Ask(Protocol):
    """The next layer, or the model."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Return the name of the innermost model."""
        ...

    @abstractmethod
    def __call__(self, request: ModelRequest, /) -> AsyncIterator[ModelEvent]:
        """Ask the next layer or the model. May be called more than once, or not at all.

        Args:
            request: the request.

        Returns:
            An iterator of events. The last event has the reply.
        """
        ...


class Middleware(ABC):
    """A layer around models. One object may belong to several models, and serve many requests at once."""

    @abstractmethod
    def handle(self, request: ModelRequest, ask: Ask) -> AsyncIterator[ModelEvent]:
        """Answer a request, usually by asking the next layer. Write it as an async generator:

            async def handle(self, request, ask):
                async with self.slot:
                    async for event in ask(request):
                        yield event

        Open requests are closed, innermost first, when the reader stops early or this generator ends.

        Args:
            request: the request.
            ask: sends a request to the next layer, or to the model.

        Returns:
            An iterator of events. The last event has the reply, whose `parsed` is empty: the text is parsed after it
            has left all layers.
        """


class MiddlewareModel(Wrapping, ModelInterface):
    """A model with layers around it; see `with_middleware`."""

    def __init__(self, model: Model, middleware: Iterable[Middleware] = ()) -> None:
        """
        Args:
            model: the model to ask.
            middleware: the layers around it, the outermost first.

        Raises:
            TypeError: a layer is not a `Middleware`.
        """
        self._model = model
        self._middleware = tuple(middleware)
        for layer in self._middleware:
            if not isinstance(layer, Middleware):
                raise TypeError(f"{layer!r:.60} is not a Middleware: pass objects, such as Cache(), after the model")

    def __repr__(self) -> str:
        return f"with_middleware({', '.join(map(repr, (self._model, *self._middleware)))})"

    @property
    def name(self) -> str:
        """Return the name of the inner model."""
        return self._model.name

    @property
    def members(self) -> tuple[Model, ...]:
        """Return the models that may be asked: the inner one, and those of layers (`Fallback`)."""
        others = (member for layer in self._middleware for member in getattr(layer, "members", ()))
        return (self._model, *others)

    async def _complete_request(self, request: ModelRequest) -> Reply:
        async with aclosing(self._stream_request(request)) as events:
            return [event.reply async for event in events if event.reply is not None][-1]

    async def _stream_request(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the pieces, then the reply, after all layers have ended and released their resources."""
        reply: Reply | None = None
        async with AsyncExitStack() as opened:
            async for event in self._asking(opened)(request):
                if event.reply is None:
                    yield event
                else:
                    reply = event.reply
                    if event.text or event.reasoning:
                        yield event.model_copy(update={"reply": None})
        if reply is None:
            raise ModelError(f"model {self.name!r} ended its stream before the reply was complete")
        yield ModelEvent(reply=request.parse(reply))

    def _asking(self, opened: AsyncExitStack) -> Ask:
        """Combine the layers into one. The iterators that they open are closed with `opened`, in reverse order."""
        ask = _Asking(self.name, lambda request: asked(self._model, request), opened)
        for layer in reversed(self._middleware):
            ask = _Asking(self.name, _handling(layer, ask), opened)
        return ask


class _Asking:
    """An `Ask` that closes the iterators that it opened."""

    def __init__(
        self, name: str, function: Callable[[ModelRequest], AsyncIterator[ModelEvent]], opened: AsyncExitStack
    ) -> None:
        self.name = name
        self._function, self._opened = function, opened

    def __call__(self, request: ModelRequest, /) -> AsyncIterator[ModelEvent]:
        events = self._function(request)
        close = getattr(events, "aclose", None)
        if close is not None:
            self._opened.push_async_callback(close)
        return events


def _handling(layer: Middleware, ask: Ask) -> Callable[[ModelRequest], AsyncIterator[ModelEvent]]:
    return lambda request: layer.handle(request, ask)


def with_middleware(model: Model, *middleware: Middleware) -> MiddlewareModel:
    """Put layers around a model.

    Args:
        model: the model.
        middleware: the layers, the outermost first.

    Returns:
        The model with its layers.

    Raises:
        TypeError: a layer is not a `Middleware`.
    """
    return MiddlewareModel(model, middleware)


async def asked(model: Model, request: ModelRequest) -> AsyncIterator[ModelEvent]:
    """Send a request to a model; yield pieces if the request wants them, and the reply without `parsed`."""
    # The schema replaces the class: only the outermost caller checks whether the text fits.
    await pass_fence()  # layers may have delayed it
    if not request.pieces:
        options = cast("dict[str, Any]", request.options)
        reply = await model.complete(request.messages, request.tools, request.output, task=request.task, **options)
        yield ModelEvent(reply=bare(reply))
        return
    async with closing(streamed(model, request)) as events:
        async for event in events:
            yield event if event.reply is None else event.model_copy(update={"reply": bare(event.reply)})


def jsonable(name: str, request: ModelRequest) -> dict[str, Any]:
    """Return the request and the name of its model as plain JSON, which identifies the request.

    Raises:
        TypeError: an option has no JSON form.
    """
    try:
        data: Any = cleaned(to_jsonable_python(cleaned(request.data())))
    except (PydanticSerializationError, UnicodeEncodeError, ValueError) as error:
        raise TypeError(f"a request to model {name!r} has no JSON form, so it cannot be recognised: {error}") from None
    return {"model": name, "request": data}


class Hook(Middleware):
    """A layer that acts only before and after a request: override one or more methods."""

    async def before(self, request: ModelRequest) -> ModelRequest | Reply | None:
        """Change a request before it is sent, or answer it.

        Args:
            request: the request.

        Returns:
            Another request, or a reply, in which case no model is asked; None changes nothing.
        """
        return None

    async def after(self, request: ModelRequest, reply: Reply) -> Reply | None:
        """Change a reply. Pieces of it have been delivered already.

        Args:
            request: the request as it was sent.
            reply: the model's reply.

        Returns:
            Another reply; None changes nothing.
        """
        return None

    async def failed(self, request: ModelRequest, error: Exception) -> Reply | None:
        """Handle an error of the model.

        Args:
            request: the request as it was sent.
            error: the error.

        Returns:
            A reply to use instead of the error; None raises the error.
        """
        return None

    async def handle(self, request: ModelRequest, ask: Ask) -> AsyncIterator[ModelEvent]:
        """See `Middleware.handle`."""
        found = await self.before(request)
        if isinstance(found, Reply):
            yield ModelEvent(reply=found)
            return
        asked = request if found is None else found
        reply: Reply | None = None
        try:
            async for event in ask(asked):
                if event.reply is None:
                    yield event
                else:
                    reply = event.reply
        except Exception as error:
            instead = await self.failed(asked, error)
            if instead is None:
                raise
            yield ModelEvent(reply=instead)
            return
        if reply is not None:
            yield ModelEvent(reply=await self.after(asked, reply) or reply)


def write_whole(path: Path, text: str, mode: int = 0o666) -> None:
    """Write a temporary file next to the path and rename it: readers see either the old file or the new one.

    Args:
        mode: permissions of a new file, less those removed by the umask.
    """
    place = path.resolve()  # a link is kept, and its target replaced
    draft = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        made = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(made, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        draft.replace(place)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
