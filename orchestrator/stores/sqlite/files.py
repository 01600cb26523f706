"""Opening the file of a store, and the meaning of SQLite's errors to a user.

`check_log` checks whether the log that a process left lost acknowledged commits.

SQLite silently ends its log at the first frame with a wrong checksum: that is right for a write that was interrupted by
a power failure, and wrong for a bit that flipped later, after which acknowledged commits are lost. The two can be
distinguished: a commit is written only when the one before it is on the disk. So after an interrupted write there is no
second commit of the same log; if there is one, the log was damaged. A flipped bit in the last commit of a log
cannot be distinguished from an interrupted write.

`check_filesystem` refuses file systems that several machines share.

SQLite's log needs shared memory of all processes, and reliable locks; over a network neither is certain, and two
machines then overwrite each other's records without an error. Linux lists the mounted file systems in
`/proc/self/mountinfo`; other systems have no cheap way to find out, so nothing is refused there.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import stat
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from orchestrator.errors import InvalidValue, StoreError, StoreUnavailable, StoreUnsupported
from orchestrator.stores.sqlite.schema import APPLICATION_ID, check_tables, check_version, make_tables

T = TypeVar("T")

BUSY_SECONDS = 10.0
"""Seconds to wait for a lock that another process holds."""

PAGE_BYTES = 4096
"""Page size of a new file. Each commit writes whole pages, and each table and index has at least one.

A record is stored within one page if it fits. Pages of 8192 bytes suit records of 1.4 to 4 KiB better, and longer ones
worse; for records of mixed lengths both need the same space."""

_LOG_BYTES = 4 << 20
"""Length of the log from which SQLite empties it into the file."""

_LEAST_BYTES = 512
"""The smallest page size of SQLite."""


def open_to_write(path: Path, url: str) -> sqlite3.Connection:
    """Return a connection that writes durably; create the file (0600), its directory (0700) and its tables if missing.

    Raises:
        sqlite3.Error, OSError: the file cannot be created or opened; `store_error` translates it.
        StoreError, StoreTooNew: the file is not for this version.
    """
    for directory in reversed(path.parents):
        directory.mkdir(mode=0o700, exist_ok=True)
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite gives its side files the same mode
    connection = _connect(path, url, "rw", timeout=0.0)  # writers wait by `patiently`, if they may wait at all
    try:
        patiently(lambda: _prepare(connection, url))
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, url: str) -> None:
    # journal_mode is stored in the file; setting it again would wait for every reader
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        check_version(connection, url)  # leave files of other programs unchanged
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # lets a new file give the space of deleted runs back
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")  # text of deleted runs is erased from free pages
    page: int = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_BYTES // page}")
    connection.execute("PRAGMA journal_size_limit = 16777216")
    make_tables(connection, url)
    check_tables(connection, url)


def open_to_read(path: Path, url: str) -> tuple[sqlite3.Connection, bool]:
    """Return a connection that only reads, and whether it may be kept for the next reader.

    A missing or empty file reads as a store without runs: reading never creates a file.

    Raises:
        sqlite3.Error, OSError: the file cannot be opened; `store_error` translates it.
        StoreError, StoreTooNew, StoreUnavailable: the file is not for this version, or cannot be used now.
    """
    if not _length(path, url):
        return _nothing(url), False
    connection, reusable = _connect(path, url, "rw"), True  # SQLite falls back to read-only if it may not write
    try:
        try:
            version = patiently(lambda: check_version(connection, url))
        except sqlite3.OperationalError as error:
            full = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHMSIZE
            if _code(error) not in _NO_SHARED_MEMORY and not full:
                raise
            connection.close()
            connection, reusable = _connect_frozen(path, url, full=full), False
            version = check_version(connection, url)
        if version == 0:  # another process is creating the tables, which may take a while
            connection.close()
            return _nothing(url), False
        check_tables(connection, url)
        connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection, reusable


def _nothing(url: str) -> sqlite3.Connection:
    """Return a connection to an empty store."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # like a new file
    make_tables(connection, url)
    return connection


