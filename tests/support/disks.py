"""Places for a store that can be filled up and freed again."""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from orchestrator.stores.sqlite.connections import LogSpace


class Disk:
    """A place for a store that can be filled up and freed again."""

    message: str

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}/runs.db"

    def fill(self) -> None:
        """Leave no free space."""

    def leave(self, room: int) -> None:
        """Leave about this many bytes of free space."""

    def free(self) -> None:
        """Free the space again."""


class SmallDisk(Disk):
    """A small file system. Needs the right to mount."""

    message = "the disk is full"

    def fill(self) -> None:
        with contextlib.suppress(OSError), (self.path / "filler").open("wb", buffering=0) as file:
            for size in (65536, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"." * size)

    def leave(self, room: int) -> None:
        self.fill()
        filler = self.path / "filler"
        os.truncate(filler, max(0, filler.stat().st_size - room))

    def free(self) -> None:
        (self.path / "filler").unlink(missing_ok=True)


class SmallFiles(Disk):
    """A limit on the size of the files of this process, which needs no rights."""

    message = "reading or writing the disk failed"
    _reader: sqlite3.Connection | None = None

    def fill(self) -> None:
        self.leave(0)

    def leave(self, room: int) -> None:
        # The last connection to be closed removes the log, and a new one would have room up to where the old one was.
        if self._reader is None and (self.path / "runs.db").exists():
            self._reader = sqlite3.connect(self.path / "runs.db")
            self._reader.execute("SELECT count(*) FROM runs").fetchone()
        biggest = max((file.stat().st_size for file in self.path.iterdir()), default=0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (biggest + room, resource.RLIM_INFINITY))

    def free(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@contextlib.contextmanager
def mounted(path: Path) -> Iterator[Path]:
    """Mount a small file system in memory at a path."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", path], check=True, capture_output=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


@functools.cache
def can_mount() -> bool:
    """Return True if this user may mount file systems."""
    try:
        with tempfile.TemporaryDirectory() as path, mounted(Path(path)):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


KINDS: list[type[Disk]] = [SmallFiles, SmallDisk] if can_mount() else [SmallFiles]
"""Those that this machine has."""


@contextlib.contextmanager
def disk_of(kind: type[Disk], path: Path) -> Iterator[Disk]:
    """Yield an empty disk at a path. Logs have no room: a store whose log has room works for a while on a full disk."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(LogSpace, "make"))
        found = kind(stack.enter_context(mounted(path)) if kind is SmallDisk else path)
        stack.callback(found.free)
        yield found
