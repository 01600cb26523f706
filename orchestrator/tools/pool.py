"""Pools of instances that keep a state between calls: shells, interpreters, browsers.

A pool has at most `size` instances. Each id has its own instance, from its first call until it is released. Calls of
one id take turns. New ids wait for an instance in order of arrival.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
from pydantic import JsonValue

from orchestrator.errors import PoolTimeout
from orchestrator.graph.signatures import is_async
from orchestrator.tasks import OwnTask, is_open
from orchestrator.tools.pool_client import PoolClient, in_vain
from orchestrator.user_code import call_in_thread, contained, stopped_by

T = TypeVar("T")
Factory: TypeAlias = Callable[[], Any]
"""Makes an instance, or a context manager around one; sync or async."""
Aside: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]
"""Context in which a call waits: it lends to others the instances that the call holds."""
CLOSING = 5.0
"""Seconds allowed for resetting or closing an instance."""
_LOOKS = (0.2, 5.0)
"""Seconds between checks for a deadlock while a run waits: at first, and later."""
log = logging.getLogger("orchestrator")


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """State and totals of a pool."""

    size: int
    """Maximum number of instances at the same time."""
    held: int
    """Instances held by ids, including those that are being made, reset or closed."""
    free: int
    """Instances that were reset and wait for the next id."""
    waiting: int
    """Calls waiting for an instance."""
    made: int
    """Instances made so far."""
    closed: int
    """Instances closed so far."""
    waited: float
    """Total of the seconds that calls waited for an instance."""
    longest_wait: float
    """Seconds that the longest wait took."""


class Instance(Generic[T]):
    """An instance, and the function that closes it."""

    __slots__ = ("_leave", "value")

    def __init__(self, value: T, leave: Callable[[], object] | None) -> None:
        self.value = value
        self._leave = leave

    @classmethod
    async def made(cls, factory: Factory) -> Instance[T]:
        """Make an instance, and enter it if it is a context manager.

        A thread that makes one is awaited even if the caller is cancelled: else its instance would never be closed.
        """
        made = await whole(factory)
        kind = type(made)
        if hasattr(kind, "__aenter__") and hasattr(kind, "__aexit__"):
            task: OwnTask[Any] = OwnTask(lambda: made, f"an instance of {kind.__name__}")
            return cls(await task.open(), task.close)
        if hasattr(kind, "__enter__") and hasattr(kind, "__exit__"):
            return cls(await whole(made.__enter__), partial(made.__exit__, None, None, None))
        return cls(made, getattr(made, "aclose", None) or getattr(made, "close", None))

    async def renewed(self, reset: Callable[[T], Awaitable[object] | object]) -> bool:
        """Reset the instance; return False if that failed."""
        try:
            with contained(), anyio.fail_after(CLOSING, shield=True):
                await whole(partial(reset, self.value), abandon=True)
        except Exception as error:
            log.warning("an instance of %s is closed: it could not be reset: %s", type(self.value).__name__, error)
            return False
        return True

    async def close(self) -> None:
        """Close the instance; errors are logged."""
        if self._leave is None:
            return
        try:
            with contained(), anyio.fail_after(CLOSING, shield=True):
                await whole(self._leave, abandon=True)
        except Exception as error:
            log.warning("closing an instance of %s failed: %s", type(self.value).__name__, error)

    @property
    def closes_anywhere(self) -> bool:
        """Return True if the instance can be closed without an event loop."""
        return self._leave is None or not is_async(self._leave)

    def close_here(self) -> None:
        """Close the instance in this thread, if that needs no event loop; errors are logged."""
        try:
            if not self.closes_anywhere:
                raise RuntimeError("its event loop has ended")
            if self._leave is not None:
                self._leave()
        except Exception as error:
            log.warning("closing an instance of %s failed: %s", type(self.value).__name__, error)


class InstanceLease(Generic[T]):
    """The hold of one id on one instance."""

    __slots__ = ("broken", "inside", "instance", "key", "lock", "new", "users", "waited")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.instance: Instance[T] | None = None
        self.lock = anyio.Lock()
        self.users = 0
        """Number of calls that use the instance or wait for their turn."""
        self.broken = False
        """True if a call was stopped midway, so that the state of the instance is unknown."""
        self.new = False
        """True until a call of the id has ended with this instance."""
        self.waited = 0.0
        """Seconds that this call waited for the instance."""
        self.inside: _Thread | None = None
        """The thread that uses it."""

    def metadata(self) -> dict[str, JsonValue]:
        """Return metadata about the instance for the result of a call."""
        found: dict[str, JsonValue] = {"new_instance": True} if self.new else {}
        return found | ({"waited": round(self.waited, 3)} if self.waited >= 0.001 else {})

    @property
    def value(self) -> T:
        assert self.instance is not None
        return self.instance.value

    def in_thread(self, call: Callable[[], object]) -> Callable[[], Any]:
        """Wrap a sync function that uses the instance, so that the pool is notified when it has finished."""
        inside = self.inside = _Thread()

        def run() -> Any:
            if not inside.begins():
                raise RuntimeError("the call was cancelled before it started")
            try:
                return call()
            finally:
                inside.ends()

        return run


class _Thread:
    """A thread that uses an instance. It cannot be stopped: a cancelled call leaves the instance to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._works = self._left = False
        self._then: Callable[[], None] | None = None

    def begins(self) -> bool:
        """Return False if the call was cancelled before its thread started, so the instance no longer belongs to the
        call."""
        with self._lock:
            self._works = not self._left
            return self._works

    def ends(self) -> None:
        with self._lock:
            self._works = False
        if self._then is not None:
            self._then()

    def leave(self, then: Callable[[], None]) -> bool:
        """Have `then` called in the thread when it has finished. Return False if it has already finished, or never
        starts."""
        with self._lock:
            if not self._works:
                self._left = True
                return False
            self._then = then
            return True


