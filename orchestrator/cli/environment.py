"""The environment of a command: directories to import from, the terminal, the user."""

from __future__ import annotations

import getpass
import importlib.util
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Literal

import orchestrator
from orchestrator.cli.exits import UsageError
from orchestrator.cli.options import moment
from orchestrator.cli.signals import other_code
from orchestrator.graph.refs import module_named
from orchestrator.json import storable

_HOME = Path(orchestrator.__file__).resolve().parents[1]
"""The directory of this library and its graphs."""


def import_from(directory: str) -> None:
    """Make modules of a directory importable, after all other locations.

    They cannot hide modules of the library, of Python or of an installed package.
    """
    if directory not in sys.path:
        sys.path.append(directory)
        if _has_graphs(directory):
            sys.meta_path.insert(0, _OwnGraphs(directory))


def import_for(ref: str, directory: str) -> None:
    """Make a module that the user named importable from a directory, unless one with that name is installed.

    Otherwise the directory stays off the import path, where packages look for plug-ins and optional dependencies.

    Args:
        ref: `module`, `module:attr` or `file.py:attr`.
    """
    other_code()
    place = ref.partition(":")[0]
    if place.endswith(".py"):
        if Path(directory).resolve() in Path(directory, place).resolve().parents:
            import_from(directory)
    else:
        module = module_named(place)
        top = module.partition(".")[0]
        if not is_installed(module) or (top == "graphs" and _has_graphs(directory)):
            import_from(directory)


class _OwnGraphs:
    """Finds the user's package `graphs`, which the user's code imports, before the one of this library.

    The command line finds its own graphs in either case.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the module if it is `graphs`."""
        return PathFinder.find_spec(name, [self._directory]) if name == "graphs" else None


def _has_graphs(directory: str) -> bool:
    own = Path(directory).resolve()
    return own != _HOME and ((own / "graphs").is_dir() or (own / "graphs.py").is_file())


def is_installed(module: str) -> bool:
    """Return True if a module's package can be imported without the current directory."""
    name = module.partition(".")[0]
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def on_change() -> Literal["continue", "strict"]:
    """Return `ORCHESTRATOR_ON_CHANGE`: whether a run continues with a changed graph; by default it does.

    Raises:
        UsageError: it is neither `continue` nor `strict`.
    """
    said = os.environ.get("ORCHESTRATOR_ON_CHANGE") or "continue"
    if said == "continue":
        return "continue"
    if said == "strict":
        return "strict"
    raise UsageError(f"ORCHESTRATOR_ON_CHANGE={said}: use continue or strict")


def restored_at() -> datetime | None:
    """Return `ORCHESTRATOR_RESTORED_AT`: when the store was restored from a backup.

    Raises:
        UsageError: it is neither a date nor an age.
    """
    said = os.environ.get("ORCHESTRATOR_RESTORED_AT")
    return moment(said, "ORCHESTRATOR_RESTORED_AT") if said else None


def on_terminal() -> bool:
    """Return True if the user can be asked: stdin and stderr are terminals."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def forget_what_was_typed() -> None:
    """Discard typed input: a key pressed before a question was shown is not an answer to it."""
    with suppress(ImportError):  # Windows does not have it
        import termios

        if sys.stdin.isatty():
            with suppress(termios.error):
                termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def user_name() -> str:
    """Return the login name of the user."""

    try:
        return storable(getpass.getuser())
    except (KeyError, OSError):  # no entry for this user id
        return str(os.getuid()) if hasattr(os, "getuid") else ""


def agrees(question: str) -> bool:
    """Ask the user at the terminal; return True for yes. Without a terminal, return False."""
    return decides(question) is True


def decides(question: str) -> bool | None:
    """Ask the user a yes-or-no question. Return None for any other answer, or if there is no terminal."""
    if not on_terminal():
        return None
    forget_what_was_typed()
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    word = sys.stdin.readline().strip().lower()
    return True if word in ("y", "yes") else False if word in ("n", "no") else None
