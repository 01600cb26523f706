"""Texts that make slow patterns slow, made from the patterns themselves.

A pattern that backtracks, or that is tried anew at each place, is slow on texts that begin as what it looks for and
then do not go on so. Such texts are derived here: a sample of what a pattern matches, each beginning of the sample
repeated, and each beginning followed by a long run of what the pattern repeats.
"""

from __future__ import annotations

import re._constants as codes  # type: ignore[import-untyped,import-not-found]
import re._parser as parser  # type: ignore[import-untyped,import-not-found]
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

Attack: TypeAlias = Callable[[int], str]
"""A text of so many characters."""

_CATEGORIES = {
    codes.CATEGORY_DIGIT: "1",
    codes.CATEGORY_SPACE: " ",
    codes.CATEGORY_WORD: "a",
    codes.CATEGORY_NOT_DIGIT: "a",
    codes.CATEGORY_NOT_SPACE: "a",
    codes.CATEGORY_NOT_WORD: "-",
}
_OTHERS = "a1 -.\"'<[\n"
_MOST = 60
_JOINTS = ("", "-", "\n", " ")


def beginnings(pattern: str, flags: int = 0) -> list[str]:
    """Samples of what a pattern matches, cut after each of their parts."""
    found: dict[str, None] = {}
    for sample in _samples(parser.parse(pattern, flags)):
        for end in range(1, len(sample) + 1):
            found.setdefault("".join(sample[:end]))
        if len(found) > 4 * _MOST:
            break
    return [text for text in found if text][:_MOST]


def fillers(pattern: str, flags: int = 0) -> list[str]:
    """One character of each class that a pattern repeats."""
    found: dict[str, None] = {}

    def walk(tree: Any) -> None:
        for op, value in tree:
            if op in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
                if value[1] > 8:
                    for sample in _samples(value[2]):
                        if sample:
                            found.setdefault("".join(sample))
                walk(value[2])
            elif op is codes.SUBPATTERN:
                walk(value[3])
            elif op is codes.ATOMIC_GROUP:
                walk(value)
            elif op is codes.BRANCH:
                for branch in value[1]:
                    walk(branch)
            elif op in (codes.ASSERT, codes.ASSERT_NOT):
                walk(value[1])

    walk(parser.parse(pattern, flags))
    return [*found][:8]


def _samples(tree: Any) -> Iterator[list[str]]:
    """Samples of a pattern, each as its parts: one for each branch of an alternative, the others at their first."""
    items = list(tree)
    first = [_first(item) for item in items]
    yield [part for parts in first for part in parts]
    for number, item in enumerate(items):
        for other in _variants(item):
            yield [part for parts in (*first[:number], other, *first[number + 1 :]) for part in parts]


def _first(item: Any) -> list[str]:
    return next(iter(_variants(item, most=1)), [])


def _variants(item: Any, most: int = 12) -> list[list[str]]:
    op, value = item
    if op is codes.LITERAL:
        return [[chr(value)]]
    if op is codes.NOT_LITERAL:
        return [[next(char for char in _OTHERS if ord(char) != value)]]
    if op is codes.ANY:
        return [["a"]]
    if op is codes.IN:
        return [[_of(value)]]
    if op in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
        low, high, inner = value
        times = max(low, min(1, high))
        return [parts * times for parts in _several(inner, most)]
    if op is codes.SUBPATTERN:
        return _several(value[3], most)
    if op is codes.ATOMIC_GROUP:
        return _several(value, most)
    if op is codes.BRANCH:
        return [parts for branch in value[1] for parts in _several(branch, 2)][:most]
    return [[]]  # a place, a look around, a reference back


def _several(tree: Any, most: int) -> list[list[str]]:
    found = []
    for sample in _samples(tree):
        found.append(sample)
        if len(found) >= most:
            break
    return found


def _of(value: Any) -> str:
    """A character of a class."""
    if value[0][0] is codes.NEGATE:
        excluded = [_matcher(part) for part in value[1:]]
        return next((char for char in _OTHERS if not any(fits(char) for fits in excluded)), "\x01")
    op, what = value[0]
    if op is codes.LITERAL:
        return chr(what)
    if op is codes.RANGE:
        return chr(what[0])
    return _CATEGORIES.get(what, "a")


def _matcher(part: Any) -> Any:
    op, what = part
    if op is codes.LITERAL:
        return lambda char: ord(char) == what
    if op is codes.RANGE:
        return lambda char: what[0] <= ord(char) <= what[1]
    return {
        codes.CATEGORY_DIGIT: str.isdigit,
        codes.CATEGORY_SPACE: str.isspace,
        codes.CATEGORY_WORD: lambda char: char.isalnum() or char == "_",
    }.get(what, lambda char: False)


def attacks(token: str, fills: Sequence[str]) -> Iterator[Attack]:
    """Texts of any size: a token again and again, each way of joining it, and the token before a long run."""
    for joint in _JOINTS:
        yield _repeated(token + joint)
    for fill in fills:
        yield partial(_followed, token, fill)
        yield _repeated(token + fill * 100 + "\n")


def _repeated(token: str) -> Attack:
    return lambda size: (token * (size // len(token) + 1))[:size]


def _followed(token: str, fill: str, size: int) -> str:
    return (token + fill * (size // len(fill)))[:size]
