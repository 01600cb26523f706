"""Paths as a model writes them: what they may be, before anything is looked up."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Sequence
from fnmatch import fnmatchcase, translate
from functools import lru_cache

from orchestrator.errors import ToolError
from orchestrator.private import as_read, is_private
from orchestrator.tools.builtin.files.places import HIDDEN

OWN = ".orchestrator"
"""How names begin that are this library's, such as the directory of runs and edits. Never shown, never opened."""
_DEEP = 40
_LONG = 255
_OF_WINDOWS = re.compile(r'[<>:"|?*]|[. ]$|~\d|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.IGNORECASE)


def parts_of(
    path: str,
    hidden: Sequence[str] = HIDDEN,
    *,
    read_only: Sequence[str] = (),
    root: str = os.sep,
    windows: bool = os.name == "nt",
) -> tuple[str, ...]:
    """The names that a path goes through, none for the root itself.

    Args:
        path: relative, with `/`.
        hidden: patterns of names, or of ends of paths, that are refused wherever they stand.
        read_only: further patterns, for a path that is to be changed.
        root: the directory that it starts from, absolute and without links.
        windows: also refuse what Windows reads as something else.

    Raises:
        ToolError: it is absolute, has `..`, or a name that is hidden or cannot be a file's.
    """
    said = shown(path)
    if unicodedata.normalize("NFKC", path)[:1] in ("/", "\\", "~") or re.match(r"[A-Za-z]:", path):
        raise ToolError(f"{said} is not relative: paths start at the root, such as 'docs/notes.md'; '.' is the root")
    if "\\" in path:
        raise ToolError(f"{said} has a backslash: separate folders by '/'")
    found = tuple(part for part in path.split("/") if part not in ("", "."))
    if len(found) > _DEEP:
        raise ToolError(f"{said} has more than {_DEEP} folders")
    here = root
    for part in found:
        if part == "..":
            raise ToolError(f"{said} has '..': name the file from the root, without it")
        fault = _fault(part, windows)
        if fault:
            raise ToolError(f"{said}: {shown(part)} {fault}")
        why = hidden_by(part, hidden, here)
        if why:
            raise ToolError(f"{said}: {shown(part)} is hidden here ({why}), and is neither shown nor changed")
        why = _matching(part, tuple(read_only), here)
        if why:
            raise ToolError(f"{said}: {shown(part)} is read-only here (it matches {why!r}): other programs run it")
        here = os.path.join(here, part)
    return found


def hidden_by(name: str, hidden: Sequence[str], folder: str) -> str:
    """The rule that hides a name, in whatever case it is written, and as a system may read it; empty: none does.

    Args:
        folder: the directory that it is in, absolute and without links.
    """
    if as_read(name).startswith(OWN) or is_private(os.path.join(folder, name)):
        return "it belongs to this library"
    found = _matching(name, tuple(hidden), folder)
    return f"it matches {found!r}" if found else ""


def _matching(name: str, patterns: tuple[str, ...], folder: str) -> str:
    plain = as_read(name)
    if not _any_of(patterns).match(plain):  # most names: hundreds of patterns are tried at once
        return ""
    folders = as_read(folder).split(os.sep)
    for pattern in patterns:
        *before, last = _names_in(pattern)
        near = folders[len(folders) - len(before) :]
        if fnmatchcase(plain, last) and len(near) == len(before) and all(map(fnmatchcase, near, before)):
            return pattern
    return ""


@lru_cache(maxsize=32)
def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Matches names that fit the last part of one of these patterns."""
    return re.compile("|".join(translate(_names_in(one)[-1]) for one in patterns) or r"(?!)")


def _names_in(pattern: str) -> list[str]:
    """The names of a pattern, spelled as those of files are read. `/` at an end, and `./`, add none."""
    return [name for name in map(as_read, pattern.split("/")) if name not in ("", ".")] or [""]


def shown(path: str) -> str:
    """A path as it stands in a message: short, and with nothing that a terminal would act on."""
    return ascii(path if len(path) <= 200 else path[:200] + "...") if not path.isprintable() else repr(path[:200])


def _fault(name: str, windows: bool) -> str:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "cannot be the name of a file"
    if size > _LONG:
        return f"is longer than {_LONG} bytes"
    # Format characters are not seen, and some systems leave them out: '.g\u200dit' is '.git' there.
    if any(unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp") for letter in name):
        return "has invisible characters"
    if windows and _OF_WINDOWS.search(name):
        return "has a special meaning on Windows"
    return ""
