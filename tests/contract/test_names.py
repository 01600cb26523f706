"""Names that others rely on."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import orchestrator
from orchestrator.errors import install_command
from orchestrator.views.events import EVENT_TYPES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", orchestrator.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(orchestrator, name) is not None


def test_dir_tells_the_public_names() -> None:
    assert set(orchestrator.__all__) <= set(dir(orchestrator))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Grpah'"):
        orchestrator.Grpah  # noqa: B018


@pytest.mark.parametrize(
    "package", ["graph", "kernel", "stores", "models", "tools", "nodes", "executor", "render", "testing"]
)
def test_all_is_honest(package: str) -> None:
    module = __import__(f"orchestrator.{package}", fromlist=["*"])
    for name in getattr(module, "__all__", ()):
        assert getattr(module, name) is not None


@pytest.mark.parametrize("kind", EVENT_TYPES)
def test_every_event_type_is_in_the_documentation(kind: str) -> None:
    assert f"`{kind}`" in (ROOT / "docs/events.md").read_text()


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, orchestrator; print([m for m in ('pydantic','networkx','openai','typer') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


def test_the_main_names_load_neither_networkx_nor_openai() -> None:
    code = (
        "import sys; from orchestrator import Graph, Executor, node, tool, OpenAIModel; "
        "print([m for m in ('networkx','openai','typer','graphviz','yaml') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


TEXTS = [
    *(path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "orchestrator").rglob("*.py"),
]


def test_nothing_tells_people_to_install_a_strangers_package() -> None:
    """`graph-orchestrator` on the package index is another project, and ours is not there: a checkout is installed.

    The name of ours with an extra is right: the library is installed where such a text is read.
    """
    wrong = re.compile(r"pip install[^\n.]{0,40}orchestrator(?!\[)|(?<!agent-)graph-orchestrator\b")
    for path in [*TEXTS, ROOT / "pyproject.toml", ROOT / "mkdocs.yml"]:
        assert wrong.search(path.read_text()) is None, path


def test_the_command_that_installs_an_extra_works_in_any_folder(tmp_path: Path) -> None:
    words = shlex.split(install_command("route"))[1:]
    command = [sys.executable, *words, "--no-index", "--dry-run"]
    loud = {name: value for name, value in os.environ.items() if name != "PIP_QUIET"}
    done = subprocess.run(command, cwd=tmp_path, env=loud, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "already satisfied: agent-graph-orchestrator[route]" in done.stdout


def test_each_extra_that_a_text_installs_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert install_command("web") == 'python -m pip install "agent-graph-orchestrator[web]"'
    named = set[str]()
    for path in TEXTS:
        commands = re.findall(r"""pip\s+install\s+(?:-e )?"\.\[([a-z0-9,]+)\]|\binstall\(['"](\w+)""", path.read_text())
        named.update(extra for found in commands for one in found for extra in one.split(",") if extra)
    assert {"web", "postgres", "mcp"} <= named <= extras.keys()
