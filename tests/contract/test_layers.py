"""Imports point downward."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2] / "orchestrator"

# Each room may import those before it. What stands in one row may know each other's names only where said.
ORDER = ["problem", "errors", "typevars", "jsontypes", "values", "redacting", "visible", "fence", "graph", "kernel",
         "stores", "models", "views", "tools", "context", "nodes", "sealing", "embedia", "executor", "render",
         "comparing", "testing", "cli", "notebook"]  # fmt: skip
LAZY = {"graph/verbs.py", "__init__.py", "views/run.py"}
"""Files whose methods load a room above when they are called, and say so."""


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    todo: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while todo:
        statement = todo.pop()
        if isinstance(statement, ast.expr) or (
            isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test)
        ):
            continue
        todo += ast.iter_child_nodes(statement)
        if isinstance(statement, ast.ImportFrom) and statement.module and statement.module.startswith("orchestrator."):
            found.add(statement.module.split(".")[1])
        elif isinstance(statement, ast.Import):
            found.update(a.name.split(".")[1] for a in statement.names if a.name.startswith("orchestrator."))
    return found


def test_a_room_imports_only_what_is_below() -> None:
    faults = []
    for path in sorted(ROOT.rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if name in LAZY or name == "__main__.py":
            continue
        room = name.split("/")[0].removesuffix(".py")
        above = {other for other in _imports(path) if ORDER.index(other) > ORDER.index(room)}
        faults += [f"{name} imports {other} from above" for other in sorted(above)]
    assert not faults


def test_graphs_use_public_names_only() -> None:
    for path in (ROOT.parent / "graphs").glob("*.py"):
        for statement in ast.walk(ast.parse(path.read_text())):
            if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("orchestrator"):
                depth = (statement.module or "").removeprefix("orchestrator.strategies").count(".")
                assert depth <= 1, f"{path.name} imports {statement.module}"
