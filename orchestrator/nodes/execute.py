"""Call the chosen tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, Self, TypeVar

import anyio
from pydantic import BaseModel, ConfigDict, Field, JsonValue, PositiveInt, field_validator, model_validator

from orchestrator.context import Context
from orchestrator.errors import AgentError, EffectFailed, InvalidOutcome, ToolFailed
from orchestrator.graph.model import Node, Port
from orchestrator.graph.names import plain_name
from orchestrator.graph.outcome import FAILED, RESERVED, Failing, Outcome
from orchestrator.graph.reducers import append
from orchestrator.json import canonical
from orchestrator.models.messages import Message, ToolCall
from orchestrator.nodes.conversation import CHANGED, added, result_message
from orchestrator.nodes.model_decision import question_in_hand, quoted
from orchestrator.nodes.steps import step_of
from orchestrator.tools.result import SHOWN, ToolResult
from orchestrator.tools.stored_results import READ_RESULT, ReadResult
from orchestrator.tools.toolbox import Handoff
from orchestrator.user_code import stopped_by

_ONE = ("tool", "args", "result", "steps", "question", "current", "call", "message")
_MANY = ("calls", "results")
_OWN = ("done", "finished")
NOT_HANDED_OVER = "not handed over: of several calls in one reply that hand over, only the first counts"


def _is_none(value: object) -> bool:
    return value is None


class Execute(Node, kind="execute"):
    """Call tools, and take `finished` if a tool that ends the work (`ends=True`) succeeded, else `done`.

    A tool can choose another outcome, one of those in `outcomes=`: `ToolResult(outcome="billing")`, as tools made by
    `handoff` do. It takes precedence over `finished`; among several calls, the first in order that chose one counts,
    and the results of the others say that they do not count. A call that failed chooses none.

    A failing tool fails the step with `ToolFailed`, after its `retry` if it has one. With an edge for the outcome
    `failed`, that edge is taken instead: the results are written, and `ctx.error` is set in the next node. With
    `on_failure="observe"` and no such edge, a failed result is like any other, for the model to see.

    With `tool` and `args` it makes one call, and writes the `ToolResult` to `result`, or adds a `Step` to `steps`, or
    both; the result of a model's `call` is also written to `message`. With `calls` and `results` it makes all calls of
    a list at the same time and writes their results in the order of the calls, each as a message of role `tool`. Calls
    that share an instance of a pool are made one after the other. All calls of a list are completed, even if one of
    them ends the work or fails; a failure then takes precedence over an end.

    Raises:
        AgentError: the tool does not exist or the arguments do not fit it, and `on_error` is `raise`.
        ToolFailed: a tool call failed, and `on_failure` is `raise`; for several, the first in order.
        InvalidOutcome: a tool chose an outcome that `outcomes=` does not name.
    """

    look = "tool"

    model_config = ConfigDict(validate_by_name=True)

    fills = ("result", "steps", "message", "results")

    if_named = (FAILED,)
    outcomes_field = "chosen"

    class State(BaseModel):
        """The fields that the ports name by default for a single call."""

        tool: str = ""
        """The chosen tool's name."""
        args: dict[str, JsonValue] = {}
        """The chosen arguments."""
        result: ToolResult | None = None
        """Result of the last call."""

    class ListState(BaseModel):
        """The fields for `Execute(calls="pending", results="observations")`."""

        pending: list[ToolCall] = []
        """Calls to make."""
        observations: Annotated[list[Message], append] = []
        """Results of all calls."""

    tool: Annotated[str, Port(str)] = "tool"
    """Field with the tool's name."""
    args: Annotated[str, Port(dict)] = "args"
    """Field with the arguments."""
    result: Annotated[str | None, Port()] = "result"
    """Field that gets the `ToolResult`."""
    steps: Annotated[str | None, Port(list)] = None
    """Field that a `Step` is appended to."""
    question: Annotated[str | None, Port(str)] = None
    """Field with the main question, for the step."""
    current: Annotated[str | None, Port(str)] = None
    """Field with the follow-up question, for the step."""
    call: Annotated[str | None, Port()] = None
    """Field with the model's `ToolCall` that the tool and its arguments come from."""
    message: Annotated[str | None, Port()] = None
    """Field that gets the message with that call's result."""
    calls: Annotated[str | None, Port(list)] = None
    """Field with a list of `ToolCall`s."""
    results: Annotated[str | None, Port(list)] = None
    """Field that gets a message for each of them; one with the reducer `append` or a plain one."""
    on_error: Literal["raise", "observe"] = "observe"
    """What happens if a call cannot be made: the step fails, or the call's result gives the reason."""
    on_failure: Literal["raise", "observe"] = "raise"
    """What happens if a call fails: the step fails, or the call's result gives the reason."""
    most: PositiveInt = 16
    """The most concurrent calls; they start in their order."""
    chosen: tuple[str, ...] = Field(default=(), alias="outcomes")
    """Outcomes that tools can choose, in addition to `done` and `finished`; given as `outcomes=`."""

    offload: Annotated[int, Field(ge=1_000)] | None = Field(default=None, exclude_if=_is_none)
    """Number of characters of a result above which the model is shown its start and end only, together half as many,
    with its length and an id. The tool `read_result`, which the model is then offered, reads the rest from the
    journal. A tool's `max_shown` counts if it is lower. None: `max_shown` alone counts, and the rest cannot be read."""

    @field_validator("chosen")
    @classmethod
    def _check_chosen(cls, chosen: tuple[str, ...]) -> tuple[str, ...]:
        if FAILED in chosen:
            raise ValueError(f"{FAILED!r} is an outcome of every Execute, for calls that failed: leave it out")
        return tuple(name for name in chosen if name not in _OWN)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.calls is None) != (self.results is None):
            raise ValueError("calls= and results= belong together: name both fields, or neither")
        if (self.call is None) != (self.message is None):
            raise ValueError("call= and message= belong together: name both fields, or neither")
        defaults = {name: type(self).model_fields[name].default for name in _ONE}
        own = [name for name in sorted(_ONE) if getattr(self, name) != defaults[name]]  # data contains defaults, too
        if self.calls is not None and own:
            raise ValueError(f"{own[0]}= is for a single call and calls= for several: name one of them")
        if self.offload is not None and self.calls is None and self.message is None:
            raise ValueError("offload= shortens messages for a model: name the field for them, message= or results=")
        if self.steps is not None and self.question is None:
            raise ValueError("steps= records the question too: name its field, question=")
        return self

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "calls a tool" if self.calls is None else "calls tools"

    @property
    def outcomes(self) -> tuple[str, ...]:
        return (*_OWN, *self.chosen)

    @property
    def calls_tools(self) -> bool:
        return True

    @property
    def _stores_results(self) -> bool:
        return self.offload is not None

    @property
    def called_from(self) -> tuple[str, str]:
        return (self.tool, self.args) if self.calls is None else (self.calls, self.calls)

    def ports(self) -> dict[str, str]:
        unused = _ONE if self.calls is not None else _MANY
        return {port: field for port, field in super().ports().items() if port not in unused}

    async def run(self, state: object, ctx: Context) -> Outcome[str]:
        if self.calls is not None and self.results is not None:
            return await self._several(state, ctx, self.calls, self.results)
        name: str = getattr(state, self.tool)
        args: dict[str, Any] = getattr(state, self.args)
        made, result = await self._call(ctx, name, args)
        update: dict[str, object] = {}
        if self.result is not None:
            update[self.result] = result
        if self.steps is not None and self.question is not None:
            question = question_in_hand(state, self.question, self.current)
            update[self.steps] = step_of(question, name, args, result)
        if self.call is not None and self.message is not None:
            call = ToolCall.model_validate(getattr(state, self.call))
            shown = call.model_copy(update={"arguments": args})
            update[self.message] = self._message(ctx, shown, made, result, _edited(ctx, call, args))
        return self._outcome([(name, made, result)], update, ctx.node)

    async def _several(self, state: object, ctx: Context, calls: str, results: str) -> Outcome[str]:
        wanted = [ToolCall.model_validate(call) for call in getattr(state, calls)]
        found = await gather(
            [partial(self._call_of, ctx, call) for call in wanted],
            most=self.most,
            lanes=[_pool(ctx, call) for call in wanted],
        )
        messages = [
            self._message(ctx, call, made, result, _changed(call.arguments) if call.extras.get(CHANGED) else "")
            for call, (made, result) in zip(wanted, _as_told(ctx, wanted, found), strict=True)
        ]
        called = [(call.name, made, result) for call, (made, result) in zip(wanted, found, strict=True)]
        return self._outcome(called, {results: added(state, results, messages)}, ctx.node)

    def _message(self, ctx: Context, call: ToolCall, made: bool, result: ToolResult, note: str) -> Message:
        """Return the message with a result, or with an excerpt if it is too long."""
        tool = ctx.tools.get(call.name)
        most = SHOWN if tool is None else tool.max_shown
        reader = isinstance(ctx.tools.get(READ_RESULT), ReadResult) and not isinstance(tool, ReadResult)
        if self.offload is None or not made or result.ended or not reader:
            read = isinstance(tool, ReadResult) and made and not result.failed and call.arguments
            return result_message(call, result, note, most=most, part_of=str(read["id"]) if read else "")
        most = min(self.offload, most)
        if len(result.text) > most:
            _ = ctx.run_id  # the id is of this run, so the node's result must not be reused by others (`cache=`)
        return result_message(call, result, note, most=most, offload=True)

    def _outcome(
        self, called: Sequence[tuple[str, bool, ToolResult]], update: Mapping[str, object], node: str
    ) -> Outcome[str]:
        """Return the outcome after calls, given for each the tool's name, whether it could be made, and its result."""
        plain = self._chosen_by(called, node) or (
            "finished" if any(result.ended for _, _, result in called) else "done"
        )
        failed = [(name, made, result) for name, made, result in called if result.failed]
        if not failed:
            return Outcome(plain, update)
        raised = [(name, result) for name, made, result in failed if made and self.on_failure == "raise"]
        name, result = raised[0] if raised else (failed[0][0], failed[0][2])
        return Failing(FAILED, update, error=ToolFailed(name, result), otherwise=None if raised else plain)

    def _chosen_by(self, called: Sequence[tuple[str, bool, ToolResult]], node: str) -> str | None:
        """Return the outcome chosen by the first successful call that chose one."""
        for name, _, result in called:
            if result.outcome is not None and not result.failed:
                chosen = result.outcome if result.outcome in self.outcomes else plain_name(result.outcome)
                if chosen in (*RESERVED, FAILED):
                    raise InvalidOutcome(
                        f"{node}: tool {name} chose {result.outcome!r}, a reserved outcome: no tool can choose it"
                    )
                if chosen not in self.outcomes:
                    raise InvalidOutcome(
                        f"{node}: tool {name} chose outcome {result.outcome!r}, which {node} does not declare: it has "
                        f"{', '.join(map(repr, self.outcomes))}; add it to Execute(outcomes=...), and an edge for it"
                    )
                return chosen
        return None

    async def _call_of(self, ctx: Context, call: ToolCall) -> tuple[bool, ToolResult]:
        if call.arguments is None:
            fault = f"the arguments of {call.name} are not a JSON object: {quoted(call.raw)}"
            if self.on_error == "raise":
                raise AgentError(f"execute: {fault}")
            return False, ToolResult(error=fault)
        return await self._call(ctx, call.name, call.arguments)

    async def _call(self, ctx: Context, name: str, args: Mapping[str, Any]) -> tuple[bool, ToolResult]:
        """Make a call. Return True if it could be made, and its result."""
        try:
            result = await ctx.tool(name, args)
        except (AgentError, EffectFailed) as error:
            if self.on_error == "raise":
                raise
            return False, ToolResult(error=str(error))
        tool = ctx.tools.get(name)
        ended = tool is not None and tool.ends and not result.failed
        return True, result if result.ended == ended else result.model_copy(update={"ended": ended})


