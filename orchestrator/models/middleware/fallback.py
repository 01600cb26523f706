"""Another model answers if the first one fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from orchestrator.errors import (
    ModelError,
    ModelMisconfigured,
    ModelUnavailable,
    ReplyIncomplete,
    RequestTooLong,
    message_of,
)
from orchestrator.graph.limits import Usage
from orchestrator.models.base import Model, ModelEvent, ModelRequest, calling_key, closing
from orchestrator.models.http_errors import quoted
from orchestrator.models.messages import Reply
from orchestrator.models.middleware.base import Ask, Middleware, asked


class Fallback(Middleware):
    """Sends the request to the next model if one fails before the first piece of its reply.

    `details["fallback"]` of such a reply names the model that answered, and the preceding failure. If all models fail,
    the error lists each failure. It is a `ModelUnavailable` if a retry may help, else `RequestTooLong` if a
    shorter request may help, else `ModelMisconfigured` if a person can help, else a `ModelError`.
    """

    def __init__(self, *others: Model, on: tuple[type[Exception], ...] = (ModelError,)) -> None:
        """
        Args:
            others: the models to ask next, in this order.
            on: the errors after which the next model is asked; any other error is raised.

        Raises:
            TypeError: no other model is given.
        """
        if not others:
            raise TypeError("Fallback() needs at least one other model")
        self.members = others
        """The models that may be asked instead."""
        self._on = on

    def __repr__(self) -> str:
        return f"Fallback({', '.join(map(repr, self.members))})"

    async def handle(self, request: ModelRequest, ask: Ask) -> AsyncIterator[ModelEvent]:
        """See `Middleware.handle`."""
        key = calling_key.get()
        failed: list[tuple[str, Exception]] = []
        ways: list[tuple[str, Callable[[ModelRequest], AsyncIterator[ModelEvent]]]]
        ways = [(ask.name, ask), *((member.name, partial(asked, member)) for member in self.members)]
        for place, (name, way) in enumerate(ways):
            if place and key is not None:
                # Each model needs its own key: a server of two of them must not take their calls for the same call.
                calling_key.set(f"{key}-{place}")
            begun = False
            try:
                async with closing(way(request)) as events:
                    async for event in events:
                        begun = True
                        yield (
                            event
                            if event.reply is None or not failed
                            else _with_failures(event, event.reply, name, failed)
                        )
                return
            except self._on as error:
                if begun:
                    raise
                failed.append((name, error))
        raise _all(failed) from failed[0][1]


def _with_failures(event: ModelEvent, reply: Reply, name: str, failed: list[tuple[str, Exception]]) -> ModelEvent:
    after = "; ".join(_line(error) for _, error in failed)
    details = {**reply.details, "fallback": {"model": name, "after": after}}
    update = {"details": details, "model": reply.model or name, "usage": _used(failed, reply.usage)}
    return event.model_copy(update={"reply": reply.model_copy(update=update)})


def _used(failed: list[tuple[str, Exception]], usage: Usage | None = None) -> Usage | None:
    """Return `usage` plus the usage of the replies that could not be taken as complete."""
    for _, error in failed:
        if isinstance(error, ReplyIncomplete) and error.usage is not None:
            usage = error.usage if usage is None else usage + error.usage
    return usage


def _all(failed: list[tuple[str, Exception]]) -> ModelError:
    summary = f"all {len(failed)} models failed: " + "; ".join(f"{name!r}: {_line(error)}" for name, error in failed)
    again = [error for _, error in failed if getattr(error, "retryable", False) or isinstance(error, OSError)]
    if not again:
        kinds = (RequestTooLong, ModelMisconfigured)  # the request can be shortened, or a person can help
        return next((kind for kind in kinds if any(isinstance(one, kind) for _, one in failed)), ModelError)(summary)
    if all(isinstance(error, ReplyIncomplete) for error in again):
        return ReplyIncomplete(summary, usage=_used(failed))
    waits: list[Any] = [getattr(error, "retry_after", None) for error in again]
    # A model that names no delay may be available at once.
    return ModelUnavailable(
        summary, retry_after=None if None in waits else min(wait for wait in waits if wait is not None)
    )


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {quoted(message_of(error))}"
