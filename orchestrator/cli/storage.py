"""The store that a command works on, and the codec of its values.

No command has an option for the codec: it comes from the environment, so that no command can omit it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator._lazy import lazy_modules
from orchestrator.cli.exits import UsageError
from orchestrator.errors import InvalidValue, StoreError
from orchestrator.stores.places import beside, file_of, is_database, shown_url

if TYPE_CHECKING:
    from orchestrator.cli import environment, graph_refs
    from orchestrator.graph import refs
    from orchestrator.stores import codec
else:  # few stores are encrypted
    environment, graph_refs = lazy_modules("orchestrator.cli", "environment graph_refs")
    (refs,) = lazy_modules("orchestrator.graph", "refs")
    (codec,) = lazy_modules("orchestrator.stores", "codec")


__all__ = [
    "DEFAULT",
    "check_output",
    "exists",
    "is_ours",
    "place",
    "shown_url",
    "stays_here",
    "store_file",
    "store_url",
]


DEFAULT = "sqlite:///.orchestrator/runs.db"


def store_url(given: str | None) -> str:
    """Return `--store`, else `ORCHESTRATOR_STORE`, else a file under the current directory.

    Raises:
        UsageError: the URL is not that of a store; or none was named, and a link in the current directory leads
            elsewhere: another person, who must not choose the store, may own the directory.
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
    """Return True if a store is a file inside the current directory, and no link leads out of it."""
    file = store_file(url)
    try:
        return file is not None and Path.cwd().resolve() in file.resolve().parents
    except RuntimeError:  # links that form a loop
        return False


def store_file(url: str) -> Path | None:
    """Return the absolute path of the file of a store URL; None if the store is in memory, or in a database."""
    file = file_of(url)
    return None if file is None else Path(file).absolute()


def place(url: str) -> str | None:
    """Return the place of a store, the same for every process that opens it: file or database; None: in memory.

    For a database, this is the URL without password and parameters, so a database may have several places.
    """
    if is_database(url):
        return shown_url(url).partition("?")[0]
    file = store_file(url)
    return None if file is None else str(file.resolve())


def exists(url: str) -> bool:
    """Return True if a store URL has anything to read. No file is created."""
    file = store_file(url)
    return file is None or file.exists()


def check_output(path: str | None, url: str) -> None:
    """Refuse to write the output of a command over the store that it reads.

    Args:
        path: the path of the output; None: stdout.
        url: the URL of the store.

    Raises:
        UsageError: the path is that of the store's file, or of one that SQLite keeps beside it.
    """
    file = store_file(url)
    if path is None or file is None:
        return
    given, own = Path(path).resolve(), file.resolve()
    if given == own or given in beside(own):
        raise UsageError(f"--output {path}: this is a file of the store; name another one")


def is_ours(url: str) -> bool:
    """Return True if a store's file belongs to the user who runs this command."""
    file = store_file(url)
    if file is None:
        return False
    try:
        owner = file.stat().st_uid
    except OSError:
        return False
    return not hasattr(os, "geteuid") or owner == os.geteuid()


KEYS = "ORCHESTRATOR_KEYS"
CODEC = "ORCHESTRATOR_CODEC"
CLEAR = "ORCHESTRATOR_CLEAR_VALUES"
_FORM = f"{KEYS}: write ID=env:VARIABLE, separated by commas; the first key writes, all of them read"


def codec_of_environment() -> codec.Codec | None:
    """Return the codec of `ORCHESTRATOR_KEYS` or `ORCHESTRATOR_CODEC`; None if neither is set.

    The former has ids of keys and the variables that contain them, the latter a reference to a codec. With the former,
    `ORCHESTRATOR_CLEAR_VALUES` is `accept` or `refuse`.

    Raises:
        UsageError: one of them is invalid, both are set, or a variable is not set.
    """
    keys, ref, clear = (os.environ.get(name, "").strip() for name in (KEYS, CODEC, CLEAR))
    if keys and ref:
        raise UsageError(f"{KEYS} and {CODEC} are set: unset one of them")
    if clear and not keys:
        raise UsageError(f"{CLEAR} is set without {KEYS}: a codec of your own takes the attribute `clear` instead")
    if keys:
        return _aes_gcm(keys, clear or "accept")
    return _named(ref) if ref else None


def _aes_gcm(text: str, clear: str) -> codec.Codec:
    try:
        said = codec.check_clear(clear)
    except InvalidValue:
        raise UsageError(f"{CLEAR}={clear}: use accept or refuse") from None
    keys: dict[str, str | bytes] = {}
    for part in text.split(","):
        name, equals, variable = part.strip().partition("=env:")
        if not equals or not name or not variable:
            raise UsageError(_FORM)  # never with the text: it may contain a key
        keys[name] = f"env:{variable}"
    try:
        made = codec.AESGCMCodec(keys, clear=said)
        made.check_keys()
        return made
    except (InvalidValue, ImportError, LookupError) as error:
        raise UsageError(f"{KEYS}: {error.args[0]}") from None


def _named(ref: str) -> codec.Codec:
    place, colon, name = ref.partition(":")
    if not colon:
        raise UsageError(f"{CODEC}={ref}: use module:attr or file.py:attr")
    environment.import_for(ref, os.getcwd())
    with graph_refs.importing(place):
        module = (
            refs.module_of_file(place)
            if place.endswith(".py")
            else graph_refs.module_from_name(refs.module_named(place))
        )
        found: object = refs.attribute(module, name)
        if isinstance(found, type) or (callable(found) and not isinstance(found, codec.Codec)):
            found = found()
    if not isinstance(found, codec.Codec):
        raise UsageError(f"{CODEC}={ref}: it is neither a codec nor a function that returns one")
    return found


MAX_CURRENCY = 12
"""Maximum number of characters of the name of a currency."""


def currency() -> str:
    """Return the name of the currency of costs, for people.

    Raises:
        UsageError: `ORCHESTRATOR_CURRENCY` is not a name.
    """
    name = os.environ.get("ORCHESTRATOR_CURRENCY") or "USD"
    if len(name) > MAX_CURRENCY or not name.isprintable():
        raise UsageError(f"ORCHESTRATOR_CURRENCY: use up to {MAX_CURRENCY} printable characters, such as EUR")
    return name
