"""URLs of stores: the file or database that they name, and their form without a password."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from orchestrator.errors import StoreError

DATABASES = ("postgresql://", "postgres://")
"""Schemes of the URLs of databases."""

SECRET_PARAMETERS = frozenset(
    {"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"}
)
"""Parameters of such a URL that are never shown."""

_FORMS = (
    "`memory://`, `sqlite:///runs.db` (relative), `sqlite:////home/me/runs.db` (absolute) or"
    " `postgresql://USER@HOST:5432/DATABASE`"
)


def file_of(url: str) -> str | None:
    """Return the file that a store's URL names; None if the store is in memory or in a database.

    Raises:
        StoreError: the URL has an unknown form.
    """
    if url == "memory://" or is_database(url):
        return None
    if url.startswith("sqlite://"):
        path = url.removeprefix("sqlite://")
        if not path.startswith("/") or path == "/":
            raise StoreError(f"store URL {url!r} names no file; write {_FORMS}")
        if path == "/:memory:":
            raise StoreError(f"store URL {url!r} does not name a place; write `memory://` for a store in memory")
        return path[1:]
    scheme, separator, _ = url.partition("://")
    shown = shown_url(url)
    if not separator:
        raise StoreError(f"store URL {shown!r} has no scheme; write `sqlite:///{shown}` for a file")
    raise StoreError(f"store URL {shown!r}: {scheme!r} is not among the schemes of this version; write {_FORMS}")


def beside(file: Path) -> list[Path]:
    """Return the paths of the files that SQLite keeps beside the file of a store, and deletes."""
    return [file.with_name(f"{file.name}-{end}") for end in ("wal", "shm", "journal")]


def is_database(url: str) -> bool:
    """Return True if a store's URL names a database of a server."""
    return url.startswith(DATABASES)


def is_place(authority: str, database: str) -> bool:
    """Return True if these parts of a URL are plausible. They are not if a `/` or `?` of a password ended them:
    then a part of the password is in the place of a port, or before an `@` in the name of the database.
    """
    ports = [host.rpartition("]")[2].partition(":")[2] for host in authority.rpartition("@")[2].split(",")]
    return "@" not in database and all(not port or (port.isascii() and port.isdigit()) for port in ports)


def shown_url(url: str) -> str:
    """Return a store's URL without its password."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme == "sqlite":
        return url
    place, mark, query = rest.partition("?")
    authority, slash, database = place.partition("/")
    if not is_place(authority, database):
        return f"{scheme}://***"  # the rest may be a part of a password
    user, at, hosts = authority.rpartition("@")
    name = user.partition(":")[0]
    kept = [one for one in query.split("&") if unquote(one.partition("=")[0]) not in SECRET_PARAMETERS]
    query = "&".join(kept)
    return f"{scheme}://{name}{at}{hosts}{slash}{database}{mark if query else ''}{query}"
