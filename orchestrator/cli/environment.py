"""What surrounds a command: `.env`, the current directory as a place to import from, the terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

from orchestrator.cli.exits import UsageError

WHERE_THE_KEY_IS = ("XDG_STATE_HOME", "HOME", "USERPROFILE")
"""Never taken from a `.env`: with them a directory from elsewhere could bring a key of its own, see `trust`."""


def load_dotenv() -> None:
    """Take settings that the environment lacks from `.env` in the current directory. The environment wins.

    Raises:
        UsageError: the file cannot be read.
    """
    if not Path(".env").is_file():
        return
    from dotenv import dotenv_values

    try:
        found = dotenv_values(".env")
    except (OSError, ValueError) as error:
        raise UsageError(f".env: {error}") from None
    for name, value in found.items():
        if value is not None and name not in WHERE_THE_KEY_IS:
            os.environ.setdefault(name, value)


def import_from(directory: str) -> None:
    """Let modules be imported from a directory, before those of other places."""
    if directory not in sys.path:
        sys.path.insert(0, directory)


def import_from_here() -> None:
    """Let modules be imported from the current directory."""
    import_from(os.getcwd())


def on_change() -> Literal["continue", "strict"]:
    """`ORCHESTRATOR_ON_CHANGE`: whether a run goes on in a graph whose content changed; by default it does.

    Raises:
        UsageError: it is neither `continue` nor `strict`.
    """
    said = os.environ.get("ORCHESTRATOR_ON_CHANGE") or "continue"
    if said == "continue":
        return "continue"
    if said == "strict":
        return "strict"
    raise UsageError(f"ORCHESTRATOR_ON_CHANGE={said}: write continue or strict")


def on_terminal() -> bool:
    """Whether a person can be asked: questions are shown on stderr and read from stdin."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def user_name() -> str:
    """Who is at the keyboard, as the system knows them."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no entry for this user id
        return str(os.getuid()) if hasattr(os, "getuid") else ""
