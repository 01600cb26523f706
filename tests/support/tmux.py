"""The screen and the keyboard of a real terminal program, tmux."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.shell import Shell

BASH = "bash --norc --noprofile"


class Screen:
    """A new terminal, with a shell in it."""

    def __init__(self, shell: Shell, width: int, height: int, command: str, env: dict[str, str]) -> None:
        self._shell, self._socket = shell, str(shell.place / "tmux")
        said = {**shell.env, "PS1": "$ ", "LANG": "C.UTF-8", "PATH": shell.env["PATH"], **env}
        words = [word for name, value in said.items() if name != "TERM" for word in ("-e", f"{name}={value}")]
        self("-u", "-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), *words,
             command)  # fmt: skip

    def __call__(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, *words], cwd=self._shell.place, env=self._shell.env, capture_output=True,
            text=True, check=True, timeout=60,
        )  # fmt: skip
        return done.stdout

    def type(self, *keys: str) -> None:
        self("send-keys", *keys)

    def write(self, text: str) -> None:
        """Type a text, in which names of keys have no meaning."""
        self("send-keys", "-l", text)

    def shown(self) -> str:
        """Return the text on the screen, and what was scrolled off it."""
        return self("capture-pane", "-p", "-S", "-200").rstrip()

    def wait_for(self, pattern: str) -> str:
        """Wait until the screen matches a pattern, and return its text."""
        found = [""]

        def there() -> bool:
            found.append(self.shown())
            return re.search(pattern, found[-1], re.M) is not None

        try:
            self._shell.until(there)
        except AssertionError:
            raise AssertionError(f"{pattern!r} never came:\n{found[-1]}") from None
        return found[-1]


@contextmanager
def on_screen(shell: Shell, width: int, height: int, command: str = BASH, **env: str) -> Iterator[Screen]:
    """Open a terminal, and close it at the end of the block."""
    screen = Screen(shell, width, height, command, env)
    try:
        yield screen
    finally:
        screen("kill-server")
