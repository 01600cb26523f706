"""Graphs that the page saves as files in one folder, and that become graphs of the server.

A file is only overwritten by a request with its digest: if two save at the same time, in this process or another, one
gets the text of the other. A file is written under another name, flushed to the disk, and then renamed. Names are those
of graphs, so they cannot name a path, hidden file or device; the folder is held open while a file is written, and links
in it are not followed.

A saved graph is untrusted text: it may only name the code that the server was given, also when it is read again after a
restart, and calls of its tools that change something need approval. A graph whose file was deleted or has become faulty
is removed from the server, as after a restart.

Files are read and written in threads. Only the event loop, which uses the executor's graphs, changes them: a thread
lists the changes, and `settle` applies them.
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
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import anyio

from orchestrator.errors import OrchestratorError
from orchestrator.graph.names import RULE, look_of, plain_name
from orchestrator.graph.names import is_name as is_graph_name
from orchestrator.tasks import away
from orchestrator.web.compose import checks
from orchestrator.web.problems import HttpProblem

if TYPE_CHECKING:
    from orchestrator.executor import Executor
    from orchestrator.graph_class import Graph
    from orchestrator.web.compose.checks import Texts


SUFFIX = ".yaml"
MOST_FILES = 1_000
"""Files of a folder that are read."""
_DRAFT = re.compile(r"\.[^./]{1,100}\.[0-9a-f]{16}\.draft")
_LONGEST_NAME = 100
_DEVICES = frozenset({"con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in range(1, 10))})
"""Names of devices on some systems."""
_LONGEST = 4 * checks.LONGEST
"""Bytes of a file."""
_LONGEST_DIFFERENCE = 50_000
_MOST_PAIRS = 4_000_000
"""Maximum number of pairs of lines that are compared: the time grows with it, and the lock is held meanwhile."""
_PATIENCE = 5.0
"""Seconds within which another process must have written its file."""
_LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A parsed file."""

    text: str
    digest: str


def is_name(name: str) -> bool:
    """Return True if a file can have this name."""
    fits = is_graph_name(name) and name == plain_name(name) and len(name.encode()) <= _LONGEST_NAME
    return fits and name.casefold() not in _DEVICES


def names_in(folder: int) -> list[str]:
    """Return the names of the files that are read, in order."""
    names = (file.removesuffix(SUFFIX) for file in os.listdir(folder) if file.endswith(SUFFIX))
    return sorted(name for name in names if is_name(name))[:MOST_FILES]


def check_name(name: str) -> None:
    """Check that a name is valid for a file.

    Raises:
        HttpProblem: the name is not valid for a file.
    """
    if not is_name(name):
        detail = f"{name[:100]!r} is not a valid file name: {RULE}, at most {_LONGEST_NAME} bytes"
        raise HttpProblem(422, "name-invalid", detail)


def digest_of(data: bytes) -> str:
    """Return the digest of a file, with which a request to replace it proves that its author has seen the text."""
    return sha256(data).hexdigest()


def check_file(name: str, there: SavedFile | None, folder: int, text: str, replaces: str | None) -> None:
    """Check that a file can be created, or that the existing one may be replaced.

    Raises:
        HttpProblem: the existing file is not the one that may be replaced.
    """
    file = f"{name}{SUFFIX}"
    if there is None:
        if replaces is not None:
            raise HttpProblem(409, "graph-gone", f"there is no {file} any more: save it as a new one")
        if len(names_in(folder)) >= MOST_FILES:
            detail = f"the folder has {MOST_FILES:,} graphs, the most that are read: delete the file of one"
            raise HttpProblem(409, "graphs-full", detail)
        look = look_of(file).casefold()
        alike = next((one for one in os.listdir(folder) if look_of(one).casefold() == look), None)
        if alike is not None:
            detail = f"there is a file {alike}, a name that people or file systems may confuse with {file}"
            raise HttpProblem(409, "graph-exists", detail)
        return
    if replaces == there.digest:
        return
    difference = _difference(there.text.splitlines(), text.splitlines(), file)
    detail = f"there is a file {file}" if replaces is None else f"{file} has been changed since it was opened"
    raise HttpProblem(409, "graph-exists", detail, digest=there.digest, difference=difference)


def _difference(before: list[str], after: list[str], file: str) -> str:
    if len(before) * len(after) > _MOST_PAIRS:
        return f"{file} has {len(before):,} lines and this text {len(after):,}, too many to compare here"
    found = "\n".join(difflib.unified_diff(before, after, file, "this text", lineterm=""))
    return found if len(found) <= _LONGEST_DIFFERENCE else f"{found[:_LONGEST_DIFFERENCE]}\n…"


