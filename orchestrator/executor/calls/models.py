"""Models as nodes see them: every call is an effect, every piece of a reply a live event.

Replies in progress are kept in memory only, until their calls are settled: a watcher that starts in the middle of a
reply, or that was too slow, gets the reply so far, then the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from orchestrator.errors import GraphUnknown, InvalidValue, ModelError
from orchestrator.executor.calls.effect import INSIDE, Attempt, Effect, witness
from orchestrator.executor.calls.perform import AttemptEffects
from orchestrator.executor.replay import ABSENT, DEFAULT
from orchestrator.json import digest, frozen, joined_digest
from orchestrator.kernel.requests import shortened
from orchestrator.models.base import (
    Model,
    ModelEvent,
    ModelInterface,
    ModelRequest,
    RequestModel,
    bare,
    calling_key,
    calling_node,
    closing,
    gives_pieces,
    streamed,
)
from orchestrator.models.messages import REPLY_LIMIT, WINDOW, Message, Reply, received
from orchestrator.models.prices import expected, reply_limit_of
from orchestrator.models.reading import ThoughtScreen
from orchestrator.redaction import KnownScreen, without_known
from orchestrator.tasks import away
from orchestrator.user_code import contained, current_fence
from orchestrator.values import MAX_BYTES, MAX_DEPTH, MAX_REQUEST_BYTES, checked, checked_size, fault_in


def model_for(effects: AttemptEffects) -> Model:
    """Return the model of a step, which journals its calls.

    Raises:
        GraphUnknown: the executor has no model, or none with that name.
    """
    resources = effects.attempt.resources
    name = effects.attempt.setting("model")
    model = resources.model if name is None else resources.models.get(name)
    if model is None:
        if effects.attempt.log.replay is None:
            raise resources.no_model(effects.attempt.activation.node, name)
        model = AbsentModel(resources.no_model(effects.attempt.activation.node, name))
    return JournaledModel(effects, model, DEFAULT if name is None else name)


def models_for(effects: AttemptEffects) -> Mapping[str, Model]:
    """Return all named models, which journal their calls."""
    models = effects.attempt.resources.models
    found = {name: JournaledModel(effects, model, name) for name, model in models.items()}
    return found if effects.attempt.log.replay is None else _ModelsOfReplay(effects, found)


class _ModelsOfReplay(dict[str, Model]):
    """The named models of a step of a replay: a missing model's replies come from the replayed run."""

    def __init__(self, effects: AttemptEffects, models: Mapping[str, Model]) -> None:
        super().__init__(models)
        self._effects = effects

    def __missing__(self, name: str) -> Model:
        attempt = self._effects.attempt
        return JournaledModel(
            self._effects, AbsentModel(attempt.resources.no_model(attempt.activation.node, name)), name
        )


class AbsentModel(RequestModel):
    """A placeholder for a model that a replay was not given: only live calls need the model."""

    name = ABSENT

    def __init__(self, error: GraphUnknown) -> None:
        self._error = error

    async def respond(self, request: ModelRequest) -> Reply:
        raise self._error


