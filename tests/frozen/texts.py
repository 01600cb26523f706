"""Frozen texts: how they are kept in `data`, and how the present ones are compared with them.

A text is kept so that a diff of the repository shows what changed. Of a long line its beginning stands there, and a
digest of all of it; of a section that is one of hundreds of its kind only the digest.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TypeAlias

DATA = Path(__file__).with_name("data")
MARK = "=== "
"""Begins the line that names a section."""
SHOWN = 200
"""Lines of a diff that are printed."""
LINE = 300
"""Characters of the longest line that is kept whole."""
BEGINNING = 240
"""Characters that are kept of a longer one."""

Sections: TypeAlias = Mapping[str, str]
"""The parts of a text by name, such as one journal each."""
Maker: TypeAlias = Callable[[], Sections]


def whole(sections: Sections) -> str:
    """One text of all sections."""
    return "".join(f"{MARK}{name}\n{body.rstrip()}\n" for name, body in sections.items())


def joined(sections: Sections, readable: int | None = None) -> str:
    """One text of all sections in the form in which it is kept: long lines are cut.

    Args:
        sections: The parts of the text.
        readable: How many sections are kept as text; of those after them, digests. All unless given.
    """
    last = len(sections) if readable is None else readable
    found = enumerate(sections.items())
    return whole({name: _cut(body) if place < last else _digest(body.rstrip()) for place, (name, body) in found})


def _cut(body: str) -> str:
    """The text with the beginnings of its long lines."""
    lines = (line if len(line) <= LINE else f"{line[:BEGINNING]} ... {_digest(line)}" for line in body.split("\n"))
    return "\n".join(lines)


def _digest(text: str) -> str:
    return f"[{len(text):,} characters, {hashlib.sha256(text.encode()).hexdigest()[:16]}]"


def kept(name: str) -> str:
    """The text that is kept under a name; empty where there is none."""
    file = DATA / f"{name}.txt"
    return file.read_bytes().decode() if file.exists() else ""


def keep(name: str, text: str) -> None:
    """Keep a text."""
    DATA.mkdir(exist_ok=True)
    (DATA / f"{name}.txt").write_bytes(text.encode())


def differences(name: str, now: str) -> Iterator[str]:
    """The first lines of a unified diff between what is kept and what is made now; nothing where both are equal."""
    before = kept(name)
    if before == now:
        return iter(())
    old, new = before.split(f"\n{MARK}"), now.split(f"\n{MARK}")
    # A diff of the whole text would take minutes where many sections differ: take them one by one.
    lines = (
        line
        for one, other in _pairs(old, new)
        if one != other
        for line in difflib.unified_diff(
            one.splitlines(), other.splitlines(), f"{name} (kept)", f"{name} (now)", lineterm="", n=2
        )
    )
    return islice(lines, SHOWN)


def _pairs(old: list[str], new: list[str]) -> Iterator[tuple[str, str]]:
    """Sections of the same name; an empty text where one side has none."""
    first = {section.partition("\n")[0]: section for section in old}
    second = {section.partition("\n")[0]: section for section in new}
    for name in {**first, **second}:
        yield first.get(name, ""), second.get(name, "")
    if list(first) != list(second):
        yield "\n".join(first), "\n".join(second)
