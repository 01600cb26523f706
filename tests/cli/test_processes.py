"""Most tests run commands in their own process. Each command, begun as its users begin it, does the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

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