class JournaledModel(ModelInterface):
    """A model whose calls are effects of one step. `alias` is the name that nodes use for it."""

    def __init__(self, effects: AttemptEffects, model: Model, alias: str) -> None:
        self._effects, self._attempt, self._model, self._alias = effects, effects.attempt, model, alias

    @property
    def name(self) -> str:
        """Return the name of the wrapped model."""
        return self._model.name

    @property
    def window(self) -> int | None:
        """Return the tokens of the model's context window; None if it is not known."""
        found = getattr(self._model, "window", None)
        return found if type(found) is int and found > 0 else None

    async def _complete_request(self, request: ModelRequest) -> Reply:
        # The schema replaces the class: the text is validated after the reply was journaled, so that an invalid reply
        # is paid for once.
        reply = await self._effects.perform(self._effect(request)[1])
        return await away(lambda: request.parse(reply), reply.text)

    def _stream_request(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Send every piece of text also as a live event, `token`. A replay yields the reply only."""
        events = self._events(request)
        self._effects.under_way.on_close(events.aclose)
        return events

    async def _events(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        request, effect = self._effect(request, waited_for=False)
        effects = self._effects
        settled, ticket = await effects.begin(effect)
        reply: Reply | None = None
        shown = False
        outside = current_fence.get()
        while ticket is not None and reply is None:
            try:
                effects.under_way.read_here(ticket)
                watching = witness.get()
                self._called(ticket.key)
                current_fence.set(ticket)
                source = (
                    streamed(self._model, request)
                    if watching is None
                    else watching.stream(effect, ticket.key, partial(streamed, self._model, request))
                )
                with contained(), Pieces(self._attempt, ticket.key) as pieces:
                    async with closing(source) as events:  # also if the node stops reading
                        async for event in events:
                            calling_key.set(None)  # it was sent; errors of the reader do not belong to this call
                            current_fence.set(outside)
                            reply = event.reply or reply
                            event = pieces.add(event)
                            if event.reply is None:
                                shown = True
                                yield event
                            elif event.text or event.reasoning:
                                yield event.model_copy(update={"reply": None})
                    if reply is None:
                        raise self._no_reply()
                    reply = self._received(reply, request)
                    pieces.end(reply.text)
                reply = effects.end(ticket, effect, reply)
            except GeneratorExit:
                effects.under_way.pause_reading(ticket)
                raise
            except BaseException as error:
                # Text that the node has read cannot be taken back: then only a retry of the step repeats the call.
                if not effects.settle_failure(ticket, error, None if shown else effect):
                    raise
            finally:
                calling_key.set(None)
                current_fence.set(outside)
            if reply is None:
                ticket = await effects.intend_retry(effect, ticket)
        yield ModelEvent(reply=request.parse(effects.result(settled, effect) if reply is None else reply))

    def _called(self, key: str) -> None:
        calling_node.set(self._attempt.activation.node)
        calling_key.set(key)

    def _effect(self, request: ModelRequest, *, waited_for: bool = True) -> tuple[ModelRequest, Effect[Reply]]:
        """Return the request that is sent, and the call. A fork may send another request than the step makes."""
        machine = self._attempt.log.machine
        asked = _as_json(f"the request to model {self.name!r}", request)
        replay, name = self._attempt.log.replay, self.name
        if replay is not None:
            entries = machine.ledger.of(self._attempt.activation.key)
            known = {entry.intended.digest: entry.intended.name for entry in entries if entry.intended.kind == "model"}
            name = replay.model_name(self._attempt.activation, name, self._alias, asked, known)
        identity = ""
        if machine.forks:
            own = joined_digest({"kind": "model", "name": name, "request": asked})
            count = self._effects.occurrence(name, own)
            changed = machine.changed_request(self._attempt.activation.key, joined_digest(asked), count)
            if changed is not None:
                request, identity = changed_request(request, changed.request), own
                asked = _as_json(f"the request to model {self.name!r}", request)

        async def run(key: str) -> Reply:
            self._called(key)
            try:
                # A reader of the run sees a reply arrive, whether or not the node streams it.
                watched = self._attempt.log.watchers or self._attempt.resources.always_streams
                if watched and gives_pieces(self._model):
                    return await self._watched(request, key)
                return self._received(await self._whole(request), request)
            finally:
                calling_key.set(None)

        return request, Effect(
            kind="model",
            name=name,
            effect="idempotent",
            request=asked,
            identity=identity,
            stored=lambda: shortened(asked, machine.ledger.parts),
            run=run,
            encode=lambda reply: reply.data(),
            decode=Reply.model_validate,
            usage=lambda reply: reply.usage,
            retry=getattr(self._model, "retry", None),
            reserve=lambda longest, dearest, left: expected(
                request, getattr(self._model, "price", None), longest, dearest, left, waited_for=waited_for
            ),
        )

    async def _whole(self, request: ModelRequest) -> Reply:
        return await self._model.complete(
            request.messages, request.tools, request.output, task=request.task, **request.options
        )

    async def _watched(self, request: ModelRequest, key: str) -> Reply:
        reply: Reply | None = None
        watching, source = witness.get(), streamed(self._model, request)
        with Pieces(self._attempt, key) as pieces:
            async with closing(source if watching is None else watching.pieces(source)) as events:
                async for event in events:
                    pieces.add(event)
                    reply = event.reply or reply
            if reply is None:
                raise self._no_reply()
            reply = self._received(reply, request)
            pieces.end(reply.text)
        return reply

    def _received(self, reply: Reply, request: ModelRequest) -> Reply:
        """Return the reply as it is journaled, with the model's context window, if it is known, and `max_tokens`."""
        reply, window = received(bare(reply)), self.window
        if window is None:
            return reply
        most = reply_limit_of(self._model, request.options)
        sizes: dict[str, JsonValue] = {WINDOW: window, **({REPLY_LIMIT: most} if most else {})}
        return reply.model_copy(update={"details": {**reply.details, **sizes}})

    def _no_reply(self) -> ModelError:
        return ModelError(f"model {self.name!r} ended its stream before the reply was complete")


def changed_request(request: ModelRequest, changes: Mapping[str, Any]) -> ModelRequest:
    """Return a request with other messages and options. A message `{"ref": digest}` is one of the request's own.

    Raises:
        InvalidValue: a message or an option has no valid form.
    """
    own = {digest(data): one for one, data in zip(request.messages, request.data()["messages"], strict=True)}
    found = replace(request)
    if "messages" in changes:
        found = replace(found, messages=tuple(_message(one, own) for one in changes["messages"]))
    if "options" in changes:
        found = replace(found, options=dict(changes["options"]))
    return found


def _message(given: object, own: Mapping[str, Message]) -> Message:
    if isinstance(given, Mapping) and "ref" in given:
        return own[str(given["ref"])]
    return Message.model_validate(given)


def _as_json(where: str, request: ModelRequest) -> dict[str, Any]:
    """Return a request as plain JSON. A part that an earlier request had was checked then.

    Raises:
        InvalidValue: the request has no JSON form, or its JSON could not be read.
    """
    value = request.data()
    try:
        parts = [*value["messages"], *value.get("tools", ()), *([value["output"]] if "output" in value else ())]
        size = sum(map(checked_size, parts))
        more = {name: to_jsonable_python(value[name]) for name in ("task", "options") if name in value}
        checked(more, where, depth=MAX_DEPTH + INSIDE)
        if size <= MAX_BYTES:
            return value | more
    except (ValueError, TypeError, RecursionError):
        pass  # what cannot be stored is named below
    return _examined(where, value)


def _examined(where: str, value: dict[str, Any]) -> dict[str, Any]:
    try:
        found: dict[str, Any] = to_jsonable_python(value)
    except (ValueError, TypeError, RecursionError) as error:  # also for bytes, surrogates and values nested too deeply
        why = fault_in(value, MAX_DEPTH + INSIDE) or f"it has no JSON form: {error}"
        raise InvalidValue(f"{where}: {why}", where=where) from None
    checked(found, where, depth=MAX_DEPTH + INSIDE, size=MAX_REQUEST_BYTES)
    for name in ("messages", "tools"):
        if name in found:
            found[name] = [frozen(part) for part in found[name]]
    return found | ({"output": frozen(found["output"])} if "output" in found else {})


# -- pieces of replies, as live events ---------------------------------------------------------------------------------


class Pieces:
    """A reply in progress; a context manager around one try of its call.

    In all cases, the texts after the last `reset` of a call make up the text of the journaled reply.
    """

    def __init__(self, attempt: Attempt, key: str) -> None:
        self._attempt, self._key = attempt, key
        self._screen = ThoughtScreen()
        self._text, self._thoughts = KnownScreen(), KnownScreen()
        self._reply = PartialReply({**attempt.about(), "attempt": attempt.activation.attempt, "key": key})

    def __enter__(self) -> Self:
        log = self._attempt.log
        log.replies[self._key] = self._reply
        entry = log.machine.ledger.entry(self._key)
        if entry is not None and entry.intended.again:  # output shown before is no longer valid
            self._tell("reset")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        replies = self._attempt.log.replies
        if replies.get(self._key) is self._reply:
            del replies[self._key]

    def add(self, event: ModelEvent) -> ModelEvent:
        """Send a piece as a live event, and return it without the thoughts in its text."""
        text, reasoning = self._screen.feed(event.text)
        if event.reply is not None:
            text, reasoning = text + (rest := self._screen.rest())[0], reasoning + rest[1]
        if text != event.text or reasoning:
            event = event.model_copy(update={"text": text, "reasoning": event.reasoning + reasoning})
        text, reasoning = self._text.feed(event.text), self._thoughts.feed(event.reasoning)
        if event.text and not event.reasoning:  # thoughts that came after text would be shown as further ones
            reasoning += self._thoughts.rest()
        if event.reply is not None:
            text, reasoning = text + self._text.rest(), reasoning + self._thoughts.rest()
        self._show(text, reasoning)
        return event

    def _show(self, text: str, reasoning: str) -> None:
        if text or reasoning:
            self._reply.add(text, reasoning)
            self._tell("token", **({"text": text, "reasoning": reasoning} if reasoning else {"text": text}))

    def end(self, text: str) -> None:
        """Complete the reply. Sends its text if it differs from the pieces from which it was read."""
        self._show(self._text.rest(), self._thoughts.rest())
        text = without_known(text)
        if not self._reply.is_text(text):
            if self._reply.length:
                self._tell("reset")
            self._tell("token", text=text)

    def _tell(self, kind: str, **data: object) -> None:
        self._attempt.log.tell(kind, {**self._reply.about, **data})


MOST_KEPT = 1_000_000
"""Maximum number of characters kept of one reply: its end, if it is longer."""
_BLOCK = 256
"""Number of pieces merged into one: small strings take much more memory than their characters."""


class PartialReply:
    """The kept part of a reply that arrives in pieces."""

    __slots__ = ("_begun", "_blocks", "_kept", "_recent", "about", "length", "omitted")

    def __init__(self, about: dict[str, object]) -> None:
        self.about = about
        """Fields of all live events of the call."""
        self.length = self.omitted = 0
        """Number of characters of its text so far, and of those that are not kept."""
        self._blocks: deque[tuple[str, str]] = deque()
        self._recent: list[tuple[str, str]] = []
        self._kept = 0
        self._begun = False

    def add(self, text: str, reasoning: str) -> None:
        """Keep the next piece."""
        self._begun = True
        self.length += len(text)
        self._kept += len(text) + len(reasoning)
        self._recent.append((text, reasoning))
        if len(self._recent) == _BLOCK:
            self._blocks.append(_joined(self._recent))
            self._recent.clear()
        while self._kept > MOST_KEPT and self._blocks:
            dropped, thought = self._blocks.popleft()
            self._kept -= len(dropped) + len(thought)
            self.omitted += len(dropped)

    def texts(self) -> tuple[str, str]:
        """Return the kept text and reasoning so far."""
        return _joined([*self._blocks, *self._recent])

    def is_text(self, text: str) -> bool:
        """Return True if the pieces make up this text."""
        return self.length == len(text) and text[self.omitted :] == self.texts()[0]

    def events(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield types and data of live events with the reply so far, for a reader that has missed any of it."""
        yield "reset", dict(self.about)
        if not self._begun:  # an earlier try may have sent some text that the reader has seen
            return
        text, reasoning = map(without_known, self.texts())  # a secret may be split across pieces
        data = {**self.about, "text": text}
        if reasoning:
            data["reasoning"] = reasoning
        if self.omitted:
            data["omitted"] = self.omitted
        yield "token", data


def _joined(pieces: Sequence[tuple[str, str]]) -> tuple[str, str]:
    return "".join(text for text, _ in pieces), "".join(thought for _, thought in pieces)
