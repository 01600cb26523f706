"""Statements of the database: strings and rows as parameters, statements of many parts, plans with bounded cost.

Text in PostgreSQL contains no zero byte and no half of a surrogate pair, but strings of users may. So every connection
escapes the strings that it sends, and restores those it receives. The escapes keep the order of strings by code points,
so ranges and `ORDER BY` of a column with `COLLATE "C"` are those of Python, except that halves of surrogate pairs come
directly after U+0001 and in Python after U+D7FF. So no range may end at one of them.

Many changes are one statement: their columns are its parameters, which `unnest` turns into rows.

The planner of PostgreSQL relies on statistics, which are old when many runs have just been added, and missing in a
new database. So lists leave it little choice: it may neither sort nor read whole tables, and runs some queries once
for each row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias

from psycopg.adapt import Buffer
from psycopg.pq import Format
from psycopg.types.string import StrBinaryDumper, StrDumper, StrDumperUnknown, TextLoader

from orchestrator.stores.requests import words

if TYPE_CHECKING:
    import psycopg

    Cursor: TypeAlias = psycopg.Cursor[tuple[Any, ...]]


_ESCAPE = "\x01"
_TO_ESCAPE = re.compile("[\x00\x01\ud800-\udfff]")
_ESCAPED = re.compile("\x01(?:([\x01\x02])|\x03([0-9a-f]{4}))")

_LONGEST_KEY = 400
"""Bytes of a text that an index contains unchanged: an entry of a B-tree has at most 2,700 bytes."""


def escaped(text: str) -> str:
    """Return a string as PostgreSQL can store it."""
    return _TO_ESCAPE.sub(_escape, text)


def unescaped(text: str) -> str:
    """Return the string that `escaped` was given."""
    return _ESCAPED.sub(_unescape, text) if _ESCAPE in text else text


def index_key(text: str) -> str:
    """Return the replacement for a text in an indexed column that is only compared for equality."""
    if len(text) * 4 <= _LONGEST_KEY:
        return text
    data = text.encode("utf-8", "surrogatepass")
    return text if len(data) <= _LONGEST_KEY else f"{text[:50]}\0\0{blake2b(data, digest_size=32).hexdigest()}"


def adapt(connection: psycopg.Connection[Any]) -> None:
    """Make a connection escape all strings that it sends, and restore those that it receives."""
    connection.adapters.register_dumper(str, _BinaryDumper)
    connection.adapters.register_dumper(str, _Dumper)
    connection.adapters.register_dumper(str, _UnknownDumper)
    connection.adapters.register_loader("text", _Loader)


def _escape(match: re.Match[str]) -> str:
    sign = match[0]
    if sign == "\x00":
        return "\x01\x01"
    return "\x01\x02" if sign == "\x01" else f"\x01\x03{ord(sign):04x}"


def _unescape(match: re.Match[str]) -> str:
    if match[2] is not None:
        return chr(int(match[2], 16))
    return "\x00" if match[1] == "\x01" else "\x01"


class _Dumper(StrDumper):
    def dump(self, obj: str) -> Buffer | None:
        return escaped(obj).encode()


class _BinaryDumper(StrBinaryDumper):
    def dump(self, obj: str) -> Buffer | None:
        return escaped(obj).encode()


class _UnknownDumper(StrDumperUnknown):
    def dump(self, obj: str) -> Buffer | None:
        return escaped(obj).encode()


class _Loader(TextLoader):
    format = Format.TEXT

    def load(self, data: Buffer) -> str:
        return unescaped(str(data, "utf-8"))


_LONGEST = 200
"""Bytes of a word that an index contains unchanged: an entry has at most 2,700 bytes."""


def key_of(word: str) -> str:
    """Return the replacement for a word of `stores.requests.words` in an index."""
    if len(word) * 4 <= _LONGEST:
        return word
    data = word.encode()
    # no word contains this character, so keys of different words differ
    return word if len(data) <= _LONGEST else f"#{blake2b(data, digest_size=32).hexdigest()}"


def keys_of(texts: Iterable[str]) -> list[str]:
    """Return the distinct keys of the words of some texts, sorted."""
    return sorted({key_of(word) for word in words(" ".join(texts))})


Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"


Value: TypeAlias = object
Kind: TypeAlias = str
"""`bigint`, `double precision`, `boolean`, `text` or `bytea`."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows as a table of a statement, with a column `n` that counts them from 1 on."""

    sql: str
    values: tuple[object, ...]


