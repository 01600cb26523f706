"""The user's key, which proves that stored references may be resolved, and that the user has seen a question.

A reference is text that makes a command import code. A store can come from anywhere (a download, a cloned
repository, another user's directory), so text in it is not enough. The command line seals what it stores with a key
that only this user can read; `resume` resolves a run's references only if the seal matches this run, these references
and this store file, and the file belongs to the user. Everything else needs `--graph` again.

A plain `approve RUN` approves what was printed for this user, not what the run asks now. A record of what was printed
is stored next to the key, in the user's own directory.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.exits import UsageError
from orchestrator.cli.output import warn
from orchestrator.cli.storage import is_ours, place, store_file
from orchestrator.executor import Seal
from orchestrator.json import JsonObject, canonical, digest
from orchestrator.private import state_folder

if TYPE_CHECKING:
    from orchestrator.executor import Run
    from orchestrator.kernel.question import Question


_KEY_BYTES = 32


def seal(run_id: str, refs: JsonObject, url: str, *, make: bool = True) -> str | None:
    """Return the seal for a run's references; None if the store is not a file or no key can be stored."""
    file = store_file(url)
    key = _key(make=make) if file is not None else None
    if file is None or key is None:
        return None
    text = canonical({"run": run_id, "refs": refs, "store": str(file.resolve())})
    return hmac.new(key, text.encode(), "sha256").hexdigest()


def trusted(run_id: str, refs: Mapping[str, object], url: str) -> bool:
    """Return True if this user's command line stored these references for this run in this store."""
    given = refs.get("seal")
    if not isinstance(given, str) or not is_ours(url):
        return False
    made = seal(run_id, {name: value for name, value in refs.items() if name != "seal"}, url, make=False)
    return made is not None and hmac.compare_digest(given, made)


def journal_seal(url: str, *, make: bool) -> Seal | None:
    """Return the seal for records in a store; None: its records are not sealed.

    No other process writes to a store in memory. Users of a database do not have each other's keys: its server decides
    who may write, and all its users are trusted.

    Args:
        make: whether to create a key if this user has none. A command that only reads needs none.
    """

    file = store_file(url)
    if file is None:
        return None
    believes = not file.exists() or is_ours(url)
    return Seal(_key(make=make) if believes else None, str(file.resolve()))


def audit_seal(url: str, key: str | None, name: str | None) -> Seal:
    """Return the seal with which an audit of a store is written and checked.

    Args:
        url: the URL of the store.
        key: the file with the key of the program that seals its records; None: this user's key, which is made.
        name: the `place` of that program's `Seal`; None: that of the command line.

    Raises:
        UsageError: the file cannot be read, or its key is too short.
    """
    return Seal(_key(make=True) if key is None else key_in(key), name or place(url) or url)


def key_in(file: str) -> bytes:
    """Return the key in a file.

    Raises:
        UsageError: the file cannot be read, or its key is too short.
    """
    try:
        key = Path(file).read_bytes()
        Seal(key, file)
    except (OSError, ValueError) as error:
        raise UsageError(f"--key {file}: {getattr(error, 'strerror', None) or error}") from None
    return key


def own_key() -> bytes | None:
    """Return this user's key; None if there is none."""
    return _key(make=False)


def key_file() -> Path:
    """Return the path of this user's key."""
    return state_folder() / "key"


def _key(*, make: bool) -> bytes | None:
    try:
        path = key_file()
        if make and not path.exists():
            _make_key(path)
        with open(path, "rb") as file:
            if not _is_private(os.fstat(file.fileno())):
                _warn_of(path)
                return None
            key = file.read(_KEY_BYTES + 1)
    except (OSError, RuntimeError):  # RuntimeError: this user has no home directory
        return None
    return key if len(key) == _KEY_BYTES else None


def _is_private(stat: os.stat_result) -> bool:
    """Return True if a file belongs to this user, and no other user can read or change it."""
    return not hasattr(os, "geteuid") or (stat.st_uid == os.geteuid() and not stat.st_mode & 0o077)


@cache
def _warn_of(path: Path) -> None:
    warn(
        f"warning: {path} is open to other users, so it is not used: nothing is sealed, and no approval in a store "
        "counts. Remove it to get a new key"
    )


def _make_key(path: Path) -> None:
    """Write a new key. If two processes do so at once, one wins and both read its key."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"key.{os.getpid()}.{secrets.token_hex(4)}")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_bytes(_KEY_BYTES))
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def note(run: Run, url: str) -> None:
    """Record that the questions of a run were printed, in place of its earlier record."""
    with suppress(OSError, RuntimeError):  # otherwise the questions have to be named
        file = _file(run.run_id, url)
        if file is None:
            return
        if not run.waiting:
            file.unlink(missing_ok=True)
            return
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = file.with_name(f"{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as lines:
            lines.writelines(f"{_digest(question)}\n" for question in run.waiting)
        draft.replace(file)


def was_shown(run_id: str, question: Question, url: str) -> bool:
    """Return True if this question, in its current form, was printed when this user was last shown the run."""
    try:
        file = _file(run_id, url)
        return file is not None and _digest(question) in file.read_text(encoding="ascii").split()
    except (OSError, RuntimeError, UnicodeDecodeError):
        return False


def _file(run_id: str, url: str) -> Path | None:
    store = place(url)
    if store is None:
        return None
    name = hashlib.sha256(f"{store}\0{run_id}".encode(errors="surrogatepass")).hexdigest()[:32]
    return key_file().with_name("shown") / name


def _digest(question: Question) -> str:
    return digest(question.model_dump(mode="json"))