def _pool(ctx: Context, call: ToolCall) -> object:
    """Return the pool of the call's tool, if it has one: all calls of a run share an instance."""
    tool = ctx.tools.get(call.name)
    return None if tool is None else tool.pool


def _as_told(
    ctx: Context, calls: Sequence[ToolCall], found: Sequence[tuple[bool, ToolResult]]
) -> Iterator[tuple[bool, ToolResult]]:
    """Yield what the model is shown of each call: whether it could be made, and its result. Only the first one that
    chooses an outcome hands over.
    """
    chosen = False
    for call, (made, result) in zip(calls, found, strict=True):
        chooses = result.outcome is not None and not result.failed
        handed = isinstance(ctx.tools.get(call.name), Handoff)
        yield made, ToolResult(error=NOT_HANDED_OVER) if chooses and chosen and handed else result
        chosen = chosen or chooses


def _edited(ctx: Context, call: ToolCall, args: Mapping[str, object]) -> str:
    """Return a note to the model about a call that a person approved with other arguments; empty for any other call."""
    tool = ctx.tools.get(call.name)
    if tool is not None and call.arguments is not None:
        try:
            if tool.validate(call.arguments) == args:
                return ""
        except AgentError:
            pass  # the original arguments were not valid
    return _changed(args)


def _changed(args: object) -> str:
    return f"The user changed the arguments of this call: {canonical(args)}"