def read_file(name: str, folder: int) -> SavedFile | None:
    """Return the file of a graph; None if there is none.

    Raises:
        HttpProblem: it is not a regular file, or too long.
    """
    file = f"{name}{SUFFIX}"
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        opened = os.open(file, flags, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:  # for example a link
        raise HttpProblem(409, "graph-no-file", f"{file} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise HttpProblem(409, "graph-no-file", f"{file} is not a regular file")
    with open(opened, "rb") as source:
        data = source.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise HttpProblem(409, "graph-no-file", f"{file} has more than {_LONGEST:,} bytes")
    return SavedFile(data.decode("utf-8", "replace"), digest_of(data))


def write_file(name: str, folder: int, data: bytes, *, new: bool) -> None:
    """Write a file completely, or not at all.

    Raises:
        FileExistsError: the file must be new, but exists.
        OSError: the file cannot be written.
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
    """Hold the lock of a folder, which all processes that save there use, and delete files of dead processes.

    Raises:
        HttpProblem: another process holds it for too long.
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
                    detail = "another process is writing to the folder of saved graphs: send it again"
                    raise HttpProblem(503, "save-busy", detail, headers={"Retry-After": "1"}) from None
                time.sleep(0.01)
        for left in filter(_DRAFT.fullmatch, os.listdir(folder)):  # of a dead process: a writer holds the lock
            with suppress(OSError):
                os.unlink(left, dir_fd=folder)
        yield
    finally:
        os.close(opened)


log = logging.getLogger("orchestrator.web")


@dataclass(frozen=True, slots=True)
class _Seen:
    """The version of a file that was last read."""

    mark: tuple[int, int, int]
    """Time of its last change, its length, and its inode number."""
    digest: str = ""
    fault: bool = False
    tools: bool = True
    """True if the tools of the server were known at that time."""


@dataclass(frozen=True, slots=True)
class _Found:
    """Result of reading a file: a graph, a fault, or nothing."""

    name: str
    graph: Graph | None = None
    file: SavedFile | None = None
    fault: str = ""


class SavedGraphs:
    """The saved graphs of one server.

    Args:
        folder: the folder.
        executor: the executor of the server, to which the graphs are added.
        texts: code that their texts may refer to.

    Raises:
        ValueError: the folder does not exist.
    """

    def __init__(self, folder: Path, executor: Executor, texts: Texts) -> None:
        if not folder.is_dir():
            raise ValueError(f"save_graphs: the directory {str(folder)!r} does not exist; create it first")
        self._folder, self._executor, self._texts = folder.resolve(), executor, texts
        self._lock = Lock()
        """Held while a file is read, so that the later of two readings counts."""
        self._refreshing = anyio.Lock()
        self._seen: dict[str, _Seen] = {}
        self._found: deque[_Found] = deque()
        self._added: dict[str, dict[str, Graph]] = {}
        """Name -> content -> the versions that were added to the executor."""
        self.files: dict[str, SavedFile] = {}
        """The files of the graphs of the server, by name."""
        self.faults: dict[str, str] = {}
        """Reasons why files are not graphs of the server, by name."""
        self.read_changed()
        self.settle()

    async def refresh(self, name: str | None = None) -> None:
        """Load changes in the folder, which other processes may have written.

        Args:
            name: the only graph to read; None: all.
        """
        if name is not None:
            if is_name(name) and name not in self._texts.given:
                await away(lambda: self.read_changed(name))
        else:
            async with self._refreshing:  # requests that wait for the same graphs share a thread
                await away(self.read_changed)
        self.settle()

    def read_changed(self, only: str | None = None) -> None:
        """Read new and changed files. It blocks; `settle` adds their graphs to the server.

        Args:
            only: the name of the only file to read; None: all.
        """
        try:
            with self._opened() as folder:
                names = dict.fromkeys(names_in(folder))
                for name in names if only is None else (only,):
                    with self._lock:
                        if name in names:
                            self._look_at(name, folder)
                for name in [*self._seen] if only is None else (only,):
                    with self._lock:
                        if name not in names and name in self._seen and not _is_there(name, folder):
                            self._gone(name)
        except OSError as error:  # the graphs that were read before are kept
            log.warning("the folder of saved graphs cannot be read: %s", error)

    def settle(self) -> None:
        """Add the graphs that were read to the server. It does not block."""
        while self._found:
            found = self._found.popleft()
            name, graph = found.name, found.graph
            if graph is not None and name in self._executor.graphs and name not in self._added:
                found, graph = _Found(name, fault="the program has added a graph of this name"), None
            if graph is not None and found.file is not None:
                self.faults.pop(name, None)
                self.files[name] = found.file
                self._executor.add_graph(graph, ask_from="write")
                self._added.setdefault(name, {})[graph.content] = graph
                continue
            for one in self._added.pop(name, {}).values():
                self._executor.graphs.remove(one)
            self.files.pop(name, None)
            self.faults.pop(name, None)
            if found.fault:
                self.faults[name] = found.fault
                log.warning("the saved graph %s is not used: %s", name, found.fault)

    def save(self, name: str, text: str, replaces: str | None) -> SavedFile:
        """Write a file. It blocks; `settle` adds its graph to the server.

        Args:
            name: the name of the graph.
            text: its text.
            replaces: the digest of the file that may be replaced; None: the file must be new.

        Raises:
            HttpProblem: the name is not valid, the existing file is another one, or the file cannot be written.
            GraphError: the text is not a graph, or names code that the server was not given.
        """
        check_name(name)
        graph = self._graph(name, text)
        made = SavedFile(text, digest_of(text.encode()))
        try:
            with self._opened() as folder, locked(folder):
                check_file(name, read_file(name, folder), folder, text, replaces)
                with self._lock:
                    write_file(name, folder, text.encode(), new=replaces is None)
                    self._seen[name] = _Seen(_mark(name, folder), made.digest)
                    self._found.append(_Found(name, graph, made))
        except FileExistsError:
            raise HttpProblem(
                409, "graph-exists", f"a file {name}{SUFFIX} has just been written: open it first"
            ) from None
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise HttpProblem(503, "save-failed", f"{name}{SUFFIX} cannot be written: {why}") from None
        return made

    # -- one file ------------------------------------------------------------------------------------------------------

    def _look_at(self, name: str, folder: int) -> None:
        """Read a file, if it has changed."""
        tools, known = self._texts.tools is not None, self._seen.get(name)
        if known is not None and known.fault and known.tools != tools:
            known = None  # the code that it names may be known by now
        seen = _Seen((0, 0, 0), tools=tools)
        try:
            seen = replace(seen, mark=_mark(name, folder))
            if known is not None and known.mark == seen.mark:
                return
            file = read_file(name, folder)
            if file is None:
                raise FileNotFoundError(f"{name}{SUFFIX} has just been deleted")
            seen = replace(seen, digest=file.digest)
            if known is not None and known.digest == file.digest:
                seen = replace(known, mark=seen.mark)
            else:
                self._found.append(_Found(name, self._graph(name, file.text), file))
        except FileNotFoundError:
            self._gone(name)
            return
        except (OSError, OrchestratorError, HttpProblem) as error:
            seen = self._faulty(name, seen, str(error))
        except Exception as error:  # a fault of one file must not fail requests for others
            log.exception("the saved graph %s cannot be read", name)
            seen = self._faulty(name, seen, f"it cannot be read: {type(error).__name__}")
        self._seen[name] = seen

    def _faulty(self, name: str, seen: _Seen, fault: str) -> _Seen:
        self._found.append(_Found(name, fault=fault))
        return replace(seen, fault=True)

    def _gone(self, name: str) -> None:
        if self._seen.pop(name, None) is not None:
            self._found.append(_Found(name))

    def _graph(self, name: str, text: str) -> Graph:
        """Return the graph of a text that is saved under a name.

        Raises:
            GraphError: the text is not a graph.
            HttpProblem: the text has another name, or that of a graph of the program.
        """
        graph = checks.sound(text, "yaml", self._texts.code)
        if graph.name != name:
            detail = f"the text begins with 'name: {graph.name}', and is to be saved as {name!r}: use the same name"
            raise HttpProblem(422, "name-differs", detail)
        if name in self._texts.given:
            detail = f"this server was started with a graph {name!r}, which is not replaced: choose another name"
            raise HttpProblem(409, "graph-given", detail)
        return graph

    @contextmanager
    def _opened(self) -> Iterator[int]:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield folder
        finally:
            os.close(folder)


def _mark(name: str, folder: int) -> tuple[int, int, int]:
    found = os.stat(f"{name}{SUFFIX}", dir_fd=folder, follow_symlinks=False)
    return found.st_mtime_ns, found.st_size, found.st_ino


def _is_there(name: str, folder: int) -> bool:
    """Return True if the folder has a file of the graph with this name."""
    return name in names_in(folder)
