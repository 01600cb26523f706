"""Imports point downward."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "orchestrator"

# Each room may import those before it. What stands in one row may know each other's names only where said.
ORDER = ["errors", "jsontypes", "redacting", "graph", "kernel", "stores", "models", "tools", "context", "nodes",
         "executor", "render", "comparing", "testing", "cli", "notebook"]  # fmt: skip
LAZY = {"graph/verbs.py", "__init__.py", "executor/run.py"}
"""Files whose methods load a room above when they are called, and say so."""


def _imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    typing_only = {
        id(child)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for child in ast.walk(block)
    }
    found: set[str] = set()
    for statement in ast.walk(tree):
        if id(statement) in typing_only:
            continue
        if isinstance(statement, ast.ImportFrom) and statement.module and statement.module.startswith("orchestrator."):
            found.add(statement.module.split(".")[1])
        elif isinstance(statement, ast.Import):
            found.update(a.name.split(".")[1] for a in statement.names if a.name.startswith("orchestrator."))
    return found


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_room_imports_only_what_is_below(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    if name in LAZY or name == "__main__.py":
        return
    room = name.split("/")[0].removesuffix(".py")
    above = {other for other in _imports(path) if ORDER.index(other) > ORDER.index(room)}
    assert not above, f"{name} imports from above: {', '.join(sorted(above))}"


def test_graphs_use_public_names_only() -> None:
    for path in (ROOT.parent / "graphs").glob("*.py"):
        for statement in ast.walk(ast.parse(path.read_text())):
            if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("orchestrator"):
                depth = (statement.module or "").count(".")
                assert depth <= 1, f"{path.name} imports {statement.module}"
