"""Files under one root: view, create, replace, insert, undo.

A reference `files:docs` names the root; `files` alone is the current directory, or the one a run was started in.
`files:docs?dotfiles` also shows dot files, except for those that may hold secrets.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

from pydantic import Field

from orchestrator.errors import ToolError
from orchestrator.private import keep_private, state_folder
from orchestrator.tools.builtin.files.directory import DESCRIPTORS, Directory, is_link, walked
from orchestrator.tools.builtin.files.edits import EditRules, Edits, said_of
from orchestrator.tools.builtin.files.names import hidden_by, shown
from orchestrator.tools.builtin.files.places import HIDDEN, READ_ONLY, SECRETS
from orchestrator.tools.builtin.files.text import Text, numbered
from orchestrator.tools.function import tool
from orchestrator.tools.schema import IdempotencyKey
from orchestrator.tools.texts import texts
from orchestrator.tools.toolbox import Toolbox

__all__ = ["HIDDEN", "READ_ONLY", "SECRETS", "Files", "at"]

_DOTFILES = "?dotfiles"

_ENTRIES = 500
_AROUND = 4
"""Lines shown around an edit."""
Line = Annotated[int, Field(ge=0)]


class Files(Toolbox):
    """Tools for the text files in one directory and those in it: a toolbox of five.

        Executor(tools=Files("notes"))

    `view_file` only reads; `Files("notes").subset(["view_file"])` has no other. What they change can be undone, edit
    by edit, also by another process: what files held before is kept in `.orchestrator/undo` under the root.

    Paths are relative, without `..`. Links are not followed, wherever they lead; a directory that is swapped for a
    link meanwhile is not either, on systems with `openat` (all but Windows). Hidden names, devices, pipes, files with
    more than one name (hard links), and what is no text are refused. Whoever may write to the root from outside can
    still put other files there.

    Dot files, places of secrets and this library's own files are hidden. `Files("notes", hidden=SECRETS)` shows dot
    files that hold no secrets.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        limit: int = 1_000_000,
        shown: int = 30_000,
        hidden: Sequence[str] = HIDDEN,
        read_only: Sequence[str] = READ_ONLY,
        encoding: str | None = None,
        hard_links: bool = False,
        descriptors: bool = DESCRIPTORS,
    ) -> None:
        """
        Args:
            root: the directory; it has to be there.
            limit: bytes of the largest file that is read or written.
            shown: characters of the longest text that is given back.
            hidden: patterns of names, or of ends of paths, that are neither shown nor changed, at any depth. Files of
                this library (`.orchestrator*`, stores, archives, keys) always are.
            read_only: further patterns, of what is shown and not changed: files that other programs run unasked.
            encoding: of files that are neither UTF-8 nor UTF-16 with a mark; None: they are no text.
            hard_links: whether files may have further names, which may be outside of the root.
            descriptors: whether to walk with open directories, see above; not where the system cannot.

        Raises:
            NotADirectoryError: there is no such directory.
            TypeError: `hidden` or `read_only` is one text, and no list of them.
        """
        self.root = os.path.realpath(root)
        """Where it is."""
        if not os.path.isdir(self.root):
            raise NotADirectoryError(f"{os.fspath(root)!r} is not a directory: create it first, or name another root")
        with suppress(RuntimeError):  # this user has no home, and no key
            keep_private(state_folder())
        self._rules = EditRules(
            root=self.root,
            hidden=texts("hidden", hidden),
            read_only=texts("read_only", read_only),
            limit=limit,
            encoding=encoding,
            hard_links=hard_links,
            descriptors=descriptors and DESCRIPTORS,
        )
        self._shown = shown
        self._edits = edits = Edits(self._rules)
        self.create_file = self.create_file.with_(reconcile=edits.reconcile)
        self.replace_in_file = self.replace_in_file.with_(reconcile=edits.reconcile)
        self.insert_in_file = self.insert_in_file.with_(reconcile=edits.reconcile)
        self.undo_edit = self.undo_edit.with_(reconcile=edits.reconcile)
        super().__init__(self.view_file, self.create_file, self.replace_in_file, self.insert_in_file, self.undo_edit)

    def __repr__(self) -> str:
        return f"Files({self.root!r})"

    @tool(risk="read", effect="read", group="files")
    def view_file(self, path: str = ".", first: Line = 1, last: Line | None = None) -> str:
        """Show a text file with the numbers of its lines, or what a folder holds, two levels deep.

        Args:
            path: the file or folder, relative, such as 'docs/notes.md'; '.' is the root.
            first: the first line to show, 1 if not given.
            last: the last line to show, the file's if not given.
        """
        rules = self._rules
        with said_of(path):
            parts = rules.parts_of(path)
            with walked(rules.root, parts[:-1], descriptors=rules.descriptors) as place:
                found = place.status(parts[-1]) if parts else None
                if not parts or (found is not None and stat.S_ISDIR(found.st_mode)):
                    return self._listed(place, parts[-1] if parts else None)
                text = Text.of(rules.read(place, parts[-1])[0], rules.encoding)
            return self._lines(text, max(first, 1), last)

    # Not idempotent: made afresh when a step is tried again, it would write over the edits that came behind it, which
    # are not made again.
    @tool(risk="write", effect="irreversible", group="files")
    def create_file(
        self, path: str, text: str, overwrite: bool = False, idempotency_key: IdempotencyKey | None = None
    ) -> str:
        """Write a new text file; folders that it needs are made.

        Args:
            path: the file, relative, such as 'docs/notes.md'.
            text: all that the file is to hold.
            overwrite: whether a file that is there is replaced.
        """

        with said_of(path):  # before folders are made for it
            after = self._rules.fits(Text(text).data())

        def change(before: bytes | None) -> tuple[bytes, str]:
            if before is not None and before != after:
                if not overwrite:
                    raise ToolError("the file exists already: change it with replace_in_file, or set overwrite")
                self._text(before)  # a database, a key or an image is not replaced by text
            count = len(Text(text).lines())
            return after, f"Written: {path}, {count} line{'s' * (count != 1)}."

        return self._edits.make(path, "create", idempotency_key, change)

    @tool(risk="write", effect="irreversible", group="files")
    def replace_in_file(self, path: str, old: str, new: str = "", idempotency_key: IdempotencyKey | None = None) -> str:
        """Replace a text that is in a file exactly once.

        Args:
            path: the file, relative.
            old: the text to replace, as it stands in the file, with enough around it to be there only once.
            new: what comes in its place; empty to remove it.
        """

        def change(before: bytes | None) -> tuple[bytes, str]:
            text, line = self._text(before).replaced(old, new)
            return text.data(), f"Replaced in {path}:\n{self._around(text, line, new.count(chr(10)) + 1)}"

        return self._edits.make(path, "replace", idempotency_key, change)

    @tool(risk="write", effect="irreversible", group="files")
    def insert_in_file(self, path: str, line: Line, text: str, idempotency_key: IdempotencyKey | None = None) -> str:
        """Put lines into a file.

        Args:
            path: the file, relative.
            line: the number of the line behind which they come; 0: in front of the first.
            text: the lines.
        """

        def change(before: bytes | None) -> tuple[bytes, str]:
            found = self._text(before).inserted(line, text)
            return found.data(), f"Inserted in {path}:\n{self._around(found, line + 1, text.count(chr(10)) + 1)}"

        return self._edits.make(path, "insert", idempotency_key, change)

    @tool(risk="write", effect="irreversible", group="files")
    def undo_edit(self, path: str, idempotency_key: IdempotencyKey | None = None) -> str:
        """Take back the last edit of a file that was made with these tools; called again, the one before it.

        Args:
            path: the file, relative.
        """
        return self._edits.undo(path, idempotency_key)

    # -- what is shown -----------------------------------------------------------------------------------------------

    def _text(self, data: bytes | None) -> Text:
        if data is None:
            raise ToolError("there is no such file: create it with create_file")
        return Text.of(data, self._rules.encoding)

    def _lines(self, text: Text, first: int, last: int | None) -> str:
        lines = text.lines()
        if not lines:
            return "(empty)"
        if first > len(lines):
            raise ToolError(f"there is no line {first}: the file has {len(lines)}")
        if last is not None and last < first:
            raise ToolError(f"line {last} comes before line {first}: give them in order")
        wanted = lines[first - 1 : last]
        found, count = numbered(wanted, first, self._shown)
        if count < len(wanted):
            found += f"\n[{len(wanted) - count} more lines: continue with first={first + count}]"
        return found

    def _around(self, text: Text, line: int, count: int) -> str:
        lines = text.lines()
        first = max(line - _AROUND, 1)
        return numbered(lines[first - 1 : line + min(count, 50) - 1 + _AROUND], first, 5000)[0]

    def _listed(self, place: Directory, name: str | None) -> str:
        """What is in a folder, or in one of its folders."""
        rows: list[str] = []
        if name is None:
            full = self._entries(place, rows, "", 2)
        else:
            with place.inside(name) as inner:
                full = self._entries(inner, rows, "", 2)
        return "\n".join(rows) + (f"\n[only the first {_ENTRIES}]" if full else "") or "(empty)"

    def _entries(self, place: Directory, rows: list[str], before: str, depth: int) -> bool:
        """Add what a folder holds; whether that was cut off."""
        for name in place.names():
            found = None if hidden_by(name, self._rules.hidden, place.path) else place.status(name)
            if found is None:
                continue
            if len(rows) >= _ENTRIES:
                return True
            told = name if name.isprintable() else shown(name)
            if is_link(found):
                rows.append(f"{before}{told} (a link, not followed)")
            elif not stat.S_ISDIR(found.st_mode):
                rows.append(f"{before}{told}" + ("" if stat.S_ISREG(found.st_mode) else " (no file)"))
            else:
                rows.append(f"{before}{told}/")
                if depth > 1 and self._below(place, name, rows, f"{before}{told}/"):
                    return True
        return False

    def _below(self, place: Directory, name: str, rows: list[str], before: str) -> bool:
        try:
            with place.inside(name) as inner:
                return self._entries(inner, rows, before, 1)
        except (ToolError, OSError):  # gone, or closed to us
            return False


def at(root: str) -> Files:
    """The tools of a reference `files:ROOT` or `files:ROOT?dotfiles`."""
    place = root.removesuffix(_DOTFILES)
    return Files(place or ".", hidden=HIDDEN if place == root else SECRETS)
