"""Most tests run commands in their own process. Each command, begun as its users begin it, does the same."""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.__main__ import command
from orchestrator.strategies.tool_user import graph
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


@pytest.mark.full
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
"""
HANDLER = 'atexit.register(print, "exit handler")'

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


COMMAND = "from orchestrator.__main__ import command\nsys.exit(command())"
"""What an installation writes."""


def ended(place: Path, *words: str, name: str = "orchestrator", before: str = "", after: str = COMMAND) -> str:
    """What a program writes that runs a command and has an object that lives to its end."""
    (program := place / "bin" / name).parent.mkdir(exist_ok=True)
    program.write_text(f"{LEFT}{before}\n{after}")
    done = subprocess.run(
        [sys.executable, program, *words], capture_output=True, text=True, cwd=place, timeout=60, check=True
    )
    return done.stdout.replace("\n", " ")


@pytest.mark.full
def test_a_command_that_loads_no_code_of_others_ends_before_its_modules_are_taken_apart(tmp_path: Path) -> None:
    assert ended(tmp_path, "run", "tool_user", "1+1", "--approve", "none") == "2 "
    graph.save(tmp_path / "tool_user.yaml")
    assert ended(tmp_path, "check", "tool_user.yaml").endswith("OK ")


@pytest.mark.full
def test_a_command_that_loads_other_code_leaves_it_to_python_to_end(tmp_path: Path) -> None:
    (tmp_path / "noted.py").write_text(NOTES)
    assert ended(tmp_path, "run", "noted.py:graph", "x").endswith("taken apart ")
    assert (tmp_path / "notes.txt").read_text() == "written"
    (tmp_path / "winreg.py").write_text(NOTES.replace("notes.txt", "more.txt"))
    assert ended(tmp_path, "run", "winreg.py:graph", "x").endswith("taken apart ")
    assert (tmp_path / "more.txt").read_text() == "written"


@pytest.mark.full
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("sys.modules['sitecustomize'] = sys", COMMAND),  # code of the environment
        (HANDLER, COMMAND),  # as of a tool that measures
        ("", "from orchestrator.cli import main\nmain()"),
    ],
)
def test_what_other_code_left_or_goes_on_is_left_to_python_to_end(tmp_path: Path, before: str, after: str) -> None:
    assert ended(tmp_path, "--version", before=before, after=after).endswith(" taken apart ")


def test_a_program_that_calls_the_command_goes_on(tmp_path: Path) -> None:
    after = f"try:\n    {COMMAND.replace(chr(10), chr(10) + '    ')}\nexcept SystemExit:\n    print('goes on')"
    assert ended(tmp_path, "--version", name="mine.py", after=after).endswith(" goes on taken apart ")


@pytest.mark.full
def test_a_profiler_writes_what_it_found(tmp_path: Path) -> None:
    words = ("-m", "cProfile", "-o", "found", "-m", "orchestrator", "--version")
    subprocess.run([sys.executable, *words], cwd=tmp_path, timeout=60, check=True, stdout=subprocess.DEVNULL)
    assert (tmp_path / "found").stat().st_size > 1000


def test_a_program_that_calls_main_gets_its_handlers_back(tmp_path: Path) -> None:
    code = """
import gc, signal
from orchestrator.cli import main

def now():
    return [*map(signal.getsignal, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)), gc.get_threshold()]

signal.signal(signal.SIGTERM, print)
before = now()
try:
    main(["--version"])
except SystemExit:
    print(now() == before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.stdout.endswith("\nTrue\n"), done.stderr


def test_the_command_is_where_the_installation_says() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert pkgutil.resolve_name(project["scripts"]["orchestrator"]) is command
