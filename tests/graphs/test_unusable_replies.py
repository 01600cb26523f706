"""No strategy ends because a reply was cut off, empty, or no JSON: the model is asked again, and words are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import pytest

from orchestrator import Executor, Graph, Limits, OpenAIModel, Retry
from orchestrator.models.messages import Reply
from orchestrator.nodes import CallModel, Plan, ReadPlan, ReadReply, Solve
from orchestrator.strategies.code_act import code_act
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.strategies.orchestrator_workers import orchestrator_workers
from orchestrator.strategies.react import react
from orchestrator.strategies.router import router
from orchestrator.testing import ScriptedModel
from orchestrator.tools import tools_from_ref
from tests.models.test_real_model import GOOD, STRATEGIES
from tests.support.sizes import in_turn
from tests.support.wire import Raw, Seen, chunk, refused, said, served, streamed

pytestmark = pytest.mark.anyio

ANSWER = "It is 28."
BABBLE = "20+(2*4) = 20 * 2 * 4 = 10 * 2 * 4 = 10 * 2 * 4 = "
LIMIT = 480
"""Characters of a reply before it is cut off, as of 160 tokens."""
WINDOW = 20_000
"""Characters of a request and its reply together."""
FAULTS: dict[str, dict[str, str]] = {
    "cut": {},
    "empty": {"content": ""},
    "thoughts only": {"content": "", "reasoning_content": "Let me think."},
    "unclosed thoughts": {"content": "<think>Let me think."},
    "no JSON": {"content": "{'answer': It is 28, 'steps': ["},
}


def fitting(schema: Mapping[str, Any]) -> Any:
    """The shortest value that fits a schema of this library."""
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if "anyOf" in schema:
        return fitting(schema["anyOf"][0])
    kinds = schema["type"]
    kind = kinds[0] if isinstance(kinds, list) else kinds
    if kind == "object":
        return {name: fitting(schema["properties"][name]) for name in schema.get("required", ())}
    if kind == "array":
        return [fitting(schema["items"])] * max(1, schema.get("minItems", 0))
    return {"integer": schema.get("minimum", 1), "number": 1, "string": ANSWER}[kind]


def longest(schema: Mapping[str, Any]) -> float:
    """Characters of the longest value that fits a schema of this library, without names and punctuation."""
    if {"enum", "const"} & schema.keys():
        return 0
    if "anyOf" in schema:
        return max(map(longest, schema["anyOf"]))
    kinds = schema["type"]
    found: list[float] = [0]
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind == "object":
            found.append(sum(map(longest, schema["properties"].values())))
        if kind == "array":
            found.append(schema.get("maxItems", inf) * longest(schema["items"]))
        if kind == "string":
            found.append(schema.get("maxLength", inf))
    return max(found)


class SmallModel:
    """Answers as a small model does.

    `cut`: it ends no text, and no JSON whose schema does not make it end within `LIMIT` characters. Other faults: its
    first reply to a request has the fault, and that after a correction has none.
    """

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.spoiled: list[Sequence[Any]] = []

    def __call__(self, seen: Seen) -> Raw | Mapping[str, Any]:
        message, finish = self._reply(seen.body), "length" if self.fault == "cut" else "stop"
        if message.pop("whole", ""):
            finish = "stop"
        if seen.body.get("stream"):
            return streamed(chunk({"role": "assistant", **message}), chunk(finish=finish))
        answer = said({"role": "assistant", **message})
        answer["choices"][0]["finish_reason"] = finish
        return answer

    def _reply(self, body: Mapping[str, Any]) -> dict[str, str]:
        form = body.get("response_format")
        schema = form["json_schema"]["schema"] if form else None
        good = ANSWER if schema is None else json.dumps(fitting(schema))
        if self.fault == "cut":
            if schema is None:
                return {"content": (BABBLE * 20)[:LIMIT]}
            if longest(schema) <= LIMIT:
                return {"content": good, "whole": "yes"}
            return {"content": f"{good[:-2]} {BABBLE * 20}"[:LIMIT]}
        messages = body["messages"]
        if any(messages[: len(one)] == one for one in self.spoiled):
            return {"content": good}
        self.spoiled.append(messages)
        return dict(FAULTS[self.fault])


@pytest.mark.parametrize(("strategy", "fault", "way"), in_turn(STRATEGIES, FAULTS, ["whole", "streamed"]))
async def test_no_run_ends_because_of_unusable_replies(strategy: str, fault: str, way: str) -> None:
    await check(strategy, fault, way)


@pytest.mark.parametrize(("strategy", "way"), in_turn(STRATEGIES, ["whole", "streamed"]))
async def test_no_run_ends_because_all_its_texts_are_cut_off(strategy: str, way: str) -> None:
    await check(strategy, "cut", way)


solving = Graph(
    name="solving",
    state=Solve.State,
    input="question",
    output="answer",
    nodes={"solve": Solve()},
    edges="START -> solve -> END",
)


def fill_the_window(seen: Seen) -> Raw | Mapping[str, Any]:
    """Answer as a server without a limit for replies: with a text that never ends, until the window is full."""
    left = WINDOW - sum(len(message["content"] or "") for message in seen.body["messages"])
    if left <= 0:
        return refused(400, "request (4131 tokens) exceeds the available context size (4096 tokens)")
    answer = said((BABBLE * 500)[:left])
    answer["choices"][0]["finish_reason"] = "length"
    return answer


@pytest.mark.parametrize("strategy", ["function_call", "function_call_agent", "react", "chat", "code_act", "solve"])
async def test_after_a_reply_that_filled_the_window_the_next_request_fits(strategy: str) -> None:
    with served(fill_the_window) as wire:
        model, tools = OpenAIModel("small", wire.url, "key"), tools_from_ref("arithmetic")
        async with model, Executor(model=model, tools=tools) as executor:
            run = await executor.start({**STRATEGIES, "solve": lambda: solving}[strategy](), "What is 20+(2*4)?")
    assert run.status in GOOD, run.error
    assert len(wire.seen) > 1


async def check(strategy: str, fault: str, way: str) -> None:
    """Run a strategy with a server that replies in this way."""
    streams: dict[str, Any] = {"streams": "always"} if way == "streamed" else {}
    tools = tools_from_ref("arithmetic")
    with served(SmallModel(fault)) as wire:
        async with (
            OpenAIModel("small", wire.url, "key") as model,
            Executor(model=model, tools=tools, **streams) as executor,
        ):
            run = await executor.start(STRATEGIES[strategy](), "What is 20+(2*4)?", approve="none")
    assert run.status in GOOD, run.error


REFUSED = Reply(finish="content_filter")
FAILING: dict[str, tuple[Graph, dict[str, Sequence[Any]]]] = {
    "empty": (function_call_agent(), {"think": ["", "", "Good."]}),
    "refused": (function_call_agent(), {"think": [REFUSED, "Good."]}),
    "no thought": (react(), {"think": ["", "", "", "Good."]}),
    "no code": (code_act(), {"think": ["", "", "", "Good."]}),
    "no plan": (orchestrator_workers(), {"plan": ["", "", '{"steps": ["x"]}'], "think": ["x"], "combine": ["Good."]}),
    "inside": (router(), {"sort": ['{"choice": "complex"}'], "think": ["", "", "Good."]}),
}


@pytest.mark.parametrize("case", FAILING)
async def test_a_run_that_failed_by_a_reply_asks_the_model_again_when_it_goes_on(case: str) -> None:
    graph, script = FAILING[case]
    model = ScriptedModel(script)
    async with Executor(model=model, tools=tools_from_ref("arithmetic")) as executor:
        run = await executor.start(graph, "Why?")
        assert run.status == "failed"
        asked = len(model.requests)
        run = await executor.resume(run.run_id, retry=True)
        replayed = await executor.replay(run.run_id)
    assert (run.output, replayed.run.output) == ("Good.", "Good.")
    assert model.requests[asked].messages in [request.messages for request in model.requests[:asked]]


class Talk(CallModel.State, ReadReply.State):
    """A conversation."""


class Drafts(Plan.State, ReadPlan.State):
    """A plan."""


def reading(kind: str, retry: Retry | None) -> Graph:
    """Return a graph whose reader of replies, or of plans, has a policy of its own."""
    edges = "START -> ask -> read\nread -> ask : again\nread -> END : "
    if kind == "plan":
        return Graph(
            name="plan",
            state=Drafts,
            input="question",
            output="steps",
            nodes={"ask": Plan(drafts="drafts", faults="faults"), "read": ReadPlan(retry=retry)},
            edges=edges + "done",
            limits=Limits(steps=50),
        )
    return Graph(
        name="reply",
        state=Talk,
        input="question",
        output="answer",
        nodes={"ask": CallModel(question="question"), "read": ReadReply(retry=retry)},
        edges=edges + "answer\nread -> END : calls",
        limits=Limits(steps=50),
    )


@pytest.mark.parametrize("kind", ["reply", "plan"])
@pytest.mark.parametrize("retry", [None, Retry(wait=0), Retry(attempts=2, wait=0, on=("AgentError",))])
async def test_a_policy_of_the_node_that_reads_does_not_ask_the_model_again(kind: str, retry: Retry | None) -> None:
    """Only a reopened run does, once for each time it is reopened."""
    model = ScriptedModel(lambda request: Reply(text=""))
    async with Executor(model=model) as executor:
        run = await executor.start(reading(kind, retry), "Why?")
        asked = [len(model.requests)]
        assert run.status == "failed"
        run = await executor.resume(run.run_id, retry=True)
        asked.append(len(model.requests))
    assert (run.status, asked) == ("failed", [2, 4])
