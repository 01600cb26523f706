"""Connections to the server, the meaning of its errors to a user, and waiting for a server that went away.

The URL of a PostgreSQL store has its own parameters, and those of libpq. No message contains a password.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl, quote, unquote

from orchestrator.errors import StoreError, StoreUnavailable
from orchestrator.stores.places import SECRET_PARAMETERS, is_place
from orchestrator.stores.postgres import record_partitions
from orchestrator.stores.postgres.schema import VERSION, check_version, make_tables, version_of

if TYPE_CHECKING:
    from orchestrator.stores.postgres.statements import Connection


SCHEMES = ("postgresql", "postgres")

FORM = "`postgresql://USER@HOST:5432/DATABASE`"

_SHORTEST_SECRET = 3
"""Shorter passwords are not searched for in messages: they would be found in every second word."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a store, and the options of connections to it."""

    url: str
    """The URL without its secrets, for messages."""
    conninfo: str = field(repr=False)
    """The connection string of libpq."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    patience: float = 30.0
    """Seconds to wait for a server that went away."""
    prepare: bool = True
    """True if statements are prepared on the server. A pooler that assigns connections by transaction may forbid it."""
    listen: bool = True
    """True if the server can notify of possible work, which takes a separate connection."""

    def without_secrets(self, text: str) -> str:
        """Return a text of the server or of libpq without secrets."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def address_of(url: str) -> Address:
    """Read a URL such as `postgresql://user@host/database?patience=30&prepare=1&listen=1`.

    Raises:
        StoreError: the URL is not valid.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in SCHEMES:
        raise StoreError(f"it is not the URL of a PostgreSQL store; write {FORM}")
    if "#" in rest:
        raise StoreError("the URL of a PostgreSQL store has no fragment (`#`); in a password write %23 for `#`")
    place, _, query = rest.partition("?")
    authority, slash, database = place.partition("/")
    user, at, hosts = authority.rpartition("@")
    if "@" in user:
        raise StoreError("the URL of a PostgreSQL store has several `@`; in a user's name or password write %40 for it")
    if not is_place(authority, database):
        raise StoreError(
            "the URL of a PostgreSQL store has a port that is not a number, or an `@` after its first `/`; in a user's"
            " name or password write %2F for / and %3F for ?, in a database's name %40 for @"
        )
    name, _, password = user.partition(":")
    try:
        parameters = parse_qsl(
            query.replace("+", "%2B"),  # to libpq it is a plus, not a space
            keep_blank_values=True,
            strict_parsing=bool(query),
            separator="&",
        )
    except ValueError:
        raise StoreError(
            "the parameters after the `?` of a PostgreSQL store's URL are not of the form `NAME=VALUE&NAME=VALUE`"
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
        # its message quotes invalid parts, which may be a part of a password
        why = address.without_secrets(str(error).strip()) if not address.secrets else "libpq cannot read it"
        raise StoreError(
            f"store URL {address.url!r}: {why}; write {FORM}, with reserved characters in the form %40"
        ) from None


T = TypeVar("T")

_DEFAULTS: dict[str, str | int] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 8_000,
    "application_name": "orchestrator",
}
"""Default parameters of libpq: without them a client waits for hours for a server that no longer responds.

A lease lasts 30 s by default, and a beat comes every third of that. A beat without an answer is given up within 9 s, so
there is time for two more on new connections.
"""

IDLE_SECONDS = 5.0
"""For so long may a client keep locks without sending anything, as a stopped one does, before the server ends it."""
LEAST_IDLE = 0.5

_WATCH_CLIENT = (
    b"SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3;"
    b" SET tcp_user_timeout = 8000"
)
"""The same on the server: otherwise it keeps the sessions of a client that lost its connection for two hours, and more
of them with each network failure, until it accepts no others. A pooler manages its own connections."""


def idle_within(ttl: float) -> float:
    """Return for how many seconds a silent client may hold locks that delay heartbeats of leases of `ttl` seconds.

    Heartbeats come every third of a lease: one that waits for another third is still in time.
    """
    return max(LEAST_IDLE, min(ttl / 3, IDLE_SECONDS))


def begin(idle: float = IDLE_SECONDS) -> bytes:
    """Return the statements that start a transaction in which the client may be silent for `idle` seconds."""
    return f"BEGIN; SET LOCAL idle_in_transaction_session_timeout = {int(idle * 1000)}".encode()


WORK = "orchestrator_work"
"""The channel on which the server announces that there may be a run to resume. Appends never use it: transactions that
notify are committed one after the other."""


def connect(address: Address) -> Connection:
    """Return a connection, outside of any transaction, to a database with the tables of this version.

    Raises:
        psycopg.Error: the connection failed; `store_error` translates it.
        StoreTooNew, StoreError: the database is not for this version.
    """
    import psycopg

    connection = connect_bare(address)
    try:
        version = version_of(connection)
        check_version(version, address.url)
        if version != VERSION:
            try:
                make_tables(connection, address.url)
            except psycopg.errors.ReadOnlySqlTransaction:
                if not version:
                    raise
                # a standby of a database that its primary has not brought to this version yet can be read
        if not version:
            with suppress(psycopg.Error):  # tried again with the first run of the month, or when space is given back
                record_partitions.begin_month(connection)
        if address.prepare:
            # A cached plan was made when the tables had few rows, and would read them whole for ever. Without
            # prepared statements nothing is cached, and the parameter cannot be set.
            connection.execute("SET plan_cache_mode = force_custom_plan")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_bare(address: Address) -> Connection:
    """Return a connection to the database, whatever its tables.

    Raises:
        psycopg.Error: the connection failed.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    from orchestrator.stores.postgres.statements import adapt

    given = conninfo_to_dict(address.conninfo)
    parameters = {name: value for name, value in _DEFAULTS.items() if name not in given}
    if "," in str(given.get("host", "")) and "target_session_attrs" not in given:
        parameters["target_session_attrs"] = "read-write"
    connection = psycopg.connect(
        make_conninfo(address.conninfo, **parameters, client_encoding="utf-8"),
        autocommit=True,
        prepare_threshold=2 if address.prepare else None,
    )
    adapt(connection)
    if address.listen:
        connection.execute(_WATCH_CLIENT, prepare=False)
    return connection


