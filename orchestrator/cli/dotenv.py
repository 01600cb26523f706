"""`.env` in the current directory: which of its settings are used.

The directory may come from elsewhere, such as a download or a cloned repository. So only settings are used that cannot
make this process run something, or send something to another address: keys, and a store inside the directory. Only the
environment or the command determines where a key is sent. But the owner of a key can see all requests that are made
with it, and such a file may contain another person's key. So keys are used once the user has agreed on a terminal, in
this directory and for these values. A refusal is stored as well. Messages list the names that are used and left out,
without values.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator._lazy import lazy_modules
from orchestrator.cli.exits import UsageError
from orchestrator.cli.output import warn
from orchestrator.errors import StoreError
from orchestrator.visible import narrow

if TYPE_CHECKING:
    from orchestrator import json, private
    from orchestrator.cli import environment, storage
else:  # most directories have no such file
    json, private = lazy_modules("orchestrator", "json private")
    environment, storage = lazy_modules("orchestrator.cli", "environment storage")

_KEY = "_API_KEY"
_LONGEST_NAME = 108
"""In characters. A longer key name, or one of several words, could be mistaken for a different question."""
STORE = "ORCHESTRATOR_STORE"
MOST_BYTES = 100_000
_MOST_NAMES = 8


def _is_key(name: str) -> bool:
    return name.endswith(_KEY) and name.isascii() and name.isidentifier() and len(name) <= _LONGEST_NAME


def load_dotenv() -> None:
    """Set variables from `.env` in the current directory that may be used and that the environment lacks.

    Raises:
        UsageError: the file cannot be read.
    """
    file = Path(".env")
    if not file.is_file():
        return
    found = {name: value for name, value in _read(file).items() if value and name not in os.environ}
    keys = {name: value for name, value in found.items() if _is_key(name)}
    taken = {name: value for name, value in found.items() if name == STORE and _is_here(value)}
    agreed, kept = _agrees(keys) if keys else (False, None)
    if agreed:
        taken |= keys
    os.environ.update(taken)
    ignored = [name for name in found if name not in taken and name not in keys]
    said = [f"took {_listed([name for name in found if name in taken])}"] if taken else []
    if keys and not agreed:
        fix = "agree to it on a terminal" if kept is None else f"you refused: to be asked again, remove {narrow(kept)}"
        said.append(f"did not take {_listed([*keys])}: {fix}, or set it in the environment")
    if ignored:
        said.append(f"ignored {_listed(ignored)}, which must be set in the environment")
    if said:
        warn(f".env: {'; '.join(said)}")


def _agrees(keys: Mapping[str, str]) -> tuple[bool, str | None]:
    """Return True if the user has agreed, now or before, to use these keys here, and the file of a refusal."""
    note: Path | None = None
    with suppress(OSError, RuntimeError):  # RuntimeError: this user has no home directory
        note = private.state_folder() / "env" / json.digest([ascii(os.getcwd()), dict(keys)])
        if note.exists():
            return True, None
        if (refusal := note.with_suffix(".no")).exists():
            return False, str(refusal)
    what = "The owner of a key's account may read what models and tools are asked with it."
    decided = environment.decides(f"{what} Use {_listed([*keys])} of the .env in this directory?")
    if decided is None or note is None:
        return bool(decided), None
    kept = note if decided else note.with_suffix(".no")
    try:
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept.touch(mode=0o600)
    except OSError:
        return decided, None
    return decided, None if decided else str(kept)


def _read(file: Path) -> dict[str, str | None]:
    from dotenv import dotenv_values

    try:
        if file.stat().st_size > MOST_BYTES:
            raise UsageError(f".env: more than {MOST_BYTES:,} bytes")
        found = dotenv_values(file, interpolate=False)  # otherwise a value could set any other variable
    except (OSError, ValueError) as error:
        raise UsageError(f".env: {error}") from None
    return {name: value for name, value in found.items() if value is None or "\0" not in value}


def _is_here(url: str) -> bool:
    """Return True if a store is a file inside the current directory, and no link leads out of it."""
    try:
        return storage.stays_here(url)
    except StoreError:
        return False


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(map(narrow, names[:_MOST_NAMES])) + (f" and {more} more" if more > 0 else "")
