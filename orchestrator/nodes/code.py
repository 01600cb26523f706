"""Run code of a model, which calls tools as functions."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any, Literal, Self

import anyio
import anyio.to_thread
from pydantic import BaseModel, Field, JsonValue, PositiveFloat, PositiveInt, model_validator

from orchestrator.context import Context
from orchestrator.errors import AgentError, EffectFailed, ReplayMismatch, ToolFailed, UserDenied
from orchestrator.graph.model import Node, Port
from orchestrator.graph.outcome import FAILED, Failing, Outcome
from orchestrator.graph.reducers import append, replace
from orchestrator.models.messages import Message, ToolCall
from orchestrator.models.text.code import function_names, parameters_of
from orchestrator.nodes.confirm import Confirm, Denial
from orchestrator.nodes.conversation import added, result_message
from orchestrator.tools.result import Risk, ToolFailure, ToolResult, cut, risk_at_most
from orchestrator.tools.sandbox import HOST, Answer, Called, Ran, Sandbox, SandboxLimits, in_thread
from orchestrator.tools.tool import Tool

_LOST = "[a limit was reached: all variables are lost]"
_SILENT = "(no output: print what you need)"
_LONGEST = 100_000
"""Maximum number of characters of code."""
_MOST_BYTES = 100_000
"""Maximum number of random bytes that code gets at once."""


class CodeBlock(BaseModel):
    """A block of code that ran, with the results of its calls, from which its variables can be computed again."""

    code: str
    answers: list[dict[str, JsonValue]] = []
    """The results of its calls, in order."""
    now: float | None = None
    """The time that it was given, Unix seconds; None if it did not ask for the time or for random numbers."""


class Code(Node, kind="code"):
    """Run Python code in a sandbox, in which each tool is a function, and write what it prints.

    Each call that the code makes is checked, journaled and counted like any other, and `confirm` asks about it first:
    the question shows the call and the code. When the answer arrives, also in another process, the code runs again from
    its start, and calls that were made return their journaled results. The sandbox is no part of the state: its clock
    and its random numbers are the same each time, and code that would call otherwise than before stops the run with
    `ReplayMismatch`.

    With `code` and `output` it runs the code in a field. With `calls` and `results` it runs the code that a `CallModel`
    with `protocol="code"` wrote, and adds a message with the output. With `blocks`, a block sees the variables of the
    blocks before it: these run again first, with the results that their calls had.

    Errors of the code are part of its output. With an edge for it, the outcome `failed` is taken then. A call of a tool
    that ends the work (`ends=True`) ends the code, and its result is the output; the outcome is `finished`.

    Raises:
        ToolError: the package pydantic-monty, which runs the code, is not installed.
        UserDenied: a person denied a call, and `on_denied` is `raise`.
        AgentError: a call cannot be made, and `on_error` is `raise`.
        ReplayMismatch: the code ran again and called otherwise.
    """

    look = "tool"

    declares = ("done", "finished")
    fills = ("output", "results", "blocks")
    if_named = (FAILED,)

    class State(BaseModel):
        """The fields that the ports name by default."""

        code: str = ""
        """The code to run."""
        output: str = ""
        """What it printed, and its error."""

    class ListState(BaseModel):
        """The fields for `Code(calls="pending", results="messages", blocks="blocks")`."""

        pending: list[ToolCall] = []
        """The code of the last reply, as a call."""
        messages: Annotated[list[Message], append] = []
        """The conversation."""
        blocks: Annotated[list[CodeBlock], append] = []
        """The code that ran before."""

    code: Annotated[str, Port(str)] = "code"
    """Field with the code."""
    output: Annotated[str | None, Port()] = "output"
    """Field that gets what it prints, the value of its last expression, and its error."""
    calls: Annotated[str | None, Port(list)] = None
    """Field with a list of `ToolCall`s, whose argument `code` is the code."""
    results: Annotated[str | None, Port(list)] = None
    """Field that gets a message with the output of each of them."""
    blocks: Annotated[str | None, Port(list)] = None
    """Field with the `CodeBlock`s that ran before, one with the reducer `append`; gets this one. None: each block
    starts without variables."""
    confirm: Risk | None = "write"
    """Ask before calls of tools of this risk or a higher one; None to ask about none."""
    on_denied: Literal["raise", "observe"] = "observe"
    """What happens if a call is denied: the step fails, or the code gets a `PermissionError`."""
    on_error: Literal["raise", "observe"] = "observe"
    """What happens if a call cannot be made: the step fails, or the code gets a `TypeError`."""
    most_calls: PositiveInt = 100
    """The most calls of a block; further ones are not made, and the code gets a `RuntimeError`."""
    seconds: PositiveFloat = Field(default=10.0, le=1e9)
    """Seconds that a block may compute, without the time that its calls take."""
    memory: PositiveInt = Field(default=64 << 20, lt=1 << 63)
    """Bytes of memory that all blocks may use."""
    output_limit: PositiveInt = 10_000
    """Characters kept of what a block prints, and again of its value and of its error."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.calls is None) != (self.results is None):
            raise ValueError("calls= and results= belong together: name both fields, or neither")
        return self

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "runs code that calls tools"

    @property
    def calls_tools(self) -> bool:
        """See `Node.calls_tools`."""
        return True

    @property
    def asks_before_calls(self) -> bool:
        """See `Node.asks_before_calls`."""
        return self.asks_about("write")

    def asks_about(self, risk: Risk) -> bool:
        """Return whether the node asks before calls of tools with a given risk.

        Args:
            risk: the risk.

        Returns:
            True if it asks.
        """
        return self.confirm is not None and risk_at_most(self.confirm, risk)

    def ports(self) -> dict[str, str]:
        """See `Node.ports`."""
        unused = ("code", "output") if self.calls is not None else ("calls", "results")
        return {port: field for port, field in super().ports().items() if port not in unused}

    async def run(self, state: object, ctx: Context) -> Outcome[str]:
        calls = [] if self.calls is None else [ToolCall.model_validate(one) for one in getattr(state, self.calls)]
        codes = [str((one.arguments or {}).get("code", "")) for one in calls] if self.calls else []
        before = [] if self.blocks is None else [CodeBlock.model_validate(one) for one in getattr(state, self.blocks)]
        running = _Running(self, ctx)
        try:
            note = await running.rebuild(before)
            codes = codes if self.calls else [getattr(state, self.code)]
            found = [await running.block(code, "" if number else note) for number, code in enumerate(codes)]
        finally:
            await running.close()
        running.check_all_made()
        update: dict[str, object] = {}
        if self.blocks is not None:
            update[self.blocks] = (
                replace(running.blocks) if running.lost else added(state, self.blocks, running.blocks)  # type: ignore[arg-type]
            )
        if self.results is not None:
            most = 3 * self.output_limit + len(_LOST)
            messages = [result_message(call, one, most=most) for call, one in zip(calls, found, strict=True)]
            update[self.results] = added(state, self.results, messages)
        elif self.output is not None:
            update[self.output] = found[0].text
        plain = "finished" if any(one.ended for one in found) else "done"
        failed = next((one for one in found if one.failed), None)
        if failed is None:
            return Outcome(plain, update)
        return Failing(FAILED, update, error=ToolFailed("code", failed), otherwise=plain)


