"""Models as a node has them: every call is an effect, every piece of a reply a live event.

The replies that are under way are kept as far as they have come, in memory only, and only until their calls are
settled: a watcher that starts in the middle of a reply, or that was too slow, gets what came so far, then the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from pydantic_core import to_jsonable_python

from orchestrator.errors import GraphUnknown, InvalidValue, ModelError
from orchestrator.executor.effects.effect import INSIDE, Attempt, Effect, witness
from orchestrator.executor.effects.perform import AttemptEffects
from orchestrator.executor.replay import ABSENT, DEFAULT
from orchestrator.json import digest
from orchestrator.kernel.run_state import RunState
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
)
from orchestrator.models.messages import Reply, received
from orchestrator.models.prices import expected
from orchestrator.redaction import without_known
from orchestrator.user_code import contained, current_fence
from orchestrator.values import MAX_DEPTH, MAX_REQUEST_BYTES, checked, fault_in


def model_for(effects: AttemptEffects) -> Model:
    """The model of a step, its calls journaled.

    Raises:
        GraphUnknown: the executor was given none, or none of that name.
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
    """All named models, their calls journaled."""
    models = effects.attempt.resources.models
    found = {name: JournaledModel(effects, model, name) for name, model in models.items()}
    return found if effects.attempt.log.replay is None else _ModelsOfReplay(effects, found)


class _ModelsOfReplay(dict[str, Model]):
    """The named models of a step of a replay: replies of a model that is not there are in the replayed run."""

    def __init__(self, effects: AttemptEffects, models: Mapping[str, Model]) -> None:
        super().__init__(models)
        self._effects = effects

    def __missing__(self, name: str) -> Model:
        attempt = self._effects.attempt
        return JournaledModel(
            self._effects, AbsentModel(attempt.resources.no_model(attempt.activation.node, name)), name
        )