class _QueuedCall:
    __slots__ = ("event", "granted")

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.granted = False


class Pool(Generic[T]):
    """At most `size` instances, one per id. `@tool(pool=Pool(Env, 16))` passes them to a tool, as `env`.

    A pool is used in one event loop at a time. Instances are made when they are needed.
    """

    def __init__(
        self,
        factory: Factory,
        size: int = 1,
        *,
        reset: Callable[[T], Awaitable[object] | object] | None = None,
        check: Callable[[T], Awaitable[bool] | bool] | None = None,
        acquire_timeout: float | None = None,
    ) -> None:
        """
        Args:
            factory: creates an instance: a class, or a function that is sync (it runs in a thread) or async. If it
                returns a context manager, sync or async, that is entered, and left when the instance is closed.
                Otherwise closing calls `aclose` or `close`, if the instance has one.
            size: maximum number of instances at the same time.
            reset: prepares a released instance for another id. Without it, or if it raises, the instance is closed and
                the next id gets a new one.
            check: whether an instance still works; called before each call except the first. An instance that does not
                work is closed, and the call gets a new one.
            acquire_timeout: seconds that a new id waits for an instance; None: no limit.

        Raises:
            ValueError: the size or the time is not positive.
        """
        if size < 1:
            raise ValueError(f"size={size}: a pool must have at least one instance")
        if acquire_timeout is not None and acquire_timeout <= 0:
            raise ValueError(f"acquire_timeout={acquire_timeout}: give a positive number of seconds, or None")
        self.size = size
        self.acquire_timeout = acquire_timeout
        self._factory, self._reset, self._check = factory, reset, check
        self._name = str(getattr(factory, "__name__", type(factory).__name__))
        self._loop: anyio.lowlevel.EventLoopToken | None = None
        self._held: dict[Hashable, InstanceLease[T]] = {}
        self._free: list[Instance[T]] = []
        self._taken = 0
        self._waiting: deque[_QueuedCall] = deque()
        self._made = self._closed = 0
        self._waited = self._longest = 0.0

    def __repr__(self) -> str:
        return f"Pool({self._name}, {self.size})"

    def statistics(self) -> PoolStatistics:
        """Return the state and the totals of the pool."""
        return PoolStatistics(
            size=self.size,
            held=self._taken,
            free=len(self._free),
            waiting=len(self._waiting),
            made=self._made,
            closed=self._closed,
            waited=self._waited,
            longest_wait=self._longest,
        )

    # -- using -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def use(self, id: Hashable = None) -> AsyncIterator[T]:  # noqa: A002  a public name
        """Hold the instance of an id for one call. The id keeps the instance until `release`.

        If the call is cancelled inside the block, the instance is closed, because its state is unknown.

        Args:
            id: the id of the instance; None: an instance that is released at the end of the block.

        Yields:
            The instance.

        Raises:
            PoolTimeout: no instance was released in time.
        """
        async with self.lease(id) as lease:
            yield lease.value

    @asynccontextmanager
    async def lease(self, key: Hashable = None, *, aside: Aside = nullcontext) -> AsyncIterator[InstanceLease[T]]:
        """Hold the instance of an id for one call, as `use`, for callers that report how the call ended.

        Args:
            key: the id of the instance; None: an instance that is released at the end of the block.
            aside: a context manager entered while waiting, in which the caller lends to others what else it holds.

        Yields:
            The lease. Set `broken` to close its instance afterwards.

        Raises:
            PoolTimeout: no instance was released in time.
        """
        own = object() if key is None else key
        async with self._turn(own, aside) as lease:
            await self._equip(lease, aside)
            try:
                yield lease
                lease.new = False
            except BaseException as error:
                lease.broken = lease.broken or stopped_by(error)
                raise
            finally:
                lease.waited = 0.0
                if lease.broken or key is None:
                    await self._put_back(lease)

    async def release(self, id: Hashable) -> bool:  # noqa: A002  a public name
        """Release the instance of an id after its earlier calls.

        Args:
            id: the id.

        Returns:
            False if the id has no instance.
        """
        if id not in self._held:
            return False
        async with self._turn(id) as lease:
            found = lease.instance is not None
            await self._put_back(lease)
            return found

    def holders(self) -> list[Hashable]:
        """Return the ids that hold an instance."""
        return [key for key, lease in self._held.items() if lease.instance is not None]

    async def aclose(self) -> None:
        """Close all free instances. The pool stays usable."""
        while self._free:
            await self._discard(self._free.pop())

    async def __aenter__(self) -> Pool[T]:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Release all ids, and close all instances."""
        for key in list(self._held):
            await self.release(key)
        await self.aclose()

    async def reclaim(self) -> None:
        """Reclaim instances of resting holders, as many as waiting calls need."""
        for lease in list(self._held.values()):
            if not self._waiting:
                return
            key = lease.key
            if isinstance(key, PoolClient) and key.rests and not lease.users and lease.instance is not None:
                async with self._turn(key):
                    if key.rests:
                        await self._put_back(lease)

    # -- turns -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _turn(self, key: Hashable, aside: Aside = nullcontext) -> AsyncIterator[InstanceLease[T]]:
        self._settle_in()
        lease = self._held.get(key)
        if lease is None:
            lease = self._held[key] = InstanceLease(key)
            if isinstance(key, PoolClient):
                key.pools[self] = None
        lease.users += 1
        try:
            try:
                await locked(lease.lock, aside)
            except RuntimeError as error:
                raise RuntimeError(
                    f"{self!r}: this call already has the instance, and would wait for itself: "
                    "a tool cannot call another one that uses the same instance"
                ) from error
            try:
                yield lease
            finally:
                lease.lock.release()
        finally:
            lease.users -= 1
            if not lease.users and lease.instance is None and self._held.get(key) is lease:
                del self._held[key]

    def _settle_in(self) -> None:
        """Bind the pool to this event loop.

        Raises:
            RuntimeError: the pool is in use in another event loop.
        """
        here = anyio.lowlevel.current_token()
        if self._loop is None or self._loop == here:
            self._loop = here
            return
        if (self._held or self._taken) and is_open(self._loop):
            raise RuntimeError(f"{self!r} is in use in another event loop: give each loop its own pool")
        # That loop has ended; its instances can be closed only if that needs no loop.
        for instance in (*self._free, *(lease.instance for lease in self._held.values() if lease.instance)):
            instance.close_here()
            self._closed += 1
        self._free.clear()
        self._held.clear()
        self._waiting.clear()
        self._taken, self._loop = 0, here

    # -- instances -------------------------------------------------------------------------------------------------

    async def _equip(self, lease: InstanceLease[T], aside: Aside) -> None:
        """Ensure that a lease has a working instance."""
        if lease.instance is not None and await self._works(lease.instance):
            return
        if lease.instance is not None:
            gone, lease.instance = lease.instance, None
            try:
                await self._discard(gone)
            except BaseException:
                self._give()
                raise
        else:
            lease.waited = await self._permission(lease.key, aside)
        try:
            lease.instance = await self._instance()
            lease.new = True
        except BaseException:
            self._give()
            raise

    async def _permission(self, key: Hashable, aside: Aside) -> float:
        """Wait for permission to hold one more instance; return the seconds that it took."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        if self._taken < self.size and not self._waiting:
            self._taken += 1
            return 0.0
        waiter = _QueuedCall()
        self._waiting.append(waiter)
        began = anyio.current_time()
        try:
            await self.reclaim()
            async with aside():
                with anyio.move_on_after(self.acquire_timeout):
                    await self._granted(waiter, key)
        except BaseException:
            if waiter.granted:
                self._give()
            raise
        finally:
            with suppress(ValueError):
                self._waiting.remove(waiter)
            waited = anyio.current_time() - began
            self._waited += waited
            self._longest = max(self._longest, waited)
        if not waiter.granted:
            all_ = "the only instance is" if self.size == 1 else f"all {self.size} instances are"
            raise PoolTimeout(
                f"{self!r}: {all_} taken, and none was released within {self.acquire_timeout:g} s: "
                "release one, make the pool larger, or wait longer (acquire_timeout=)"
            )
        return waited

    async def _granted(self, waiter: _QueuedCall, key: Hashable) -> None:
        """Wait until an instance is granted; a run periodically checks for a deadlock.

        Raises:
            PoolTimeout: no instance can be granted.
        """
        if not isinstance(key, PoolClient):
            await waiter.event.wait()
            return
        pause = _LOOKS[0]
        key.waits.append(self)
        try:
            while not waiter.granted:
                with anyio.move_on_after(pause):
                    await waiter.event.wait()
                if not waiter.granted and in_vain(key, self):
                    raise PoolTimeout(
                        f"{self!r}: deadlock: each instance is held by a run that waits for one "
                        "itself, and keeps its own until it ends: make the pool larger, or start fewer runs at a time"
                    )
                pause = min(2 * pause, _LOOKS[1])
        finally:
            key.waits.remove(self)

    def _give(self) -> None:
        """Grant a free place to the first waiting call."""
        if self._waiting:
            waiter = self._waiting.popleft()
            waiter.granted = True
            waiter.event.set()
        else:
            self._taken -= 1

    async def _instance(self) -> Instance[T]:
        while self._free:
            found = self._free.pop()
            try:
                works = await self._works(found)
            except BaseException:
                self._free.append(found)
                raise
            if works:
                return found
            await self._discard(found)
        made: Instance[T] = await Instance.made(self._factory)
        self._made += 1
        return made

    async def _works(self, instance: Instance[T]) -> bool:
        if self._check is None:
            return True
        try:
            return bool(await whole(partial(self._check, instance.value), abandon=True))
        except Exception:
            return False

    async def _discard(self, instance: Instance[T]) -> None:
        self._closed += 1
        await instance.close()

    async def _put_back(self, lease: InstanceLease[T]) -> None:
        instance, lease.instance = lease.instance, None
        broken, lease.broken = lease.broken, False
        if instance is None:
            return
        inside, lease.inside = lease.inside, None
        if broken and inside is not None and instance.closes_anywhere:
            assert self._loop is not None
            if inside.leave(partial(self._ends_in_thread, instance, self._loop)):
                return
        try:
            with anyio.CancelScope(shield=True):
                if not broken and self._reset is not None and await instance.renewed(self._reset):
                    self._free.append(instance)
                else:
                    await self._discard(instance)
        finally:
            self._give()

    def _ends_in_thread(self, instance: Instance[T], loop: anyio.lowlevel.EventLoopToken) -> None:
        """Called in a thread left behind by a cancelled call, when it has finished with an instance."""
        instance.close_here()

        def give() -> None:
            if self._loop == loop:
                self._closed += 1
                self._give()

        native: Any = loop.native_token
        soon = getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon
        with suppress(RuntimeError):  # the loop has ended, and no call waits any more
            soon(give)


async def whole(call: Callable[[], object], *, abandon: bool = False) -> Any:
    """Return the result of a function, awaited if it is awaitable; a sync function runs in a thread.

    Args:
        abandon: leave the thread behind if the caller is cancelled; else wait for it.
    """
    if is_async(call):
        found = call()
    else:
        (found,) = await anyio.to_thread.run_sync(lambda: (call_in_thread(call),), abandon_on_cancel=abandon)
    return await found if inspect.isawaitable(found) else found


async def locked(lock: anyio.Lock, aside: Aside) -> None:
    """Acquire a lock, inside `aside` while waiting."""
    try:
        lock.acquire_nowait()
        return
    except anyio.WouldBlock:
        pass
    owned = False
    try:
        async with aside():
            await lock.acquire()
            owned = True
    except BaseException:
        if owned:
            lock.release()
        raise
