"""Most tests run commands in their own process. Each command, begun as its users begin it, does the same."""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from orchestrator.__main__ import command
from tests.support.shell import Done, Shell

COMMANDS = (
    ("check", "trial:two"),
    ("render", "trial:two", "--format", "mermaid"),
    ("graphs",),
    ("tools", "trial"),
    ("run", "trial:two", "roses", "--run-id", "t"),
    ("runs", "--json"),
    ("show", "t"),
    ("why", "t"),
    ("answer", "t", "up"),
    ("answer", "t", "sea", "--question", "a", "--no-resume"),
    ("pause", "t"),
    ("resume", "t"),
    ("recover",),
    ("run", "trial:writer", "x", "--tools", "trial", "--run-id", "w"),
    ("approve", "w"),
    ("events", "w"),
    ("run", "trial:noted", "--tools", "trial", "--run-id", "d", "--json"),
    ("deny", "d", "--reason", "no"),
    ("cancel", "d"),
    ("watch", "w", "--json"),
    ("compare", "1+1", "tool_user", "--model", "offline"),
    ("run", "trial:bad", "x"),
    ("show", "nosuch"),
)
VARIES = re.compile(r"\s*[0-9a-f]*[0-9][0-9a-f.]*\s*")
"""Numbers and ids."""


def done(place: Path, run: Callable[[Shell], Callable[..., Done]]) -> list[tuple[object, ...]]:
    """What each command comes to, without what varies from run to run."""
    place.mkdir()
    shell = Shell(place, inside=True)
    found: list[tuple[object, ...]] = []
    for words in COMMANDS:
        one = run(shell)(*words)
        found.append((words, one.code, *(VARIES.sub("#", text.replace(str(place), "")) for text in (one.out, one.err))))
    return found


def test_commands_do_the_same_as_processes(tmp_path: Path) -> None:
    inside = done(tmp_path / "inside", lambda shell: shell)
    assert {code for _, code, *_ in inside} >= {0, 1, 2, 3, 4}
    assert done(tmp_path / "apart", lambda shell: shell.process) == inside


LEFT = """
import atexit, sys

class Left:
    def __del__(self):
        print("taken apart")

left = Left()
atexit.register(print, "exit handler")
sys.modules["kept_by_the_process"] = type(sys)("kept")
sys.modules["kept_by_the_process"].left = left
"""
NOTES = """
from pydantic import BaseModel
from orchestrator import Graph, node

notes = open("notes.txt", "w")  # never closed

class Kept(BaseModel):
    question: str = ""

@node
def note(state: Kept) -> None:
    notes.write("written")

graph = Graph(
    name="noted", state=Kept, input="question", output="question", nodes={"note": note}, edges="START -> note -> END"
)
"""


def ended(place: Path, *words: str) -> str:
    """What a process writes that runs a command and has an exit handler, and an object that lives to its end."""
    code = f"{LEFT}\nfrom orchestrator.__main__ import command\ncommand()"
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=place, timeout=60, check=True
    )
    return done.stdout.replace("\n", " ")


def test_a_command_that_loads_known_code_only_calls_exit_handlers_and_ends(tmp_path: Path) -> None:
    assert ended(tmp_path, "run", "tool_user", "1+1", "--approve", "none") == "2 exit handler "
    assert ended(tmp_path, "--version").endswith(" exit handler ")


def test_a_command_that_loads_other_code_leaves_it_to_python_to_end(tmp_path: Path) -> None:
    (tmp_path / "noted.py").write_text(NOTES)
    assert ended(tmp_path, "run", "noted.py:graph", "x").endswith("exit handler taken apart ")
    assert (tmp_path / "notes.txt").read_text() == "written"


def test_the_command_is_where_the_installation_says() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert pkgutil.resolve_name(project["scripts"]["orchestrator"]) is command
