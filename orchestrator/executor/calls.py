"""What a node calls through its context, as effects: models, tools, functions."""

from __future__ import annotations

import inspect
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
from pydantic_core import PydanticSerializationError, to_jsonable_python

from orchestrator.errors import AgentError, GraphUnknown, InvalidUpdate, ModelError
from orchestrator.executor.effect import Effect, witness
from orchestrator.executor.unknown import uncertain
from orchestrator.graph.codec import Codec, Unfit
from orchestrator.jsontypes import cleaned, digest
from orchestrator.models.base import (
    Model,
    ModelEvent,
    ModelRequest,
    Output,
    ToolLike,
    bare,
    calling_key,
    calling_node,
    closing,
)
from orchestrator.models.messages import Message, Reply
from orchestrator.tools.result import ToolFailure, ToolResult, as_text
from orchestrator.tools.running import run_function
from orchestrator.tools.tool import Tool
from orchestrator.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from orchestrator.executor.stepping import StepContext
    from orchestrator.kernel.machine import Machine
    from orchestrator.kernel.records import EffectClass
    from orchestrator.kernel.token import Activation

T = TypeVar("T")


# -- which ones a node gets ------------------------------------------------------------------------------------------


def _said(activation: Activation, attribute: str) -> Any:
    """What the node, or the nearest subgraph node around it, says that it uses; None if none of them does."""
    at: Activation | None = activation
    while at is not None:
        graph = at.frame.plan.graph
        found = None if graph is None else getattr(graph.nodes[at.node], attribute)
        if found is not None:
            return found
        at = at.frame.parent
    return None


def model_for(context: StepContext) -> Model:
    """The model of a step, its calls journaled.

    Raises:
        GraphUnknown: the executor was given none, or none of that name.
    """
    given = context.live.given
    name = _said(context.activation, "model")
    model = given.model if name is None else given.models.get(name)
    if model is None:
        raise given.no_model(context.node, name)
    return LedgeredModel(context, model)


