"""An archive in a folder."""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from orchestrator.errors import StoreUnavailable
from orchestrator.private import keep_private

_WRITING = ".writing"
"""The folder of files that are being written. What lies in it for an hour was left by a process that died."""
_STALE = 3600.0
_READING = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class FolderArchive:
    """An archive in a folder, which is made when it is first written. Its files are readable by this user only.

    Args:
        folder: the folder.
        gzip: whether objects are compressed.
    """

    def __init__(self, folder: Path, *, gzip: bool = False) -> None:
        self.folder, self.gzip = folder, gzip
        keep_private(folder)
        self._tidied = False

    @property
    def url(self) -> str:
        return self.folder.as_uri()

    def __repr__(self) -> str:
        return f"FolderArchive({str(self.folder)!r})"

    def put(self, name: str, data: bytes) -> None:
        """See `Archive`. The file and the folders that lead to it are on the disk when this returns."""
        target = self.folder / name
        part = self.folder / _WRITING / os.urandom(8).hex()
        try:
            self._tidy()
            _make(target.parent)
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(target)
            _sync(target.parent)
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            raise self._unavailable("written", error) from error

    def get(self, name: str, *, most: int) -> bytes | None:
        """See `Archive`. What is not a file is not read: a link leads elsewhere, a pipe never ends."""
        try:
            with _opened(self.folder / name) as file:
                return file.read(max(most, 0) + 1)
        except (FileNotFoundError, NotADirectoryError):
            if self.folder.is_dir():
                return None
            raise StoreUnavailable(
                f"archive {self.url} cannot be read: there is no such folder (is it mounted?); nothing was lost"
            ) from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                error = OSError(errno.ELOOP, "it is a symbolic link")
            raise StoreUnavailable(
                f"object {name!r} of the archive {self.url} cannot be read: {error.strerror or error}; nothing was lost"
            ) from error

    def remove(self, name: str) -> None:
        """See `Archive`."""
        try:
            (self.folder / name).unlink()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise self._unavailable("changed", error) from error

    def _tidy(self) -> None:
        """Make the folder of files that are being written, and remove from it, once, what was left there."""
        folder = self.folder / _WRITING
        _make(folder)
        if self._tidied:
            return
        self._tidied = True
        for left in folder.iterdir():
            with suppress(OSError):
                if time.time() - left.stat().st_mtime > _STALE:
                    left.unlink()

    def _unavailable(self, what: str, error: OSError) -> StoreUnavailable:
        return StoreUnavailable(f"archive {self.url} cannot be {what}: {error.strerror or error}; nothing was lost")


def _opened(path: Path) -> BinaryIO:
    """Open a file to read it.

    Raises:
        OSError: it is no file, or a link to one.
    """
    descriptor = os.open(path, _READING)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _make(folder: Path) -> None:
    """Make a folder, and those that lead to it, on the disk."""
    if folder.is_dir():
        return
    _make(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    if os.name == "nt":
        return  # folders cannot be opened there
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
