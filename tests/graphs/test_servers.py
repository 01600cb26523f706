"""Every strategy to its right answer, against two fake servers of others, watched or not, and without any server."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from orchestrator import Executor, Graph, Run
from orchestrator.strategies.chat import chat
from orchestrator.strategies.function_call import function_call
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.strategies.plan_and_solve import plan_and_solve
from orchestrator.strategies.plan_and_solve_prompt import plan_and_solve_prompt
from orchestrator.strategies.react import react
from orchestrator.strategies.rewoo import rewoo
from orchestrator.strategies.tool_user import tool_user
from orchestrator.tools import tools_from_ref
from tests.graphs.peers import Fixtures, LLMock, Offline, Peer, Said, Seen
from tests.models.peers import run_of
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio

ARITHMETIC = tools_from_ref("arithmetic")
SUM = "What is (3+4)*(2+4)?"  # no result on the way is a part of another one
SEVEN, SIX = ("add", {"a": 3, "b": 4}), ("add", {"a": 2, "b": 4})
ALL = ("multiply", {"a": 7, "b": 6})


@dataclass(frozen=True)
class Case:
    """A strategy, what servers say to it, and what is to come of it."""

    graph: Graph
    replies: Sequence[Said]
    """One for each request."""
    results: Sequence[str] = ()
    """What the model was told of its calls, as messages."""
    words: tuple[str, Sequence[str]] = (r"(?!)", ())
    """The same in words: how the last request has them, and what they are."""
    calls: int = 3
    answer: object = "42"
    turns: Sequence[str] = ()
    """What the user says when the run waits."""
    unwatched: int = 0
    """Requests that are made then."""
    itself: bool = False
    """Without a server the model answers at once, as it is offered no tool that it could call."""


def told(result: str) -> dict[str, object]:
    return {"toolResultContains": result}


def asked(words: str) -> dict[str, object]:
    return {"userMessage": words, "hasToolResult": False}


ROUNDS = [
    Said("Both sums first.", [SEVEN, SIX], asked(SUM)),
    Said("Now the product.", [ALL], told("6")),
    Said("42", to=told("42")),
]
CASES = {
    "function_call": Case(function_call(parallel_tool_calls=True), ROUNDS[:1], calls=2, answer=["7", "6"]),
    "function_call_agent": Case(function_call_agent(parallel_tool_calls=True), ROUNDS, ["7", "6", "42"]),
    "react": Case(react(parallel_tool_calls=True), ROUNDS, ["7", "6", "42"]),
    "react_in_words": Case(
        react(protocol="bracket"),
        [
            Said('Thought: The left sum first.\nAction: add[{"a": 3, "b": 4}]', to=asked(SUM)),
            Said(
                'Thought 2: Now the right one.\nAction 2: add[{"a": 2, "b": 4}]\nObservation 2: 99',
                to=asked("Observation: 7"),
            ),
            Said('Thought: Now the product.\nAction: multiply[{"a": 7, "b": 6}]', to=asked("Observation 2: 6")),
            Said("Thought: That is all.\nAction: Finish[42]", to=asked("Observation: 42")),
        ],
        words=(r"Observation(?: 2)?: (\S+)", ["7", "6", "42"]),
        itself=True,
    ),
    "plan_and_solve": Case(
        plan_and_solve(),
        [
            Said("Plan:\n1. What is 3 + 4?\n2. What is 2 + 4?\n3. Multiply them.\n<END_OF_PLAN>", to=asked(SUM)),
            Said("The left one.", [SEVEN], asked("step of the task now: What is 3 + 4?")),
            Said("7", to=told("7")),
            Said(calls=[SIX], to=asked("Result: 7\n\nDo only this step of the task now: What is 2 + 4?")),
            Said("6", to=told("6")),
            Said(calls=[ALL], to=asked("Result: 6\n\n")),
            Said("42", to=told("42")),
        ],
        ["7", "6", "42"],
        (r"Result: (\S+)", ["7", "6"]),
    ),
    "plan_and_solve_prompt": Case(
        plan_and_solve_prompt(),
        [
            Said("3 + 4 is 7, 2 + 4 is 6, and 7 * 6 is 42", to=asked(f"Q: {SUM}")),
            Said("42.", to=asked("42\nSo the answer is")),
        ],
        calls=0,
    ),
    "rewoo": Case(
        rewoo(),
        [
            Said(
                "Plan: the left sum\n#E1 = add[3, 4]\nPlan: the right one\n#E2 = add[2, 4]\n"
                "Plan: both\n#E3 = multiply[#E1, #E2]",
                to=asked(f"Task: {SUM}"),
            ),
            Said("42", to=asked("Evidence:\n42")),
        ],
        words=(r"Evidence:\n(\S+)", ["7", "6", "42"]),
    ),
    "chat": Case(
        chat(parallel_tool_calls=True),
        [
            *ROUNDS,
            Said("Less.", [("subtract", {"a": 42, "b": 2})], asked("What is 42-2?")),
            Said("40", to=told("40")),
        ],
        ["7", "6", "42", "40"],
        calls=4,
        answer="40",
        turns=["What is 42-2?", "/bye"],
        unwatched=2,
    ),
    "tool_user": Case(
        tool_user(),
        [
            Said("add", to=asked(f"Question: {SUM}\n\nTools:\nadd: Add two numbers.")),
            Said('{"a": 3, "b": 4}', to=asked(f"Question: {SUM}\n\nFunction: add")),
            Said("Question: What is 2 + 4?", to=asked("Output: 7")),
            Said("add", to=asked("Question: What is 2 + 4?\n\nTools:")),
            Said('{"a": 2, "b": 4}', to=asked("Question: What is 2 + 4?\n\nFunction: add")),
            Said("Question: What is 7 * 6?", to=asked("Output: 6")),
            Said("multiply", to=asked("Question: What is 7 * 6?\n\nTools:")),
            Said('{"a": 7, "b": 6}', to=asked("Question: What is 7 * 6?\n\nFunction: multiply")),
            Said("Final Answer: 42", to=asked("Output: 42")),
        ],
        words=(r"Output: (\S+)", ["7", "6", "42"]),
    ),
}


@pytest.fixture(params=["llmock", pytest.param("aimock", marks=pytest.mark.peer), "offline"])
def peer(request: pytest.FixtureRequest) -> Peer:
    """What answers: a server is there only for who asks for it."""
    if request.param == "llmock":
        return LLMock(request.getfixturevalue("server"))
    return Fixtures(request.getfixturevalue("aimock")) if request.param == "aimock" else Offline()


def results_in(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a conversation has of results: behind each message with calls one for each of them, in their order."""
    made, found = list[str](), list[str]()
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == made.pop(0)
            found.append(message["content"])
            continue
        assert made == [], "a call has no result"
        made = [call["id"] for call in message.get("tool_calls", ())]
        assert len(set(made)) == len(made)
    assert made == [], "a call has no result"
    return found


