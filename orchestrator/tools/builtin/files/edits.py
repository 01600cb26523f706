"""Edits of files under a root: read, record the old content, write the whole file, and rename it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from orchestrator.errors import ToolError
from orchestrator.tools.builtin.files.directory import DESCRIPTORS, OWN, Directory, parts_of, refuse_link, shown, walked

_LOCK = "lock"
_RECORD = re.compile(r"[0-9]{10,100}\.[0-9a-f]{16}\.(none|[0-9a-f]{16})")
_PATIENCE = 30.0
"""Seconds that one process waits for the lock of another."""
_DEPTH = 20
"""Number of edits of a file whose earlier content is kept."""
_LARGEST = 64 << 20
"""Bytes of a record that are read if `limit` is smaller: a root may come with larger records from another program."""
_HEAD = 1 << 20
"""Maximum number of bytes of a record's first line."""
_NEW = ".orchestrator-new"
"""Name under which a file is written before it is renamed. One left after a crash is overwritten."""
Kind: TypeAlias = Literal["create", "replace", "insert", "undo"]


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit of a file."""

    path: str
    kind: Kind
    key: str | None
    """Digest of the call's idempotency key."""
    before: str | None
    """Digest of the content before the edit; None: there was no file."""
    after: str | None
    """Digest of the content after the edit."""
    mode: Annotated[int, Field(ge=0, le=0o777)] | None
    """Permissions of the file before the edit."""
    said: str
    """Output of the call."""
    undoes: int | None = None
    """Number of the edit that this one takes back."""
    number: int = 0


def digest_of(data: bytes | None) -> str | None:
    """Return the digest of a file's content; None if there is no file."""
    return None if data is None else hashlib.sha256(data).hexdigest()


def key_of(key: str | None) -> str | None:
    """Return the digest of an idempotency key, as the history stores it."""
    return None if key is None else hashlib.sha256(key.encode()).hexdigest()


class History:
    """The edits of a root, accessed while its lock is held."""

    def __init__(self, place: Directory, limit: int) -> None:
        self._place, self._most = place, max(limit, _LARGEST) + _HEAD

    def _names(self, path: str | None = None) -> list[str]:
        """Return the names of the records, of one file or of all, newest first."""
        part = "." if path is None else f".{_short(path)}."
        found = [name for name in self._place.names() if _RECORD.fullmatch(name) and part in name]
        return sorted(found, key=_number, reverse=True)

    def _load(self, name: str) -> tuple[Edit, bytes] | None:
        """Return a record; None if a crash cut it off, so that its edit was never made, or if it is not valid: the
        author of the root may have put files there.
        """
        data, _ = self._place.read(name, self._most)
        head, end, body = data.partition(b"\n")
        try:
            edit = replace(_reader().validate_json(head), number=_number(name))
        except ValueError:
            return None
        return (edit, body) if end and _name(edit) == name else None

    def of_path(self, path: str) -> Iterator[Edit]:
        """Yield the edits of a file, newest first. Each is read when it is asked for."""
        for name in self._names(path):
            found = self._load(name)
            if found is not None and found[0].path == path:
                yield found[0]

    def has_later(self, edit: Edit) -> bool:
        """Return True if the file was edited again after this edit."""
        newest = next(self.of_path(edit.path), edit)
        return newest.number > edit.number

    def of_key(self, key: str) -> Edit | None:
        """Return the edit that a call made, or was about to make."""
        part = f".{key[:16]}"
        for name in self._names():
            found = self._load(name) if name.endswith(part) else None
            if found and found[0].key == key:
                return found[0]
        return None

    def content(self, edit: Edit) -> bytes | None:
        """Return the content of a file before an edit.

        Raises:
            ToolError: the content is no longer kept.
        """
        if edit.before is None:
            return None
        found = self._load(_name(edit))
        if found is None or digest_of(found[1]) != edit.before:
            raise ToolError(
                f"the content of {edit.path!r} before that edit is no longer kept: only the last {_DEPTH} edits are"
            )
        return found[1]

    def settle(self, path: str, now: str | None) -> None:
        """Discard the newest edit of a file if it was never made because of a crash or a disk error."""
        newest = next(self.of_path(path), None)
        if newest is not None and newest.before == now != newest.after:
            self.forget(newest)

    def note(self, edit: Edit, before: bytes | None) -> Edit:
        """Record an edit that is about to be made."""
        last = next(iter(self._names()), "0")
        edit = replace(edit, number=_number(last) + 1)
        self._place.create(_name(edit), json.dumps(asdict(edit)).encode() + b"\n" + (before or b""), mode=0o600)
        self._place.sync()
        return edit

    def forget(self, edit: Edit) -> None:
        """Remove an edit from the history."""
        self._place.remove(_name(edit))

    def forget_keys(self, keys: Collection[str | None]) -> int:
        """Remove the edits of some calls, given the digests of their keys, from the history; return their number."""
        parts, count = {str(key)[:16] for key in keys}, 0
        for name in self._names(None):
            found = self._load(name) if name.rpartition(".")[2] in parts else None
            if found is not None and found[0].key in keys:
                self.forget(found[0])
                count += 1
        return count

    def shorten(self, path: str) -> None:
        """Delete old contents of a file. The records of its edits are kept."""
        for name in self._names(path)[_DEPTH : _DEPTH + 2]:  # earlier calls have treated the others
            found = self._load(name)
            if found is not None and found[1]:
                self._place.remove("short")
                self._place.create("short", json.dumps(asdict(found[0])).encode() + b"\n", mode=0o600)
                self._place.rename("short", name)

    def to_undo(self, path: str) -> Edit | None:
        """Return the newest edit of a file that was not undone; None if there is none."""
        gone: set[int] = set()
        for edit in self.of_path(path):
            if edit.undoes is not None:
                gone.add(edit.undoes)
            elif edit.number not in gone:
                return edit
        return None


