"""A cache of replies: equal requests get the reply of the first one.

Replies are kept in memory, or in a directory with one JSON file for each.
"""

from __future__ import annotations

import json
import logging
import os
import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Protocol

import anyio
import anyio.lowlevel
from anyio import to_thread

from orchestrator.errors import AgentError
from orchestrator.json import JsonObject, digest
from orchestrator.models.base import ModelEvent, ModelRequest
from orchestrator.models.messages import Reply
from orchestrator.models.middleware.base import Ask, Middleware, jsonable, write_whole


class CacheStore(Protocol):
    """Stores JSON objects by name (32 hexadecimal digits). `OSError` and `ValueError` count as misses."""

    @abstractmethod
    async def get(self, name: str) -> JsonObject | None:
        """Return the entry last stored under this name, or None."""
        ...

    @abstractmethod
    async def put(self, name: str, entry: JsonObject) -> None:
        """Store an entry."""
        ...


class MemoryCacheStore:
    """Keeps entries during its lifetime; the least recently used one is removed first."""

    def __init__(self, max_entries: int | None) -> None:
        self._most = _checked(max_entries)
        self._entries: OrderedDict[str, JsonObject] = OrderedDict()
        self._lock = Lock()  # event loops of several threads may share it

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, name: str) -> JsonObject | None:
        """See `CacheStore`."""
        with self._lock:
            found = self._entries.get(name)
            if found is not None:
                self._entries.move_to_end(name)
            return found

    async def put(self, name: str, entry: JsonObject) -> None:
        """See `CacheStore`."""
        with self._lock:
            self._entries[name] = entry
            self._entries.move_to_end(name)
            while self._most is not None and len(self._entries) > self._most:
                self._entries.popitem(last=False)


class DirectoryStore:
    """Keeps entries in files that only their owner can read. The time of a file is that of its last use."""

    def __init__(self, path: str | os.PathLike[str], max_entries: int | None) -> None:
        self._path, self._most = Path(path), _checked(max_entries)

    def __len__(self) -> int:
        return sum(1 for _ in self._files())

    async def get(self, name: str) -> JsonObject | None:
        """See `CacheStore`."""
        return await to_thread.run_sync(self._read, name)

    async def put(self, name: str, entry: JsonObject) -> None:
        """See `CacheStore`."""
        await to_thread.run_sync(self._write, name, json.dumps(entry, indent=1, allow_nan=False))

    def _read(self, name: str) -> JsonObject | None:
        path = self._path / f"{name}.json"
        try:
            text = path.read_text("utf-8")
        except FileNotFoundError:
            return None
        with suppress(OSError):
            os.utime(path)
        found: object = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError(f"{path} does not contain a JSON object")
        return found

    def _write(self, name: str, text: str) -> None:
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(self._path / f"{name}.json", text, 0o600)
        if self._most is None:
            return
        used: list[tuple[int, str]] = []
        for file in self._files():
            with suppress(FileNotFoundError):  # another process may remove files, too
                used.append((file.stat().st_mtime_ns, file.path))
        used.sort()
        for _, path in used[: max(0, len(used) - self._most)]:
            with suppress(FileNotFoundError):
                os.unlink(path)

    def _files(self) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(self._path) as found:
                yield from (file for file in found if file.name.endswith(".json") and not file.name.startswith("."))
        except FileNotFoundError:
            return


def _checked(most: int | None) -> int | None:
    if most is not None and most < 1:
        raise ValueError(f"max_entries={most}: a cache keeps at least one reply; None keeps all")
    return most


_log = logging.getLogger("orchestrator.models")
_NOT_WHOLE = frozenset({"length", "content_filter", "refusal"})


@dataclass(frozen=True)
class CacheStatistics:
    """Counts of the requests so far, by how they were answered."""

    hits: int = 0
    """Answered from stored replies."""
    shared: int = 0
    """Answered by a concurrent call of an equal request."""
    misses: int = 0
    """Passed on to the model."""
    entries: int | None = None
    """Replies that are stored now; None if the store does not count them."""


class _Flight:
    """A call in progress, and its reply or error; neither if it was cancelled."""

    def __init__(self) -> None:
        self.landed = anyio.Event()
        self.reply: Reply | None = None
        self.error: Exception | None = None


