"""Imports point downward, for types and inside functions too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx

from tests import sizes
from tests.support.sources import imports_of, text_of

ROOT = Path(__file__).parents[2] / "orchestrator"

FLOOR = "_lazy errors json tasks values visible redaction clock user_code private spelling collector"
BELOW_EXECUTOR = f"{FLOOR} graph kernel stores models views tools memory context nodes"
BELOW_GRAPH_CLASS = f"{BELOW_EXECUTOR} executor executor/calls executor/drive executor/runs render"
ABOVE_ALL = f"{BELOW_GRAPH_CLASS} render/terminal graph_class models/refs"
ROOMS = {
    "_lazy": "",
    "json": "",
    "visible": "json",
    "redaction": "",
    "clock": "",
    "collector": "",
    "spelling": "",
    "user_code": "errors",
    "private": "visible",
    "errors": "",
    "tasks": "json",
    "values": "errors json",
    "graph": FLOOR,
    "kernel": f"{FLOOR} graph",
    "stores": f"{FLOOR} graph kernel",
    "models": f"{FLOOR} graph",
    "models/offline": f"{FLOOR} graph models",
    "models/refs": f"{FLOOR} graph models models/offline",
    "views": f"{FLOOR} graph kernel stores",
    "tools": f"{FLOOR} graph models",
    "memory": f"{FLOOR} graph",
    "context": f"{FLOOR} graph kernel models tools memory",
    "tools/builtin": f"{FLOOR} graph models tools context",
    "nodes": f"{FLOOR} graph kernel models tools context",
    "views/embedia": f"{FLOOR} graph kernel views nodes",
    "executor": BELOW_EXECUTOR,
    "executor/calls": f"{BELOW_EXECUTOR} executor",
    "executor/drive": f"{BELOW_EXECUTOR} executor executor/calls",
    "executor/runs": f"{BELOW_EXECUTOR} executor executor/calls executor/drive",
    "engines": f"{FLOOR} kernel executor executor/runs",
    "render": f"{FLOOR} graph kernel views",
    "render/terminal": f"{FLOOR} graph kernel views stores models tools render",
    "otel": f"{BELOW_EXECUTOR} executor executor/calls __init__",
    "graph_class": BELOW_GRAPH_CLASS,
    "comparison": ABOVE_ALL,
    "evaluation": f"{ABOVE_ALL} comparison models/offline",
    "testing": ABOVE_ALL,
    "notebook": ABOVE_ALL,
    "web": f"{ABOVE_ALL} comparison evaluation",
    "protocols": f"{ABOVE_ALL} web tools/builtin",
    "cli": f"{ABOVE_ALL} comparison engines evaluation otel tools/builtin web __init__",
    "__init__": f"{ABOVE_ALL} comparison evaluation",
    "__main__": "cli",
}
"""Each room, and the rooms that it may import. A room is a folder or a module, or a folder inside of one.

The executor has four: `executor` is the ground, `executor/calls` are calls that touch the outside, `executor/drive`
is one run while a process drives it, and `executor/runs` are all runs of an executor.
"""

GROUND = """
    commands concurrency failures journal lease os_signals resources retries run_log run_search
    run_status run_tools snapshots worker_health replay/__init__ replay/running
    tracing trusted_approvals versions/__init__ versions/comparison versions/migration_planning
"""
OF_A_DRIVE = "drive node_call node_result result_cache step_context step_tasks timers"
"""Files of the executor that make up these two rooms; all others that are in no room's folder are `executor/runs`."""
ROOMS_OF_EXECUTOR = {
    "executor": {*GROUND.split()},
    "executor/calls": {"replay/calls", "replay/steps"},
    "executor/drive": {*OF_A_DRIVE.split()},
}

FACES = {"__init__.py", "cli/app.py", "_lazy.py", "render/__init__.py", "testing/__init__.py"}
"""Packages and the command line load what they name when it is first used."""
NAMED_BY_USERS = {"cli/graph_refs.py", "graph/refs.py", "tools/refs.py"}
"""They import modules that a user names."""
UNTYPED = {"nodes/route.py"}
"""They import a library of an extra that has no types."""


def room_of(name: str) -> str:
    """The room of a file, by its path below `orchestrator`."""
    parts = name.removesuffix(".py").split("/")
    if parts[0] == "executor" and parts[1] != "calls":
        inside = {"/".join(parts[1:]), parts[1]}
        return next((room for room, files in ROOMS_OF_EXECUTOR.items() if inside & files), "executor/runs")
    return "/".join(parts[:2]) if "/".join(parts[:2]) in ROOMS else parts[0]


def _file_of(module: str) -> str | None:
    path = ROOT.joinpath(*module.split(".")[1:])
    found = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return str(found.relative_to(ROOT)) if found.is_file() else None