@contextmanager
def history(root: str, lock: threading.Lock, *, limit: int, descriptors: bool = DESCRIPTORS) -> Iterator[History]:
    """Open the edits of a root, with its lock: no other thread edits, and, on systems with `flock`, no other process.

    Args:
        limit: maximum number of bytes of an edited file.

    Raises:
        ToolError: the location of the history is a link.
        OSError: the history cannot be stored.
    """
    with lock, walked(root, (OWN, "undo"), make=0o700, descriptors=descriptors) as place, _locked(place):
        yield History(place, limit)


@contextmanager
def _locked(place: Directory) -> Iterator[None]:
    handle = place.open_lock(_LOCK)
    try:
        try:
            import fcntl
        except ImportError:  # Windows
            yield
        else:
            end = time.monotonic() + _PATIENCE
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise ToolError(
                            f"another process has been editing files of this root for {_PATIENCE:g} s, and may have "
                            "been stopped: let it continue, or end it, and try again"
                        ) from None
                    time.sleep(0.005)
            yield
    finally:
        os.close(handle)


@cache
def _reader() -> TypeAdapter[Edit]:
    return TypeAdapter(Edit)


def _number(name: str) -> int:
    return int(name.partition(".")[0])


def _name(edit: Edit) -> str:
    return f"{edit.number:010}.{_short(edit.path)}.{(edit.key or 'none')[:16]}"


def _short(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()[:16]


_Now: TypeAlias = tuple[bytes | None, os.stat_result | None]
"""Current content and status of a file; None if there is no file."""
Change: TypeAlias = Callable[[bytes | None], tuple[bytes | None, str]]
"""Function from the current content of a file (None: no file) to its new content and the call's output."""


@dataclass(frozen=True, slots=True)
class EditRules:
    """Rules for all files of a root."""

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
        """Return the new content of a file if it is not too large.

        Raises:
            ToolError: the content is too large.
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
        """Edit a file, and return the output of the call.

        Raises:
            ToolError: the file cannot be edited.
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

    def forget(self, keys: Collection[str]) -> int:
        """See `Files.forget_edits`."""
        rules = self._rules
        if not os.path.isdir(os.path.join(rules.root, OWN, "undo")):
            return 0
        with history(rules.root, self._lock, limit=rules.limit, descriptors=rules.descriptors) as log:
            return log.forget_keys({key_of(key) for key in keys})

    def undo(self, path: str, key: str | None) -> str:
        """Undo the newest edit of a file that was not undone yet.

        Raises:
            ToolError: there is no such edit, or something else has changed the file since.
        """
        with said_of(path), self._open(path) as (place, parts, log):
            now, found = self._now(place, parts[-1])
            name = "/".join(parts)
            log.settle(name, digest_of(now))
            last = log.to_undo(name)
            if last is None:
                raise ToolError("there is no edit of it to undo")
            if digest_of(now) != last.after:
                raise ToolError(
                    "another program has changed it since, and undo would lose that: edit it with replace_in_file"
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
        """Return the output of a call whose outcome a crash left unknown; None if it did not happen.

        Raises:
            ToolError: something else has changed the file since, so the outcome cannot be determined.
        """
        with history(self._rules.root, self._lock, limit=self._rules.limit, descriptors=self._rules.descriptors) as log:
            edit = log.of_key(str(key_of(key)))
            if edit is None:
                return None
            if log.has_later(edit):  # an edit that was not made is discarded before the next one
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
                f"{edit.path!r} has since been changed by another program, so it is not known whether it was edited"
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
                raise ToolError("another program changed it in the meantime: view it, and try again")
            if after is None:
                place.remove(name)
            else:
                place.rename(_NEW, name)
        except BaseException:
            # Any error, such as a full disk: the error itself is raised, and what is left here is settled by the next
            # edit.
            with suppress(OSError):
                place.remove(_NEW)
                if _identity(place.status(name)) == _identity(found):
                    log.forget(edit)
            raise
        log.shorten(edit.path)


def _mode(found: os.stat_result | None) -> int | None:
    """Return the permissions for a file's replacement, without the set-user-ID and set-group-ID bits."""
    return None if found is None else found.st_mode & 0o777


def _identity(found: os.stat_result | None) -> tuple[int, ...]:
    return () if found is None else (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


@contextmanager
def said_of(path: str) -> Iterator[None]:
    """Convert errors of the system, and of parts of a path, to tool errors that name the path."""
    try:
        yield
    except ToolError as error:
        said = shown(path)
        raise error if error.message.startswith(said) else ToolError(f"{said}: {error.message}") from None
    except OSError as error:
        raise ToolError(f"{shown(path)}: {error.strerror or type(error).__name__}") from None
