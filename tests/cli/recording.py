"""The recording of a terminal, docs/pictures/terminal.svg: a real run that is killed and goes on.

`python -m tests.cli.recording` records it anew. It needs tmux.
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from tests.cli.screencast import Frame, rows_of, svg
from tests.support.shell import Shell
from tests.support.tmux import Screen, on_screen

PLACE = Path(__file__).parents[2] / "docs/pictures/terminal.svg"
STILL = PLACE.with_name("terminal_still.svg")
COLUMNS, ROWS = 96, 37
RUN = 'orchestrator run tool_user "What is 12*7?" --run-id demo'
RESUME = "orchestrator resume demo"
TITLE = "A run in a terminal that is killed and goes on"
DESCRIPTION = (
    f"The command {RUN} asks for approval of multiply(a=12, b=7). While it waits, kill -9 ends its process. "
    f"The command {RESUME} asks the same question again, without repeating a step. After the answer y it prints 84."
)
_MASKS = (
    (re.compile(r"\d+\.\d\d s\b|\d+ min \d+ s\b"), "0.01 s"),
    (re.compile(r"(?<=· )\d+ s\b"), "60 s"),
)
"""How long things take, which is different each time."""


@dataclass
class _Tape:
    """The screens of a terminal so far."""

    screen: Screen
    frames: list[Frame] = field(default_factory=list)

    def shoot(self, seconds: float, note: str = "") -> None:
        """Take what stands on the screen."""
        captured = self.screen("capture-pane", "-p", "-e").removesuffix("\n")
        column, row = map(int, self.screen("display-message", "-p", "#{cursor_x} #{cursor_y}").split())
        self.frames.append(Frame(rows_of(captured, _MASKS), (column, row), seconds, note))

    def type(self, text: str) -> None:
        """Type a text word by word, and wait until it stands there."""
        typed = ""
        for word in re.findall(r" *\S+", text):
            typed += word
            self.screen.write(word)
            self.screen.wait_for(rf"{re.escape(typed)}$")
            self.shoot(0.28)


def record() -> list[Frame]:
    """The screens of a run that a person approves, whose process is killed meanwhile, and that is resumed.

    Every wait is for a text on the screen, and every screen is taken when nothing changes it any more.
    """
    with (
        TemporaryDirectory(ignore_cleanup_errors=True) as place,
        on_screen(
            Shell(Path(place)),
            COLUMNS,
            ROWS,
            "env PS1='$ ' HISTFILE= TERM=tmux-256color bash --norc --noprofile",
            LOGNAME="ann",
        ) as screen,
    ):
        tape = _Tape(screen)
        screen.wait_for(r"^\$$")
        # No screen is taken before the question: whoever sees the picture for a second sees what it is about.
        screen.write(RUN)
        screen.type("Enter")
        screen.wait_for(r"^Approve\? \[y/n/e\]$")
        tape.shoot(3.2)
        _kill(screen)
        screen.wait_for(r"Killed(.|\n)*^\$$")
        tape.shoot(2.4, "another terminal: kill -9 its process")
        tape.type(RESUME)
        tape.frames[-1] = _longer(tape.frames[-1], 0.6)
        screen.type("Enter")
        screen.wait_for(r"steps before this(.|\n)*^Approve\? \[y/n/e\]$")
        tape.shoot(2.4)
        screen.write("y")
        screen.wait_for(r"^Approve\? \[y/n/e\] y$")
        tape.shoot(0.8)
        screen.type("Enter")
        screen.wait_for(r"^84\n\$$")
        tape.shoot(6)
        return tape.frames


def _longer(frame: Frame, seconds: float) -> Frame:
    return Frame(frame.rows, frame.cursor, seconds, frame.note)


def _kill(screen: Screen) -> None:
    """Send SIGKILL to the command that the shell runs."""
    shell = psutil.Process(int(screen("display-message", "-p", "#{pane_pid}")))
    (command,) = shell.children()
    os.kill(command.pid, signal.SIGKILL)


def pictures() -> dict[Path, str]:
    """The recording as SVG, and its last screen alone, for those who want no motion, by their files."""
    frames = record()
    return {
        PLACE: svg(frames, COLUMNS, ROWS, TITLE, DESCRIPTION),
        STILL: svg(frames[-1:], COLUMNS, ROWS, TITLE, DESCRIPTION),
    }


if __name__ == "__main__":
    for file, made in pictures().items():
        file.write_text(made, encoding="utf-8")
