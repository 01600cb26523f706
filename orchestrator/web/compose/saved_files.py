"""The files of saved graphs: which names they have, and how one is read and written.

A file is written whole under another name, flushed to the disk, and then renamed. Names are those of graphs, so no
path, hidden file or device can be meant; the folder is held open while a file is written, and links in it are not
followed.
"""

from __future__ import annotations

import difflib
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256

from orchestrator.graph.names import RULE, look_of, plain_name
from orchestrator.graph.names import is_name as is_graph_name
from orchestrator.web.compose import checks
from orchestrator.web.problems import HttpProblem

SUFFIX = ".yaml"
MOST_FILES = 1_000
"""Files of a folder that are read."""
_DRAFT = re.compile(r"\.[^./]{1,100}\.[0-9a-f]{16}\.draft")
_LONGEST_NAME = 100
_DEVICES = frozenset({"con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in range(1, 10))})
"""Names that stand for devices on some systems."""
_LONGEST = 4 * checks.LONGEST
"""Bytes of a file."""
_LONGEST_DIFFERENCE = 50_000
_MOST_PAIRS = 4_000_000
"""Pairs of lines that are compared: the time grows with them, and the lock is held until it is done."""
_PATIENCE = 5.0
"""Seconds in which another process must have written its file."""
_LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A file that was read."""

    text: str
    digest: str


def is_name(name: str) -> bool:
    """Whether a file can be named so."""
    fits = is_graph_name(name) and name == plain_name(name) and len(name.encode()) <= _LONGEST_NAME
    return fits and name.casefold() not in _DEVICES


def names_in(folder: int) -> list[str]:
    """The names of the files that are read, in order."""
    names = (file.removesuffix(SUFFIX) for file in os.listdir(folder) if file.endswith(SUFFIX))
    return sorted(name for name in names if is_name(name))[:MOST_FILES]


def check_name(name: str) -> None:
    """
    Raises:
        HttpProblem: no file can be named so.
    """
    if not is_name(name):
        detail = f"{name[:100]!r} is no name for a file: {RULE}, in {_LONGEST_NAME} bytes at most"
        raise HttpProblem(422, "name-invalid", detail)


def digest_of(data: bytes) -> str:
    """The digest of a file, by which one who replaces it says what they have seen."""
    return sha256(data).hexdigest()


def check_file(name: str, there: SavedFile | None, folder: int, text: str, replaces: str | None) -> None:
    """
    Raises:
        HttpProblem: the file that is there is not the one that may be replaced.
    """
    file = f"{name}{SUFFIX}"
    if there is None:
        if replaces is not None:
            raise HttpProblem(409, "graph-gone", f"there is no {file} any more: save it as a new one")
        if len(names_in(folder)) >= MOST_FILES:
            detail = f"the folder has {MOST_FILES:,} graphs, and no more are read: delete the file of one"
            raise HttpProblem(409, "graphs-full", detail)
        look = look_of(file).casefold()
        alike = next((one for one in os.listdir(folder) if look_of(one).casefold() == look), None)
        if alike is not None:
            detail = f"there is a file {alike}, a name that people or systems take for {file}"
            raise HttpProblem(409, "graph-exists", detail)
        return
    if replaces == there.digest:
        return
    difference = _difference(there.text.splitlines(), text.splitlines(), file)
    detail = f"there is a file {file}" if replaces is None else f"{file} is not as it was: it has been changed since"
    raise HttpProblem(409, "graph-exists", detail, digest=there.digest, difference=difference)


def _difference(before: list[str], after: list[str], file: str) -> str:
    if len(before) * len(after) > _MOST_PAIRS:
        return f"{file} has {len(before):,} lines and this text {len(after):,}, too many to compare here"
    found = "\n".join(difflib.unified_diff(before, after, file, "this text", lineterm=""))
    return found if len(found) <= _LONGEST_DIFFERENCE else f"{found[:_LONGEST_DIFFERENCE]}\n…"


def read_file(name: str, folder: int) -> SavedFile | None:
    """The file of a graph; None: there is none.

    Raises:
        HttpProblem: it is no plain file, or too long.
    """
    file = f"{name}{SUFFIX}"
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        opened = os.open(file, flags, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:  # a link, among others
        raise HttpProblem(409, "graph-no-file", f"{file} is no file that can be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise HttpProblem(409, "graph-no-file", f"{file} is no plain file")
    with open(opened, "rb") as source:
        data = source.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise HttpProblem(409, "graph-no-file", f"{file} has more than {_LONGEST:,} bytes")
    return SavedFile(data.decode("utf-8", "replace"), digest_of(data))


def write_file(name: str, folder: int, data: bytes, *, new: bool) -> None:
    """Write a file whole, or not at all.

    Raises:
        FileExistsError: it is to be new, and there is one.
        OSError: it cannot be written.
    """
    file, draft = f"{name}{SUFFIX}", f".{name}.{secrets.token_hex(8)}.draft"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(draft, flags, 0o644, dir_fd=folder)
    try:
        with open(opened, "wb") as target:
            target.write(data)
            target.flush()
            os.fsync(opened)
        if new:  # `link` fails if the file exists, no matter who created it
            os.link(draft, file, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        else:
            os.rename(draft, file, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=folder)


@contextmanager
def locked(folder: int) -> Iterator[None]:
    """Hold the lock of a folder, which other processes that save there hold, too, and delete what dead ones left.

    Raises:
        HttpProblem: another process holds it for long.
    """
    opened = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    detail = "another process writes to the folder of saved graphs: send it again"
                    raise HttpProblem(503, "save-busy", detail, headers={"Retry-After": "1"}) from None
                time.sleep(0.01)
        for left in filter(_DRAFT.fullmatch, os.listdir(folder)):  # of a process that died: whoever writes has the lock
            with suppress(OSError):
                os.unlink(left, dir_fd=folder)
        yield
    finally:
        os.close(opened)