def _connect_frozen(path: Path, url: str, *, full: bool) -> sqlite3.Connection:
    """Read a file in a directory where the files that coordinate readers and writers cannot be created.

    No process has these files, so no process writes at the moment.
    """
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:
        if full:
            raise StoreUnavailable(f"store {url}: {_UNAVAILABLE[sqlite3.SQLITE_FULL]}")
        raise StoreUnavailable(
            f"store {url}: its latest records are in {log.name}, which cannot be read in a directory that is "
            f"read-only; copy {path.name} and {log.name} to a directory where you may write"
        )
    return _connect(path, url, "ro&immutable=1")


def _connect(path: Path, url: str, mode: str, timeout: float = 1.0) -> sqlite3.Connection:
    # SQLite takes such a file for an empty one and would overwrite it. Not opened to check: closing it again would
    # release the locks of our other connections on it.
    if 0 < _length(path, url) < _LEAST_BYTES:
        raise StoreError(f"store {url}: {_BROKEN[sqlite3.SQLITE_NOTADB]}")
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False, timeout=timeout
    )
    connection.text_factory = _text
    return connection


def _length(path: Path, url: str) -> int:
    """Return the number of bytes of a file; 0 if there is none.

    Raises:
        StoreUnavailable: the path exists but is not a file. SQLite would take a pipe or a device for an empty file.
        OSError: it is not known whether it exists.
    """
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    if stat.S_ISDIR(found.st_mode):
        raise StoreUnavailable(f"store {url}: it is a directory, which cannot be opened as a store; name a file in it")
    if not stat.S_ISREG(found.st_mode):
        raise StoreUnavailable(
            f"store {url}: it is a pipe, socket or device, which cannot be opened as a store; name a file"
        )
    return found.st_size


def _text(data: bytes) -> str:
    """Decode text of the file. Damaged bytes that are not UTF-8 are replaced, so that lists still work."""
    return data.decode("utf-8", "backslashreplace")


def file_identity(path: str | Path) -> tuple[int, int] | None:
    """Return the identity of the file at a path, if there is one: it changes when the file is removed or replaced."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class StoreFile:
    """The file of a store, which must stay the one that was opened: it is never created again in its place.

    It is known from the first time that it existed. While a connection is open no other file can have its identity.
    """

    __slots__ = ("_known", "_url", "name")

    def __init__(self, path: Path, url: str) -> None:
        self.name = str(path)
        self._url = url
        self._known: tuple[int, int] | None = None

    def identity(self) -> tuple[int, int] | None:
        """Return the identity of the file at the path; None if there is no file.

        Raises:
            StoreUnavailable: the file is not the one that was opened. Takes a microsecond or two.
        """
        found = file_identity(self.name)
        if found == self._known:
            return found
        if self._known is not None:
            raise StoreUnavailable(f"store {self._url}: {self._gone(found)}")
        self._known = found
        return found

    def _gone(self, found: object) -> str:
        if found is None:
            return (
                f"the file {self.name} was removed or renamed while it was open; put it back to continue, "
                "or open the store again to start an empty one"
            )
        return (
            f"{self.name} is no longer the file that was opened; put that file back to continue, "
            "or open the store again to use this one"
        )


def patiently(action: Callable[[], T], seconds: float = BUSY_SECONDS) -> T:
    """Call `action`, which may fail because of another process's lock; try for `seconds`.

    The waits are random, so that two processes that want the same lock do not stay in step.
    """
    deadline = time.monotonic() + seconds
    longest = 0.001
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if _code(error) not in _LOCKED or time.monotonic() >= deadline:
                raise
        time.sleep(random.uniform(0.0, longest))
        longest = min(longest * 2, 0.05)


# ------------------------------------------------------------------------------------ errors

_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_NO_SHARED_MEMORY = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
_WHOLE_FILE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOTADB,
}

_UNAVAILABLE = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space, then continue: nothing written is lost",
    sqlite3.SQLITE_READONLY: "the file or its directory is read-only; make both writable, or name another store",
    sqlite3.SQLITE_PERM: "this user may not use the file; change its permissions, or name another store",
    sqlite3.SQLITE_BUSY: "another process has locked it for too long; end that process, then continue",
    sqlite3.SQLITE_LOCKED: "another process has locked it for too long; end that process, then continue",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; create its directory, and make both readable and writable",
    sqlite3.SQLITE_IOERR: "reading or writing the disk failed; check the disk and its free space, then continue",
}
_BROKEN = {
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it, or save what can be read with `sqlite3 FILE .recover`",
    sqlite3.SQLITE_NOTADB: "the file is not an SQLite database; name another file",
}


def busy_error() -> sqlite3.OperationalError:
    """Return the error that SQLite raises for a lock, for calls that only return a code."""
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error


def _code(error: BaseException) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the other bits are detail
    return code


def whole_file(error: BaseException) -> bool:
    """Return True if an error concerns the file, so that every other write would fail too."""
    return isinstance(error, OSError | UnicodeDecodeError | StoreUnavailable) or _code(error) in _WHOLE_FILE


def store_error(error: Exception, url: str) -> Exception:
    """Return the error for users that corresponds to one of SQLite or the file system; others unchanged."""
    if isinstance(error, sqlite3.Error):
        code = _code(error)
        if code in _UNAVAILABLE:
            return StoreUnavailable(f"store {url}: {_UNAVAILABLE[code]} ({error})")
        if code in _BROKEN:
            return StoreError(f"store {url}: {_BROKEN[code]} ({error})")
        said = StoreError(f"store {url}: {error}")
        said.__cause__ = error
        return said
    if isinstance(error, UnicodeEncodeError):
        return InvalidValue("a run id, label or other text contains an unpaired surrogate, which cannot be stored")
    if isinstance(error, UnicodeDecodeError):  # SQLite's message about a damaged schema quotes it
        return StoreError(f"store {url}: {_BROKEN[sqlite3.SQLITE_CORRUPT]} ({error})")
    if isinstance(error, OSError):
        return StoreUnavailable(
            f"store {url}: {error.strerror or error}{f' ({error.filename})' if error.filename else ''}; "
            f"name a file in a directory where this user may write"
        )
    return error


_HEADER, _FRAME = 32, 24
"""Bytes of the log's header, and of that of each page in it; see https://www.sqlite.org/fileformat.html#walformat."""


