"""`.env` in the current directory: which of its settings are taken.

The directory may be anybody's: a download, a cloned repository. So only those settings are taken that cannot make this
process send something elsewhere, or run something: keys, and a store inside the directory. A key is sent where the
environment or the command says, never where the file says. What is taken and what is not is said, by name only.
"""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.cli.exits import UsageError
from orchestrator.cli.output import warn
from orchestrator.errors import StoreError
from orchestrator.visible import narrow

KEYS = "_API_KEY"
STORE = "ORCHESTRATOR_STORE"
MOST_BYTES = 100_000
_MOST_NAMES = 8


def load_dotenv() -> None:
    """Take from `.env` in the current directory what may be taken and the environment lacks. The environment wins.

    Raises:
        UsageError: the file cannot be read.
    """
    file = Path(".env")
    if not file.is_file():
        return
    taken: list[str] = []
    ignored: list[str] = []
    for name, value in _read(file).items():
        if name in os.environ or not value:
            continue
        if name.endswith(KEYS) or (name == STORE and _is_here(value)):
            os.environ[name] = value
            taken.append(name)
        else:
            ignored.append(name)
    said = [f"took {_listed(taken)}"] if taken else []
    if ignored:
        said.append(f"ignored {_listed(ignored)}, which must be set in the environment")
    if said:
        warn(f".env: {'; '.join(said)}")


def _read(file: Path) -> dict[str, str | None]:
    from dotenv import dotenv_values

    try:
        if file.stat().st_size > MOST_BYTES:
            raise UsageError(f".env: more than {MOST_BYTES:,} bytes")
        found = dotenv_values(file, interpolate=False)  # with it, a value could bring along any other variable
    except (OSError, ValueError) as error:
        raise UsageError(f".env: {error}") from None
    return {name: value for name, value in found.items() if value is None or "\0" not in value}


def _is_here(url: str) -> bool:
    """Whether a store is a file inside the current directory, and not one that a link leads out to."""
    from orchestrator.cli.storage import stays_here

    try:
        return stays_here(url)
    except StoreError:
        return False


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(map(narrow, names[:_MOST_NAMES])) + (f" and {more} more" if more > 0 else "")
