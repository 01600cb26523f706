"""The URL of a PostgreSQL store: its own parameters, and those of libpq. A password is in no message."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from urllib.parse import parse_qsl, quote, unquote

from orchestrator.errors import StoreError
from orchestrator.stores.places import SECRET_PARAMETERS, is_place

SCHEMES = ("postgresql", "postgres")

FORM = "`postgresql://USER@HOST:5432/DATABASE`"

_SHORTEST_SECRET = 3
"""Shorter ones are not looked for in messages: they would be found in every second word."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a store is, and how it is to be spoken to."""

    url: str
    """The URL without its secrets, for messages."""
    conninfo: str = field(repr=False)
    """What libpq connects to."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    patience: float = 30.0
    """Seconds for which a server that went away is waited for."""
    prepare: bool = True
    """Whether statements are prepared on the server. A pooler that hands out connections by transaction may not."""
    listen: bool = True
    """Whether the server can tell when there may be work, which takes a connection of its own."""

    def without_secrets(self, text: str) -> str:
        """A text of the server or of libpq, fit to be shown."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def address_of(url: str) -> Address:
    """Read a URL such as `postgresql://user@host/database?patience=30&prepare=1&listen=1`.

    Raises:
        StoreError: it is none.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in SCHEMES:
        raise StoreError(f"that is no URL of a PostgreSQL store; write {FORM}")
    if "#" in rest:
        raise StoreError("the URL of a PostgreSQL store has no part behind `#`; in a password write %23 for it")
    place, _, query = rest.partition("?")
    authority, slash, database = place.partition("/")
    user, at, hosts = authority.rpartition("@")
    if "@" in user:
        raise StoreError("the URL of a PostgreSQL store has several `@`; in a user's name or password write %40 for it")
    if not is_place(authority, database):
        raise StoreError(
            "the URL of a PostgreSQL store has a port that is no number, or an `@` behind its first `/`; in a user's"
            " name or password write %2F for / and %3F for ?, in a database's name %40 for @"
        )
    name, _, password = user.partition(":")
    try:
        parameters = parse_qsl(
            query.replace("+", "%2B"),  # to libpq it is a plus, and no space
            keep_blank_values=True, strict_parsing=bool(query), separator="&",
        )  # fmt: skip
    except ValueError:
        raise StoreError(
            "the URL of a PostgreSQL store has parameters in another form than `NAME=VALUE&NAME=VALUE` behind its `?`"
        ) from None
    own = {key: value for key, value in parameters if key in ("patience", "prepare", "listen")}
    libpq = [(key, value) for key, value in parameters if key not in own]
    shown = [(key, value) for key, value in parameters if key not in SECRET_PARAMETERS]
    base = f"postgresql://{name}{at}{hosts}{slash}{database}"
    secrets = [unquote(password), *(value for key, value in libpq if key in SECRET_PARAMETERS)]
    address = Address(
        base + _query(shown),
        f"postgresql://{user}{at}{hosts}{slash}{database}{_query(libpq)}",
        tuple(sorted({one for one in secrets if len(one) >= _SHORTEST_SECRET}, key=len, reverse=True)),
        _seconds(own.get("patience", "30")),
        _switch("prepare", own.get("prepare", "1")),
        _switch("listen", own.get("listen", "1")),
    )
    _check(address)
    return address


def _query(parameters: list[tuple[str, str]]) -> str:
    if not parameters:
        return ""
    return "?" + "&".join(f"{quote(key, safe='')}={quote(value, safe='/:,')}" for key, value in parameters)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not isfinite(found) or found < 0:
        raise StoreError(f"patience={text!r} in the URL of a store: give seconds, such as patience=30")
    return found


def _switch(name: str, text: str) -> bool:
    if text not in ("0", "1"):
        raise StoreError(f"{name}={text!r} in the URL of a store: give 1 (yes) or 0 (no)")
    return text == "1"


def _check(address: Address) -> None:
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        conninfo_to_dict(address.conninfo)
    except ProgrammingError as error:
        # its text quotes what it does not understand, which may be a part of a password
        why = address.without_secrets(str(error).strip()) if not address.secrets else "libpq cannot read it"
        raise StoreError(
            f"store URL {address.url!r}: {why}; write {FORM}, with % and two digits for each sign that has a meaning"
        ) from None