def table(name: str, columns: Sequence[tuple[str, Kind]], rows: Iterable[Sequence[Value]]) -> Table:
    """Return rows as a table with this name, for use after FROM."""
    kept = [*zip(*rows, strict=True)] or [()] * len(columns)
    values = [_array(kind, column) for (_, kind), column in zip(columns, kept, strict=True)]
    marks = ", ".join(f"%{'b' if kind in ('text', 'bytea') else 's'}::{kind}[]" for _, kind in columns)
    names = ", ".join(column for column, _ in columns)
    return Table(f"unnest({marks}) WITH ORDINALITY AS {name} ({names}, n)", tuple(values))


def _array(kind: Kind, values: Sequence[Value]) -> object:
    if kind in ("text", "bytea"):
        return [*values]
    # As text: psycopg would choose the type by the values, and each type is another statement to be prepared.
    return "{" + ",".join("NULL" if value is None else str(value) for value in values) + "}"


class Statement:
    """A statement of several named parts, each of which can read those before it."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._values: list[object] = []

    def add(self, name: str, what: Table | str, using: str = "SELECT * FROM {}") -> None:
        """Add a part: given rows, which `using` may process, or a query."""
        if isinstance(what, Table):
            self._values += what.values
            what = using.format(what.sql)
        self._parts.append(f"{name} AS ({what})")

    def run(self, connection: Connection, end: str) -> set[tuple[object, ...]]:
        """Run the statement and return the rows of its last part."""
        text = f"WITH {', '.join(self._parts)} {end}"
        return {*connection.execute(text.encode(), self._values)}


_OFF = ("enable_seqscan", "enable_bitmapscan", "enable_sort", "enable_hashjoin", "enable_mergejoin", "jit")
_WALKING = "; ".join(
    ["BEGIN READ ONLY", *(f"SET LOCAL {name} = off" for name in _OFF), "SET LOCAL max_parallel_workers_per_gather = 0"]
)
_LOOKING_UP = "SET LOCAL enable_bitmapscan = on"


@contextmanager
def walking(connection: Connection) -> Iterator[None]:
    """Read in one transaction, by index scans only."""
    with _transaction(connection, _WALKING):
        yield


@contextmanager
def reading(connection: Connection) -> Iterator[None]:
    """Read in one transaction, at one moment."""
    with _transaction(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"):
        yield


@contextmanager
def _transaction(connection: Connection, begin: str) -> Iterator[None]:
    connection.execute(begin.encode(), prepare=False)
    try:
        yield
    finally:
        if not connection.closed:
            connection.rollback()


def looking_up(connection: Connection) -> None:
    """Allow the rest of a transaction to use indexes of words, which return all matches at once."""
    connection.execute(_LOOKING_UP.encode(), prepare=False)


def execute(connection: Connection, query: str, values: Sequence[object] = ()) -> Cursor:
    """Run a statement assembled from constants of this package; user input is only in the values."""
    return connection.execute(query.encode(), values)


def streamed(connection: Connection, query: str, values: tuple[object, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query, a few in memory at a time. The connection must be inside a transaction."""
    with connection.cursor("rows") as cursor:
        cursor.itersize = _FETCHED
        cursor.execute(query.encode(), values)
        yield from cursor


_FETCHED = 2000


def exists(query: str) -> str:
    """Return a condition: whether a query has a row. It runs once for each row, and is never turned into a join."""
    return f"EXISTS ({query} OFFSET 0)"
