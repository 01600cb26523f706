"""What was in files before they were edited, kept in the root: for undoing, and to find out whether an edit happened.

Each edit is a file of its own, `.orchestrator/undo/SEQ.PATH.KEY`: a line of JSON, and behind it what the edited file
held. It is on the disk before the edit is made, so after a crash a comparison with the file tells whether it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from orchestrator.errors import ToolError
from orchestrator.tools.builtin.files.directory import DESCRIPTORS, Directory, walked
from orchestrator.tools.builtin.files.names import OWN

Kind: TypeAlias = Literal["create", "replace", "insert", "undo"]
_LOCK = "lock"
_RECORD = re.compile(r"[0-9]{10,100}\.[0-9a-f]{16}\.(none|[0-9a-f]{16})")
_PATIENCE = 30.0
"""Seconds that one process waits for another."""
_DEPTH = 20
"""Edits of a file whose earlier content is kept."""
_LARGEST = 64 << 20
"""Bytes of a record that are read if `limit` is smaller: a root may come with larger records from another program."""
_HEAD = 1 << 20
"""Bytes of the line in front."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit of one file."""

    path: str
    kind: Kind
    key: str | None
    """Digest of the call's idempotency key."""
    before: str | None
    """Digest of what the file held; None: there was no file."""
    after: str | None
    """Digest of what it holds now."""
    mode: Annotated[int, Field(ge=0, le=0o777)] | None
    """The file's permissions before."""
    said: str
    """What the call gave."""
    undoes: int | None = None
    """Number of the edit that this one takes back."""
    number: int = 0


def digest_of(data: bytes | None) -> str | None:
    """Digest of a file's content, None of no file."""
    return None if data is None else hashlib.sha256(data).hexdigest()


def key_of(key: str | None) -> str | None:
    """What is kept of an idempotency key."""
    return None if key is None else hashlib.sha256(key.encode()).hexdigest()


class History:
    """The edits of a root, while its lock is held."""

    def __init__(self, place: Directory, limit: int) -> None:
        self._place, self._most = place, max(limit, _LARGEST) + _HEAD

    def _names(self, path: str | None = None) -> list[str]:
        """Names of the records, of one file or of all, the newest first."""
        part = "." if path is None else f".{_short(path)}."
        found = [name for name in self._place.names() if _RECORD.fullmatch(name) and part in name]
        return sorted(found, key=_number, reverse=True)

    def _load(self, name: str) -> tuple[Edit, bytes] | None:
        """A record; None if a crash cut it off, so that its edit was never made, or if it is none of ours: whoever made
        the root may have put some there.
        """
        data, _ = self._place.read(name, self._most)
        head, end, body = data.partition(b"\n")
        try:
            edit = replace(_reader().validate_json(head), number=_number(name))
        except ValueError:
            return None
        return (edit, body) if end and _name(edit) == name else None

    def of_path(self, path: str) -> Iterator[Edit]:
        """The edits of a file, the newest first. Each is read when it is asked for."""
        for name in self._names(path):
            found = self._load(name)
            if found is not None and found[0].path == path:
                yield found[0]

    def has_later(self, edit: Edit) -> bool:
        """Whether its file was edited again."""
        newest = next(self.of_path(edit.path), edit)
        return newest.number > edit.number

    def of_key(self, key: str) -> Edit | None:
        """The edit that a call made, or was about to make."""
        part = f".{key[:16]}"
        for name in self._names():
            found = self._load(name) if name.endswith(part) else None
            if found and found[0].key == key:
                return found[0]
        return None

    def content(self, edit: Edit) -> bytes | None:
        """What a file held before an edit.

        Raises:
            ToolError: that is kept no longer.
        """
        if edit.before is None:
            return None
        found = self._load(_name(edit))
        if found is None or digest_of(found[1]) != edit.before:
            raise ToolError(f"what {edit.path!r} held before that is no longer kept: only its last {_DEPTH} edits are")
        return found[1]

    def settle(self, path: str, now: str | None) -> None:
        """Forget the newest edit of a file if it was never made: a crash came first, or the disk refused."""
        newest = next(self.of_path(path), None)
        if newest is not None and newest.before == now != newest.after:
            self.forget(newest)

    def note(self, edit: Edit, before: bytes | None) -> Edit:
        """Keep an edit that is about to be made."""
        last = next(iter(self._names()), "0")
        edit = replace(edit, number=_number(last) + 1)
        self._place.create(_name(edit), json.dumps(asdict(edit)).encode() + b"\n" + (before or b""), mode=0o600)
        self._place.sync()
        return edit

    def forget(self, edit: Edit) -> None:
        """Take an edit out of the list."""
        self._place.remove(_name(edit))

    def shorten(self, path: str) -> None:
        """Let go of what a file held long ago. That its edits were made stays known."""
        for name in self._names(path)[_DEPTH : _DEPTH + 2]:  # further ones had their turn before
            found = self._load(name)
            if found is not None and found[1]:
                self._place.remove("short")
                self._place.create("short", json.dumps(asdict(found[0])).encode() + b"\n", mode=0o600)
                self._place.rename("short", name)

    def to_undo(self, path: str) -> Edit | None:
        """The newest edit of a file that was not taken back; None if there is none."""
        gone: set[int] = set()
        for edit in self.of_path(path):
            if edit.undoes is not None:
                gone.add(edit.undoes)
            elif edit.number not in gone:
                return edit
        return None


@contextmanager
def history(root: str, lock: threading.Lock, *, limit: int, descriptors: bool = DESCRIPTORS) -> Iterator[History]:
    """The edits of a root. Nobody else edits meanwhile: no thread, and, where the system has `flock`, no process.

    Args:
        limit: bytes that an edited file may have.

    Raises:
        ToolError: there is a link where they are kept.
        OSError: they cannot be kept.
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
