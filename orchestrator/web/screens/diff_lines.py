"""A diff of lines, with the words that differ marked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal, TypeAlias

Part: TypeAlias = tuple[str, bool]
"""A piece of a line, and whether it is what differs."""
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_MOST = 250_000
"""Pairs of words that are compared; of longer texts whole lines are marked."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a diff."""

    kind: Literal["cut", "added", "alike", "note"]
    """Of the first run alone, of the other one alone, of both, or about the diff."""
    parts: Sequence[Part]


def lines_of(diff: Sequence[str]) -> list[Line]:
    """The lines of a unified diff, as views give it: `-` of the first text, `+` of the second."""
    found: list[Line] = []
    cut: list[str] = []
    added: list[str] = []

    def close() -> None:
        found.extend(_changed(cut, added))
        cut.clear()
        added.clear()

    for line in diff:
        if line.startswith("-") and not added:
            cut.append(line[1:])
        elif line.startswith("+"):
            added.append(line[1:])
        else:
            close()
            if line.startswith("-"):
                cut.append(line[1:])
            elif line.startswith(" "):
                found.append(Line("alike", [(line[1:], False)]))
            elif not line.startswith("@@"):
                found.append(Line("note", [(line, False)]))
            elif found and found[-1].kind != "note":  # before it is more of the same text
                found.append(Line("note", [("⋯", False)]))
    close()
    return found


def _changed(cut: Sequence[str], added: Sequence[str]) -> list[Line]:
    """Lines that replace others. Long text is wrapped, so words are compared across lines."""
    before, after = _words(cut), _words(added)
    if not before or not after or len(before) * len(after) > _MOST:
        return [Line("cut", [(line, False)]) for line in cut] + [Line("added", [(line, False)]) for line in added]
    same = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    kept = [set[int](), set[int]()]
    for a, b, size in same:
        kept[0].update(range(a, a + size))
        kept[1].update(range(b, b + size))
    return [
        *(Line("cut", parts) for parts in _marked(before, kept[0])),
        *(Line("added", parts) for parts in _marked(after, kept[1])),
    ]


def _words(lines: Sequence[str]) -> list[str]:
    return [word for number, line in enumerate(lines) for word in (*(["\n"] if number else []), *_WORD.findall(line))]


def _marked(words: Sequence[str], kept: set[int]) -> list[list[Part]]:
    lines: list[list[Part]] = [[]]
    for at, word in enumerate(words):
        if word == "\n":
            lines.append([])
            continue
        line, changed = lines[-1], at not in kept
        if line and line[-1][1] == changed:
            line[-1] = (line[-1][0] + word, changed)
        else:
            line.append((word, changed))
    return lines