class _Running:
    """The code of one step: its interpreter, and the calls that it makes."""

    def __init__(self, node: Code, ctx: Context) -> None:
        self.node, self.ctx = node, ctx
        self.blocks: list[CodeBlock] = []
        self.lost = False
        self._sandbox: Sandbox | None = None
        names = function_names(tool.name for tool in ctx.tools)
        self._tools = {names[tool.name]: tool for tool in ctx.tools}
        self._confirm = Confirm(tool="tool", args="args", from_risk=node.confirm)
        self._before: Sequence[tuple[str, object]] = getattr(ctx, "calls_before", ())
        """The calls that the step made before it was suspended or stopped."""
        self._reused: list[tuple[str, object]] = [*getattr(ctx, "calls_reused", ())]
        """Further calls that have results: those that the run was forked with, and those of failed attempts."""
        self._made = 0
        self._asked = 0

    async def close(self) -> None:
        """End the interpreter."""
        if self._sandbox is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._sandbox.close)

    async def rebuild(self, blocks: Sequence[CodeBlock]) -> str:
        """Run earlier blocks again, with the results that their calls had.

        Returns:
            A note for the model if a block reached a limit that it did not reach before; else an empty text.

        Raises:
            ReplayMismatch: a block makes more or fewer calls than before.
        """
        for block in blocks:
            answers, asked = iter(block.answers), 0
            done = await self._start(block.code)
            while isinstance(done, Called):
                if done.name in HOST:
                    asked += 1
                    answer = None if block.now is None else _from_host(done, block.now, asked)
                else:
                    answer = next(answers, None)
                if answer is None:
                    raise self._mismatch(f"an earlier block calls {done.name}, which it did not before")
                done = await self._go_on(answer)
            if self._interpreter.lost:  # for example on a machine that is slower now
                await self._lose_variables()
                return _LOST
            if next(answers, None) is not None:
                raise self._mismatch("an earlier block makes fewer calls than before")
        return ""

    async def _lose_variables(self) -> None:
        """Let the next block start without variables."""
        await self.close()
        self._sandbox, self.lost, self.blocks = None, True, []

    async def block(self, code: str, note: str = "") -> ToolResult:
        """Run a block of code.

        Args:
            code: the code.
            note: what the model is to read after its output.
        """
        if len(code) > _LONGEST:
            return ToolFailure(error=f"the code has {len(code)} characters, and the limit is {_LONGEST}")
        block, asked = CodeBlock(code=code), 0
        done = await self._start(code)
        while isinstance(done, Called):
            if done.name in HOST:
                asked += 1
                if block.now is None:  # it stays the same when the code runs again
                    block.now = await self.ctx.effect("clock", time.time, returns=float, effect="read")
                answer = _from_host(done, block.now, asked)
            elif len(block.answers) >= self.node.most_calls:
                words = f"RuntimeError: a block makes at most {self.node.most_calls} calls, and was stopped"
                done = self._interpreter.stopped(words)
                break
            else:
                answer, ended = await self._call(done, code)
                if ended is not None:
                    return ended
                block.answers.append(answer)
            done = await self._go_on(answer)
        if not self._interpreter.lost:
            self.blocks.append(block)
            return _result(done, note)
        await self._lose_variables()
        return _result(done, _LOST)

    def check_all_made(self) -> None:
        """Check that the calls from before were made again.

        Raises:
            ReplayMismatch: one was not.
        """
        if self._made < len(self._before):
            raise self._mismatch(f"it ended without the call of {self._before[self._made][0]!r}")

    # -- the interpreter -----------------------------------------------------------------------------------------

    @property
    def _interpreter(self) -> Sandbox:
        assert self._sandbox is not None
        return self._sandbox

    async def _start(self, code: str) -> Called | Ran:
        if self._sandbox is None:
            limits = SandboxLimits(self.node.memory, self.node.seconds, 200, self.node.output_limit)
            self._sandbox = await anyio.to_thread.run_sync(lambda: Sandbox(limits, reproducible=True))
        return await in_thread(self._sandbox, self._sandbox.start, code, self._tools)

    async def _go_on(self, answer: Answer) -> Called | Ran:
        return await in_thread(self._interpreter, self._interpreter.resume, answer)

    # -- its calls -----------------------------------------------------------------------------------------------

    async def _call(self, called: Called, code: str) -> tuple[Answer, ToolResult | None]:
        """Make a call of the code. Return the answer to the code, and the result if it ended the work."""
        tool = self._tools[called.name]
        try:
            args = tool.validate(_named(called, tool))
            approved = await self._confirmed(tool, args, code)
            if isinstance(approved, Denial):
                return _error("PermissionError", approved.sentence(f"the call of {called.name}")), None
            self._check_as_before(tool.name, approved)
            result = await self.ctx.tool(tool.name, approved)
        except (AgentError, EffectFailed) as error:
            if self.node.on_error == "raise":
                raise
            return _error("TypeError" if isinstance(error, AgentError) else "RuntimeError", str(error)), None
        if result.failed:
            return _error("RuntimeError", f"{called.name} failed: {result.text}"), None
        if tool.ends:
            return {}, result.model_copy(update={"ended": True})
        return {"return_value": result.output}, None

    async def _confirmed(self, tool: Tool, args: dict[str, Any], code: str) -> dict[str, Any] | Denial:
        """Return the approved arguments of a call, or the denial."""
        if not self.node.asks_about(tool.risk):
            return args
        self._asked += 1
        found = await self._confirm.confirm_call(tool, args, f"code-{self._asked}", {"code": code}, self.ctx)
        if isinstance(found, Denial) and self.node.on_denied == "raise":
            raise UserDenied(found.sentence(f"{tool.name} with {args}"))
        return found

    def _check_as_before(self, name: str, args: Mapping[str, object]) -> None:
        expected = self._before[self._made] if self._made < len(self._before) else None
        if expected is not None and expected != (name, args):
            if (name, args) not in self._reused:
                raise self._mismatch(f"it calls {name!r} where it called {expected[0]!r}, or with others")
            self._reused.remove((name, args))
            return
        self._made += 1

    def _mismatch(self, why: str) -> ReplayMismatch:
        return ReplayMismatch(
            f"run {self.ctx.run_id!r}: {self.ctx.node} runs its code again, and {why}. Resume it with the versions of "
            "the tools and of pydantic-monty that it was started with"
        )


