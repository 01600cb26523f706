"""Which modules a command imports: most of what a short command costs is loading its code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LOADED = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
from orchestrator.cli import main
main(sys.argv[1:])
"""
NEVER = {
    "openai", "networkx", "starlette", "uvicorn", "jinja2", "graphviz", "mcp", "httpx", "httpx2", "yaml",
    "http.client", "trio", "dotenv", "IPython", "numpy",
}  # fmt: skip
"""What no command below needs."""
OF_RUNS = frozenset(
    {"executor.executor", "executor.step_tasks", "graph.model", "kernel.fold", "models", "nodes", "tools"}
)
"""What is not needed to read rows of runs."""
TABLE: dict[str, tuple[tuple[str, ...], frozenset[str], int]] = {
    "help": (("--help",), OF_RUNS | {"stores", "render", "views"}, 41),
    "explain": (("explain", "C2"), OF_RUNS | {"stores", "render", "views"}, 41),
    "runs": (("runs", "--limit", "5"), OF_RUNS | {"views.run", "views.trace", "graph.limits"}, 72),
    "show": (
        ("show", "one"),
        frozenset(
            {"models.offline", "models.chat", "tools.builtin", "nodes.extract", "executor.drive", "executor.step_tasks"}
        ),
        240,
    ),
    "run": (
        ("run", "tool_user", "What is 20+(2*4)?", "--approve", "none"),
        frozenset(
            {
                "models.chat",
                "nodes.extract",
                "nodes.plan",
                "nodes.complete",
                "render.svg",
                "tools.mcp",
                "web",
                "executor.command_delivery",
                "executor.fork.making",
                "executor.versions.migration_planning",
                "executor.replay.running",
                "stores.sqlite.listing",
                "views.step_tree",
                "views.timeline",
            }
        ),
        262,
    ),
}
"""Command -> its words, modules of the library that it does not import, and how many it imports at most."""


VALIDATORS = {"pydantic", "pydantic_core", "annotated_types", "typer._adapters", "importlib.metadata"}
"""What takes most of the time of a command that checks and shows little."""


def modules(place: Path, *words: str) -> set[str]:
    """The modules that a command imports."""
    env = {name: text for name, text in os.environ.items() if not name.startswith(("ORCHESTRATOR", "OPENAI"))}
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words], capture_output=True, text=True, timeout=300, cwd=place,
        env=env | {"ORCHESTRATOR_STORE": f"sqlite:///{place}/runs.db"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a store that has a run."""
    found = tmp_path_factory.mktemp("imports")
    modules(found, "run", "tool_user", "1+1", "--approve", "none", "--run-id", "one")
    return found


@pytest.mark.full
@pytest.mark.parametrize("name", TABLE)
def test_a_command_imports_what_it_needs(name: str, place: Path) -> None:
    words, without, most = TABLE[name]
    found = modules(place, *words)
    ours = {module for module in found if module.startswith("orchestrator.")}
    assert not NEVER & found
    assert not {f"orchestrator.{module}" for module in without} & ours
    assert len(ours) <= most


@pytest.mark.full
@pytest.mark.parametrize("name", ["help", "explain", "runs"])
def test_a_short_command_loads_no_validators(name: str, place: Path) -> None:
    assert not VALIDATORS & modules(place, *TABLE[name][0])


@pytest.mark.full
def test_words_that_were_typed_need_no_validators(place: Path) -> None:
    assert "typer._adapters" not in modules(place, *TABLE["run"][0])