_BUSY_SECONDS = 1.0


def kept_log(path: Path) -> Path:
    """Return the path to which a damaged log is moved. While it exists, the store is not opened."""
    return path.with_name(f"{path.name}-damaged-log")


def check_log(path: Path, url: str) -> None:
    """Refuse a store whose log lost commits. To be called before other connections to it are opened.

    For a file without a log, as a closed store leaves it, this takes two file system calls.

    Raises:
        StoreError: commits were lost. The rest of the log is kept next to the file.
    """
    kept, log = kept_log(path), path.with_name(f"{path.name}-wal")
    if kept.exists():
        raise StoreError(f"store {url}: {_words(log, kept)}")
    try:
        if log.stat().st_size < _HEADER + _FRAME or not path.exists():
            return
    except OSError:
        return
    with contextlib.suppress(sqlite3.Error):  # opening the file next reports what is wrong with it
        connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=1.0)
        try:
            if _is_damaged(connection, log):
                _keep(log, kept)  # before it is closed: then SQLite empties the log
                raise StoreError(f"store {url}: {_words(log, kept)}")
        finally:
            connection.close()


def _words(log: Path, kept: Path) -> str:
    return (
        f"its log {log.name} was damaged after it was written, and commits that were acknowledged are lost; restore "
        f"the store from a copy, or delete {kept} (what was left of the log) to continue from what is readable"
    )


def _is_damaged(connection: sqlite3.Connection, log: Path) -> bool:
    tables: int = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]  # SQLite reads the log here
    if tables and connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        return False  # of another program; without any table, ours may be among what was lost
    page: int = connection.execute("PRAGMA page_size").fetchone()[0]
    frames = _frames(connection)
    # Other processes may write at the same time: their changes are in the log that SQLite uses afterwards.
    return _commits_behind(log, frames, page) > 1 and _frames(connection) == frames


def _frames(connection: sqlite3.Connection) -> int:
    """Return the number of valid pages in the log, according to SQLite.

    Raises:
        sqlite3.OperationalError: another process keeps emptying the log, so that SQLite gives no number. Such a
            process has read the log to its end, and checked it before, like this one.
    """

    def ask() -> int:
        row: tuple[int, int, int] = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        busy, frames, _ = row
        if busy and frames < 0:
            raise busy_error()
        return max(frames, 0)

    return patiently(ask, _BUSY_SECONDS)