def usable(request: ModelRequest, reply: Reply) -> bool:
    """Return whether a reply may be stored: it is complete, was not refused, and has the requested form.

    A caller that cannot use a reply asks again, and would get the same reply each time.
    """
    if reply.finish in _NOT_WHOLE:
        return False
    if reply.tool_calls:
        offered = {function.get("name") for tool in request.tools if isinstance(function := tool.get("function"), dict)}
        return all(call.arguments is not None and call.name in offered for call in reply.tool_calls)
    try:
        return request.output is None or request.parse(reply).parsed is not None
    except AgentError:
        return False


class Cache(Middleware):
    """Returns the reply of an earlier equal request, and lets concurrent equal requests share one call.

    Requests are equal if their `data()` and their model's name are equal. A reply from the cache has `usage` None,
    because it was paid for before, and `details["cached"]` is true. `keep` decides which replies are stored.

    Requests wait for an equal request in progress if that wants a whole reply. They do not wait for one that is read in
    pieces, because its reader may be slow.
    """

    def __init__(
        self,
        store: CacheStore | str | os.PathLike[str] | None = None,
        *,
        max_entries: int | None = 1000,
        ttl: float | None = None,
        scope: str = "",
        keep: Callable[[ModelRequest, Reply], bool] = usable,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            store: a directory, which other processes may use, too, or a custom store, which limits its entries itself.
                Default: the memory of this object.
            max_entries: maximum number of stored replies; the least recently used ones are removed first.
            ttl: seconds for which a reply is valid; None: no limit.
            scope: further data that distinguishes requests, such as the `base_url` and the options of a model, because
                a cache sees only the name of a model.
            keep: whether to store a reply, see `usable`.
            clock: the time in seconds, the same for all users of the store.
        """
        if store is None:
            self._store: CacheStore = MemoryCacheStore(max_entries)
        elif isinstance(store, str | os.PathLike):
            self._store = DirectoryStore(store, max_entries)
        else:
            self._store = store
        self._ttl, self._scope, self._keep, self._clock = ttl, scope, keep, clock
        self._flights: dict[tuple[object, str], _Flight] = {}
        """Calls in progress that others wait for, by event loop, as waiting is possible only within one."""
        self._hits = self._shared = self._misses = 0

    def statistics(self) -> CacheStatistics:
        """Counts of the requests so far, by how they were answered."""
        entries = len(self._store) if isinstance(self._store, MemoryCacheStore | DirectoryStore) else None
        return CacheStatistics(self._hits, self._shared, self._misses, entries)

    async def handle(self, request: ModelRequest, ask: Ask) -> AsyncIterator[ModelEvent]:
        """See `Middleware.handle`."""
        name = digest({**jsonable(ask.name, request), "scope": self._scope})
        place = (anyio.lowlevel.current_token().native_token, name)
        while (other := self._flights.get(place)) is not None:
            await other.landed.wait()
            if other.error is not None:
                raise other.error
            if other.reply is not None:
                self._shared += 1
                yield ModelEvent(reply=_cached(other.reply))
                return
            # The call was cancelled; the first caller that waited for it makes the call instead.
        flight = _Flight()
        if not request.pieces:
            self._flights[place] = flight
        try:
            known = await self._known(name)
            if known is not None:
                self._hits += 1
                flight.reply = known
                yield ModelEvent(reply=_cached(known))
                return
            self._misses += 1
            async for event in ask(request):
                if event.reply is not None:
                    await self._put(name, request, event.reply)
                    flight.reply = event.reply
                yield event
        except Exception as error:
            flight.error = error
            raise
        finally:
            if not request.pieces:
                del self._flights[place]
            flight.landed.set()

    async def _known(self, name: str) -> Reply | None:
        try:
            entry = await self._store.get(name)
            if entry is None:
                return None
            at = entry["at"]
            if not isinstance(at, int | float):
                raise TypeError(f"its time is {at!r:.40}")
            reply = Reply.model_validate(entry["reply"])
        except (OSError, KeyError, TypeError, ValueError) as error:
            _log.warning("cached reply %s cannot be read, the model is asked: %s", name, _line(error))
            return None
        return reply if self._ttl is None or self._clock() - at < self._ttl else None

    async def _put(self, name: str, request: ModelRequest, reply: Reply) -> None:
        if not self._keep(request, reply):
            return
        try:
            await self._store.put(name, {"at": self._clock(), "reply": reply.data()})
        except (OSError, TypeError, ValueError) as error:
            _log.warning("a reply cannot be stored in the cache: %s", _line(error))


def _cached(reply: Reply) -> Reply:
    return reply.model_copy(update={"usage": None, "details": {**reply.details, "cached": True}})


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
