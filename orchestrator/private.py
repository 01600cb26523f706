"""Files of this library that no tool may show or change, wherever they are: stores, archives, keys and tokens.

Code that opens such a file registers it here; the package `files` checks each path before using it.
"""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

_registered: set[str] = set()


def keep_private(place: str | os.PathLike[str], *, endings: tuple[str, ...] = ()) -> None:
    """Register a file or a folder with its contents. It does not have to exist.

    Args:
        suffixes of the names of files next to it, such as `-wal`.
    """
    path = os.path.realpath(place)
    _registered.update(as_read(path + ending) for ending in ("", *endings))


def is_private(path: str) -> bool:
    """Return True if an absolute path without links is registered or in a registered folder."""
    path = as_read(path)
    while path not in _registered:
        path, before = os.path.dirname(path), path
        if path == before:
            return False
    return True


def state_folder() -> Path:
    """Return the folder of the key that seals this user's journals.

    Raises:
        this user has no home directory.
    """
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state and Path(state).is_absolute() else Path.home() / ".local" / "state"
    return base / "orchestrator"


def as_read(path: str) -> str:
    """Return a path in the form in which the least exact file system compares it.

    It has no case, no compatibility forms (fullwidth, composed), no invisible characters, and no spaces and dots at the
    end of a name.
    """
    if not path.isascii():
        from orchestrator.visible import without_hidden

        path = without_hidden(unicodedata.normalize("NFKC", path))
    return os.sep.join(name.rstrip(" .") or name for name in path.casefold().split(os.sep))
