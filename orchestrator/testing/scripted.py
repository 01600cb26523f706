"""A model whose replies are scripted by a test."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeAlias

import anyio
import anyio.lowlevel

from orchestrator.models.base import ModelRequest, WordsModel, calling_node
from orchestrator.models.messages import Reply, ToolCall

Said: TypeAlias = str | Reply | Sequence[ToolCall] | Exception
"""A reply: a string, a whole reply, tool calls, or an error that is raised."""
Answer: TypeAlias = Callable[[ModelRequest], Said | Awaitable[Said]]
"""A function, sync or async, that returns the reply to a request."""
Script: TypeAlias = Sequence[Said | Answer] | Answer


class ScriptedModel(WordsModel):
    """Returns replies from a script, and fails on calls that the script does not contain.

    A list has one reply for each call, in order. Two concurrent calls are an error, too, because their order would be
    random. A mapping has such a list, or a function of the request that answers every call, for each node that asks, so
    different nodes may make requests at the same time.

        async with Executor(model=ScriptedModel({"plan": ["1. look"], "search": lambda request: "found"})) as ex: ...

    As a context manager it fails at the end if replies are left over; so does `assert_done`. A failing call raises
    `AssertionError`, and `assert_done` repeats it, so that a graph that survives it does not hide it.
    """

    def __init__(self, replies: Script | Mapping[str, Script], *, name: str = "scripted") -> None:
        """Make a model that gives these replies.

        Args:
            replies: the replies in order, or a function of the request; or a mapping of these by node name.
            name: the model's name.

        Raises:
            TypeError: a script is a string instead of a list of strings.
        """
        self.name = name
        self.requests: list[ModelRequest] = []
        """Every request, in order."""
        self._faults: list[str] = []
        self._asking: dict[str | None, int] = {}
        self._scripts: dict[str | None, Answer | list[Said | Answer]] = {}
        if isinstance(replies, Mapping):
            self._scripts.update({node: _script(script) for node, script in replies.items()})
        else:
            self._scripts[None] = _script(replies)

    def __repr__(self) -> str:
        return f"ScriptedModel(name={self.name!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.assert_done()

    def assert_done(self) -> None:
        """Fail if replies were not used, or if a call was not in the script.

        Raises:
            AssertionError: the message names the replies or the call.
        """
        left = [
            f"{len(script)} {'reply' if len(script) == 1 else 'replies'}" + (f" of node {node!r}" if node else "")
            for node, script in self._scripts.items()
            if isinstance(script, list) and script
        ]
        faults = [*self._faults, *([f"not used: {', '.join(left)}"] if left else [])]
        if faults:
            raise AssertionError(f"{self.name}: " + "; ".join(faults))

    async def respond(self, request: ModelRequest) -> Reply:
        """See `RequestModel.respond`. Returns the next reply of the script.

        Raises:
            AssertionError: the script has no reply for this call.
        """
        self.requests.append(request)
        node = None if None in self._scripts else calling_node.get()
        if self._asking.get(node) and not callable(self._scripts.get(node)):
            place = f" of node {node!r}" if node is not None else ""
            fix = "give a function of the request" if node is not None else "give a mapping by node"
            raise self._fault(f"call {len(self.requests)}{place} came while another was in progress; {fix}")
        self._asking[node] = self._asking.get(node, 0) + 1
        try:
            # Let others run, like a real model: one turn in which they start, one in which they may call it.
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            return await self._next(node, request)
        finally:
            self._asking[node] -= 1

    async def _next(self, node: str | None, request: ModelRequest) -> Reply:
        script = self._scripts.get(node)
        if script is None:
            asking = f"node {node!r}" if node is not None else "a call outside of any node"
            raise self._fault(f"no replies for {asking}; there are some for {', '.join(map(repr, self._scripts))}")
        if callable(script):
            turn: Said | Answer = script
        elif script:
            turn = script.pop(0)
        else:
            of = f" of node {node!r}" if node is not None else ""
            raise self._fault(f"unexpected call {len(self.requests)}{of}: {_last(request)}; all replies are used")
        said = turn(request) if callable(turn) else turn
        if inspect.isawaitable(said):
            said = await said
        if isinstance(said, Exception):
            raise said
        if isinstance(said, str):
            return Reply(text=said, model=self.name)
        if isinstance(said, Reply):
            return said
        return Reply(tool_calls=tuple(said), finish="tool_calls", model=self.name)

    def _fault(self, words: str) -> AssertionError:
        self._faults.append(words)
        return AssertionError(f"{self.name}: {words}")


def _script(script: Script) -> Answer | list[Said | Answer]:
    if callable(script):
        return script
    if isinstance(script, str):
        raise TypeError(f"ScriptedModel takes a list of replies, not the text {script!r}: write [{script!r}]")
    return list(script)


def _last(request: ModelRequest) -> str:
    message = request.messages[-1] if request.messages else None
    return "no messages" if message is None else repr(message.content[:100])
