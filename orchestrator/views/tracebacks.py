"""Tracebacks as runs keep them, read back: the user's line that failed, and the frames of libraries apart.

`orchestrator.executor.failures` describes the text, and writes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from msgspec import Struct

from orchestrator.redaction import redact

MOST = 8_000
"""Maximum length of a whole traceback, in characters."""
LIBRARIES = "  behind it, in libraries:"
"""The line between the user's frames and those of libraries."""

_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'^  File "(?P<file>.+)", line \d+, in .+$', re.M)
_LIBRARY = re.compile(r"[\\/]orchestrator[\\/](executor|models|nodes|testing|tools)[\\/]")
"""Files of this library on the machine where a run failed, if it is another one."""
_HERE = str(Path(__file__).parents[1])


class TracebackPart(Struct, frozen=True):
    """Consecutive lines of a traceback."""

    library: bool
    """True for the frames of libraries behind the user's code."""
    text: str


@cache
def _installed() -> tuple[str, ...]:
    """Return the folders of Python's own modules and of installed packages."""
    import sysconfig

    paths = sysconfig.get_paths()
    return tuple({path for name in ("stdlib", "platstdlib", "purelib", "platlib") if (path := paths.get(name))})


def is_library(file: str) -> bool:
    """Return True if code is not the user's: this library's, Python's own, or installed.

    Args:
        file: the path of the code's file.
    """
    if file.startswith((_HERE, "<frozen ")) or "site-packages" in file or "dist-packages" in file:
        return True
    return file.startswith(_installed())


def place_of(traceback: str) -> str:
    """Return the frame in the user's code that is nearest to an error, as in its stored traceback; empty if none is."""
    found = _place(traceback)
    return "" if found is None else found[0]


def code_of(traceback: str) -> str:
    """Return the line of code of `place_of`; empty if it is not known."""
    found = _place(traceback)
    return "" if found is None else found[1]


def _place(traceback: str) -> tuple[str, str] | None:
    for section in reversed(traceback.split(_BEGIN)):
        own, _, _ = section.partition(LIBRARIES)
        found = [
            frame
            for frame in _FRAME.finditer(own)
            if not is_library(frame["file"]) and not _LIBRARY.search(frame["file"])
        ]
        if found:
            code, _, _ = own[found[-1].end() :].removeprefix("\n").partition("\n")
            return found[-1][0], code.strip() if code.startswith("    ") else ""
    return None


def traceback_parts(traceback: str) -> list[TracebackPart]:
    """Return the lines of a traceback in their order, with the frames of libraries in parts of their own."""
    return [TracebackPart(library, "\n".join(lines)) for library, lines in _parts(traceback)]


def _parts(traceback: str) -> Iterator[tuple[bool, list[str]]]:
    library, lines = False, list[str]()
    for line in traceback.splitlines():
        if line == LIBRARIES or (library and not line.startswith("  ")):
            if lines:
                yield library, lines
            library, lines = line == LIBRARIES, []
            if library:
                continue
        lines.append(line)
    if lines:
        yield library, lines


def trace_data(traceback: str) -> dict[str, object] | None:
    """Return a traceback as plain JSON for a page, redacted and bounded; None if there is none.

    `place` and `code` are the user's line that is nearest to the error. `parts` are pairs: whether the lines are frames
    of libraries, and the lines.
    """
    if not traceback:
        return None
    text = redact(traceback[-2 * MOST :])[-MOST:]  # first, since half a secret does not look like one
    parts = [[part.library, part.text] for part in traceback_parts(text)]
    return {"place": place_of(text).strip(), "code": code_of(text), "parts": parts}
