"""Files of this library that no tool shows or changes, wherever they are: stores, archives, keys and tokens.

What opens such a file registers it here; `files` asks before it touches a path.
"""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

_registered: set[str] = set()


def keep_private(place: str | os.PathLike[str], *, endings: tuple[str, ...] = ()) -> None:
    """Register a file or a folder, with all that is in it. It does not have to exist.

    Args:
        endings: endings of names of files that lie beside it, such as `-wal`.
    """
    path = os.path.realpath(place)
    _registered.update(as_read(path + ending) for ending in ("", *endings))


def is_private(path: str) -> bool:
    """Return True if a path, absolute and without links, is registered or in a registered folder."""
    path = as_read(path)
    while path not in _registered:
        path, before = os.path.dirname(path), path
        if path == before:
            return False
    return True


def state_folder() -> Path:
    """The folder of the key that seals the journals of this user.

    Raises:
        RuntimeError: this user has no home.
    """
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state and Path(state).is_absolute() else Path.home() / ".local" / "state"
    return base / "orchestrator"


def as_read(path: str) -> str:
    """A path as the least exact file system reads it.

    That is without case, without forms of characters (fullwidth, composed), without characters that are not seen, and
    without blanks and dots at the end of a name.
    """
    if not path.isascii():
        from orchestrator.visible import without_hidden

        path = without_hidden(unicodedata.normalize("NFKC", path))
    return os.sep.join(name.rstrip(" .") or name for name in path.casefold().split(os.sep))