class _Models(Mapping[str, Model]):
    def __init__(self, context: StepContext) -> None:
        self._context = context

    def __getitem__(self, name: str) -> Model:
        return LedgeredModel(self._context, self._context.live.given.models[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._context.live.given.models)

    def __len__(self) -> int:
        return len(self._context.live.given.models)


def models_for(context: StepContext) -> Mapping[str, Model]:
    """All named models, their calls journaled."""
    return _Models(context)


def tools_for(context: StepContext) -> Toolbox:
    """The tools of a step, their calls journaled.

    Raises:
        GraphUnknown: the node names one that the executor was not given.
    """
    tools = context.live.given.tools
    names = _said(context.activation, "tools")
    return LedgeredToolbox(context, tools if names is None else tools.subset(names))


# -- models ----------------------------------------------------------------------------------------------------------


class LedgeredModel:
    """A model whose calls go through the ledger of one step."""

    def __init__(self, context: StepContext, model: Model) -> None:
        self._context, self._model = context, model

    @property
    def name(self) -> str:
        """The name of the model behind it."""
        return self._model.name

    async def complete(
        self,
        messages: str | Sequence[Message],
        tools: Iterable[ToolLike] = (),
        output: Output = None,
        *,
        task: str | None = None,
        **options: Any,
    ) -> Reply:
        """See `Model.complete`."""
        request = ModelRequest.of(messages, tools, output, task=task, options=options)
        # The schema stands for the class: whether the text fits it is found out after the reply was journaled,
        # so that a reply that does not fit is paid for once.
        reply = await self._context.ledger.perform(self._effect(request))
        return request.parse(reply)

    def stream(
        self,
        messages: str | Sequence[Message],
        tools: Iterable[ToolLike] = (),
        output: Output = None,
        *,
        task: str | None = None,
        **options: Any,
    ) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`. Every piece of text is also a live event, `token`. A replay gives the reply only."""
        events = self._stream(ModelRequest.of(messages, tools, output, task=task, options=options))
        self._context.ledger.reads(events.aclose)
        return events

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        effect = self._effect(request)
        ledger = self._context.ledger
        settled, ticket = await ledger.begin(effect)
        reply: Reply | None = None
        shown = False
        while ticket is not None and reply is None:
            try:
                ledger.read_here(ticket)
                watching = witness.get()
                self._called(ticket.key)
                source = self._pieces(request) if watching is None else _once(watching.call(effect, ticket.key))
                async with closing(source) as events:  # also when the node stops reading
                    async for event in events:
                        calling_key.set(None)  # it was sent; what the reader does meanwhile is no part of this call
                        self._tell(event)
                        if event.reply is None:
                            shown = True
                            yield event
                        else:
                            reply = event.reply
                if reply is None:
                    raise self._no_reply()
                reply = ledger.end(ticket, effect, bare(reply))
            except GeneratorExit:
                ledger.put_down(ticket)
                raise
            except BaseException as error:
                # What the node has read of a reply cannot be taken back: then the next try is a matter of its step.
                if not ledger.broke(ticket, error, None if shown else effect):
                    raise
            finally:
                calling_key.set(None)
            if reply is None:
                ticket = await ledger.once_more(effect, ticket)
        yield ModelEvent(reply=request.parse(ledger.known(settled, effect) if reply is None else reply))

    def _called(self, key: str) -> None:
        calling_node.set(self._context.node)
        calling_key.set(key)

    def _effect(self, request: ModelRequest) -> Effect[Reply]:
        machine = self._context.live.machine
        asked = plain(f"the request to model {self.name!r}", request.data())

        async def run(key: str) -> Reply:
            self._called(key)
            try:
                # Who watches a run wants to see a reply come, whether or not the node does.
                watched = self._context.live.watchers and getattr(self._model, "streams", False)
                return bare(await (self._watched(request) if watched else self._whole(request)))
            finally:
                calling_key.set(None)

        return Effect(
            kind="model",
            name=self.name,
            effect="idempotent",
            request=asked,
            stored=lambda: _shortened(asked, machine),
            run=run,
            encode=lambda reply: reply.data(),
            decode=Reply.model_validate,
            usage=lambda reply: reply.usage,
            retry=getattr(self._model, "retry", None),
        )

    async def _whole(self, request: ModelRequest) -> Reply:
        return await self._model.complete(
            request.messages, request.tools, request.output, task=request.task, **request.options
        )

    def _pieces(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        return self._model.stream(request.messages, request.tools, request.output, task=request.task, **request.options)

    async def _watched(self, request: ModelRequest) -> Reply:
        reply: Reply | None = None
        async with closing(self._pieces(request)) as events:
            async for event in events:
                self._tell(event)
                reply = event.reply or reply
        if reply is None:
            raise self._no_reply()
        return reply

    def _tell(self, event: ModelEvent) -> None:
        """Show a piece of a reply to who watches."""
        if event.reasoning:
            self._context.tell("token", text=event.text, reasoning=event.reasoning)
        elif event.text:
            self._context.tell("token", text=event.text)

    def _no_reply(self) -> ModelError:
        return ModelError(f"model {self.name!r} ended its stream without a whole reply")


async def _once(reply: Awaitable[Reply]) -> AsyncIterator[ModelEvent]:
    yield ModelEvent(reply=await reply)


def _shortened(request: dict[str, Any], machine: Machine) -> dict[str, object]:
    """The request with references in place of the messages that the journal has already."""
    seen: set[str] = set()
    messages: list[dict[str, object]] = []
    for message in request["messages"]:
        name = digest(message)
        messages.append({"ref": name} if name in seen or machine.knows_message(name) else {**message, "digest": name})
        seen.add(name)
    return {**request, "messages": messages}


# -- tools -----------------------------------------------------------------------------------------------------------


class LedgeredToolbox(Toolbox):
    """The tools of one step; `execute` goes through its ledger."""

    def __init__(self, context: StepContext, tools: Iterable[Tool]) -> None:
        super().__init__(*tools)
        self._context = context

    def subset(self, names: Iterable[str]) -> Toolbox:
        return LedgeredToolbox(self._context, super().subset(names))

    def in_group(self, group: str) -> Toolbox:
        return LedgeredToolbox(self._context, super().in_group(group))

    async def execute(self, *, name: str, tool_input: Mapping[str, object] | None = None) -> ToolResult:
        tool = self.get(name)
        if tool is None:
            return ToolFailure(error=f"Tool {name} is invalid")
        try:
            args = tool.validate(tool_input or {})
        except Exception as error:
            return tool.failure(error)
        result = await perform_tool(self._context, tool, args)
        return result.model_copy(update={"output": as_text(result.output)})


async def call_tool(context: StepContext, name: str, args: Mapping[str, object]) -> ToolResult:
    """See `Context.tool`."""
    tool = context.tools.get(name)
    if tool is None:
        known = ", ".join(one.name for one in context.tools) or "none at all"
        raise AgentError(f"{context.node}: {name!r} is not an available tool; there are: {known}")
    return await perform_tool(context, tool, tool.validate(args))


async def perform_tool(context: StepContext, tool: Tool, args: Mapping[str, object]) -> ToolResult:
    """Call a tool with validated arguments, through the ledger. What it raises becomes a `ToolFailure`.

    The tool's own `retry` makes the call again inside the same effect, but never one of an irreversible tool whose
    error leaves open whether it happened (see `uncertain`), whatever the retry says: a connection that broke or time
    that ran out ends that call, its result is journaled as unknown, and a further attempt of the step asks first.
    """

    passing: tuple[type[Exception], ...] = (GraphUnknown, *tool.passes)

    async def run(key: str) -> tuple[ToolResult, bool]:
        attempt = 1
        while True:
            try:
                return _told(await tool.perform(args, key=key, ctx=context)), False
            except passing:
                raise
            except Exception as error:
                retry, unsure = tool.retry, uncertain(error)
                again = retry is not None and attempt < retry.attempts and retry.matches(error)
                if retry is None or not again or (unsure and tool.effect == "irreversible"):
                    return _told(tool.failure(error)), unsure
                await anyio.sleep(retry.delay(attempt, random.random()))
                attempt += 1
            if not context.live.hold.fresh:
                await context.ensure_held()

    result, _ = await context.ledger.perform(
        Effect(
            kind="tool",
            name=tool.name,
            effect=tool.effect,
            request={"args": dict(args), "schema": tool.schema_digest},
            run=run,
            encode=lambda found: _data(found[0]),
            decode=lambda found: (_tool_result(found), False),
            unknown=lambda found: found[1],
            reconcile=_reconciler(tool),
        )
    )
    return result


_NOTHING = ToolResult().model_dump()


def _data(result: ToolResult) -> dict[str, Any]:
    """A result without what goes without saying: as of `ToolResult`, whatever the defaults of its own class are."""
    data = result.model_dump(mode="json", include=set(ToolResult.model_fields))
    return {name: value for name, value in data.items() if value != _NOTHING[name]}


def _tool_result(found: object) -> ToolResult:
    """A tool's result from the journal, or from a person who said what it was."""
    if isinstance(found, Mapping) and found.keys() <= ToolResult.model_fields.keys():
        kind = ToolFailure if found.get("error") is not None and found.get("exit_code") else ToolResult
        return kind.model_validate(found)
    return ToolResult(output=cast("Any", found))


def _told(result: ToolResult) -> ToolResult:
    """A result as the journal will tell it."""
    return _tool_result(_data(result))


def _reconciler(tool: Tool) -> Callable[[str], Awaitable[tuple[ToolResult, bool] | None]] | None:
    reconcile = getattr(tool, "reconcile", None)
    if reconcile is None:
        return None

    async def ask(key: str) -> tuple[ToolResult, bool] | None:
        found = await run_function(partial(reconcile, key))
        if found is None:
            return None
        return (found if isinstance(found, ToolResult) else ToolResult(output=found)), False

    return ask


# -- functions -------------------------------------------------------------------------------------------------------


async def call_function(
    context: StepContext,
    name: str,
    fn: Callable[..., Awaitable[T] | T],
    args: Sequence[object],
    returns: type[T],
    effect: EffectClass,
    reconcile: Callable[[str], Awaitable[T | None] | T | None] | None,
) -> T:
    """See `Context.effect`."""
    codec = Codec(returns)

    async def run(key: str) -> object:
        given: dict[str, Any] = {"idempotency_key": key} if _wants_key(fn) else {}
        return encode(cast(T, await run_function(partial(fn, *args, **given), limiter=context.live.given.threads)))

    def encode(value: T) -> object:
        try:
            return codec.encode(value)
        except Unfit as error:
            raise InvalidUpdate(f"effect {name!r} gave what it cannot give: {error}") from None

    async def look(key: str) -> object:
        assert reconcile is not None
        found = await run_function(partial(reconcile, key), limiter=context.live.given.threads)
        return None if found is None else encode(cast(T, found))

    found = await context.ledger.perform(
        Effect[object](
            kind="effect",
            name=name,
            effect=effect,
            request={"args": plain(f"the arguments of effect {name!r}", list(args))},
            run=run,
            encode=lambda value: value,
            decode=lambda value: value,
            taken=lambda value: encode(codec.load(value)),
            reconcile=None if reconcile is None else look,
        )
    )
    # Read from its JSON also when it has just been made, so that a replay gives the same.
    try:
        return cast(T, codec.load(found))
    except Unfit as error:
        raise InvalidUpdate(f"effect {name!r} has a result that it cannot have: {error}") from None


def _wants_key(function: Callable[..., object]) -> bool:
    try:
        return "idempotency_key" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin that does not tell
        return False


def plain(what: str, value: Any) -> Any:
    """A value as JSON.

    Raises:
        InvalidUpdate: it has no JSON form.
    """
    try:
        return cleaned(to_jsonable_python(cleaned(value)))
    except (PydanticSerializationError, UnicodeEncodeError) as error:
        raise InvalidUpdate(f"{what} have no JSON form, and are journaled: {error}") from None
