"""The tutorial, typed as it is: its files are written, its commands typed in two terminals, its outputs compared.

A block that begins with `# NAME.py` is a file. In a `console` block, `$` begins a command, `^C` is that key, and a last
word behind `Approve? [y/n/e]` is an answer; the other lines are what the terminal shows. What differs each time
(times, ids, process numbers) is not compared, and `...` stands for anything. Installations (`sh`) are those of the
environment, and ports are free ones.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from orchestrator.cli.graph_refs import graph_from_ref
from tests.support.ports import free_port
from tests.support.programs import ROOT
from tests.support.real_model import environment
from tests.support.shell import Shell
from tests.support.tmux import Screen, on_screen

PAGE = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
ASKED = "Approve? [y/n/e]"
PID = "12345"
PROMPT = "env PS1='$ ' HISTFILE= TERM=tmux-256color bash --norc --noprofile"
VARIES = (
    (r"\d+(?:\\\.\d+)?\\ s\b", r"\d+(?:\.\d+)? s"),
    (r"(?:\d+\\ (?:s|min)\\ ago|just\\ now)", r"(?:\d+(?:\.\d+)? (?:s|min) ago|just now)"),
    (r"[⠀-⣿]", "[⠀-⣿]"),
    (r"(?:\\ ){2,}", " +"),
)
"""What is not compared: in an escaped line, and the pattern in its place."""


@dataclass(frozen=True)
class Typed:
    """One thing that the reader does, and what the page shows below it."""

    second: bool
    """Whether it is done in the second terminal."""
    keys: str
    answers: bool
    """Whether it is the answer to a question."""
    shown: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()
    """The files that are written before it: name and text."""


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """The head and the text of each block of code."""
    for found in re.finditer(r"^```(\S.*?)\n(.*?)^```$", page, re.S | re.M):
        yield found[1], found[2]


def steps(page: str) -> Iterator[Typed]:
    """What is typed, in the order of the page."""
    files: list[tuple[str, str]] = []
    for head, text in blocks(page):
        if head == "python" and (name := re.match(r"# (\w+\.py)\n", text)):
            files.append((name[1], text))
        elif head.startswith("console"):
            lines = rf"^(\$ .+|\^C|{re.escape(ASKED)} .+)\n((?:(?!\$ |\^C).*\n)*)"
            for begins, shown in re.findall(lines, text, re.M):
                keys = begins.removeprefix("$ ").removeprefix(f"{ASKED} ")
                yield Typed("Second" in head, keys, begins.startswith(ASKED), tuple(shown.splitlines()), tuple(files))
                files = []


def pattern(shown: Sequence[str]) -> str:
    """What a terminal shows, as a pattern for all of its lines."""
    lines = []
    for line in shown:
        if line == "...":
            lines.append(r"(?:.*\n)*?.*?")  # a program may write into the line of another
            continue
        escaped = re.escape(line.removesuffix("..."))
        for what, instead in VARIES:
            escaped = re.sub(what, instead.replace("\\", r"\\"), escaped)
        lines.append(rf"{escaped}{'.*' if line.endswith('...') else ''}(?:\n|\Z)")
    return "".join(lines)


class Reader:
    """Someone who types the tutorial in two terminals.

    Args:
        terminals: the first and the second one.
        own: what is typed in place of words of the page.
    """

    def __init__(self, terminals: tuple[Screen, Screen], own: dict[str, str]) -> None:
        self._terminals, self._own = terminals, own

    def do(self, step: Typed, *, ends: bool) -> None:
        """Type keys, and wait until the terminal shows what the page shows.

        Args:
            step: what to do.
            ends: whether the command has ended then, and the terminal shows nothing else.
        """
        screen = self._terminals[step.second]
        if step.keys == "^C":
            screen.type("C-c")
            assert "Traceback" not in screen.wait_for(r"\^C(?:.*\n)*\$\Z")
            return
        keys, before = self._typed(step.keys), ASKED
        if not step.answers:
            screen.wait_for(r"^(?:\^C)?\$\Z")
            screen.type("C-l")
            screen("clear-history")
            before = "$"
        screen.write(keys)
        screen.type("Enter")
        line, end = re.escape(f"{before} {keys}"), r"\$\Z" if ends else ""
        seen = screen.wait_for(rf"^{line}\n{pattern([*map(self._typed, step.shown)])}{end}")
        if found := re.search(r"\balive +\S+ +(\d+) ", seen):
            self._own[PID] = found[1]

    def _typed(self, text: str) -> str:
        for named, own in self._own.items():
            text = text.replace(named, own)
        return text


def approved_on_the_page(port: str) -> None:
    """What the page does when its button is pressed: read the question, and answer with its digest."""
    root = f"http://127.0.0.1:{port}"
    with urlopen(f"{root}/", timeout=60) as page:
        assert "<html" in page.read().decode()
    with urlopen(f"{root}/api/questions", timeout=60) as answer:
        (asked,) = json.load(answer)["questions"]
    assert asked["question"]["prompt"] == "Call send_money?"
    body = {"approve": {}, "question": asked["question"]["id"], "digest": asked["question"]["digest"], "by": "ann"}
    request = Request(
        f"{root}/api/runs/{asked['run_id']}/answer", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urlopen(request, timeout=60) as answer:
        assert answer.status == 200


def test_every_block_is_a_file_a_command_or_an_installation() -> None:
    heads = {head for head, _ in blocks(PAGE)}
    assert heads == {"sh", "python", "console", 'console title="Second terminal"'}
    typed = [*steps(PAGE)]
    assert sum(len(step.files) for step in typed) == PAGE.count("```python")
    assert len(typed) == len(re.findall(rf"^(?:\$ |\^C|{re.escape(ASKED)} )", PAGE, re.M))
    assert [step.keys for step in typed].count(f"kill -9 {PID}") == 2


def test_its_graphs_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # its modules are not found by later tests
    for name, text in (file for step in steps(PAGE) for file in step.files):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert [graph_from_ref(f"{tmp_path}/{name}.py").name for name in ("refund", "letter")] == ["refund", "letter"]


@pytest.mark.peer
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed: `apt-get install tmux`")
def test_it_happens_as_it_is_written(tmp_path: Path) -> None:
    hour, page, port = tmp_path / "hour", str(free_port()), str(free_port())
    shells = []
    for place in (hour, tmp_path / "second"):
        place.mkdir()
        shells.append(Shell(place))
        (place / "trial.py").unlink()
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec "{environment()}/bin/python" "$@"\n')
    (tmp_path / "python").chmod(0o700)
    own = {
        "serve refund.py": f"serve --port {page} refund.py",
        "7700": page,
        "python ../docs/examples/local_server.py": f"../python ../docs/examples/local_server.py {port}",
        "8080": port,
    }
    typed = [*steps(PAGE)]
    ann = {"LOGNAME": "ann", "HOME": str(tmp_path)}
    with on_screen(shells[0], 100, 50, PROMPT, **ann) as one, on_screen(shells[1], 100, 50, PROMPT, **ann) as two:
        two.write("cd ../hour")
        two.type("Enter")
        reader = Reader((one, two), own)
        for number, step in enumerate(typed):
            for name, text in step.files:
                (hour / name).write_text(text, encoding="utf-8")
            if step.keys == "orchestrator watch second":
                approved_on_the_page(page)
            elif step.keys == "orchestrator show third":
                shells[0].until(lambda: shells[0]("show", "third", "--json").json["status"] == "paused")
            elif step.keys == "orchestrator workers" and not step.second:  # the list is as old as a heartbeat
                shells[0].until(lambda: [one for one in shells[0]("workers", "--json").json["workers"] if one["held"]])
            later = [other for other in typed[number + 1 :] if other.second == step.second]
            goes_on = later and (later[0].keys == "^C" or later[0].answers)
            reader.do(step, ends=not goes_on and step.shown[-1:] != ("...",))
