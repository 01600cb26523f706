"""Files under one root: view, create, replace, insert, undo.

A reference `files:docs` names the root; `files` alone is the current directory, or the one where a run was started.
`files:docs?dotfiles` also shows dot files, except for those that may hold secrets.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from bisect import bisect_left
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import Field

from orchestrator.errors import ToolError
from orchestrator.private import keep_private, state_folder
from orchestrator.tools.builtin import texts
from orchestrator.tools.builtin.files.directory import (
    DESCRIPTORS,
    HIDDEN,
    READ_ONLY,
    SECRETS,
    Directory,
    hidden_by,
    is_link,
    shown,
    walked,
)
from orchestrator.tools.builtin.files.edits import EditRules, Edits, said_of
from orchestrator.tools.function import tool
from orchestrator.tools.schema import IdempotencyKey
from orchestrator.tools.toolbox import Toolbox

__all__ = ["HIDDEN", "READ_ONLY", "SECRETS", "Files", "at"]
_DOTFILES = "?dotfiles"
_ENTRIES = 500
_AROUND = 4
"""Lines shown before and after an edit."""
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_LINE = 2000
"""Maximum number of characters shown of a line."""
_MANY = 1000
"""Maximum number of occurrences of a text that are counted."""
_NO_TEXT = (
    "the file cannot be read as text: it is neither UTF-8 nor UTF-16 with a byte order mark; "
    "for another encoding use Files(..., encoding=)"
)
Line = Annotated[int, Field(ge=0)]


class Files(Toolbox):
    """Tools for the text files in a directory and its subdirectories: a toolbox of five.

        Executor(tools=Files("notes"))

    `view_file` only reads; `Files("notes").subset(["view_file"])` has no other tool. Changes can be undone, edit by
    edit, also by another process: earlier contents of files are kept in `.orchestrator/undo` under the root.

    Paths are relative, without `..`. Links are never followed; nor is a directory that is replaced by a link during a
    call, on systems with `openat` (all but Windows). Hidden names, devices, pipes, files with several names (hard
    links), and files that are not text are refused. Programs with write access to the root can still put other files
    there.

    Dot files, locations of secrets and this library's own files are hidden. `Files("notes", hidden=SECRETS)` shows dot
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
            root: the directory, which must exist.
            limit: bytes of the largest file that is read or written.
            shown: characters of the longest text that is returned.
            hidden: patterns of names, or of ends of paths, that are neither shown nor changed, at any depth. Files of
                this library (`.orchestrator*`, stores, archives, keys) always are.
            read_only: further patterns, of files that are shown but not changed: files that other programs run unasked.
            encoding: encoding of files that are neither UTF-8 nor UTF-16 with a mark; None: they are refused.
            hard_links: whether files may have further names, which may be outside the root.
            descriptors: whether to walk with open directories, see above; ignored on systems that cannot.

        Raises:
            NotADirectoryError: the directory does not exist.
            TypeError: `hidden` or `read_only` is a string instead of a list.
        """
        self.root = os.path.realpath(root)
        """Real path of the directory."""
        if not os.path.isdir(self.root):
            raise NotADirectoryError(f"{os.fspath(root)!r} is not a directory: create it first, or name another root")
        with suppress(RuntimeError):  # this user has no home directory, and so no key
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
        """Show a text file with line numbers, or the contents of a folder, two levels deep.

        Args:
            path: the file or folder, relative, such as 'docs/notes.md'; '.' is the root.
            first: the first line to show; if omitted, line 1.
            last: the last line to show; if omitted, the last line of the file.
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

    # Not idempotent: if a retried step created the file again, it would overwrite later edits, which are not repeated.
    @tool(risk="write", effect="irreversible", group="files")
    def create_file(
        self, path: str, text: str, overwrite: bool = False, idempotency_key: IdempotencyKey | None = None
    ) -> str:
        """Write a new text file. Missing folders are created.

        Args:
            path: the file, relative, such as 'docs/notes.md'.
            text: the whole text of the file.
            overwrite: whether an existing file is replaced.
        """

        with said_of(path):  # before directories are made for it
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
        """Replace a text that occurs exactly once in a file.

        Args:
            path: the file, relative.
            old: the text to replace, exactly as in the file, with enough around it to occur only once.
            new: the new text; empty to remove the old one.
        """

        def change(before: bytes | None) -> tuple[bytes, str]:
            text, line = self._text(before).replaced(old, new)
            return text.data(), f"Replaced in {path}:\n{self._around(text, line, new.count(chr(10)) + 1)}"

        return self._edits.make(path, "replace", idempotency_key, change)

    @tool(risk="write", effect="irreversible", group="files")
    def insert_in_file(self, path: str, line: Line, text: str, idempotency_key: IdempotencyKey | None = None) -> str:
        """Insert lines into a file.

        Args:
            path: the file, relative.
            line: the number of the line after which they are inserted; 0: before the first.
            text: the lines.
        """

        def change(before: bytes | None) -> tuple[bytes, str]:
            found = self._text(before).inserted(line, text)
            return found.data(), f"Inserted in {path}:\n{self._around(found, line + 1, text.count(chr(10)) + 1)}"

        return self._edits.make(path, "insert", idempotency_key, change)

    @tool(risk="write", effect="irreversible", group="files")
    def undo_edit(self, path: str, idempotency_key: IdempotencyKey | None = None) -> str:
        """Undo the last edit of a file that was made with these tools. Called again, it undoes the edit before.

        Args:
            path: the file, relative.
        """
        return self._edits.undo(path, idempotency_key)

    def forget_edits(self, keys: Collection[str]) -> int:
        """Delete the edits of some calls from the history, with the contents of files that it keeps of them.

        The files stay as they are. `executor.delete(run_id, also=[files.forget_edits])` gives the calls of a run.

        Args:
            keys: the idempotency keys of the calls.

        Returns:
            The number of deleted edits, which can no longer be undone.

        Raises:
            ToolError: the history is a link, or another process has held it for too long.
            OSError: the history cannot be written.
        """
        return self._edits.forget(keys)

    # -- text for the model ------------------------------------------------------------------------------------------

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
        """Return the listing of a directory, down to its subdirectories."""
        rows: list[str] = []
        if name is None:
            full = self._entries(place, rows, "", 2)
        else:
            with place.inside(name) as inner:
                full = self._entries(inner, rows, "", 2)
        return "\n".join(rows) + (f"\n[only the first {_ENTRIES}]" if full else "") or "(empty)"

    def _entries(self, place: Directory, rows: list[str], before: str, depth: int) -> bool:
        """Add the entries of a directory. Return True if the list was cut off."""
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
        except (ToolError, OSError):  # deleted, or not accessible
            return False