T = TypeVar("T")


async def gather(
    calls: Sequence[Callable[[], Awaitable[T]]], *, most: int | None = None, lanes: Sequence[Hashable] = ()
) -> list[T]:
    """Await all calls, many at the same time; they start in order.

    A call that fails does not stop the others: their effects remain, and their results are useful. When all have ended,
    the error of the first failed call in order is raised, whichever failed first in time. A `BaseException` that
    is not an error, such as that of a call that has to wait for a person, takes precedence: its step can still succeed.

    Args:
        most: the most calls in progress at the same time; None for all.
        lanes: for each call, the resource that it needs exclusively, or None. Calls with the same resource are made
            one after the other, and none of them after one that failed.
    """
    if len(calls) == 1:
        return [await calls[0]()]
    found: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    async def land(index: int) -> bool:
        try:
            found[index] = await calls[index]()
        except BaseException as error:
            if stopped_by(error):
                raise
            errors[index] = error
            return False
        return True

    rows: dict[Hashable, list[int]] = {}
    for index in range(len(calls)):
        lane = lanes[index] if lanes else None
        rows.setdefault(("alone", index) if lane is None else ("together", lane), []).append(index)
    waiting = iter(rows.values())

    async def work() -> None:
        for row in waiting:
            for index in row:
                if not await land(index):
                    break

    async with anyio.create_task_group() as group:
        for _ in range(min(most or len(rows), len(rows))):
            group.start_soon(work)
    if errors:
        raise errors[min(errors, key=lambda index: (isinstance(errors[index], Exception), index))]
    return [found[index] for index in range(len(calls))]