def told_to(seen: Sequence[Seen]) -> list[str]:
    """The results in all conversations, each as it was at its end."""
    talks: list[Sequence[Mapping[str, Any]]] = []
    for one in seen:
        if talks and one.messages[: len(talks[-1])] == talks[-1]:
            talks.pop()
        talks.append(one.messages)
        results_in(one.messages)
    return [result for talk in talks for result in results_in(talk)]


def answer_of(run: Run) -> object:
    return [one["content"] for one in run.output[2]] if isinstance(run.output, list) else run.output


ON_LOOPS = [*((name, "asyncio") for name in CASES), ("function_call_agent", "trio"), ("rewoo", "trio")]
BOTH_WAYS = [(name, loop, way) for name, loop in ON_LOOPS for way in ("whole", "pieces")]
IN_TURN = [(*one, way) for one, way in zip(ON_LOOPS, itertools.cycle(("pieces", "whole")), strict=False)]


@pytest.mark.parametrize(("name", "anyio_backend", "way"), sized(IN_TURN, BOTH_WAYS))
async def test_it_comes_to_the_right_answer(peer: Peer, way: str, name: str) -> None:
    case = CASES[name]
    peer.says(case.replies)
    async with peer.model() as model, Executor(model=model, tools=ARITHMETIC) as executor:
        run, shown = await run_of(executor, way, case.graph, SUM, "r", approve="none")
        for words in case.turns:
            assert run.status == "paused", run.error
            run = await executor.answer("r", run.waiting[0].id, words)
    assert (run.status, answer_of(run)) == ("completed", case.answer), run.error
    results_in(run.values.get("messages", ()))  # what is sent is made whole where it is not: the run's own is too
    seen = peer.seen()
    alone = case.itself and not peer.scripted
    requests, calls = (1, 0) if alone else (len(case.replies), case.calls)
    assert (len(seen), run.usage.calls) == (requests, requests + calls)
    watched = requests - case.unwatched if way == "pieces" else 0
    assert [one.stream for one in seen] == [True] * watched + [False] * (requests - watched)
    assert bool(shown) == bool(watched)
    assert told_to(seen) == list(case.results)
    users = "\n".join(message["content"] for message in seen[-1].messages if message["role"] == "user")
    assert re.findall(case.words[0], users) == ([] if alone else list(case.words[1]))