def _commits_behind(log: Path, frames: int, page: int) -> int:
    """Return the number of commits of the current log after its first `frames` pages."""
    count, step = 0, _FRAME + page
    with log.open("rb") as file:
        head = file.read(_HEADER)
        if len(head) < _HEADER:
            return 0
        salts = struct.unpack(">2I", head[16:24])  # new ones each time that the log is restarted
        at = _HEADER + frames * step
        while True:
            file.seek(at)
            frame = file.read(_FRAME)
            if len(frame) < _FRAME:
                return count
            _, size, *own = struct.unpack(">4I", frame[:16])
            # one of them is enough: a bit may have flipped in the other, and both change when the log is restarted
            if size and (own[0] == salts[0] or own[1] == salts[1]):
                count += 1
            at += step


def _keep(log: Path, kept: Path) -> None:
    with contextlib.suppress(OSError):  # the disk may be full; then this error is reported only once
        data = log.read_bytes()
        with os.fdopen(os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)


ALLOW = "ORCHESTRATOR_ALLOW_NETWORK_STORE"
"""The environment variable that allows a store on any file system, if it is 1."""

NETWORK = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "drvfs",
        "gfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
        "vmhgfs",
    }
)
"""Types of file systems that several machines may use at the same time, or that a host shares with a guest."""

NETWORK_FUSE = frozenset(
    {
        "blobfuse",
        "blobfuse2",
        "ceph",
        "cephfs",
        "curlftpfs",
        "davfs",
        "davfs2",
        "gcsfuse",
        "glusterfs",
        "goofys",
        "google-drive-ocamlfuse",
        "juicefs",
        "moosefs",
        "mfs",
        "mount-s3",
        "mountpoint-s3",
        "rclone",
        "s3fs",
        "seaweedfs",
        "smbnetfs",
        "sshfs",
        "vmhgfs-fuse",
    }
)
"""Like `NETWORK`, for file systems in user space: mounted as `fuse.NAME`, or with that name as their source."""


def check_filesystem(path: Path, url: str, *, allowed: bool = False) -> None:
    """Refuse a store's file on a network file system.

    Args:
        allowed: whether the caller accepts the risk. `ORCHESTRATOR_ALLOW_NETWORK_STORE=1` does the same.

    Raises:
        StoreUnsupported: the file is on one.
    """
    if allowed or os.environ.get(ALLOW) == "1":
        return
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mounts = file.read()
    except OSError:  # not Linux, or not accessible
        return
    if not any(map(is_network, _types(mounts))):
        return  # the usual case: the target of the path makes no difference
    kind = filesystem_of(os.path.realpath(path), mounts)
    if is_network(kind):
        raise StoreUnsupported(
            f"store {url}: {path} is on a network file system ({kind}), where SQLite can lose records silently; "
            f"name a file on a local disk, or set {ALLOW}=1 if only one machine ever uses it"
        )


def is_network(kind: str) -> bool:
    """Return True if several machines can share a file system of this type."""
    name = kind.lower()
    if name.startswith("fuse."):
        return name.removeprefix("fuse.") in NETWORK_FUSE
    return name in NETWORK


def filesystem_of(path: str, mountinfo: str) -> str:
    """Return the type of the file system of a path; empty if it is not listed.

    Args:
        path: absolute, without symbolic links. It need not exist.
        mountinfo: the contents of `/proc/self/mountinfo`; see proc_pid_mountinfo(5).
    """
    best, found = "", ""
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if not separator or len(fields) < 5 or not kind[0]:
            continue
        place = _unescaped(fields[4])
        inside = place == "/" or path == place or path.startswith(f"{place}/")
        if inside and len(place) >= len(best):  # of several at one place the last one is on top
            best, found = place, kind[0]
    return found


def _types(mountinfo: str) -> set[str]:
    """Return the types of all mounted file systems, and perhaps other words."""
    return {line.partition(" ")[0] for line in mountinfo.split(" - ")[1:]}


def _unescaped(text: str) -> str:
    """Return a path from mountinfo, which escapes blanks and backslashes as three octal digits."""
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, sign)
    return text
