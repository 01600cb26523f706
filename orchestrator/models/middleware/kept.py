"""Where a cache keeps replies: in memory, or in a directory with one JSON file for each."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Protocol

from anyio import to_thread

from orchestrator.json import JsonObject
from orchestrator.models.middleware.files import write_whole


class CacheStore(Protocol):
    """Keeps JSON objects by name (32 hexadecimal digits). What raises `OSError` or `ValueError` is a miss."""

    async def get(self, name: str) -> JsonObject | None:
        """What was put there last, if it is still there."""
        ...

    async def put(self, name: str, entry: JsonObject) -> None:
        """Keep this."""
        ...


class MemoryCacheStore:
    """Keeps them as long as it lives; the one that was not used for the longest time goes first."""

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
    """Keeps them in files that their owner alone can read. When one was last used is its file's time."""

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
            with suppress(FileNotFoundError):  # another process tidies up too
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