def at(root: str) -> Files:
    """Return the tools of a reference `files:ROOT` or `files:ROOT?dotfiles`."""
    place = root.removesuffix(_DOTFILES)
    return Files(place or ".", hidden=HIDDEN if place == root else SECRETS)


@dataclass(frozen=True, slots=True)
class Text:
    """Content of a text file."""

    raw: str
    """Text with the line endings of the file."""
    encoding: str = "utf-8"
    mark: bytes = b""
    """The byte order mark at the start."""

    @classmethod
    def of(cls, data: bytes, encoding: str | None = None) -> Self:
        """
        Args:
            encoding: encoding of files that are neither UTF-8 nor marked as UTF-16; None: they are refused.

        Raises:
            ToolError: the file is not text.
        """
        mark, name = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", "utf-8"))
        try:
            raw = data[len(mark) :].decode(name)
        except UnicodeDecodeError:
            if mark or encoding is None or b"\0" in data:
                raise ToolError(_NO_TEXT) from None
            try:
                raw, name = data.decode(encoding), encoding
            except UnicodeDecodeError:
                raise ToolError(_NO_TEXT) from None
        if "\0" in raw:
            raise ToolError(_NO_TEXT)
        return cls(raw, name, mark)

    def with_raw(self, raw: str) -> Self:
        """Return the same file with other content."""
        return type(self)(raw, self.encoding, self.mark)

    def data(self) -> bytes:
        """Return the content as bytes.

        Raises:
            ToolError: the encoding lacks one of the characters, or the result would not be text.
        """
        if "\0" in self.raw:
            raise ToolError("the text contains the character NUL, which text files cannot contain: leave it out")
        try:
            return self.mark + self.raw.encode(self.encoding)
        except UnicodeEncodeError as error:
            letter = ascii(self.raw[error.start])
            raise ToolError(f"the character {letter} cannot be written in {self.encoding}: leave it out") from None

    @property
    def newline(self) -> str:
        """Return the most frequent line ending."""
        windows = self.raw.count("\r\n")
        return "\r\n" if windows * 2 > self.raw.count("\n") else "\n"

    def lines(self) -> list[str]:
        """Return the lines without their endings. Text after the last line ending counts as a line only if it is not
        empty."""
        found = [line.removesuffix("\r") for line in self.raw.split("\n")]
        return found[:-1] if not found[-1] else found

    # -- edits -------------------------------------------------------------------------------------------------------

    def replaced(self, old: str, new: str) -> tuple[Self, int]:
        """Return the file with `old` replaced by `new`, and the line number of the replacement.

        Raises:
            ToolError: `old` does not occur exactly once, or nothing would change.
        """
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
        if not old:
            raise ToolError("'old' is empty: give the text to replace, or use insert_in_file")
        if old == new:
            raise ToolError("'old' and 'new' are the same: nothing would change")
        found = _places(self.raw, old)
        if not found:
            raise ToolError(f"the text is not in the file{self._near(old)}")
        numbers = [self.raw.count("\n", 0, start) + 1 for start, _ in found]
        if len(found) > 1:
            where = ", ".join(map(str, numbers[:10])) + (", ..." if len(numbers) > 10 else "")
            count = f"{len(found)} times or more" if len(found) == _MANY else f"{len(found)} times"
            raise ToolError(f"the text is in the file {count}, at lines {where}: give more of the text around it")
        start, end = found[0]
        return self.with_raw(self.raw[:start] + new.replace("\n", self.newline) + self.raw[end:]), numbers[0]

    def _near(self, old: str) -> str:
        """Return a hint at occurrences of the text with other blanks."""
        words = old.split()
        if not words or len(words) > 200:
            return ": view it, and give the text exactly as it is there"
        loose = re.search(r"\s+".join(map(re.escape, words)), self.raw)
        if loose is None:
            return ": view it, and give the text exactly as it is there"
        line = self.raw.count(chr(10), 0, loose.start()) + 1
        return f", but differs only in white space from line {line}: copy it exactly"

    def inserted(self, after: int, text: str) -> Self:
        """Return the file with lines inserted after line `after`; 0: at the start.

        Raises:
            ToolError: the line does not exist.
        """
        if not text:
            raise ToolError("'text' is empty: nothing would change")
        last = len(self.lines())
        if not 0 <= after <= last:
            raise ToolError(f"there is no line {after}: the file has {last}; 0 is before the first")
        newline = self.newline
        added = text.replace("\r\n", "\n").removesuffix("\n").replace("\n", newline) + newline
        kept = self.raw.split("\n")
        head = "".join(line + "\n" for line in kept[:after])
        if after == len(kept):  # the last line has no end
            head = self.raw + newline
        return self.with_raw(head + added + self.raw[len(head) :])


def _places(raw: str, old: str) -> list[tuple[int, int]]:
    """Return the positions of a text, including overlapping ones. All forms of line endings match each other."""
    plain = raw.replace("\r\n", "\n")
    ends = [found.start() - before for before, found in enumerate(re.finditer("\r\n", raw))]
    found: list[tuple[int, int]] = []
    at = plain.find(old)
    while at >= 0 and len(found) < _MANY:
        end = at + len(old)
        found.append((at + bisect_left(ends, at), end + bisect_left(ends, end)))
        at = plain.find(old, at + 1)
    return found


def numbered(lines: list[str], first: int, limit: int) -> tuple[str, int]:
    """Return lines with their numbers, as many as fit, and the number of these lines.

    Args:
        lines: the lines to show.
        first: number of the first one.
        limit: maximum number of characters.
    """
    found: list[str] = []
    size = 0
    for number, line in enumerate(lines, first):
        cut = f"{line[:_LINE]} [{len(line) - _LINE} more characters]" if len(line) > _LINE else line
        row = f"{number:6}\t{cut}"
        size += len(row) + 1
        if size > limit and found:
            break
        found.append(row)
    return "\n".join(found), len(found)
