"""The table of docs/evaluation.md: the shipped strategies on the shipped data, with a simulated model."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import anyio

from orchestrator import Graph
from orchestrator.evaluation import Evaluation, evaluate
from orchestrator.models.offline.simulated import SimulatedModel

PAGE = Path(__file__).parents[2] / "docs/evaluation.md"
RATE = 0.05
NO_ANSWER = {"chat", "function_call"}
"""Strategies that give no answer to one question: a conversation, and one call of a tool."""
_START, _END = "<!-- table -->\n", "<!-- end of table -->"


def strategies() -> list[Graph]:
    """Return all shipped strategies that answer a question."""
    names = sorted(file.stem for file in (PAGE.parents[1] / "graphs").glob("[a-z]*.py"))
    return [getattr(import_module(f"orchestrator.strategies.{one}"), one)() for one in names if one not in NO_ANSWER]


def measured() -> Evaluation:
    """Return the evaluation of all strategies that answer such questions."""
    graphs = strategies()

    async def work() -> Evaluation:
        return await evaluate(
            "arithmetic", graphs, models=SimulatedModel(RATE), scorers="number", tools="arithmetic", approve="none"
        )

    return anyio.run(work)


def table(found: Evaluation) -> str:
    """Return the table as Markdown. Seconds are left out, because they depend on the machine."""
    columns = ("strategy", "accuracy", "95 %", "model calls", "rounds", "tokens", "tool calls")
    lines = ["| " + " | ".join(columns) + " |", "|---|" + "---:|" * (len(columns) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(one.cells()[:7]) + " |" for one in found.variants), ""])


def page_with(text: str) -> str:
    """Return the page with a table."""
    before, _, rest = PAGE.read_text().partition(_START)
    return f"{before}{_START}{text}{_END}{rest.partition(_END)[2]}"
