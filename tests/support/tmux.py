"""The screen of a real terminal program, tmux, as a person sees it, and its keyboard."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.shell import Shell

BASH = "bash --norc --noprofile"


class Screen:
    """A terminal of its own, with a shell in it."""

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
        """Type a text as it is."""
        self("send-keys", "-l", text)

    def shown(self) -> str:
        """What stands on the screen, and what scrolled off."""
        return self("capture-pane", "-p", "-S", "-200").rstrip()

    def wait_for(self, pattern: str) -> str:
        """The screen as soon as it has this on it."""
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
    """A terminal for as long as the block lasts."""
    screen = Screen(shell, width, height, command, env)
    try:
        yield screen
    finally:
        screen("kill-server")