class AbsentModel(RequestModel):
    """Stands for a model that a replay was not given: it is needed only where the replay is live."""

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
        """The name of the model behind it."""
        return self._model.name

    async def _complete_request(self, request: ModelRequest) -> Reply:
        # The schema stands for the class: whether the text fits it is found out after the reply was journaled,
        # so that a reply that does not fit is paid for once.
        reply = await self._effects.perform(self._effect(request))
        return request.parse(reply)

    def _stream_request(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Every piece of text is also a live event, `token`. A replay gives the reply only."""
        events = self._events(request)
        self._effects.under_way.on_close(events.aclose)
        return events

    async def _events(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        effect = self._effect(request, waited_for=False)
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
                source = self._pieces(request) if watching is None else _once(watching.call(effect, ticket.key))
                with contained(), Pieces(self._attempt, ticket.key) as pieces:
                    async with closing(source) as events:  # also when the node stops reading
                        async for event in events:
                            calling_key.set(None)  # it was sent; what the reader does is no part of this call
                            current_fence.set(outside)
                            pieces.add(event)
                            if event.reply is None:
                                shown = True
                                yield event
                            else:
                                reply = event.reply
                    if reply is None:
                        raise self._no_reply()
                    reply = received(bare(reply))
                    pieces.end(reply.text)
                reply = effects.end(ticket, effect, reply)
            except GeneratorExit:
                effects.under_way.pause_reading(ticket)
                raise
            except BaseException as error:
                # What the node has read cannot be taken back: then only a retry of the step asks again.
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

    def _effect(self, request: ModelRequest, *, waited_for: bool = True) -> Effect[Reply]:
        machine = self._attempt.log.machine
        asked = _as_json(f"the request to model {self.name!r}", request.data())
        replay, name = self._attempt.log.replay, self.name
        if replay is not None:
            entries = machine.ledger.of(self._attempt.activation.key)
            known = {entry.intended.digest: entry.intended.name for entry in entries if entry.intended.kind == "model"}
            name = replay.model_name(self._attempt.activation, name, self._alias, asked, known)

        async def run(key: str) -> Reply:
            self._called(key)
            try:
                # A reader of the run sees a reply come, whether or not the node does.
                watched = self._attempt.log.watchers or self._attempt.resources.always_streams
                if watched and gives_pieces(self._model):
                    return await self._watched(request, key)
                return received(bare(await self._whole(request)))
            finally:
                calling_key.set(None)

        return Effect(
            kind="model",
            name=name,
            effect="idempotent",
            request=asked,
            stored=lambda: _shortened(asked, machine),
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

    def _pieces(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        return self._model.stream(request.messages, request.tools, request.output, task=request.task, **request.options)

    async def _watched(self, request: ModelRequest, key: str) -> Reply:
        reply: Reply | None = None
        with Pieces(self._attempt, key) as pieces:
            async with closing(self._pieces(request)) as events:
                async for event in events:
                    pieces.add(event)
                    reply = event.reply or reply
            if reply is None:
                raise self._no_reply()
            reply = received(bare(reply))
            pieces.end(reply.text)
        return reply

    def _no_reply(self) -> ModelError:
        return ModelError(f"model {self.name!r} ended its stream before the reply was complete")


async def _once(reply: Awaitable[Reply]) -> AsyncIterator[ModelEvent]:
    yield ModelEvent(reply=await reply)


def _as_json(where: str, value: Any) -> Any:
    """A request as plain JSON.

    Raises:
        InvalidValue: it has no JSON form, or could not be read back.
    """
    try:
        found = to_jsonable_python(value)
    except (ValueError, TypeError, RecursionError) as error:  # also of bytes, surrogates and values too deep
        why = fault_in(value, MAX_DEPTH + INSIDE) or f"it has no JSON form: {error}"
        raise InvalidValue(f"{where}: {why}", where=where) from None
    checked(found, where, depth=MAX_DEPTH + INSIDE, size=MAX_REQUEST_BYTES)
    return found


def _shortened(request: dict[str, Any], machine: RunState) -> dict[str, object]:
    """The request with references in place of the messages that the journal has already."""
    seen: set[str] = set()
    messages: list[dict[str, object]] = []
    for message in request["messages"]:
        name = digest(message)
        messages.append(
            {"ref": name} if name in seen or machine.ledger.knows_message(name) else {**message, "digest": name}
        )
        seen.add(name)
    return {**request, "messages": messages}


# -- pieces of replies, as live events ---------------------------------------------------------------------------------


class Pieces:
    """A reply while it arrives; a context manager around one try of its call.

    Whatever happens, the texts behind the last `reset` of a call make up the text of the reply that is journaled.
    """

    def __init__(self, attempt: Attempt, key: str) -> None:
        self._attempt, self._key = attempt, key
        self._reply = PartialReply({**attempt.about(), "attempt": attempt.activation.attempt, "key": key})

    def __enter__(self) -> Self:
        log = self._attempt.log
        log.replies[self._key] = self._reply
        entry = log.machine.ledger.entry(self._key)
        if entry is not None and entry.intended.again:  # what was shown of it before counts no more
            self._tell("reset")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        replies = self._attempt.log.replies
        if replies.get(self._key) is self._reply:
            del replies[self._key]

    def add(self, event: ModelEvent) -> None:
        """Show a piece."""
        if not event.text and not event.reasoning:
            return
        text, reasoning = without_known(event.text), without_known(event.reasoning)
        self._reply.add(text, reasoning)
        if reasoning:
            self._tell("token", text=text, reasoning=reasoning)
        else:
            self._tell("token", text=text)

    def end(self, text: str) -> None:
        """The reply is whole. Show its text where the pieces do not make it up, because it was read from them."""
        text = without_known(text)
        if not self._reply.is_text(text):
            if self._reply.length:
                self._tell("reset")
            self._tell("token", text=text)

    def _tell(self, kind: str, **data: object) -> None:
        self._attempt.log.tell(kind, {**self._reply.about, **data})


MOST_KEPT = 1_000_000
"""Characters that are kept of one reply: its end, if it is longer."""
_BLOCK = 256
"""Pieces that are kept as one: small texts take much more memory than their characters."""


class PartialReply:
    """A reply that arrives in pieces, as far as it is kept."""

    __slots__ = ("_begun", "_blocks", "_kept", "_recent", "about", "length", "omitted")

    def __init__(self, about: dict[str, object]) -> None:
        self.about = about
        """The fields that all live events of the call have."""
        self.length = self.omitted = 0
        """Characters of its text so far, and how many of them are not kept."""
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
        """Text and reasoning so far, as far as they are kept."""
        return _joined([*self._blocks, *self._recent])

    def is_text(self, text: str) -> bool:
        """True if the pieces make up this text."""
        return self.length == len(text) and text[self.omitted :] == self.texts()[0]

    def events(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Types and data of the live events that give the reply so far to one who saw nothing, or other parts of it."""
        yield "reset", dict(self.about)
        if not self._begun:  # but it may have been under way before, and the reader may have seen that
            return
        text, reasoning = map(without_known, self.texts())  # a secret may come in several pieces
        data = {**self.about, "text": text}
        if reasoning:
            data["reasoning"] = reasoning
        if self.omitted:
            data["omitted"] = self.omitted
        yield "token", data


def _joined(pieces: Sequence[tuple[str, str]]) -> tuple[str, str]:
    return "".join(text for text, _ in pieces), "".join(thought for _, thought in pieces)
