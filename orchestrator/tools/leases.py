"""One id's hold on one instance of a pool, and the thread that works with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
from pydantic import JsonValue

if TYPE_CHECKING:
    from orchestrator.tools.instances import Instance


T = TypeVar("T")


class InstanceLease(Generic[T]):
    """The hold of one id on one instance."""

    __slots__ = ("broken", "inside", "instance", "key", "lock", "new", "users", "waited")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.instance: Instance[T] | None = None
        self.lock = anyio.Lock()
        self.users = 0
        """Calls that use it or wait for their turn."""
        self.broken = False
        """Whether a call was stopped in the middle, so that nobody knows what state the instance is in."""
        self.new = False
        """Whether no call of the id has ended with this instance."""
        self.waited = 0.0
        """Seconds that this call waited for the instance."""
        self.inside: _Thread | None = None
        """The thread that uses it."""

    def told(self) -> dict[str, JsonValue]:
        """What the result of a call says of its instance."""
        found: dict[str, JsonValue] = {"new_instance": True} if self.new else {}
        return found | ({"waited": round(self.waited, 3)} if self.waited >= 0.001 else {})

    @property
    def value(self) -> T:
        assert self.instance is not None
        return self.instance.value


class _Thread:
    """A thread that works with an instance. It cannot be stopped: a cancelled call leaves the instance to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._works = self._left = False
        self._then: Callable[[], None] | None = None

    def begins(self) -> bool:
        """False: the call was cancelled before its thread came to it, and the instance is not the call's any more."""
        with self._lock:
            self._works = not self._left
            return self._works

    def ends(self) -> None:
        with self._lock:
            self._works = False
        if self._then is not None:
            self._then()

    def leave(self, then: Callable[[], None]) -> bool:
        """Have `then` called in the thread when it is done. False: it is done already, or never begins."""
        with self._lock:
            if not self._works:
                self._left = True
                return False
            self._then = then
            return True


def in_thread(lease: InstanceLease[object], call: Callable[[], object]) -> Callable[[], Any]:
    """A sync function that works with the lease's instance, so that the pool knows when it is done."""
    inside = lease.inside = _Thread()

    def run() -> Any:
        if not inside.begins():
            raise RuntimeError("the call was cancelled before it began")
        try:
            return call()
        finally:
            inside.ends()

    return run