def _modules(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
    elif (statement.module or "").partition(".")[0] == "orchestrator":
        for alias in statement.names:
            if alias.name != "__version__":
                yield f"{statement.module}.{alias.name}"


@cache
def imports() -> dict[str, frozenset[str]]:
    """Each file of the library, and the files of it that it imports anywhere."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        modules = [name for one in imports_of(path) for name in _modules(one.statement)]
        files = [
            _file_of(name) or _file_of(name.rpartition(".")[0]) for name in modules if name.startswith("orchestrator")
        ]
        found[str(path.relative_to(ROOT))] = frozenset(file for file in files if file is not None)
    return found


def _hands_on(name: str, file: str) -> bool:
    """Whether a folder's `__init__` hands on names of a room inside the folder."""
    folder, _, base = name.rpartition("/")
    return base == "__init__.py" and file.startswith(f"{folder}/")


def arrows() -> dict[tuple[str, str], list[str]]:
    """Which room imports which other one, and by which files."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, files in imports().items():
        for file in files:
            if room_of(file) != room_of(name) and not _hands_on(name, file):
                found.setdefault((room_of(name), room_of(file)), []).append(f"{name} imports {file}")
    return found


def test_every_room_is_in_the_table() -> None:
    assert {room_of(name) for name in imports()} == ROOMS.keys()


def test_no_rooms_import_each_other() -> None:
    graph = nx.DiGraph([(room, below) for room, allowed in ROOMS.items() for below in allowed.split()])
    assert nx.is_directed_acyclic_graph(graph)


def test_a_room_imports_only_what_is_below() -> None:
    faults = [fault for (room, other), where in arrows().items() if other not in ROOMS[room].split() for fault in where]
    assert not faults


def test_no_files_import_each_other() -> None:
    """Not even around a longer circle, or for types only."""
    graph = nx.DiGraph([(name, file) for name, files in imports().items() for file in files])
    assert [sorted(circle) for circle in nx.strongly_connected_components(graph) if len(circle) > 1] == []


def test_the_core_knows_neither_the_offline_model_nor_names_of_another_framework() -> None:
    core = {*BELOW_GRAPH_CLASS.split(), "render/terminal"}
    assert not [arrow for arrow in arrows() if arrow[0] in core and arrow[1] in ("models/offline", "views/embedia")]


def test_other_names_of_rooms_stand_in_one_file() -> None:
    names = {"import_module", "resolve_name", "__import__"}
    loaders = {
        name
        for name in imports()
        if any(one in text_of(ROOT / name) for one in names)  # before it is parsed: few do
        and not names.isdisjoint(
            getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(ast.parse(text_of(ROOT / name)))
        )
    }
    assert loaders == {"_lazy.py"} | FACES | NAMED_BY_USERS | UNTYPED


def test_graphs_use_public_names_only() -> None:
    for path in (ROOT.parent / "graphs").glob("*.py"):
        for statement, _ in imports_of(path):
            if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("orchestrator"):
                depth = (statement.module or "").removeprefix("orchestrator.strategies").count(".")
                assert depth <= 1, f"{path.name} imports {statement.module}"


OPTIONS = "a command's options, each with its help text, are its parameters"
LONG_LISTS = {
    "orchestrator/cli/replay_command.py: replay": OPTIONS,
    "orchestrator/cli/run_commands.py: resume": OPTIONS,
    "orchestrator/cli/serve_command.py: serve": OPTIONS,
    "graphs/react.py: react": "a strategy's options are its parameters",
    "graphs/supervisor.py: supervisor": "a strategy's options are its parameters",
    "graphs/plan_and_execute.py: plan_and_execute": "a strategy's options are its parameters",
    "graphs/reflexion.py: reflexion": "a strategy's options are its parameters",
    "graphs/chat.py: chat": "a strategy's options are its parameters",
    "graphs/function_call_agent.py: function_call_agent": "a strategy's options are its parameters",
}
"""Functions whose parameters are a long list of options, and the reason. Of them, only the body counts."""


def test_a_function_has_at_most_60_code_lines() -> None:
    long = {f"{one.file}: {one.name}": one for one in sizes.long_functions()}
    assert {name: one.lines for name, one in long.items() if name not in LONG_LISTS} == {}
    assert {name: one.body for name, one in long.items() if one.body > sizes.LONGEST_FUNCTION} == {}
    assert LONG_LISTS.keys() <= long.keys(), "these fit: they need no exception"


def test_code_lines_are_those_without_blanks_comments_and_docstrings() -> None:
    text = '''"""A module."""

import os  # why

LIMIT = 3
"""Below an
attribute."""


def named(
    number: int,
) -> str:
    """A docstring."""
    # a comment

    return """text
    of two lines""" * number
'''
    assert sorted(sizes.code_lines(text)) == [3, 5, 10, 11, 12, 16, 17]
