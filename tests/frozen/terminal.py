"""What commands that look at runs print, of kept runs, and drawings of those runs."""

from __future__ import annotations

import contextlib
import io
import lzma
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import anyio
from typer.main import get_command

from orchestrator import Executor
from orchestrator.cli.app import application
from orchestrator.json import digest
from orchestrator.kernel.fold import apply
from orchestrator.kernel.queries import state_values
from orchestrator.kernel.run_state import RunState
from orchestrator.render import render, to_svg
from tests.data.kept_runs import ERRANDS, STORE
from tests.frozen.blanking import compact
from tests.frozen.texts import Sections

WIDTH, HEIGHT = 100, 40
LATER = 2_000_000_000.0
"""Unix seconds: what the clock says when runs are listed."""
LOOKED_AT = (
    "tool_user-completed", "tool_user-approval", "react-input", "rewoo-unknown", "chat-interrupted", "react-failed",
    "plan_and_solve-cancelled", "function_call_agent-exhausted", "over_words-unknown", "over_words-completed",
    "delegating-approval", "chat-answered", "rewoo-message", "plan_and_solve_prompt-completed", "over_words-exhausted",
    "react-reopened", *(f"errand-{place}" for place in ERRANDS),
)  # fmt: skip
TREES = ("tool_user-completed", "over_words-unknown", "react-failed", "over_words-completed", "chat-approval")
"""Runs that are shown as they go on."""
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("show",), ("show", "--json"), ("show", "--at", "4"), ("show", "--traceback"), ("events",), ("events", "--json"),
    ("events", "--after", "3"), ("why",), ("why", "--json"), ("render",), ("render", "--format", "mermaid"),
    ("render", "--at", "4"),
)  # fmt: skip
LISTS: tuple[tuple[str, ...], ...] = (
    ("runs",), ("runs", "--json"), ("runs", "--status", "paused"), ("runs", "--graph", "react", "--limit", "3"),
    ("runs", "--label", "user=ann"), ("runs", "--graph", "errand"), ("graphs",), ("graphs", "--json"), ("tools",),
    ("show", "nosuch"), ("runs", "--status", "nosuch"),
)  # fmt: skip


class Screen(io.StringIO):
    """A terminal that is written to; `shown` is what stands on it at the end."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> str:
        """The lines, with their colours, after all that moved the cursor."""
        lines, row = [""], 0
        for part in re.split(r"(\x1b\[\d*[AK]|\x1b\[2K|\x1b\[\?25[lh]|\r|\n)", self.getvalue()):
            if part == "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            elif match := re.fullmatch(r"\x1b\[(\d*)A", part):
                row = max(0, row - int(match[1] or 1))
            elif part.endswith("K") and part.startswith("\x1b["):
                lines[row] = ""
            elif not (part == "\r" or part.startswith("\x1b[?")):
                lines[row] += part
        return "\n".join(lines)


def _done(words: tuple[str, ...], url: str, *, terminal: bool = False, **env: str) -> str:
    """What a command prints and exits with."""
    err = io.StringIO()
    out: io.StringIO = Screen() if terminal else io.StringIO()
    given = {"COLUMNS": str(WIDTH), "LINES": str(HEIGHT), "TERM": "xterm-256color", **env}
    store = () if words[0] in ("graphs", "tools") else ("--store", url)
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), patch.dict(os.environ, given):
        try:
            get_command(application()).main(args=[*words, *store], prog_name="orchestrator")
        except SystemExit as end:
            code = end.code or 0
    shown = out.shown if isinstance(out, Screen) else out.getvalue()
    return f"{shown}-- exit {code}\n{err.getvalue()}".replace(url, "STORE")


@contextlib.contextmanager
def _store() -> Iterator[str]:
    """A copy of the store, in an empty current directory, long after its runs."""
    began, clock = os.getcwd(), time.time
    with TemporaryDirectory() as place:
        Path(place, "runs.db").write_bytes(lzma.decompress(STORE.read_bytes()))
        os.chdir(place)
        vars(time)["time"] = lambda: LATER
        # Commands to go on are printed as words that find this program again.
        called, sys.argv[0] = sys.argv[0], "orchestrator"
        try:
            yield f"sqlite:///{place}/runs.db"
        finally:
            sys.argv[0] = called
            vars(time)["time"] = clock
            os.chdir(began)


def terminal() -> Sections:
    """The outputs by command."""
    found: dict[str, str] = {}
    with _store() as url:
        for words in LISTS:
            found[" ".join(words)] = _done(words, url, NO_COLOR="1")
        for run in LOOKED_AT:
            for name, *options in COMMANDS:
                found[f"{name} {run} {' '.join(options)}".rstrip()] = _done((name, run, *options), url, NO_COLOR="1")
            found[f"events {run} on a terminal"] = _done(("events", run), url, terminal=True, NO_COLOR="1")
        for run in TREES:
            follow = () if run.endswith(("unknown", "approval")) else ("--follow",)
            words = ("events", run, *follow)
            found[f"tree {run}"] = _done(words, url, terminal=True, NO_COLOR="1")
            found[f"tree {run} in colour"] = _done(words, url, terminal=True, NO_COLOR="", FORCE_COLOR="1")
    return found


def stores() -> Sections:
    """What is made of every run of that store: states after each record, events, drawings."""

    async def all_of(url: str) -> dict[str, str]:
        found: dict[str, str] = {}
        async with Executor(url) as executor:
            for info in (await executor.runs(limit=1000)).runs:
                run = await executor.load(info.run_id)
                machine = RunState(run.machine.plan)
                records = await executor.store.read(info.run_id)
                moves = any(record.type == "migrated" for record in records)
                lines = []
                for record in records:
                    if moves:  # in each version of its graph
                        machine = (await executor.load(info.run_id, at=record.seq)).machine
                    else:
                        apply(machine, record)
                    lines.append(
                        f"{record.seq} {record.type} {machine.status} {digest(dict(state_values(machine)))[:16]}"
                    )
                styled = [compact(one.to_json()) async for one in executor.events(info.run_id, style="embedia")]
                document = compact(run.to_json())
                svg = to_svg(run.definition, run, engine="simple")
                drawn = [str(render(run.definition, form, run)) for form in ("text", "mermaid")]
                why = run.why().to_text()
                found[info.run_id] = "\n".join([*lines, document, *styled, why, *drawn, svg])
        return found

    with _store() as url:
        return anyio.run(all_of, url)
