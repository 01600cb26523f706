"""Tools and functions as nodes see them: arguments are checked, every call is an effect."""

from __future__ import annotations

import inspect
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import anyio
import anyio.to_thread

from orchestrator.context import Context
from orchestrator.errors import AgentError, GraphUnknown, InvalidUpdate, ResultRefused, ToolFailed
from orchestrator.executor.calls.effect import Effect
from orchestrator.executor.calls.perform import AttemptEffects
from orchestrator.executor.calls.under_way import innermost
from orchestrator.executor.failures import Lost, bounded, traceback_of_tool
from orchestrator.executor.retries import GiveUp, TryAgain, decide, outcome_is_open, why_not_retried
from orchestrator.executor.run_log import ResultIndex
from orchestrator.executor.trusted_approvals import CallDenied
from orchestrator.graph.codec import Codec, as_json
from orchestrator.graph.isolation import json_copy
from orchestrator.graph.model import GraphDefinition, Node
from orchestrator.graph.state import type_schema
from orchestrator.kernel.question import Approve
from orchestrator.kernel.records import EffectClass, EffectIntended, EffectSettled, Record
from orchestrator.kernel.state import Activation
from orchestrator.tools.result import ToolFailure, ToolResult, in_words, refused, storable, truncated, worded
from orchestrator.tools.stored_results import CHECKED, READ_RESULT, ReadResult, StoredResult, id_of
from orchestrator.tools.tool import Tool, run_function
from orchestrator.tools.toolbox import Toolbox
from orchestrator.user_code import contained, current_fence, waits_at_fence
from orchestrator.values import Unfit

T = TypeVar("T")
logger = logging.getLogger("orchestrator.steps")


def tools_for(effects: AttemptEffects, ctx: Context[Any]) -> JournaledToolbox:
    """Return the tools of a step, whose calls are journaled.

    Raises:
        GraphUnknown: the node names a tool that the executor does not have.
    """
    tools = effects.attempt.resources.tools
    names = effects.attempt.setting("tools")
    found: Iterable[Tool] = tools
    if names is not None:
        # A tool declared by the node, or by an enclosing subgraph, takes precedence.
        own = effects.attempt.own_tools()
        others = tools.subset(name for name in names if name not in own)
        found = (own.get(name) or others.current()[name] for name in names) if own else others
    box = JournaledToolbox(effects, ctx, found)
    if _stores_results(effects.attempt.activation):
        box.reader = ReadResult(box.stored_result)
    return box


def _stores_results(at: Activation) -> bool:
    """Return True if a node of the run's graph, or of a graph inside it, replaces results by excerpts."""
    while at.frame.parent is not None:
        at = at.frame.parent
    graph = at.frame.plan.graph
    if graph is None:
        return False
    known = vars(graph).get("_stores_results")
    if known is None:
        known = vars(graph)["_stores_results"] = any(node._stores_results for node in _nodes_in(graph))
    return bool(known)


def _nodes_in(graph: GraphDefinition) -> Iterator[Node]:
    for node in graph.nodes.values():
        yield node
        if node.subgraph is not None:
            yield from _nodes_in(node.subgraph)


def _index(index: ResultIndex, records: Sequence[Record]) -> None:
    for one in records:
        if isinstance(one, EffectIntended) and one.kind == "tool":
            index.calls[one.key] = ""
        elif isinstance(one, EffectIntended) and one.name == CHECKED:
            index.calls[one.key] = str(cast("list[object]", one.request.get("args") or [""])[-1])
        elif isinstance(one, EffectSettled) and one.ok and one.key in index.calls:
            index.places[id_of(_tool_result(one.result).text)] = one.seq, index.calls[one.key]
        index.upto = max(index.upto, one.seq)


