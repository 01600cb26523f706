"""The example of docs/proofs.md, and the picture of what its proof finds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from orchestrator import Graph
from orchestrator.graph import Proof
from orchestrator.render import to_svg
from orchestrator.views.overlay import witness_overlay

PAGE = Path(__file__).parents[2] / "docs" / "proofs.md"


def block(language: str) -> str:
    """The first block of the page in a language."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert found is not None
    return found[1]


def cleaning() -> Graph[Any]:
    """The graph of the example."""
    names: dict[str, Any] = {"__name__": "proofs_page"}
    exec(compile(block("python"), str(PAGE), "exec", dont_inherit=True), names)
    graph = names["graph"]
    assert isinstance(graph, Graph)
    return graph


def broken() -> list[Proof]:
    """The claims that do not hold."""
    return [proof for proof in cleaning().check(prove=True).proofs if not proof.holds]


def witness() -> str:
    """The picture of what breaks the first of them."""
    return to_svg(cleaning(), witness_overlay(cleaning(), broken()[0]))
