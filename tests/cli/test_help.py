"""Help, and what a command costs before it does anything."""

from __future__ import annotations

import json
import sys

import pytest

from orchestrator.cli.app import _COMMANDS, _GROUPS, _HEADINGS, application
from tests.support.inside import commands_of
from tests.support.shell import Done, Shell

COMMANDS = (
    "run", "resume", "recover", "pause", "cancel", "answer", "approve", "deny",
    "runs", "show", "events", "watch", "check", "render", "graphs", "tools",
)  # fmt: skip

ALL = """
import io, json, sys
from contextlib import redirect_stdout
from orchestrator.cli.app import run

def told(*words):
    with redirect_stdout(io.StringIO()) as out:
        try:
            run([*words, "--help"])
        except SystemExit as end:
            assert not end.code
    return out.getvalue()

told()
heavy = ("networkx", "openai", "anyio", "asyncio", "sqlite3", "yaml", "graphviz", "rich")
found = [name for name in heavy if name in sys.modules]
ours = [name for name in sys.modules if name.split(".")[0] in ("orchestrator", "graphs")]
print(json.dumps([{name: told(name) for name in sys.argv[1:]}, found, ours]))
"""


@pytest.fixture(scope="module")
def told(shared: Shell) -> tuple[dict[str, str], list[str], list[str]]:
    told, heavy, ours = json.loads(shared.sh([sys.executable, "-c", ALL, *COMMANDS]).out)
    return told, heavy, ours


@pytest.fixture(scope="module")
def top(shared: Shell) -> Done:
    return shared("--help")


def test_help_loads_nothing_heavy(told: tuple[dict[str, str], list[str], list[str]]) -> None:
    """Nothing that runs, draws or stores: only the command line itself."""
    _, heavy, ours = told
    assert heavy == []
    assert {name.split(".")[1] for name in ours if "." in name} <= {"_lazy", "cli", "collector", "errors", "visible"}
    assert "graphs" not in ours


def test_the_list_of_commands_is_whole(top: Done) -> None:
    rows = [line.split()[0] for line in top.out.partition("Run graphs:")[2].splitlines() if line.startswith("  ")]
    assert [row for row in rows if row in COMMANDS] == list(COMMANDS)
    assert "..." not in top.out.partition("Run graphs:")[2], "a summary is cut off"
    assert "130 interrupted" in top.out
    assert (top.code, top.err) == (0, "")


def test_the_list_has_the_summary_of_each_command(top: Done) -> None:
    """The list is printed without loading the commands, so it has their summaries once more."""
    listed = " ".join(top.out.partition("Run graphs:")[2].split())
    for name, command in commands_of(application()).commands.items():  # type: ignore[attr-defined]
        assert f"{name} {command.get_short_help_str(200)}" in listed


def test_each_command_stands_under_one_heading() -> None:
    listed = sorted(" ".join(_HEADINGS.values()).replace("schema ", "").split())
    assert listed == sorted(name for name in (*_COMMANDS, *_GROUPS) if name != "schema")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_an_example(told: tuple[dict[str, str], list[str], list[str]], name: str) -> None:
    text = told[0][name]
    assert f"Example: orchestrator {name}" in text
    assert "--json" in text or name == "render"
    assert "--store URL" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_something_is_said_of_every_option(name: str) -> None:
    for parameter in commands_of(application()).commands[name].params:  # type: ignore[attr-defined]
        assert parameter.help, f"nothing is said of {parameter.name}"
