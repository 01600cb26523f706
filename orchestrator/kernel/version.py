"""State as versions, and the order of the branches that made them (R6).

A step commits a version, a fork copies the pointer, a join merges. Versions are immutable. Those that no token or
version refers to are garbage.

A branch has a *path*: the numbers of the branches taken at the forks around it. Paths alone do not order all branches:
a token that leaves a fork returns to the fork's path, so branches in different rounds of a loop, or after two joins of
one fork, can have equal paths. A `Rank` therefore also contains the token's origin: the list of the paths of the lowest
branch that each closing join on its way merged. Two independent branches separated at some fork; the first path that
either of them records after it starts with its branch of that fork. Their ranks therefore always differ, and no id is
needed to order them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from typing import Any, Protocol

from msgspec import Struct


class Path:
    """The position of a branch among forks: branch number `index` of a fork that was opened at `parent`.

    Paths order branches as their edges, or items, are ordered; a path comes before those that begin with it.
    """

    __slots__ = ("depth", "fork", "index", "parent")

    def __init__(self, parent: Path | None, fork: str, index: int) -> None:
        self.parent, self.fork, self.index = parent, fork, index
        self.depth: int = 0 if parent is None else parent.depth + 1

    def __deepcopy__(self, memo: object) -> Path:
        return self

    def __str__(self) -> str:
        """Return the segments `fork.index`, joined by `/`; for a path deeper than eight, only the last eight."""
        if self.depth == 1:  # the usual case
            return f"{self.fork}.{self.index}"
        segments: list[str] = []
        step: Path = self
        while step.parent is not None and len(segments) < 8:
            segments.append(f"{step.fork}.{step.index}")
            step = step.parent
        if step.parent is not None:
            segments.append(f"({step.depth} more)")
        return "/".join(reversed(segments))


ROOT = Path(None, "", 0)


def compare(one: Path, other: Path) -> int:
    """Return a number below, equal to or above 0 as `one` comes before, with or after `other`.

    The time is linear in their distance.
    """
    if one.parent is other.parent:  # the usual case: branches of one fork
        return one.index - other.index
    result = one.depth - other.depth
    a, b = one, other
    while a.depth > b.depth:
        assert a.parent is not None
        a = a.parent
    while b.depth > a.depth:
        assert b.parent is not None
        b = b.parent
    while a is not b:
        if a.index != b.index:
            result = a.index - b.index
        if a.parent is None or b.parent is None:
            break
        a, b = a.parent, b.parent
    return result


class Rank:
    """Orders independent branches: by path, then by the list that ends in `joined`.

    The list is linked from its newest item, and branches share their common part. `_skip` leads back over many items at
    once, so that comparing two lists takes time logarithmic in their length (Myers, "An applicative random-access
    stack", 1983).
    """

    __slots__ = ("_skip", "closed", "joined", "length", "path")

    def __init__(self, path: Path, joined: Rank | None = None, *, closed: bool = False) -> None:
        self.path = path
        self.joined = joined
        """The lowest branch that the last closing join merged. The list of this rank is that branch's list, followed by
        its path.
        """
        self.closed = closed
        """True if a closing join made this rank and no fork has extended its path since."""
        self.length: int = 0
        """Length of the list."""
        self._skip: Rank | None = None
        if joined is not None:
            self.length = joined.length + 1
            self._skip = _skip_over(joined)

    def __deepcopy__(self, memo: object) -> Rank:
        return self

    def __lt__(self, other: Rank) -> bool:
        a, b = self.path, other.path
        order = a.index - b.index if a.parent is b.parent else compare(a, b)
        return order < 0 or (order == 0 and _list_before(self.joined, other.joined))

    def branch(self, fork: str, index: int) -> Rank:
        """Return the rank of a branch of a fork that is opened here."""
        return Rank(Path(self.path, fork, index), self.joined)

    def at(self, length: int) -> Rank:
        """Return the item with `length` items before it in this rank's list; the rank itself is the newest item."""
        rank = self
        while rank.length > length:
            skip = rank._skip
            assert skip is not None
            assert rank.joined is not None
            rank = skip if skip.length >= length else rank.joined
        return rank


FIRST = Rank(ROOT)


def _skip_over(joined: Rank) -> Rank:
    near = joined._skip
    if near is None:
        return joined
    far = near._skip or near
    return far if joined.length - near.length == near.length - far.length else joined


def _list_before(one: Rank | None, other: Rank | None) -> bool:
    """Return True if the list that ends in `one` comes first: the oldest items decide, a prefix comes first."""
    if one is other or other is None:
        return False
    if one is None:
        return True
    length = min(one.length, other.length)
    a, b = one.at(length), other.at(length)
    if a is b:
        return one.length < other.length
    while a.joined is not b.joined:
        assert a.joined is not None
        assert b.joined is not None
        assert a._skip is not None
        assert b._skip is not None
        a, b = (a.joined, b.joined) if a._skip is b._skip else (a._skip, b._skip)
    return compare(a.path, b.path) < 0


class Ranked(Protocol):
    """A token, or a version."""

    key: str
    rank: Rank


_by_rank: Callable[[Ranked], Any] = attrgetter("rank")
_by_number: Callable[[Ranked], Any] = attrgetter("rank.path.index")


def order_among(ranked: Collection[Ranked]) -> Callable[[Ranked], Any]:
    """Return the sort key of these tokens or versions.

    Branches of one fork, the usual case, are ordered by their numbers: comparing these takes no call.
    """
    for first in ranked:
        fork, joined = first.rank.path.parent, first.rank.joined
        siblings = all(one.rank.path.parent is fork and one.rank.joined is joined for one in ranked)
        return _by_number if siblings else _by_rank
    return _by_rank


class Version(Struct, eq=False):
    """A state, and the update that made it from its parent's (None for a first state or a merge)."""

    values: dict[str, object]
    parents: tuple[Version, ...] = ()
    key: str = ""
    node: str = ""
    rank: Rank = FIRST
    update: Mapping[str, object] | None = None
    ops: Mapping[str, str] | None = None
    taken: int = 0
    """The events that the step that made it, or its causes, took: bit n stands for event number n of the run."""
    hidden: frozenset[str] | None = None
    """Fields whose updates a merge takes from its causes only if another way leads to them (R8)."""
    generation: int = 0

    def __post_init__(self) -> None:
        for parent in self.parents:
            self.taken |= parent.taken
            if parent.generation >= self.generation:
                self.generation = parent.generation + 1

    def __deepcopy__(self, memo: object) -> Version:
        return self


def causes(one: Version, other: Version) -> bool:
    """Return True if `one` is `other` or one of its ancestors."""
    if one is other:
        return True
    floor = one.generation
    seen: set[int] = set()
    stack = [other]
    while stack:
        for parent in stack.pop().parents:
            if parent is one:
                return True
            if parent.generation > floor and id(parent) not in seen:
                seen.add(id(parent))
                stack.append(parent)
    return False
