"""Every strategy is data: its file is made by `save`, has its digests, and runs as it does."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Executor, Graph, OfflineModel
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

pytestmark = pytest.mark.anyio
MAKERS = (
    chat, code_act, evaluator_optimizer, function_call, function_call_agent, llm_compiler, orchestrator_workers,
    plan_and_execute, plan_and_solve, plan_and_solve_prompt, react, reflexion, rewoo, router, self_ask,
    self_consistency, supervisor, swarm, tool_user, tree_of_thoughts,
)  # fmt: skip
NO_CALLS = (evaluator_optimizer, plan_and_solve_prompt, self_consistency, swarm, tree_of_thoughts)
OTHERWISE: Mapping[str, Any] = {
    "name": "mine",
    "tools": ["add", "multiply"],
    "model": "cheap",
    "confirm": "dangerous",
    "max_steps": 7,
    "max_seconds": 30,
    "on_denied": "observe",
    "on_error": "observe",
    "last_answer": True,
}
"""An option of each name that strategies share."""
WITHOUT: Mapping[str, frozenset[str]] = {
    "chat": frozenset({"last_answer"}),
    "evaluator_optimizer": frozenset(OTHERWISE) - {"name", "model", "max_seconds", "max_steps"},
    "function_call": frozenset({"last_answer"}),
    "orchestrator_workers": frozenset({"last_answer"}),
    "plan_and_solve_prompt": frozenset(OTHERWISE) - {"name", "model", "max_seconds"},
    "llm_compiler": frozenset({"last_answer"}),
    "reflexion": frozenset({"last_answer"}),
    "router": frozenset({"last_answer"}),
    "self_ask": frozenset({"last_answer"}),
    "supervisor": frozenset({"last_answer"}),
    "swarm": frozenset({"last_answer", "on_denied", "on_error"}),
    "tree_of_thoughts": frozenset(OTHERWISE) - {"name", "model", "max_seconds", "max_steps"},
    "self_consistency": frozenset(OTHERWISE) - {"name", "model", "max_seconds"},
}
QUESTION = "What is 2 + 4 * 3?"


def options_of(maker: Any) -> dict[str, Any]:
    """The shared options that the strategy has."""
    lacks = WITHOUT.get(maker.__name__, frozenset())
    return {name: value for name, value in OTHERWISE.items() if name not in lacks}


async def outcome(graph: Graph) -> tuple[str, object]:
    """How a run of it ends."""
    model = OfflineModel()
    async with Executor(model=model, models={"cheap": model}, tools=tools_from_ref("arithmetic")) as executor:
        run = await executor.start(graph, QUESTION, approve="dangerous")
        while run.status == "paused":
            run = await executor.answer(run.run_id, run.waiting[0].id, "/bye")
    output = run.output
    return run.status, [len(part) for part in output] if isinstance(output, list) else output  # calls have new ids


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
@pytest.mark.parametrize("changed", [False, True])
async def test_a_strategy_runs_the_same_from_the_file_that_save_writes(
    tmp_path: Path, maker: Any, changed: bool
) -> None:
    graph: Graph = maker(**(options_of(maker) if changed else {}))
    graph.save(tmp_path / "graph.yaml")
    loaded = Graph.load(tmp_path / "graph.yaml")
    assert (loaded.structure, loaded.content) == (graph.structure, graph.content)
    assert await outcome(loaded) == await outcome(graph)


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
async def test_options_have_one_name_in_all_strategies(maker: Any) -> None:
    graph: Graph = maker(**options_of(maker))
    assert (graph.name, graph.limits.seconds) == ("mine", 30)
    nodes = [node for _, _, node in walk(graph)]
    assert {node.model for node in nodes if node.asks_model} == {"cheap"}
    if maker not in NO_CALLS:
        given = {node.tools for node in nodes if node.takes_tools and node.subgraph is None}
        assert {names for names in given if not str(names).startswith("('transfer_to_")} == {("add", "multiply")}
    for option in WITHOUT.get(maker.__name__, ()):
        with pytest.raises(TypeError, match=option):
            maker(**{option: OTHERWISE[option]})


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
@pytest.mark.parametrize("option", ["max_steps", "max_seconds"])
async def test_a_bound_that_is_not_positive_is_refused(maker: Any, option: str) -> None:
    if option in options_of(maker):
        with pytest.raises(ValueError, match=option):
            maker(**{option: 0})


def walk(graph: Any, path: str = "") -> list[tuple[str, str, Any]]:
    """Every node of a graph and of those inside."""
    found = []
    for name, node in graph.nodes.items():
        found.append((path, name, node))
        if node.subgraph is not None:
            found += walk(node.subgraph, f"{path}{name}/")
    return found


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_an_option_of_another_type_or_value_is_refused_by_name(maker: Any) -> None:
    wrong: list[tuple[str, Any, str]] = [
        ("max_steps", True, "whole number"), ("max_steps", "5", "whole number"), ("max_steps", 1.5, "whole number"),
        ("max_rounds", "5", "whole number"), ("votes", True, "whole number"), ("max_seconds", "5", "seconds"),
        ("max_seconds", float("nan"), "seconds"), ("max_seconds", True, "seconds"),
        ("on_denied", "rais", "'raise' or 'observe'"), ("on_error", "x", "'observe'"),
        ("constrain", "x", "'auto' or 'never'"),
    ]  # fmt: skip
    taken = inspect.signature(maker).parameters
    for option, value, words in wrong:
        if option in taken:
            with pytest.raises(ValueError, match=f"^{maker.__name__}: {option}=.*{words}"):
                maker(**{option: value})