def patiently(action: Callable[[], T], seconds: float) -> T:
    """Call `action` until the server, which may be away for a while, responds; try for `seconds`.

    A conflict with another transaction (see `_OVERTAKEN`) is tried again a few times, however short `seconds` is.

    The waits are random, so that not all clients reconnect at the same moment.
    """
    deadline = time.monotonic() + seconds
    longest, overtaken = 0.05, 0
    while True:
        try:
            return action()
        except Exception as error:
            is_overtaken = getattr(error, "sqlstate", None) == _OVERTAKEN
            overtaken += is_overtaken
            is_late = time.monotonic() >= deadline and not (is_overtaken and overtaken <= _AT_LEAST)
            if is_late or not will_pass(error):
                raise
        time.sleep(random.uniform(0.0, longest))
        longest = min(longest * 2, 1.0)


# ------------------------------------------------------------------------------------ errors

_OVERTAKEN = "23503"
"""The code of a conflict: another transaction removed a payload while a use of it was added (see `payloads`).
No other table has a foreign key."""
_AT_LEAST = 5
_NO_SUCH = ("3D000", "28000", "28P01")
_PASSING = ("08", "57P01", "57P02", "57P03", "57P05", "25P03", "25P04", "53300", "40001", "40P01", "55P03", _OVERTAKEN)
"""Prefixes of codes of errors that go away: connections, restarts, too many clients, deadlocks, locks, `_OVERTAKEN`."""
_LOST = ("08", "57P0", "25P03", "25P04")
"""Prefixes of codes after which a connection cannot be used."""
_FATAL_WORDS = (
    "password authentication failed",
    "no password supplied",
    "does not exist",
    "no pg_hba.conf entry",
    "is not permitted to log in",
    "certificate",
    "SSL",
)
"""A server that refuses a connection gives the reason only in its message."""

_UNAVAILABLE = {
    "53100": "the disk of the server is full; free some space, then continue: nothing written is lost",
    "53200": "the server has no memory left",
    "53300": "the server has too many clients; end some, raise its max_connections, or use a pooler",
    "25006": "the server accepts no writes, because it is a standby or in recovery; name the primary",
    "42501": "this user may not do that; grant the user the tables of the store, or name another user",
    "57014": "a statement took longer than the server allows (statement_timeout), or was cancelled",
    _OVERTAKEN: "other clients keep removing the same long texts; try again",
    "55P03": "another client has locked the tables for too long",
}
_BROKEN = ("XX001", "XX002")


def will_pass(error: BaseException) -> bool:
    """Return True if a failed call may succeed when repeated, on a new connection if this one is lost."""
    import psycopg

    if isinstance(error, psycopg.Error) and error.sqlstate is not None:
        return error.sqlstate.startswith(_PASSING)
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    if not is_connecting(error):
        return True
    text = str(error)
    return not any(words in text for words in _FATAL_WORDS)


def is_connecting(error: BaseException) -> bool:
    """Return True if a connection could not be made."""
    return str(error).startswith("connection failed") or "connection timeout" in str(error)


def is_lost(error: BaseException, connection: Connection | None) -> bool:
    """Return True if a connection cannot be used after an error: its last request may have been done, or not."""
    import psycopg

    if connection is None or connection.closed or connection.broken:
        return True
    if isinstance(error, psycopg.Error) and error.sqlstate is not None:
        return error.sqlstate.startswith(_LOST)
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def store_error(error: BaseException, address: Address) -> Exception | None:
    """Return the error for users that corresponds to one of psycopg; None if it is not one of psycopg."""
    import psycopg

    if not isinstance(error, psycopg.Error):
        return None
    store, said = f"store {address.url}", address.without_secrets(_first_line(error))
    state = error.sqlstate or ""
    if state in _UNAVAILABLE:
        return StoreUnavailable(f"{store}: {_UNAVAILABLE[state]} ({said})")
    if state in _BROKEN:
        return StoreError(f"{store}: the database is damaged; restore it from a copy ({said})")
    if will_pass(error):
        return StoreUnavailable(f"{store}: the server cannot be reached, or ended the connection ({said})")
    if is_connecting(error) or state in _NO_SUCH:
        return StoreUnavailable(f"{store}: the server refuses this URL; check user, password and database ({said})")
    return StoreError(f"{store}: {said}")


def _first_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]
