"""A call of a model in a long conversation works on what is new in it, which is counted, and stores what is new."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import pairwise
from types import FrameType

import pytest

from orchestrator import Executor, tool
from orchestrator.kernel.records import EffectIntended, encode
from orchestrator.models import ModelRequest, Reply, RequestModel, ToolCall
from orchestrator.models.chat import body_of
from orchestrator.models.profile import Profile
from orchestrator.stores import open_store
from orchestrator.strategies.react import react
from orchestrator.tools import Tool
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio

WORK = {"openssl_sha256", "to_python", "to_json", "to_jsonable_python", "iterencode"}
"""Digests, conversions of models to JSON, and encodings of JSON."""


def adder(number: int) -> Tool:
    @tool(name=f"add{number}", risk="none")
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return add


class Counting(RequestModel):
    """Has a tool called, as many times as asked. Counts the work from each of its requests to the next one."""

    name = "counting"

    def __init__(self, calls: int) -> None:
        self.left, self.seen, self.work = calls, Counter[str](), list[Counter[str]]()

    def note(self, frame: FrameType, event: str, function: object) -> None:
        name = (
            getattr(function, "__name__", "") if event == "c_call" else frame.f_code.co_name if event == "call" else ""
        )
        if name in WORK:
            self.seen[name] += 1

    async def respond(self, request: ModelRequest) -> Reply:
        assert body_of(request, "m", {}, Profile())["messages"]
        self.work.append(self.seen)
        self.seen = Counter()
        self.left -= 1
        if self.left < 0:
            return Reply(text="done")
        call = ToolCall(id=f"c{self.left}", name="add0", arguments={"a": self.left, "b": 1})
        return Reply(text="I add.", tool_calls=(call,), finish="tool_calls")


async def test_a_call_works_on_what_is_new_and_stores_what_is_new() -> None:
    calls = sized(40, 200)
    model = Counting(calls)
    store = open_store("memory://")
    async with Executor(store, model=model, tools=[adder(number) for number in range(20)]) as executor:
        sys.setprofile(model.note)
        try:
            run = await executor.start(react(max_steps=calls + 1), "Add.")
        finally:
            sys.setprofile(None)
        records = await store.read(run.run_id)
    intents = [record for record in records if isinstance(record, EffectIntended) and record.kind == "model"]
    assert (run.status, len(intents)) == ("completed", calls + 1)
    early, late = model.work[5], model.work[-2]
    assert late == early, "the same at any length of the conversation"
    assert late["openssl_sha256"] <= 12
    sizes = [len(encode(record)) for record in intents]
    assert sizes[0] > 3000 > 1200 > sizes[-1], "the schemas of the tools are stored once"
    assert abs(sizes[-1] - sizes[5]) < 20
    ends = [record.seq for record in intents]
    rounds = [sum(len(encode(record)) for record in records[one - 1 : end - 1]) for one, end in pairwise(ends)]
    assert max(rounds[1:]) < 4300, "all records of a round"
    assert abs(rounds[-1] - rounds[5]) < 40
