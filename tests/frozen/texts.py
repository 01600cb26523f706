"""Frozen texts: how they are kept in `data`, and how the present ones are held against them."""

from __future__ import annotations

import difflib
import lzma
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TypeAlias

DATA = Path(__file__).with_name("data")
MARK = "=== "
"""Begins the line that names a section."""
SHOWN = 200
"""Lines of a diff that are printed."""

Sections: TypeAlias = Mapping[str, str]
"""The parts of a text by name, such as one journal each."""
Maker: TypeAlias = Callable[[], Sections]


def joined(sections: Sections) -> str:
    """One text of all sections."""
    return "".join(f"{MARK}{name}\n{body.rstrip()}\n" for name, body in sections.items())


def kept(name: str) -> str:
    """The text that is kept under a name; empty where there is none."""
    file = DATA / f"{name}.txt.xz"
    return lzma.decompress(file.read_bytes()).decode() if file.exists() else ""


def keep(name: str, text: str) -> None:
    """Keep a text. The same text always gives the same bytes."""
    DATA.mkdir(exist_ok=True)
    packed = lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
    (DATA / f"{name}.txt.xz").write_bytes(packed)


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
