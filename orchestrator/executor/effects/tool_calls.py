"""Tools and functions as a node has them: every call an effect."""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio

from orchestrator.errors import AgentError, GraphUnknown, InvalidUpdate, ToolFailed
from orchestrator.executor.effects.effect import Effect, own_tools, said_around
from orchestrator.executor.effects.ledger import innermost
from orchestrator.executor.effects.questions import ask_first
from orchestrator.executor.failures import bounded, traceback_of_tool
from orchestrator.executor.retry import uncertain
from orchestrator.fence import current_fence, waits_at_fence
from orchestrator.graph.codec import Codec, Unfit, as_json
from orchestrator.tools.capping import kept
from orchestrator.tools.result import ToolFailure, ToolResult, storable, worded
from orchestrator.tools.running import run_function
from orchestrator.tools.tool import Tool
from orchestrator.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from orchestrator.executor.step.context import StepContext
    from orchestrator.kernel.records import EffectClass

T = TypeVar("T")


def tools_for(context: StepContext) -> Toolbox:
    """The tools of a step, their calls journaled.

    Raises:
        GraphUnknown: the node names one that the executor was not given.
    """
    tools = context.live.resources.tools
    names = said_around(context.activation, "tools")
    if names is None:
        return LedgeredToolbox(context, tools)
    # Where the node, or a subgraph around it, has a tool of its own, that is what the name means.
    own = own_tools(context.activation)
    others = tools.subset(name for name in names if name not in own)
    return LedgeredToolbox(context, (own.get(name) or others.current()[name] for name in names) if own else others)


# -- tools -----------------------------------------------------------------------------------------------------------


class LedgeredToolbox(Toolbox):
    """The tools of one step; `execute` goes through its ledger."""

    def __init__(self, context: StepContext, tools: Iterable[Tool]) -> None:
        super().__init__(*tools)
        self._context = context

    def _derived(self, box: Toolbox) -> Toolbox:
        return LedgeredToolbox(self._context, box)

    async def execute(self, *, name: str, tool_input: Mapping[str, object] | None = None) -> ToolResult:
        tool = self.get(name)
        if tool is None:
            return ToolFailure(error=f"Tool {name} is invalid")
        try:
            args = tool.validate(tool_input or {})
        except Exception as error:
            return tool.failure(error)
        result = await perform_tool(self._context, tool, args)
        return worded(result)


async def call_tool(
    context: StepContext, name: str, given: Mapping[str, object] | None, more: Mapping[str, object]
) -> ToolResult:
    """See `Context.tool`."""
    try:
        tool = context.tools.get(name)
        if tool is None:
            known = ", ".join(one.name for one in context.tools) or "none at all"
            raise AgentError(f"{context.node}: {name!r} is not an available tool; there are: {known}")
        args, check = _parted(tool, given, more) if given is not None or "check" in more else (more, False)
        args = tool.validate(args)
    except AgentError:
        _note_failed(context)
        raise
    result = await perform_tool(context, tool, args)
    if check and result.failed:
        raise ToolFailed(name, result)
    return result


def _parted(
    tool: Tool, given: Mapping[str, object] | None, more: Mapping[str, object]
) -> tuple[Mapping[str, object], bool]:
    """The tool's arguments, and whether a failure is to be raised.

    Raises:
        TypeError: an argument is given twice.
    """
    names = cast("Mapping[str, Any]", tool.parameters.get("properties") or {})
    check = False
    if isinstance(more.get("check"), bool) and (given is not None or "check" not in names):
        check = bool(more["check"])
        more = {name: value for name, value in more.items() if name != "check"}
    if given is None:
        return more, check
    twice = sorted(given.keys() & more.keys())
    if twice:
        raise TypeError(f"tool {tool.name!r}: argument {twice[0]!r} is given twice: in the mapping and as a keyword")
    return {**given, **more}, check


def _note_failed(context: StepContext) -> None:
    """Count a call of the node's own that failed; those that a tool makes are that tool's matter."""
    if not innermost():
        context.failed_calls += 1


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
                done = await tool.perform(args, key=key, ctx=context)
                if done.metadata.get("new_instance") and await _began_anew(context, tool, key):
                    done = done.model_copy(update={"metadata": {**done.metadata, "began_anew": True}})
                return _told(storable(kept(done, tool.max_kept))), False
            except passing:
                raise
            except Exception as error:
                fence = current_fence.get()
                retry, unsure = tool.retry, uncertain(error) and (fence is None or fence.entered is not False)
                again = retry is not None and attempt < retry.attempts and retry.matches(error)
                if retry is None or not again or (unsure and tool.effect == "irreversible"):
                    failure = tool.failure(error).model_copy(update={"traceback": traceback_of_tool(error)})
                    return _told(storable(kept(failure, tool.max_kept))), unsure
                await anyio.sleep(retry.delay(attempt, random.random()))
                attempt += 1
            if not context.live.lease.fresh:
                await context.ensure_held()

    effect = Effect(
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
    if context.live.guard is not None:
        said = await ask_first(context, context.live.guard, tool, effect)
        if isinstance(said, ToolResult):
            _note_failed(context)
            return said
        if said is not None:
            args = said
            effect = replace(effect, request={"args": said, "schema": tool.schema_digest})
    result, _ = await context.ledger.perform(effect)
    if result.failed:
        _note_failed(context)
    return result


async def _began_anew(context: StepContext, tool: Tool, key: str) -> bool:
    """Whether the run called the tool before: what those calls set up in their instance is gone."""
    had = context.holder.had
    if tool.name in had:
        return True
    had.add(tool.name)
    live = context.live
    if live.is_new:
        return False
    records = await live.journal.store.read(live.run_id)
    return any(one.type == "effect_intended" and one.name == tool.name and one.key != key for one in records)


_NOTHING = ToolResult().model_dump(mode="json")


def _data(result: ToolResult) -> dict[str, Any]:
    """A result without what goes without saying: as of `ToolResult`, whatever the defaults of its own class are."""
    data = result.model_dump(mode="json", include=set(ToolResult.model_fields))
    found = {name: value for name, value in data.items() if value != _NOTHING.get(name)}
    if result.traceback:
        found["traceback"] = bounded(result.traceback)
    return found


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
        return storable(found if isinstance(found, ToolResult) else ToolResult(output=found)), False

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
        waits_at_fence(key)
        return encode(cast(T, await run_function(partial(fn, *args, **given), limiter=context.live.resources.threads)))

    def encode(value: T) -> object:
        try:
            return codec.encode(value)
        except Unfit as error:
            raise InvalidUpdate(f"effect {name!r} gave what it cannot give: {error}") from None

    async def look(key: str) -> object:
        assert reconcile is not None
        found = await run_function(partial(reconcile, key), limiter=context.live.resources.threads)
        return None if found is None else encode(cast(T, found))

    found = await context.ledger.perform(
        Effect[object](
            kind="effect",
            name=name,
            effect=effect,
            request={"args": as_json(list(args), f"the arguments of effect {name!r}", inside=1)},
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
