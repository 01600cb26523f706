"""Edits of files under a root: read, note what was, write whole, and rename."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.errors import ToolError
from orchestrator.tools.builtin.files.directory import DESCRIPTORS, Directory, refuse_link, walked
from orchestrator.tools.builtin.files.history import Edit, History, Kind, digest_of, history, key_of
from orchestrator.tools.builtin.files.names import parts_of, shown

_NEW = ".orchestrator-new"
"""Where a file is written before it gets its name. One left behind by a crash is written over."""
_Now: TypeAlias = tuple[bytes | None, os.stat_result | None]
"""What a file holds now, and its status; None where there is no file."""
Change: TypeAlias = Callable[[bytes | None], tuple[bytes | None, str]]
"""What a file will hold and what the call gives, of what the file holds now; None: no file."""


@dataclass(frozen=True, slots=True)
class EditRules:
    """What holds for all files of a root."""

    root: str
    hidden: tuple[str, ...]
    read_only: tuple[str, ...]
    limit: int
    encoding: str | None
    hard_links: bool
    descriptors: bool = DESCRIPTORS

    def parts_of(self, path: str, *, change: bool = False) -> tuple[str, ...]:
        """See `names.parts_of`. `change`: whether the file is to be changed."""
        return parts_of(path, self.hidden, read_only=self.read_only if change else (), root=self.root)

    def read(self, directory: Directory, name: str) -> tuple[bytes, os.stat_result]:
        """See `Directory.read`."""
        return directory.read(name, self.limit, linked=self.hard_links)

    def fits(self, data: bytes) -> bytes:
        """What a file is to hold, if it is not too much.

        Raises:
            ToolError: it is.
        """
        if len(data) > self.limit:
            raise ToolError(f"it would be larger than {self.limit} bytes, which is the limit here")
        return data


class Edits:
    """Changes files of one root, one at a time."""

    def __init__(self, rules: EditRules) -> None:
        self._rules = rules
        self._lock = threading.Lock()

    def make(self, path: str, kind: Kind, key: str | None, change: Change) -> str:
        """Edit a file, and give what is to be said of it.

        Raises:
            ToolError: it cannot be edited.
        """
        with said_of(path), self._open(path, make=kind == "create") as (place, parts, log):
            before, found = self._now(place, parts[-1])
            name = "/".join(parts)
            log.settle(name, digest_of(before))
            after, said = change(before)
            if after != before:
                edit = Edit(name, kind, key_of(key), digest_of(before), digest_of(after), _mode(found), said)
                self._write(place, parts[-1], (before, found), after, log, edit, _mode(found))
            return said

    def undo(self, path: str, key: str | None) -> str:
        """Take the last edit of a file back that was not taken back yet.

        Raises:
            ToolError: there is none, or the file was changed since by something else.
        """
        with said_of(path), self._open(path) as (place, parts, log):
            now, found = self._now(place, parts[-1])
            name = "/".join(parts)
            log.settle(name, digest_of(now))
            last = log.to_undo(name)
            if last is None:
                raise ToolError("no edit of it is left to undo")
            if digest_of(now) != last.after:
                raise ToolError(
                    "something else has changed it since, and undoing would lose that: edit it with replace_in_file"
                )
            before = log.content(last)
            gone = "removed, as it was not there before" if before is None else "as it was before"
            said = f"Undone: {last.kind} in {name}, which is {gone}."
            edit = Edit(
                name, "undo", key_of(key), digest_of(now), digest_of(before), _mode(found), said, undoes=last.number
            )
            mode = _mode(found) if last.mode is None else last.mode
            self._write(place, parts[-1], (now, found), before, log, edit, mode)
            return said

    def reconcile(self, key: str) -> str | None:
        """What a call gave whose end a crash left unknown; None if it did not happen.

        Raises:
            ToolError: the file was changed since by something else, so nobody can tell.
        """
        with history(self._rules.root, self._lock, limit=self._rules.limit, descriptors=self._rules.descriptors) as log:
            edit = log.of_key(str(key_of(key)))
            if edit is None:
                return None
            if log.has_later(edit):  # an edit that was not made is forgotten before the next one is
                return edit.said
            parts = self._rules.parts_of(edit.path)
            try:
                with walked(self._rules.root, parts[:-1], descriptors=self._rules.descriptors) as place:
                    now = digest_of(self._now(place, parts[-1])[0])
            except ToolError:
                now = None
            if now == edit.after:
                return edit.said
            if now == edit.before:
                return None
            raise ToolError(
                f"{edit.path!r} has since been changed by something else, so whether it was edited is unknown"
            )

    @contextmanager
    def _open(self, path: str, *, make: bool = False) -> Iterator[tuple[Directory, tuple[str, ...], History]]:
        rules = self._rules
        parts = rules.parts_of(path, change=True)
        if not parts:
            raise ToolError("it is the root, not a file")
        with (
            history(rules.root, self._lock, limit=rules.limit, descriptors=rules.descriptors) as log,
            walked(rules.root, parts[:-1], make=0o777 if make else None, descriptors=rules.descriptors) as place,
        ):
            yield place, parts, log

    def _now(self, place: Directory, name: str) -> _Now:
        if place.status(name) is None:
            return None, None
        return self._rules.read(place, name)

    def _write(
        self, place: Directory, name: str, now: _Now, after: bytes | None, log: History, edit: Edit, mode: int | None
    ) -> None:
        if after is not None:
            self._rules.fits(after)
        before, found = now
        edit = log.note(edit, before)
        try:
            place.remove(_NEW)
            if after is not None:
                place.create(_NEW, after, mode=mode)
            there = place.status(name)
            if there is not None:
                refuse_link(name, there)
            if _identity(there) != _identity(found):
                raise ToolError("it was changed by something else just now: view it, and try again")
            if after is None:
                place.remove(name)
            else:
                place.rename(_NEW, name)
        except BaseException:
            # Whatever it was, a full disk among others: its own error is what counts, and what is left here waits for
            # the next edit.
            with suppress(OSError):
                place.remove(_NEW)
                if _identity(place.status(name)) == _identity(found):
                    log.forget(edit)
            raise
        log.shorten(edit.path)


def _mode(found: os.stat_result | None) -> int | None:
    """Permissions to give to what takes a file's place: never those of another user's identity."""
    return None if found is None else found.st_mode & 0o777


def _identity(found: os.stat_result | None) -> tuple[int, ...]:
    return () if found is None else (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


@contextmanager
def said_of(path: str) -> Iterator[None]:
    """Errors of the system, and of parts of a path, as errors of the tool that name the path."""
    try:
        yield
    except ToolError as error:
        said = shown(path)
        raise error if error.message.startswith(said) else ToolError(f"{said}: {error.message}") from None
    except OSError as error:
        raise ToolError(f"{shown(path)}: {error.strerror or type(error).__name__}") from None
