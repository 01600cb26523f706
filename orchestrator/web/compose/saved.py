"""Graphs that the page saves as files in one folder, and that are graphs of the server from then on.

A file is never written over unless its digest is named: of two that save at the same time, in this process or another,
one is told what the other wrote. How files are read and written is in `saved_files`.

A saved graph is text from elsewhere, as any other text: it may name the code that the server was given and nothing
else, also when it is read again after a restart, and calls of its tools that change something are asked about. What
the folder has no more, or what has become faulty there, is no graph of the server any more, as after a restart.

Files are read and written in threads. Only the event loop, which uses the executor's graphs, changes them: a thread
lists what it found, and `settle` makes it so.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import anyio

from orchestrator.errors import OrchestratorError
from orchestrator.tasks import away
from orchestrator.web.compose import checks
from orchestrator.web.compose.saved_files import (
    SUFFIX,
    SavedFile,
    check_file,
    check_name,
    digest_of,
    is_name,
    locked,
    names_in,
    read_file,
    write_file,
)
from orchestrator.web.problems import HttpProblem

if TYPE_CHECKING:
    from orchestrator.executor import Executor
    from orchestrator.graph_class import Graph
    from orchestrator.web.compose.texts import Texts

log = logging.getLogger("orchestrator.web")


@dataclass(frozen=True, slots=True)
class _Seen:
    """A file as it was when it was last read."""

    mark: tuple[int, int, int]
    """When it was changed, its length, and its number in the file system."""
    digest: str = ""
    fault: bool = False
    tools: bool = True
    """Whether the tools of the server were known then."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What has become of a file: a graph, a fault, or nothing."""

    name: str
    graph: Graph | None = None
    file: SavedFile | None = None
    fault: str = ""


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
        """Held while one file is looked at, so that of two looks the later one counts."""
        self._turn = anyio.Lock()
        self._seen: dict[str, _Seen] = {}
        self._found: deque[_Found] = deque()
        self._added: dict[str, dict[str, Graph]] = {}
        """Name -> content -> the versions that the executor got."""
        self.files: dict[str, SavedFile] = {}
        """The files of the graphs of the server, by name."""
        self.faults: dict[str, str] = {}
        """Why files are no graphs of the server, by name."""
        self.look()
        self.settle()

    async def refresh(self, name: str | None = None) -> None:
        """Take over what was changed in the folder: another process may have written there.

        Args:
            name: the only graph that is looked at; None: all.
        """
        if name is not None:
            if is_name(name) and name not in self._texts.given:
                await away(lambda: self.look(name))
        else:
            async with self._turn:  # requests that wait for the same take one thread
                await away(self.look)
        self.settle()

    def look(self, only: str | None = None) -> None:
        """Read the files that are new, or are not as they were. It blocks; `settle` makes their graphs the server's.

        Args:
            only: the only file that is looked at, by its name; None: all.
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
        except OSError as error:  # the graphs that were read are still there
            log.warning("the folder of saved graphs cannot be read: %s", error)

    def settle(self) -> None:
        """Make what was found the graphs of the server. It does not block."""
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
        """Write a file. It blocks; `settle` makes its graph one of the server.

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
            with self._opened() as folder, locked(folder):
                check_file(name, read_file(name, folder), folder, text, replaces)
                with self._lock:
                    write_file(name, folder, text.encode(), new=replaces is None)
                    self._seen[name] = _Seen(_mark(name, folder), made.digest)
                    self._found.append(_Found(name, graph, made))
        except FileExistsError:
            raise HttpProblem(409, "graph-exists", f"a file {name}{SUFFIX} has just been written: look at it") from None
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise HttpProblem(503, "save-failed", f"{name}{SUFFIX} cannot be written: {why}") from None
        return made

    # -- one file ------------------------------------------------------------------------------------------------------

    def _look_at(self, name: str, folder: int) -> None:
        """Read a file, if it is not as it was."""
        tools, known = self._texts.tools is not None, self._seen.get(name)
        if known is not None and known.fault and known.tools != tools:
            known = None  # what it names may be known by now
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
        except Exception as error:  # a fault of one file is none of the requests, which want others
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
    """Whether the folder has a file by now, which it had not when its names were listed."""
    return name in names_in(folder)
