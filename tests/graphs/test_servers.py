"""Every strategy to its right answer, against two fake servers of others, watched or not, and without any server."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from orchestrator import Executor, Graph, Run
from orchestrator.strategies.chat import chat
from orchestrator.strategies.code_act import code_act
from orchestrator.strategies.evaluator_optimizer import evaluator_optimizer
from orchestrator.strategies.function_call import function_call
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.strategies.llm_compiler import llm_compiler
from orchestrator.strategies.orchestrator_workers import orchestrator_workers
from orchestrator.strategies.plan_and_execute import plan_and_execute
from orchestrator.strategies.plan_and_solve import plan_and_solve
from orchestrator.strategies.plan_and_solve_prompt import plan_and_solve_prompt
from orchestrator.strategies.react import react
from orchestrator.strategies.reflexion import reflexion
from orchestrator.strategies.rewoo import rewoo
from orchestrator.strategies.router import router
from orchestrator.strategies.self_ask import self_ask
from orchestrator.strategies.self_consistency import self_consistency
from orchestrator.strategies.supervisor import supervisor
from orchestrator.strategies.swarm import swarm
from orchestrator.strategies.tool_user import tool_user
from orchestrator.strategies.tree_of_thoughts import tree_of_thoughts
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
    alone: tuple[int, int] | None = None
    """The requests and the calls without a server, if they differ: the model works in another way then."""


def told(result: str) -> dict[str, object]:
    return {"toolResultContains": result}


def asked(words: str) -> dict[str, object]:
    return {"userMessage": words, "hasToolResult": False}


def judged(score: int) -> str:
    """A judgement by the default rubrics."""
    return json.dumps({"feedback": "", "scores": {"correct": score, "complete": score, "clear": score}})


def replanned(*steps: str, answer: str = "") -> str:
    return json.dumps({"answer": answer, "steps": steps})


ONE_BY_ONE = [
    Said(calls=[SEVEN], to={**asked(SUM), "toolName": "add"}),
    Said(calls=[SIX], to=told("7")),
    Said(calls=[ALL], to=told("6")),
    Said("42", to=told("42")),
]
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
        alone=(1, 0),
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


CASES |= {
    "self_consistency": Case(
        self_consistency(3), [Said("7 times 6 is 42. The answer is 42.", to=asked(SUM))] * 3, calls=0
    ),
    "evaluator_optimizer": Case(
        evaluator_optimizer(), [Said("42", to=asked(SUM)), Said(judged(5), to=asked("Answer:\n42"))], calls=0
    ),
    "router": Case(router(), [Said("complex", to=asked(f"Text:\n{SUM}")), *ONE_BY_ONE], ["7", "6", "42"]),
    "reflexion": Case(
        reflexion(),
        [*ONE_BY_ONE, Said('{"feedback": "", "scores": {"correct": 1}}', to=asked("Answer:\n42"))],
        ["7", "6", "42"],
    ),
    "orchestrator_workers": Case(
        orchestrator_workers(),
        [
            Said(json.dumps({"steps": ["What is 3 + 4?"]}), to=asked(f"Task: {SUM}")),
            Said(calls=[SEVEN], to={**asked("What is 3 + 4?"), "toolName": "add"}),
            Said("7", to=told("7")),
            Said("42", to=asked('in the same order: ["7"]')),
        ],
        ["7"],
        calls=1,
        alone=(8, 3),
    ),
    "self_ask": Case(
        self_ask(),
        [
            Said("Question: What is 3 + 4?", to=asked(f"Main question: {SUM}")),
            Said(calls=[SEVEN], to={**asked("What is 3 + 4?"), "toolName": "add"}),
            Said("7", to=told("7")),
            Said("Question: What is 2 + 4?", to=asked("Output: 7")),
            Said(calls=[SIX], to={**asked("What is 2 + 4?"), "toolName": "add"}),
            Said("6", to=told("6")),
            Said("Question: What is 7 * 6?", to=asked("Output: 6")),
            Said(calls=[ALL], to={**asked("What is 7 * 6?"), "toolName": "add"}),
            Said("42", to=told("42")),
            Said("Final Answer: 42", to=asked("Output: 42")),
        ],
        ["7", "6", "42"],
        (r"Output: (\S+)", ["7", "6", "42"]),
    ),
    "supervisor": Case(
        supervisor(),
        [
            Said(calls=[("transfer_to_worker", {"message": SUM})], to={**asked(SUM), "toolName": "transfer_to_writer"}),
            *ONE_BY_ONE,
            Said("42", to=asked("Report of worker:\n42")),
        ],
        ["7", "6", "42", f"Handed over to worker. {SUM}"],
        (r"Report of worker:\n(\S+)", ["42"]),
        calls=4,
    ),
    "swarm": Case(
        swarm(),
        [
            Said(calls=[("transfer_to_research", {"message": SUM})], to=asked(SUM)),
            Said("42", to=told("Handed over to research")),
        ],
        [f"Handed over to research. {SUM}"],
        calls=1,
    ),
    "tree_of_thoughts": Case(
        tree_of_thoughts(1),
        [
            Said('{"thoughts": ["7 * 6 = 42"]}', to=asked("(nothing yet)")),
            Said('{"choice": "9"}', to=asked("Steps:\n7 * 6 = 42")),
            Said("42", to=asked("found to be the best ones:\n7 * 6 = 42")),
        ],
        calls=0,
    ),
    "code_act": Case(
        code_act(),
        [
            Said("All at once.\n```python\nprint(multiply(add(3, 4), add(a=2, b=4)))\n```", to=asked(SUM)),
            Said("42", to=asked("Observation:\n42")),
        ],
        words=(r"Observation:\n(\S+)", ["42"]),
    ),
    "llm_compiler": Case(
        llm_compiler(),
        [
            Said("1. add(3, 4)\n2. add(2, 4)\n3. multiply($1, $2)\n4. join()<END_OF_PLAN>", to=asked(f"Task: {SUM}")),
            Said("Thought: I know.\nAction: Finish(42)", to=asked("$3 = multiply($1, $2) -> 42")),
        ],
        words=(r"-> (\d+)", ["7", "6", "42"]),
    ),
    "plan_and_execute": Case(
        plan_and_execute(),
        [
            Said("Plan:\n1. What is 3 + 4?\n2. What is 2 + 4?\n3. Multiply them.\n<END_OF_PLAN>", to=asked(SUM)),
            Said(calls=[SEVEN], to=asked("step of the task now: What is 3 + 4?")),
            Said("7", to=told("7")),
            Said(replanned("What is 2 + 4?", "What is 7 * 6?"), to=asked('done: ["7"]')),
            Said(calls=[SIX], to=asked("step of the task now: What is 2 + 4?")),
            Said("6", to=told("6")),
            Said(replanned("What is 7 * 6?"), to=asked('done: ["7", "6"]')),
            Said(calls=[ALL], to=asked("step of the task now: What is 7 * 6?")),
            Said("42", to=told("42")),
            Said(replanned(answer="42"), to=asked('done: ["7", "6", "42"]')),
        ],
        ["7", "6", "42"],
        (r"done: (\[.*\])", ['["7", "6", "42"]']),
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
    alone = None if peer.scripted else case.alone
    requests, calls = alone or (len(case.replies), case.calls)
    assert (len(seen), run.usage.calls) == (requests, requests + calls)
    watched = requests - case.unwatched if way == "pieces" else 0
    assert [one.stream for one in seen] == [True] * watched + [False] * (requests - watched)
    assert bool(shown) == bool(watched)
    if alone:
        return
    assert told_to(seen) == list(case.results)
    users = "\n".join(message["content"] for message in seen[-1].messages if message["role"] == "user")
    assert re.findall(case.words[0], users) == list(case.words[1])
