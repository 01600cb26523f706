"""Directories that are walked one name at a time, from one that is open to the next, so that no link is followed.

A path that is checked and then opened can be swapped in between. Here each name is opened in the directory that is
already open (`openat`), and a link is refused by the system in the same call (`O_NOFOLLOW`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from orchestrator.errors import ToolError
from orchestrator.tools.builtin.files.names import shown

DESCRIPTORS = (
    {os.open, os.mkdir, os.stat, os.unlink, os.rename} <= os.supports_dir_fd
    and os.listdir in os.supports_fd
    and hasattr(os, "O_NOFOLLOW")
)
"""True if this system has all the calls that this needs. Elsewhere (Windows) names are checked and then opened: links
that exist are refused, but not one that is put there in between."""
_READ = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
_GROWN = 1 << 16
"""Bytes that a file may grow while it is read; memory is allocated by its reported size, not by the limit."""
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)
_DIRECTORY = getattr(os, "O_DIRECTORY", 0)


class Directory:
    """An open directory; close it, or use it in a `with`. Names given to it are single ones, without `/`."""

    def __init__(self, path: str, *, descriptors: bool = DESCRIPTORS, handle: int | None = None) -> None:
        """
        Args:
            path: where it is.
            descriptors: whether to hold it open; else its path is used over again.
            handle: it, open already.

        Raises:
            OSError: there is none.
        """
        self.path = path
        if handle is None and descriptors:
            handle = os.open(path, os.O_RDONLY | _READ | _DIRECTORY)
        self._handle = handle

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close it. Closing twice does no harm."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _at(self, name: str) -> tuple[str, dict[str, Any]]:
        if self._handle is None:
            return os.path.join(self.path, name), {}
        return name, {"dir_fd": self._handle}

    # -- looking -----------------------------------------------------------------------------------------------------

    def status(self, name: str) -> os.stat_result | None:
        """Status of a name, of a link itself and not its target; None if the name does not exist."""
        where, more = self._at(name)
        try:
            return os.stat(where, follow_symlinks=False, **more)
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        """All names in it, in order."""
        return sorted(os.listdir(self.path if self._handle is None else self._handle))

    def inside(self, name: str, *, make: int | None = None) -> Directory:
        """A directory in this one.

        Args:
            make: mode of a new one, if there is none.

        Raises:
            ToolError: there is none, or it is a link or a file.
        """
        found = self.status(name)
        where, more = self._at(name)
        if found is None and make is not None:
            with suppress(FileExistsError):  # another one made it just now
                os.mkdir(where, make, **more)
            found = self.status(name)
        if found is None:
            raise ToolError(f"there is no folder {shown(name)}")
        refuse_link(name, found)
        if not stat.S_ISDIR(found.st_mode):
            raise ToolError(f"{shown(name)} is not a folder")
        path = os.path.join(self.path, name)
        if self._handle is None:
            return Directory(path, descriptors=False)
        return Directory(path, handle=os.open(where, os.O_RDONLY | _READ | _DIRECTORY, **more))

    def read(self, name: str, limit: int, *, linked: bool = False) -> tuple[bytes, os.stat_result]:
        """A file's bytes, and what it was when it was read.

        Args:
            limit: bytes that it may have.
            linked: whether it may have further names, which may be outside.

        Raises:
            ToolError: there is none, or it is no plain file, too large, or has further names.
        """
        found = self.status(name)
        if found is None:
            raise ToolError(f"there is no file {shown(name)}")
        _refuse(name, found, limit, linked)
        where, more = self._at(name)
        # A file that became a pipe since then would be waited for.
        handle = os.open(where, os.O_RDONLY | _READ | _AT_ONCE, **more)
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(handle)
            _refuse(name, found, limit, linked)
            data = file.read(min(limit, found.st_size + _GROWN) + 1)
        if len(data) > limit:
            raise ToolError(_too_large(name, limit))
        return data, found

    # -- changing ----------------------------------------------------------------------------------------------------

    def create(self, name: str, data: bytes, *, mode: int | None = None) -> None:
        """Write a new file, to the disk.

        Args:
            mode: its permissions; None: those of any new file.

        Raises:
            FileExistsError: there is one.
        """
        where, more = self._at(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _READ
        handle = os.open(where, flags, 0o666 if mode is None else 0o600, **more)
        with os.fdopen(handle, "wb") as file:
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(handle, mode)
            file.write(data)
            file.flush()
            os.fsync(handle)

    def open_lock(self, name: str) -> int:
        """A descriptor of a file for locks, which is made if there is none."""
        where, more = self._at(name)
        return os.open(where, os.O_RDWR | os.O_CREAT | _READ | _AT_ONCE, 0o600, **more)

    def rename(self, old: str, new: str) -> None:
        """Give a file the name of another one, which it replaces at once."""
        (old_at, old_more), (new_at, _) = self._at(old), self._at(new)
        if not old_more:
            os.replace(old_at, new_at)
        else:
            os.rename(old_at, new_at, src_dir_fd=self._handle, dst_dir_fd=self._handle)
        self.sync()

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        where, more = self._at(name)
        try:
            os.unlink(where, **more)
        except FileNotFoundError:
            return
        self.sync()

    def sync(self) -> None:
        """Have the names in it on the disk, where that can be asked for."""
        if self._handle is not None:
            os.fsync(self._handle)


@contextmanager
def walked(
    root: str, parts: Sequence[str], *, make: int | None = None, descriptors: bool = DESCRIPTORS
) -> Iterator[Directory]:
    """The directory that some names lead to from a root.

    Raises:
        ToolError: there is none, or a link is on the way.
        OSError: the root is not there.
    """
    here = Directory(root, descriptors=descriptors)
    try:
        for part in parts:
            here, before = here.inside(part, make=make), here
            before.close()
        yield here
    finally:
        here.close()


def is_link(found: os.stat_result) -> bool:
    """True if it leads elsewhere: a symbolic link, or a reparse point of Windows."""
    return stat.S_ISLNK(found.st_mode) or bool(getattr(found, "st_reparse_tag", 0))


def refuse_link(name: str, found: os.stat_result) -> None:
    """
    Raises:
        ToolError: it is one.
    """
    if is_link(found):
        raise ToolError(f"{shown(name)} is a symbolic link, and links are not followed: name what it leads to")


def _refuse(name: str, found: os.stat_result, limit: int, linked: bool) -> None:
    refuse_link(name, found)
    if stat.S_ISDIR(found.st_mode):
        raise ToolError(f"{shown(name)} is a folder")
    if not stat.S_ISREG(found.st_mode):
        raise ToolError(f"{shown(name)} is a device, pipe or socket, not a file")
    if found.st_nlink > 1 and not linked:
        raise ToolError(
            f"{shown(name)} is a hard link: the file has further names, which may be outside of the root; "
            "Files(..., hard_links=True) allows it"
        )
    if found.st_size > limit:
        raise ToolError(_too_large(name, limit))


def _too_large(name: str, limit: int) -> str:
    return f"{shown(name)} is larger than {limit} bytes, which is the limit here; Files(..., limit=) sets it"