def _named(called: Called, tool: Tool) -> dict[str, JsonValue]:
    """Return the arguments of a call by name.

    Raises:
        AgentError: there are too many, or one is given twice.
    """
    names = [name for name, _, _ in parameters_of(tool.parameters)]
    if len(called.args) > len(names):
        raise AgentError(f"{called.name}() takes {len(names)} arguments, and {len(called.args)} were given")
    found = dict(zip(names, called.args, strict=False))
    if twice := found.keys() & called.kwargs.keys():
        raise AgentError(f"{called.name}() got two values for the argument {min(twice)!r}")
    found |= called.kwargs
    for name, _, required in parameters_of(tool.parameters):
        if not required and found.get(name, ...) is None:
            del found[name]  # the declared default
    return found


def _result(ran: Ran, note: str = "") -> ToolResult:
    text = "\n".join(part.removesuffix("\n") for part in (ran.printed, ran.value, ran.error or "", note) if part)
    return ToolResult(output=text or _SILENT) if ran.error is None else ToolFailure(error=text)


def _error(kind: str, words: str) -> Answer:
    return {"exc_type": kind, "message": cut(words, 2_000)}


def _from_host(called: Called, now: float, number: int) -> Answer:
    """Answer what code asks the system.

    Args:
        now: the time of the block, Unix seconds.
        number: the number of the question in its block.
    """
    first = called.args[0] if called.args else None
    if called.name == "os.urandom":
        if not isinstance(first, int) or not 0 <= first <= _MOST_BYTES:
            return _error("MemoryError", f"at most {_MOST_BYTES} random bytes at once")
        return {"return_value": random.Random(f"{now}/{number}").randbytes(first)}
    if called.name == "time.time":
        return {"return_value": now}
    moment = datetime.fromtimestamp(now, UTC)
    if called.name == "date.today":
        return {"return_value": moment.date()}
    if isinstance(first, float):
        return {"return_value": moment.astimezone(timezone(timedelta(seconds=first)))}
    return {"return_value": moment.replace(tzinfo=None)}
