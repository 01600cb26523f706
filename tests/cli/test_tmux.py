"""The tree on the screen of a real terminal program, narrow and wide, as a person sees it and answers it."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.shell import Shell
from tests.support.tmux import Screen, on_screen

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed: `apt-get install tmux`"),
]

TRAVEL = '''
from pathlib import Path
from typing import Annotated

import anyio
from pydantic import BaseModel, JsonValue

from orchestrator import Context, Graph, Limits, Retry, append, node, tool
from orchestrator.graph import Usage
from orchestrator.models import Reply
from orchestrator.models import ModelEvent
from orchestrator.nodes import Confirm


class Trip(BaseModel):
    topic: str = ""
    cities: list[str] = []
    notes: Annotated[list[str], append] = []
    report: str = ""
    tool: str = "publish"
    args: dict[str, JsonValue] = {"text": "all \\x1b]0;owned\\x07", "where": "a place with a name that is long " * 6}


async def until(file):
    while not Path(file).exists():
        await anyio.sleep(0.02)


@tool(risk="dangerous")
def publish(text: str, where: str) -> str:
    """Publish."""
    return f"published {text}"


@node
def plan(state: Trip):
    return {"cities": ["Paris", "東京", "Zürich", "\\x1b[31mLima"]}


@node(retry=Retry(wait=0.01))
async def search(state: Trip, item: str, ctx: Context):
    if item == "Zürich" and ctx.attempt == 1:
        raise TimeoutError("no answer")
    if item == "東京":
        await until("go")
    return {"notes": f"{item} is nice, and there is a lot more to say of it than there is room for on one line"}


@node(join="all")
async def write(state: Trip, ctx: Context):
    return {"report": (await ctx.model.complete("write")).text}


@node
async def act(state: Trip, ctx: Context):
    return {"notes": str((await ctx.tool(state.tool, **state.args)).output)}


class Slow:
    name, streams = "slow", True

    async def complete(self, *_, **__):
        raise AssertionError("somebody watches")

    async def stream(self, *_, **__):
        for number in range(40):
            yield ModelEvent(text=f"word{number} ")
        await until("on")
        yield ModelEvent(reply=Reply(text="many words", usage=Usage(input_tokens=1200, output_tokens=40)))


travel = Graph(
    name="travel",
    state=Trip,
    input="topic",
    nodes={"plan": plan, "search": search, "write": write, "ok": Confirm(tool="tool", args="args"), "act": act},
    edges="""
        START -> plan
        plan -> search : each cities
        search -> write -> ok
        ok -> act : approved
        ok -> END : denied
        act -> END
    """,
    output="report",
    limits=Limits(steps=50, tokens=5000),
)
'''


@contextmanager
def terminal(shell: Shell, width: int, height: int = 24, **env: str) -> Iterator[Screen]:
    (shell.place / "travel.py").write_text(TRAVEL)
    with on_screen(shell, width, height, **env) as screen:
        yield screen


ORCHESTRATOR = f"{Path(sys.executable)} -m orchestrator"
RUN = f"{ORCHESTRATOR} run travel:travel x --tools travel --model travel:Slow --run-id t; echo = $?"


@pytest.mark.parametrize("width", [80, 200])
def test_a_run_reads_well_and_is_answered(shell: Shell, width: int) -> None:
    with terminal(shell, width) as screen:
        screen.type(RUN, "Enter")
        first = screen.wait_for(r"3/4 (?s:.*)^│ . plan\.1 東京 · search(  \d+ s)?$")
        assert re.search(r"^✓ plan  \d+\.\d\d s  3/4  cities: Paris, 東京, Zürich, Lima$", first, re.M)
        end = "…" if width == 80 else "line'"
        assert re.search(rf"^│ ✓ plan\.2 Zürich · search  attempt 2 .*{end}$", first, re.M)
        assert re.search(r"^. running · .* · 4 steps   left: 45 steps · 5,000 tokens$", first, re.M)
        (shell.place / "go").touch()
        words = screen.wait_for("word3[0-9]”")
        assert ("word20" in words) == (width == 200)
        (shell.place / "on").touch()
        asked = screen.wait_for(r"^Approve\? \[y/n/e\]")
        assert re.search(r"^│ ✓ model slow  1,200 → 40 tokens  \d+\.\d\d s  = many words$", asked, re.M)
        screen.type("y", "Enter")
        done = screen.wait_for("^= 0$")
    assert re.search(r"^✓ completed · .* · 8 steps · 2 calls · 1,240 tokens$\nmany words$", done, re.M)
    for once in ("✓ plan ", "✓ write ", "✓ act ", "│ ✓ publish(", "✓ ok → approved", "completed"):
        assert done.count(once) == 1, done
    assert not re.search("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", done), "something still turns"
    after = done[done.index("✓ plan") :]
    assert "owned" not in after.replace("\\u001b]0;owned\\u0007", "")
    assert all(len(line) <= width for line in done.splitlines())


def test_no_colour_means_no_escape_codes(shell: Shell) -> None:
    with terminal(shell, 80, NO_COLOR="1") as screen:
        screen.type("clear", "Enter")
        screen("pipe-pane", "-o", f"cat > {shell.place}/raw")
        (shell.place / "go").touch()
        (shell.place / "on").touch()
        screen.type(RUN, "Enter")
        screen.wait_for(r"^Approve\? \[y/n/e\]")
        screen.type("n not today", "Enter")
        screen.wait_for("^= 0$")
    raw = (shell.place / "raw").read_text()
    begin, end = raw.index("started: travel"), raw.index("= 0")
    assert "\x1b" not in raw[begin:end]
    assert 'denied "not today" by' in raw


def test_watching_on_a_terminal_that_becomes_small(shell: Shell) -> None:
    with terminal(shell, 120) as screen:
        with shell.begin(
            "run", "travel:travel", "x", "--tools", "travel", "--model", "travel:Slow", "--run-id", "t"
        ) as far:
            shell.until(lambda: "4 steps" in shell("show", "t").out)
            screen.type(f"{ORCHESTRATOR} watch t; echo = $?", "Enter")
            screen.wait_for("running")
            screen("resize-window", "-x", "60", "-y", "9")
            (shell.place / "go").touch()
            screen.wait_for("model slow")
            (shell.place / "on").touch()
            assert far.end().code == 3
        screen.wait_for(r"^Approve\? \[y/n/e\]")
        screen.type("y", "Enter")
        done = screen.wait_for("^= 0$")
    assert "✓ completed" in done
    assert "many words" in done
