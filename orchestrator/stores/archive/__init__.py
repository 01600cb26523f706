"""Archives: where the records of ended runs are kept, as JSON Lines, in a folder or in a bucket by the S3 protocol.

    store = open_store("sqlite:///runs.db", archive="file:///var/archive")
    store = open_store("postgresql://db.example.org/runs", archive="s3://bucket/runs")      # extra `s3`

`Archive` is the protocol. docs/archive.md describes the layout and the objects. The store that reads from an archive is
in `orchestrator.stores.archive.store`.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from abc import abstractmethod
from contextlib import suppress
from pathlib import Path
from string import ascii_letters, digits
from typing import BinaryIO, Protocol, runtime_checkable
from urllib.parse import parse_qsl, unquote, urlsplit

from orchestrator.errors import StoreError, StoreUnavailable, install_command
from orchestrator.private import keep_private

_LETTERS = frozenset(ascii_letters + digits + "_-")
_LONGEST = 200
_LONGEST_TIMEOUT = 3600
_FORMS = "write `file:///var/archive`, or `s3://BUCKET/PREFIX` for an S3 server"
_READABLE = 60
"""Number of characters of a run's id in the name of its object."""


@runtime_checkable
class Archive(Protocol):
    """A store of objects by name. Methods block; stores call them in threads, several at a time.

    Each raises `StoreUnavailable` if the archive cannot be reached or written, and `StoreError` if it is misconfigured.
    """

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL of the archive, without secrets."""
        ...

    @property
    @abstractmethod
    def gzip(self) -> bool:
        """True if objects are compressed."""
        ...

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Write an object durably and atomically, replacing one with this name.

        Args:
            name: `YYYY/MM/DD/` and a file name.
            data: its bytes.
        """
        ...

    @abstractmethod
    def get(self, name: str, *, most: int) -> bytes | None:
        """Return the bytes of an object; None if there is no object with this name.

        Args:
            name: its name.
            most: maximum number of bytes. For a longer object, the first `most` + 1 bytes are enough.
        """
        ...

    @abstractmethod
    def remove(self, name: str) -> None:
        """Delete an object. A missing object is not an error."""
        ...


def open_archive(url: str) -> Archive:
    """Open an archive by its URL. Nothing is read or written yet.

    Args:
        url: `file:///var/archive`, or the path of a folder, or `s3://BUCKET/PREFIX`. Parameters: `gzip=1` compresses
            the objects; for S3 `endpoint` (the URL of a server that is not Amazon's) and `region`. Keys are read from
            the environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, or what else boto3 finds), never from the
            URL. `timeout`: seconds that a server may be silent.

    Raises:
        StoreError: the URL has an unknown form, or a library is missing.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise StoreError(f"archive URL cannot be read; {_FORMS}") from None
    options = dict(parse_qsl(parts.query)) if "://" in url else {}
    gzip = options.pop("gzip", "0") == "1"
    if "://" not in url or parts.scheme == "file":
        from orchestrator.stores.archive import FolderArchive

        if parts.netloc or options or not (parts.path or "://" not in url):
            raise StoreError("archive URL file://...: write `file:///var/archive`, or `file:///var/archive?gzip=1`")
        folder = Path(unquote(parts.path) if "://" in url else url).absolute()
        return FolderArchive(folder, gzip=gzip)
    if parts.scheme == "s3":
        region, endpoint = options.pop("region", None), options.pop("endpoint", None)
        timeout = _seconds(options.pop("timeout", "60"))
        if "@" in parts.netloc or "@" in (endpoint or ""):
            raise StoreError("archive URL s3://...: keys are not read from it; set AWS_ACCESS_KEY_ID and the like")
        if not parts.hostname or options:
            unknown = f" (it has no parameter {', '.join(map(repr, options))})" if options else ""
            raise StoreError(f"archive URL s3://...: write `s3://BUCKET/PREFIX?region=...&endpoint=...`{unknown}")
        try:
            from orchestrator.stores.archive.s3 import S3Archive
        except ImportError as error:
            raise StoreError(
                f"an archive in S3 needs boto3 ({error}); install it with `{install_command('s3')}`"
            ) from error
        prefix = parts.path.strip("/")
        return S3Archive(parts.netloc, prefix, endpoint=endpoint, region=region, gzip=gzip, timeout=timeout)
    raise StoreError(f"archive URL {parts.scheme}://...: {_FORMS}")


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= _LONGEST_TIMEOUT:
        raise StoreError(f"archive URL s3://...: `timeout` must be more than 0 seconds, at most {_LONGEST_TIMEOUT}")
    return found


def new_name(run_id: str, head: int, created: float, *, gzip: bool) -> str:
    """Return a unique name for an object, from the day of the run's creation, its id, and its last record."""
    day = time.strftime("%Y/%m/%d", time.gmtime(min(max(created, 0.0), 253_402_300_799.0)))
    readable = "".join(one if one in _LETTERS else "_" for one in run_id[:_READABLE]) or "_"
    return f"{day}/{readable}.{head}.{os.urandom(8).hex()}.jsonl{'.gz' if gzip else ''}"


def is_name(name: str) -> bool:
    """Return True if `new_name` can have made this name: a stored name must not lead out of the archive."""
    if len(name) > _LONGEST or name.count("/") != 3:
        return False
    *day, file = name.split("/")
    dated = [len(one) for one in day] == [4, 2, 2] and all(_LETTERS.issuperset(one) for one in day)
    return dated and _LETTERS.issuperset(file.replace(".", "")) and not file.startswith(".") and bool(file)


_WRITING = ".writing"
"""Folder of files that are being written. Files older than an hour are left over from processes that died."""
_STALE = 3600.0
_READING = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class FolderArchive:
    """An archive in a folder, created at the first write. Only this user can read its files.

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
        """See `Archive`. Only regular files are read: a link leads elsewhere, a pipe may never end."""
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
        """Create the folder of files that are being written, and once remove old files from it."""
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
        OSError: the path is not a file, or is a link to one.
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
    """Create a folder and its parents durably."""
    if folder.is_dir():
        return
    _make(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    if os.name == "nt":
        return  # folders cannot be opened on this system
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
