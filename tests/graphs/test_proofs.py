"""Every shipped strategy is decided, with each protocol, and with tools of every risk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest

from orchestrator import Graph, tool
from orchestrator.graph import Proof
from orchestrator.nodes import CallProtocol
from orchestrator.strategies import (
    chat,
    code_act,
    evaluator_optimizer,
    function_call,
    function_call_agent,
    llm_compiler,
    orchestrator_workers,
    plan_and_execute,
    plan_and_solve,
    plan_and_solve_prompt,
    react,
    reflexion,
    rewoo,
    router,
    self_ask,
    self_consistency,
    supervisor,
    swarm,
    tool_user,
    tree_of_thoughts,
)
from orchestrator.tools import Risk

SHIPPED: dict[str, Callable[..., Graph[Any]]] = {
    "chat": chat.chat,
    "function_call": function_call.function_call,
    "function_call_agent": function_call_agent.function_call_agent,
    "orchestrator_workers": orchestrator_workers.orchestrator_workers,
    "plan_and_execute": plan_and_execute.plan_and_execute,
    "plan_and_solve": plan_and_solve.plan_and_solve,
    "react": react.react,
    "reflexion": reflexion.reflexion,
    "self_ask": self_ask.self_ask,
    "supervisor": supervisor.supervisor,
}
"""Those that take a protocol."""


@tool(risk="none")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(risk="write")
def save(text: str) -> str:
    """Write a file."""
    return text


@tool(risk="dangerous")
def shell(command: str) -> str:
    """Run a command."""
    return command


TOOLS = (add, save, shell)


def forms() -> Iterator[tuple[str, Graph[Any]]]:
    """Every strategy in every form that a proof could depend on."""
    for name, made in SHIPPED.items():
        for protocol in get_args(CallProtocol):
            yield f"{name} {protocol}", made(protocol=protocol)
    yield "chat queue", chat.chat(on_busy="queue")
    yield "chat interrupt", chat.chat(on_busy="interrupt")
    yield "react last_answer", react.react(last_answer=True)
    yield "react raise", react.react(on_denied="raise", on_error="raise")
    yield "rewoo", rewoo.rewoo()
    yield "rewoo last_answer", rewoo.rewoo(last_answer=True, on_denied="raise")
    for on in ("raise", "observe"):
        yield f"tool_user {on}", tool_user.tool_user(on_denied=on, on_error=on)
    yield "plan_and_execute last_answer", plan_and_execute.plan_and_execute(last_answer=True, on_denied="raise")
    yield "router", router.router()
    yield "code_act", code_act.code_act()
    yield "code_act last_answer", code_act.code_act(last_answer=True, on_denied="raise")
    yield "llm_compiler", llm_compiler.llm_compiler()
    yield "llm_compiler once", llm_compiler.llm_compiler(max_plans=1, on_denied="raise")
    yield "swarm", swarm.swarm()
    yield "swarm with tools", swarm.swarm(tools=TOOLS)
    yield "tree_of_thoughts", tree_of_thoughts.tree_of_thoughts()
    yield "self_consistency", self_consistency.self_consistency()
    yield "evaluator_optimizer", evaluator_optimizer.evaluator_optimizer()
    yield "plan_and_solve_prompt", plan_and_solve_prompt.plan_and_solve_prompt()
    yield "plan_and_solve_prompt votes", plan_and_solve_prompt.plan_and_solve_prompt(votes=3)


FORMS = dict(forms())


def broken(graph: Graph[Any], tools: Any) -> list[Proof]:
    return [proof for proof in graph.check(prove=True, tools=tools).proofs if not proof.holds]


@pytest.mark.parametrize("name", FORMS)
def test_every_claim_about_a_strategy_is_proved_whatever_tools_it_gets(name: str) -> None:
    assert broken(FORMS[name], TOOLS) == []
    assert broken(FORMS[name], None) == []


@pytest.mark.parametrize("name", [*SHIPPED, "llm_compiler", "rewoo", "router"])
def test_a_strategy_without_confirmations_is_refuted_where_tools_change_something_and_only_there(name: str) -> None:
    made = {**SHIPPED, "rewoo": rewoo.rewoo, "router": router.router, "llm_compiler": llm_compiler.llm_compiler}[name]
    graph = made(confirm=None)
    assert broken(graph, [add]) == []
    (proof,) = broken(graph, TOOLS)
    assert (proof.about, proof.verdict) == ("confirmed", "refuted")
    assert proof.reason == "without one it may call save (write), shell (dangerous)"
    assert proof.witness[-1].node.rpartition("/")[2] == "execute"
    (proof,) = broken(graph, None)
    assert (proof.about, proof.verdict) == ("confirmed", "undecided")


def test_calls_that_a_strategy_lets_through_by_policy_are_named() -> None:
    risk: Risk = "dangerous"
    proof = react.react(confirm=risk).check(prove=True, tools=TOOLS).proofs[0]
    assert proof.verdict == "proved"
    assert proof.reason == "act/confirm lets calls of risk write through without asking"
