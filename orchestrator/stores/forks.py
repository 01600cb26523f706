"""Forks of a process whose stores are open.

A forked process inherits SQLite's connections, and with them the belief to hold locks that it does not hold: others
then remove the log that it writes to, also by connections of its own, and what it was told to be durable is gone. So
before a fork connections are closed; both processes open the file anew when they need it. Connections to a server are
the parent's: the child must send nothing by them, not even a farewell.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """What has connections."""

    def before_fork(self) -> None:
        """Close them where they are not to be inherited, and keep others from opening any."""
        ...

    def after_fork(self, *, child: bool) -> None:
        """Go on. In the child no other thread is there any more."""
        ...


_all: WeakSet[Forkable] = WeakSet()
_forking: list[Forkable] = []


def watch(one: Forkable) -> None:
    """Tell it of forks, for as long as it lives."""
    _all.add(one)


def _before() -> None:
    _forking[:] = _all
    for one in _forking:
        one.before_fork()


def _after(*, child: bool) -> None:
    for one in _forking:
        one.after_fork(child=child)
    _forking.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=lambda: _after(child=False), after_in_child=lambda: _after(child=True)
    )