class JournaledToolbox(Toolbox):
    """The tools of one step, whose calls are effects."""

    reader: ReadResult | None = None
    """Reads stored results. It is found by its name, unless another tool has it, but not listed: nodes that show a
    model their tools offer it when there is something to read."""

    def get(self, name: str) -> Tool | None:
        found = super().get(name)
        return self.reader if found is None and name == READ_RESULT else found

    def __init__(self, effects: AttemptEffects, ctx: Context[Any], tools: Iterable[Tool]) -> None:
        super().__init__(*tools)
        self._effects, self._ctx = effects, ctx

    def _derived(self, box: Toolbox) -> Toolbox:
        return JournaledToolbox(self._effects, self._ctx, box)

    async def stored_result(self, id: str) -> StoredResult | None:  # noqa: A002  as in `read_result`
        attempt, log = self._effects.attempt, self._effects.attempt.log
        read, index = log.journal.store.read, log.results
        if id not in index.places:
            try:
                await log.durable()
            except Exception as error:
                raise attempt.signalled(Lost(error)) from error
            records = await read(log.run_id, after=index.upto)
            await anyio.to_thread.run_sync(_index, index, records)
        if id not in index.places:
            return None
        place, checked_by = index.places[id]
        (record,) = await read(log.run_id, after=place - 1, upto=place)
        return StoredResult(_tool_result(record.result).text, checked_by) if isinstance(record, EffectSettled) else None

    async def execute(self, *, name: str, tool_input: Mapping[str, object] | None = None) -> ToolResult:
        tool = self.get(name)
        if tool is None:
            return ToolFailure(error=f"Tool {name} is invalid")
        try:
            with contained():
                args = tool.validate(tool_input or {})
        except Exception as error:
            return tool.failure(error)
        return worded(await self._perform(tool, args))

    async def call(self, name: str, given: Mapping[str, object] | None, more: Mapping[str, object]) -> ToolResult:
        """See `Context.tool`."""
        try:
            tool = self.get(name)
            if tool is None:
                known = ", ".join(one.name for one in self) or "none at all"
                raise AgentError(f"{self._ctx.node}: {name!r} is not an available tool; there are: {known}")
            args, check = _parted(tool, given, more) if given is not None or "check" in more else (more, False)
            args = tool.validate(args)
        except AgentError:
            self._note_failed()
            raise
        result = await self._perform(tool, args)
        if check and result.failed:
            raise ToolFailed(name, result)
        return result

    def _note_failed(self) -> None:
        """Count a failed call by the node; failed calls by a tool are left to that tool."""
        if not innermost():
            self._effects.attempt.failed_calls += 1

    async def _perform(self, tool: Tool, args: Mapping[str, object]) -> ToolResult:
        """Call a tool with validated arguments, as an effect. Its errors become a `ToolFailure`."""
        effects = self._effects
        effects.attempt.check_may_call(tool.name)

        def calling(args: Mapping[str, object]) -> Effect[tuple[ToolResult, bool]]:
            return Effect(
                kind="tool",
                name=tool.name,
                effect=tool.effect,
                request={"args": dict(args), "schema": tool.schema_digest},
                risk=tool.risk,
                run=lambda key: self._make(tool, args, key),
                encode=lambda found: _data(found[0]),
                decode=lambda found: (_tool_result(found), False),
                reread=True,
                unknown=lambda found: found[1],
                reconcile=_reconciler(tool),
                returns=lambda: tool.output_schema,
                continues=tool.continues,
                graph=str(getattr(getattr(tool, "graph", None), "content", "")),
                recall=lambda request: calling(request["args"]),
            )

        effect = calling(args)
        log = effects.attempt.log
        approvals = None if log.replay is not None or (effect.irreversible and log.machine.in_fork) else log.approvals
        due, known = (False, "") if approvals is None else effects.is_due(effect)
        try:
            if approvals is not None and due and approvals.asks_about(tool, args, known):
                payload = {"tool": tool.name, "args": dict(args), "risk": tool.risk, "effect": tool.effect}
                answer = await self._ctx.ask("approval", prompt=f"Call {tool.name}? {approvals.why}", payload=payload)
                if not isinstance(answer, Approve):
                    raise CallDenied(tool.name, getattr(answer, "reason", ""))
                if answer.args is not None:
                    effect = calling(tool.validate(answer.args))
            result, _ = await effects.perform(effect)
        except ResultRefused as refusal:
            result = tool.failure(refusal)
        except CallDenied as denied:
            self._note_failed()
            return ToolFailure(error=denied.words)
        if result.failed:
            self._note_failed()
        return result

    async def _make(self, tool: Tool, args: Mapping[str, object], key: str) -> tuple[ToolResult, bool]:
        """Return the result of a tool, and whether that leaves its outcome open.

        The tool's own `retry` makes the call again inside the same effect, but never one of an irreversible tool whose
        error leaves its outcome open (see `outcome_is_open`), whatever the retry allows: a connection that broke or
        time that ran out ends that call, its result is journaled as unknown, and a further attempt of the step asks
        first. The same holds if its result is refused. Nor is a tool called again if something irreversible happened
        inside it, or may have: a further attempt of the step gets the results of those calls.
        """
        attempt, tries = self._effects.attempt, 1
        returned = (ResultRefused,) if tool.effect == "irreversible" else ()
        let_through: tuple[type[Exception], ...] = (GraphUnknown, *returned, *tool.propagates)
        while True:
            try:
                with contained():
                    done = await tool.perform(args, key=key, ctx=self._ctx)
                return await self._landed(tool, done, key), False
            except let_through:
                raise
            except Exception as error:
                fence = current_fence.get()
                open_ = outcome_is_open(error) and (fence is None or fence.entered is not False)
                again = None
                if tool.retry is not None:
                    irreversible = (open_ and tool.effect == "irreversible") or self._effects.lasts_inside(key)
                    again = decide(tool.retry, error, tries, random.random(), irreversible=irreversible)
                    if again == GiveUp("error"):
                        why = why_not_retried(tool.retry, type(error).__name__)
                        logger.warning("tool %s: %s", tool.name, why)
                if not isinstance(again, TryAgain):
                    failure = tool.failure(error).model_copy(update={"traceback": traceback_of_tool(error)})
                    return storable(truncated(failure, tool.max_kept)), open_
                await anyio.sleep(again.wait)
                tries += 1
            if not attempt.log.lease.fresh:
                await attempt.ensure_held()

    async def _landed(self, tool: Tool, done: ToolResult, key: str) -> ToolResult:
        """Return the result of a call that was made, in its journaled form.

        Raises:
            ResultRefused: an error occurred after the call.
        """
        try:
            if done.metadata.get("new_instance") and await self._began_anew(tool, key):
                done = done.model_copy(update={"metadata": {**done.metadata, "began_anew": True}})
            return _kept(tool, done)
        except Exception as error:
            raise refused(error, done) from error

    async def _began_anew(self, tool: Tool, key: str) -> bool:
        """Return True if the run called the tool before: the state that those calls left in their instance is gone."""
        log = self._effects.attempt.log
        had = log.holdings.of(log.run_id).had
        if tool.name in had:
            return True
        had.add(tool.name)
        if log.is_new:
            return False
        records = await log.journal.store.read(log.run_id)
        return any(one.type == "effect_intended" and one.name == tool.name and one.key != key for one in records)


