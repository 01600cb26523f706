"""The maps in docs/architecture.md: the packages of the library and the files of the executor, by their imports.

An arrow leads from a part to a part that it imports. An arrow that others imply is left out. Imports for types count
between packages; among the executor's files the map has only those that run.
`python -m tests.architecture` draws the maps anew.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path

import networkx as nx

import orchestrator
from orchestrator.render.drawing import Drawing, EdgeMark, Look, NodeMark
from orchestrator.render.svg import drawing_to_svg
from tests.support.sources import imports_of

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "orchestrator"
PICTURES = ROOT / "docs" / "pictures"
PURPOSES: dict[str, tuple[Look, str]] = {
    "basics": ("code", "errors, values, text"),
    "graph": ("graph", "graphs as data"),
    "kernel": ("code", "pure rules"),
    "stores": ("code", "memory, SQLite"),
    "models": ("model", "servers, offline"),
    "tools": ("tool", "tools, servers, pools"),
    "memory": ("code", "values across runs"),
    "context": ("code", "what a node gets"),
    "builtin": ("tool", "tools that come along"),
    "nodes": ("code", "kinds of nodes"),
    "views": ("code", "folds for people"),
    "executor": ("code", "input and output"),
    "engines": ("tool", "delivery to workers"),
    "render": ("code", "drawings, pages"),
    "graph_class": ("graph", "graphs that run"),
    "comparison": ("code", "several graphs"),
    "evaluation": ("code", "rows, scores, costs"),
    "testing": ("code", "crash kit, clocks"),
    "strategies": ("graph", "folder graphs/"),
    "otel": ("code", "traces, metrics"),
    "notebook": ("human", "live pictures"),
    "web": ("human", "page and HTTP API"),
    "protocols": ("human", "AG-UI, AI SDK, A2A"),
    "cli": ("human", "commands"),
}
"""What is drawn of each part: icon and small line. Single files without a line of their own are `basics`."""


@cache
def modules() -> dict[str, Path]:
    """The modules of the library by their full names, without the lazy front of the package."""
    files = [*LIBRARY.rglob("*.py"), *(LIBRARY / "strategies").glob("*.py")]
    named = {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}
    return {name: file for name, file in sorted(named.items()) if name not in ("orchestrator", "orchestrator.__main__")}


@cache
def imports(file: Path, types: bool) -> frozenset[str]:
    """The modules of the library that a file imports, with or without those for types."""
    known, found = modules(), set[str]()
    for statement, for_types in imports_of(file):
        if for_types and not types:
            continue
        if isinstance(statement, ast.Import):
            found.update(alias.name for alias in statement.names)
            continue
        for alias in statement.names:
            if statement.module == "orchestrator" and hasattr(orchestrator, alias.name):
                found.add(str(getattr(getattr(orchestrator, alias.name), "__module__", "")))
            else:
                inner = f"{statement.module}.{alias.name}"
                found.add(inner if inner in known else str(statement.module))
    return frozenset(found & known.keys())


def by_imports(part_of: Callable[[str], str | None], *, types: bool = True) -> nx.DiGraph[str]:
    """The parts of the library and which of them imports which.

    Args:
        part_of: the part that a module belongs to; None if it is not drawn.
        types: whether imports for type checkers count.
    """
    graph: nx.DiGraph[str] = nx.DiGraph()
    for name, file in modules().items():
        part = part_of(name)
        if part is None:
            continue
        graph.add_node(part)
        others = map(part_of, imports(file, types))
        graph.add_edges_from((part, other) for other in others if other not in (part, None))
    return graph


def package(module: str) -> str:
    """The package that a module is in; small modules that everything uses are `basics`."""
    name = "builtin" if module.startswith("orchestrator.tools.builtin") else module.split(".")[1]
    assert name in PURPOSES or not (LIBRARY / name).is_dir(), f"say in PURPOSES what the package {name} is for"
    return name if name in PURPOSES else "basics"


def executor_file(module: str) -> str | None:
    """The file of the executor that a module is, as `folder/name`."""
    name = module.removeprefix("orchestrator.executor.")
    return None if name == module or modules()[module].name == "__init__.py" else name.replace(".", "/")


def drawing(title: str, graph: nx.DiGraph[str], look: Callable[[str], tuple[Look, str, str]]) -> Drawing:
    """The map of some parts. Their imports must have no circle.

    Args:
        title: the name of the map.
        graph: the parts and what they import.
        look: the icon, the name and the small line of a part.
    """
    circle = next(nx.simple_cycles(graph), None)
    assert circle is None, f"these import each other: {' -> '.join(circle or [])}"
    nodes = {}
    for number, part in enumerate(sorted(graph)):
        icon, name, line = look(part)
        nodes[part] = NodeMark(f"n{number}", f"node-{part}", name, "", icon, line)
    edges = [
        EdgeMark(f"e{number}", f"edge-{a}--{b}", number, "", nodes[a].key, nodes[b].key, (a, b))
        for number, (a, b) in enumerate(sorted(nx.transitive_reduction(graph).edges))
    ]
    marks = tuple(nodes.values())
    about = f"{title}: {len(marks)} parts, {len(edges)} imports."
    return Drawing(title, marks, tuple(edges), about=about, by_key={node.key: node for node in marks})


def architecture() -> str:
    """The map of the packages."""
    return drawing_to_svg(
        drawing("orchestrator", by_imports(package), lambda part: (PURPOSES[part][0], part, PURPOSES[part][1]))
    )


def executor() -> str:
    """The map of the executor's files."""

    def look(part: str) -> tuple[Look, str, str]:
        folder, _, name = part.rpartition("/")
        return "code", name, f"in executor/{folder}".rstrip("/")

    return drawing_to_svg(drawing("orchestrator.executor", by_imports(executor_file, types=False), look))


MAPS = {"architecture": architecture, "executor": executor}


if __name__ == "__main__":
    for name, draw in MAPS.items():
        (PICTURES / f"{name}.svg").write_text(draw(), encoding="utf-8")
