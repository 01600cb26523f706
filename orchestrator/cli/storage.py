"""Which store a command works on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.exits import UsageError
from orchestrator.errors import StoreError
from orchestrator.stores.places import file_of, is_database, shown_url

__all__ = ["DEFAULT", "exists", "is_ours", "place", "shown_url", "stays_here", "store_file", "store_url"]

if TYPE_CHECKING:
    from orchestrator.stores import Codec

DEFAULT = "sqlite:///.orchestrator/runs.db"


def store_url(given: str | None) -> str:
    """`--store`, else `ORCHESTRATOR_STORE`, else a file under the current directory.

    Raises:
        UsageError: it is no URL of a store; or none was named, and a link in the current directory leads to another
            one: the directory may be of another person, who has no say in which store it is.
    """
    chosen = given or os.environ.get("ORCHESTRATOR_STORE")
    url = chosen or DEFAULT
    try:
        file_of(url)
    except StoreError as error:
        raise UsageError(str(error)) from None
    if not chosen and not stays_here(url):
        raise UsageError(
            f"{file_of(url)} leads out of this directory: if that is intended, name the store with --store"
        )
    return url


def stays_here(url: str) -> bool:
    """Whether a store is a file inside the current directory, and not one that a link leads out to."""
    file = store_file(url)
    try:
        return file is not None and Path.cwd().resolve() in file.resolve().parents
    except RuntimeError:  # links that lead to each other
        return False


_CODEC_VARIABLES = ("ORCHESTRATOR_KEYS", "ORCHESTRATOR_CODEC", "ORCHESTRATOR_CLEAR_VALUES")


def codec_of_environment() -> Codec | None:
    """The codec that `ORCHESTRATOR_KEYS` or `ORCHESTRATOR_CODEC` gives; None: neither is set.

    Raises:
        UsageError: they cannot be used.
    """
    if not any(os.environ.get(name) for name in _CODEC_VARIABLES):
        return None
    from orchestrator.cli.encryption import codec_of

    return codec_of(os.environ)


def store_file(url: str) -> Path | None:
    """The absolute path of the file that a store URL names; None: it is in memory, or in a database."""
    file = file_of(url)
    return None if file is None else Path(file).absolute()


def place(url: str) -> str | None:
    """Where a store is, by the same name for every process that opens it: its file, or its database; None: in memory.

    Of a database this is the URL without password and parameters, so it may have several names.
    """
    if is_database(url):
        return shown_url(url).partition("?")[0]
    file = store_file(url)
    return None if file is None else str(file.resolve())


def exists(url: str) -> bool:
    """Whether there is anything to read at a store URL. Asking makes no file."""
    file = store_file(url)
    return file is None or file.exists()


def is_ours(url: str) -> bool:
    """Whether a store's file belongs to the user who runs this command."""
    file = store_file(url)
    if file is None:
        return False
    try:
        owner = file.stat().st_uid
    except OSError:
        return False
    return not hasattr(os, "geteuid") or owner == os.geteuid()