def _parted(
    tool: Tool, given: Mapping[str, object] | None, more: Mapping[str, object]
) -> tuple[Mapping[str, object], bool]:
    """Return the tool's arguments, and whether to raise a failure.

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


def _kept(tool: Tool, done: ToolResult) -> ToolResult:
    """Return a result in its journaled form; a failed one if it cannot be journaled.

    Raises:
        ResultRefused: it cannot be journaled, and the call cannot be made again.
    """
    result = storable(truncated(done, tool.max_kept))
    if result.failed and not done.failed and tool.effect == "irreversible":
        raise ResultRefused(str(result.error), in_words(done))
    return result


_NOTHING = ToolResult().model_dump(mode="json")


def _data(result: ToolResult) -> dict[str, Any]:
    """Return a result as JSON, omitting defaults of `ToolResult`."""
    data = result.model_dump(mode="json", include=set(ToolResult.model_fields))
    found = {name: value for name, value in data.items() if value != _NOTHING.get(name)}
    if result.traceback:
        found["traceback"] = bounded(result.traceback)
    return found


def _tool_result(found: object) -> ToolResult:
    """Return a tool's result from the journal, or from a person's answer."""
    if isinstance(found, Mapping) and found.keys() <= ToolResult.model_fields.keys():
        kind = ToolFailure if found.get("error") is not None and found.get("exit_code") else ToolResult
        return kind.model_validate(found)
    return ToolResult(output=cast("Any", found))


def _reconciler(tool: Tool) -> Callable[[str], Awaitable[tuple[ToolResult, bool] | None]] | None:
    reconcile = getattr(tool, "reconcile", None)
    if reconcile is None:
        return None

    async def ask(key: str) -> tuple[ToolResult, bool] | None:
        found = await run_function(partial(reconcile, key))
        if found is None:
            return None
        return _kept(tool, found if isinstance(found, ToolResult) else ToolResult(output=found)), False

    return ask


# -- functions --------------------------------------------------------------------------------------------------------


async def call_function(
    effects: AttemptEffects,
    name: str,
    fn: Callable[..., Awaitable[T] | T],
    args: Sequence[object],
    returns: type[T],
    effect: EffectClass,
    reconcile: Callable[[str], Awaitable[T | None] | T | None] | None,
) -> T:
    """See `Context.effect`."""
    codec, threads = Codec(returns), effects.attempt.resources.threads

    async def run(key: str) -> T:
        given: dict[str, Any] = {"idempotency_key": key} if _wants_key(fn) else {}
        waits_at_fence(key)
        return cast(T, await run_function(partial(fn, *args, **given), limiter=threads))

    def encode(value: T) -> object:
        try:
            return codec.encode(value)
        except Unfit as error:
            raise InvalidUpdate(f"effect {name!r} returned a value that does not fit `returns`: {error}") from None

    def decode(found: object) -> T:
        try:
            return cast(T, codec.load(json_copy(found)))  # from a copy, because the journal stores the result
        except Unfit as error:
            raise InvalidUpdate(f"effect {name!r} has a result that does not fit `returns`: {error}") from None

    async def look(key: str) -> T | None:
        assert reconcile is not None
        return cast("T | None", await run_function(partial(reconcile, key), limiter=threads))

    asked = as_json(list(args), f"the arguments of effect {name!r}", inside=1)
    return await effects.perform(
        Effect[T](
            kind="effect",
            name=name,
            effect=effect,
            request={"args": asked},
            run=run,
            encode=encode,
            decode=decode,
            reread=True,
            validate=lambda value: encode(codec.load(value)),
            returns=partial(type_schema, returns, "validation"),
            reconcile=None if reconcile is None else look,
        )
    )


def _wants_key(function: Callable[..., object]) -> bool:
    try:
        return "idempotency_key" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return False
