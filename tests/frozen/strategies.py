"""Runs of the strategies, with the offline model and with scripted ones, native calls and calls in text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orchestrator import Deny, Graph, Limits, OfflineModel, Question, Tool, ToolCall, tool
from orchestrator.graph import Usage
from orchestrator.models import Reply, TextProtocol
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
from orchestrator.testing import ScriptedModel
from orchestrator.tools import tools_from_ref
from tests.frozen.contract import left
from tests.frozen.staging import Piece, agree, stage, turn
from tests.frozen.texts import Sections

SUM = "What is 20+(2*4)? Calculate step by step."
MAKERS = {
    "chat": chat,
    "code_act": code_act,
    "evaluator_optimizer": evaluator_optimizer,
    "function_call": function_call,
    "function_call_agent": function_call_agent,
    "llm_compiler": llm_compiler,
    "orchestrator_workers": orchestrator_workers,
    "plan_and_execute": plan_and_execute,
    "plan_and_solve": plan_and_solve,
    "plan_and_solve_prompt": plan_and_solve_prompt,
    "react": react,
    "reflexion": reflexion,
    "rewoo": rewoo,
    "router": router,
    "self_ask": self_ask,
    "self_consistency": self_consistency,
    "supervisor": supervisor,
    "swarm": swarm,
    "tool_user": tool_user,
    "tree_of_thoughts": tree_of_thoughts,
}
"""All strategies by name."""
AT_ONCE = ("llm_compiler", "orchestrator_workers", "self_consistency", "tree_of_thoughts")
"""Those with branches at once, whose records would come in any order from a store that works in threads."""


@tool(risk="write", effect="idempotent")
async def multiply(a: float, b: float) -> float:
    """Multiply two numbers.

    Args:
        a: The first factor.
        b: The second factor.
    """
    async with turn():
        return a * b


@tool(risk="write", effect="irreversible")
async def add(a: float, b: float) -> float:
    """Add two numbers.

    Args:
        a: The first number.
        b: The number to add to it.
    """
    async with turn():
        return a + b


@tool(risk="none", effect="pure")
async def look(what: str) -> str:
    """Look something up."""
    async with turn():
        return f"{what}: seen"


@tool(risk="none", effect="pure", ends=True)
async def hand_in(text: str) -> str:
    """Hand in the answer."""
    return text


RISKY: list[Tool] = [multiply, add]


def bye(question: Question) -> object:
    """Agree to everything, and end a chat."""
    return "/bye" if question.kind == "input" else agree(question)


def no(question: Question) -> object:
    """Deny everything, and end a chat."""
    return "/bye" if question.kind == "input" else Deny(reason="not now")


def calls(*wanted: tuple[str, dict[str, Any]], text: str = "Let me see.") -> Reply:
    """A reply with calls of tools."""
    made = tuple(ToolCall(id=str(number), name=name, arguments=args) for number, (name, args) in enumerate(wanted))
    return Reply(text=text, tool_calls=made, usage=Usage(input_tokens=7, output_tokens=3))


def scripted(name: str, graph: Graph, *replies: Any, question: str = "Why?", script: Any = None, **more: Any) -> Piece:
    """A run with these replies."""
    model = ScriptedModel(script or [*replies])
    options = {"model": model, "tools": [look, hand_in, multiply], "concurrency": 1}
    return Piece(name, graph, question, answer=more.pop("answer", bye), options=options, **more)


def pieces() -> Iterator[Piece]:
    """All of them."""
    for name, make in MAKERS.items():
        for way, answer, tools, start in (
            ("offline", bye, [*tools_from_ref("arithmetic")], {"approve": "dangerous"}),
            ("approved", bye, RISKY, {}),
            ("denied", no, RISKY, {}),
        ):
            options = {"model": OfflineModel(), "tools": tools, "concurrency": 1}
            yield Piece(f"{name}-{way}", make(), SUM, answer=answer, options=options, start=start)
        options = {"model": OfflineModel(), "tools": RISKY, "concurrency": 1}
        yield Piece(f"{name}-left", make(), SUM, play=left, options=options)
        yield Piece(f"{name}-spent", make(), SUM, answer=bye, options=options, start={"limits": Limits(steps=2)})
        yield Piece(f"{name}-no-sum", make(), "Who are you?", answer=bye, options=options)
        one = {"limits": Limits(concurrency=1)} if name in AT_ONCE else {}
        yield Piece(f"{name}-sqlite", make(), SUM, answer=bye, options=options, start=one, store="sqlite", brief=True)
    yield from _rounds()
    yield from _texts()


def _rounds() -> Iterator[Piece]:
    a = ("look", {"what": "a"})
    nothing, wrong = ("nothing", {}), ("look", {"waht": "a"})
    for name in ("react", "function_call_agent", "chat", "function_call"):
        make = MAKERS[name]
        yield scripted(f"{name}-answers", make(), *([] if name == "function_call" else ["42"]), script=lambda _: "42")
        yield scripted(f"{name}-ends", make(), script=iter_of(calls(a), calls(("hand_in", {"text": "42"})), "42"))
        yield scripted(f"{name}-wrong-calls", make(), script=iter_of(calls(nothing), calls(wrong), "so be it"))
        asked = iter_of(calls(("multiply", {"a": 2, "b": 3})), "6")
        yield scripted(f"{name}-asks", make(), script=asked)
    plan = "Plan:\n1. Look.\n2. Hand it in.\n3. Look again.\n<END_OF_PLAN>"
    script = {"plan": [plan], "respond": [calls(a), "It is a.", calls(("hand_in", {"text": "42"}))]}
    yield scripted("plan_and_solve-ends", plan_and_solve(), script=script)
    blueprint = "Plan: look\n#E1 = look[a]\nPlan: more\n#E2 = look[b #E1]\nPlan: end\n#E3 = hand_in[found #E2]"
    yield scripted("rewoo-plan", rewoo(), script={"plan": [blueprint], "solve": ["unused"]})
    unsolved = "Plan: look\n#E1 = look[a]\nPlan: nothing\n#E2 = nothing[#E1]"
    yield scripted("rewoo-solved", rewoo(), script={"plan": [unsolved], "solve": ["a"]})
    yield scripted("rewoo-no-plan", rewoo(), script={"plan": lambda _: "no idea"})
    script = {"choose_tool": ["look"], "choose_args": ['{"what": "a"}'], "think": ["Answer: a"]}
    yield scripted("tool_user-thinks", tool_user(), script=script, start={"approve": "dangerous"})
    script = {"choose_tool": lambda _: "nothing"}
    yield scripted("tool_user-no-tool", tool_user(), script=script, start={"approve": "dangerous"})
    yield scripted(
        "plan_and_solve_prompt-votes", plan_and_solve_prompt(votes=3, form="number"), script=lambda _: "It is 7"
    )
    yield scripted("plan_and_solve_prompt-no-number", plan_and_solve_prompt(form="number"), script=lambda _: "hm")


def iter_of(*replies: Any) -> Any:
    """A script that gives these replies, and the last one again and again."""
    left_over = list(replies)

    def next_of(request: Any) -> Any:
        return left_over.pop(0) if len(left_over) > 1 else left_over[0]

    return next_of


def _texts() -> Iterator[Piece]:
    said = {
        "json": '```json\n{"name": "look", "arguments": {"what": "a"}}\n```',
        "bracket": "Thought: look\nAction: look[a]",
        "plugin": '<|action_start|><|plugin|>{"name": "look", "parameters": {"what": "a"}}<|action_end|>',
        "separator": 'I look.<|tool_calls|>[{"name": "look", "arguments": {"what": "a"}}]',
    }
    for form, words in said.items():
        script = iter_of(words, words.replace("look", "nothing"), "It is a.")
        yield scripted(f"react-{form}", react(protocol=form), script=script)  # type: ignore[arg-type]
        number = iter(range(100))
        model = TextProtocol(
            ScriptedModel(iter_of(words, "It is a.")),
            form,  # type: ignore[arg-type]
            new_id=lambda number=number: f"call-{next(number)}",  # type: ignore[misc]
        )
        options = {"model": model, "tools": [look, hand_in], "concurrency": 1}
        yield Piece(f"agent-{form}", function_call_agent(), "Why?", answer=bye, options=options)


def strategies() -> Sections:
    """The texts of these runs."""
    return stage([*pieces()])
