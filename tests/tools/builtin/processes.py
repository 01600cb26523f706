"""What is still running, for tests that end things."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path


def token() -> str:
    """Seconds for a `sleep` that nobody else sleeps: what its processes are found by."""
    return f"9{secrets.randbelow(10**9):09d}"


def alive(word: str) -> list[str]:
    """Command lines of the processes that were started with an argument; those that only wait to be buried are dead."""
    found = []
    for place in Path("/proc").iterdir():
        try:
            line = (place / "cmdline").read_bytes() if place.name.isdigit() else b""
            if word.encode() in line and int(place.name) != os.getpid():
                state = (place / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    found.append(line.replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def wait_for(word: str, count: int) -> None:
    """Wait until at least so many are there."""
    until(lambda: len(alive(word)) >= count, f"{count} processes with {word}")


def wait_until_gone(word: str) -> None:
    """Wait until none is left."""
    until(lambda: not alive(word), f"no process with {word}: {alive(word)}")


def until(true: Callable[[], bool], what: str) -> None:
    """Wait until something is true."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if true():
            return
        time.sleep(0.05)
    raise AssertionError(f"20 seconds without {what}")
