"""Graphs that the page saves as files in one folder, and that are graphs of the server from then on.

A file is never overwritten unless its digest is given: of two saves at the same time, in this process or another, the
second is refused and shown what the first one wrote. A file is written whole under another name, flushed to the disk,
and then renamed. Names are those of graphs, so no path, hidden file or device can be meant; the folder is held open
while a file is written, and links in it are not followed.

A saved graph is text from elsewhere, as any other text: it may name the code that the server was given and nothing
else, also when it is read again after a restart, and calls of its tools that change something are asked about.
"""

from __future__ import annotations

import difflib
import fcntl
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from orchestrator.errors import OrchestratorError
from orchestrator.web.compose import checks
from orchestrator.web.problems import HttpProblem

if TYPE_CHECKING:
    from orchestrator.executor import Executor
    from orchestrator.verbs import Graph
    from orchestrator.web.compose.texts import Texts

log = logging.getLogger("orchestrator.web")
SUFFIX = ".yaml"
MOST_FILES = 1_000
"""Files of a folder that are read."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
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


class SavedGraphs:
    """The saved graphs of one server.

    Args:
        folder: the folder.
        executor: the executor of the server, which gets the graphs.
        texts: what their texts may refer to.

    Raises:
        ValueError: there is no such folder.
    """

    def __init__(self, folder: Path, executor: Executor, texts: Texts) -> None:
        if not folder.is_dir():
            raise ValueError(f"save_graphs: there is no folder {str(folder)!r}: make it first")
        self._folder, self._executor, self._texts = folder.resolve(), executor, texts
        self._lock = Lock()
        self._seen: dict[str, tuple[int, int, int]] = {}
        self.files: dict[str, SavedFile] = {}
        """The files of the graphs that were read, by name."""
        self.faults: dict[str, str] = {}
        """Why files are no graphs of the server, by name."""
        self.refresh()

    def refresh(self) -> None:
        """Read the files that are new, or are not as they were: another process may have written them."""
        try:
            self._refresh()
        except OSError as error:  # the graphs that were read are still there
            log.warning("the folder of saved graphs cannot be read: %s", error)

    def _refresh(self) -> None:
        with self._lock, self._opened() as folder:
            names = sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX))[:MOST_FILES]
            for file in names:
                name = file.removesuffix(SUFFIX)
                if _NAME.fullmatch(name) is None:
                    continue
                try:
                    found = os.stat(file, dir_fd=folder, follow_symlinks=False)
                except OSError:
                    continue
                mark = (found.st_mtime_ns, found.st_size, found.st_ino)
                if self._seen.get(name) != mark:
                    self._seen[name] = mark
                    self._take(name, folder)

    def _take(self, name: str, folder: int) -> None:
        """Make the graph of a file one of the server."""
        try:
            found = _read(name, folder)
            if found is None:
                return
            graph = self._graph(name, found.text)
        except (OSError, OrchestratorError, HttpProblem) as error:
            self.faults[name] = str(error)
            log.warning("the saved graph %s is not used: %s", name, error)
            return
        self._add(name, graph, found)

    def _add(self, name: str, graph: Graph, file: SavedFile) -> None:
        self.faults.pop(name, None)
        self.files[name] = file
        self._executor.add_graph(graph, ask_from="write")

    def _graph(self, name: str, text: str) -> Graph:
        """The graph of a text that is saved under a name.

        Raises:
            GraphError: it is none.
            HttpProblem: it has another name, or that of a graph of the program.
        """
        graph = checks.sound(text, "yaml", self._texts.code)
        if graph.name != name:
            detail = f"the text begins with 'name: {graph.name}', and is to be saved as {name!r}: use the same name"
            raise HttpProblem(422, "name-differs", detail)
        if name in self._texts.given:
            detail = f"this server was started with a graph {name!r}, which is not replaced: choose another name"
            raise HttpProblem(409, "graph-given", detail)
        return graph

    def save(self, name: str, text: str, replaces: str | None) -> SavedFile:
        """Write a file, and make its graph one of the server. It blocks.

        Args:
            name: the name of the graph.
            text: its text.
            replaces: the digest of the file that may be replaced; None: there must be none.

        Raises:
            HttpProblem: the name cannot be used, there is another file, or the file cannot be written.
            GraphError: the text is no graph, or names code that the server was not given.
        """
        check_name(name)
        graph = self._graph(name, text)
        made = SavedFile(text, digest_of(text.encode()))
        try:
            with self._lock, self._opened() as folder, _locked(folder):
                _check_file(name, _read(name, folder), folder, text, replaces)
                _write(name, folder, text.encode(), new=replaces is None)
                found = os.stat(f"{name}{SUFFIX}", dir_fd=folder, follow_symlinks=False)
                self._seen[name] = (found.st_mtime_ns, found.st_size, found.st_ino)
                self._add(name, graph, made)
        except FileExistsError:
            raise HttpProblem(409, "graph-exists", f"a file {name}{SUFFIX} has just been written: look at it") from None
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise HttpProblem(503, "save-failed", f"{name}{SUFFIX} cannot be written: {why}") from None
        return made

    @contextmanager
    def _opened(self) -> Iterator[int]:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield folder
        finally:
            os.close(folder)


def check_name(name: str) -> None:
    """
    Raises:
        HttpProblem: no file can be named so.
    """
    if _NAME.fullmatch(name) is None or name.casefold() in _DEVICES:
        detail = f"{name[:100]!r} is no name for a file: use 1 to 100 letters, digits, '_' and '-', a letter first"
        raise HttpProblem(422, "name-invalid", detail)


def digest_of(data: bytes) -> str:
    """The digest of a file, by which one who replaces it says what they have seen."""
    return sha256(data).hexdigest()


def _check_file(name: str, there: SavedFile | None, folder: int, text: str, replaces: str | None) -> None:
    """
    Raises:
        HttpProblem: the file that is there is not the one that may be replaced.
    """
    file = f"{name}{SUFFIX}"
    if there is None:
        if replaces is not None:
            raise HttpProblem(409, "graph-gone", f"there is no {file} any more: save it as a new one")
        alike = next((one for one in os.listdir(folder) if one.casefold() == file.casefold()), None)
        if alike is not None:
            raise HttpProblem(409, "graph-exists", f"there is a file {alike}, a name that some systems take for {file}")
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


def _read(name: str, folder: int) -> SavedFile | None:
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


def _write(name: str, folder: int, data: bytes, *, new: bool) -> None:
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
def _locked(folder: int) -> Iterator[None]:
    """Hold the lock of a folder, which other processes that save there hold, too.

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
        yield
    finally:
        os.close(opened)
