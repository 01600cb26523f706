"""Texts as PostgreSQL can hold them: escaped on their way in, and back on their way out, by every connection.

A text of PostgreSQL holds no zero byte and no half of a surrogate pair, and texts of users may. The escapes keep the
order of texts by code points, so ranges and `ORDER BY` of a column with `COLLATE "C"` are those of Python, except that
halves of surrogate pairs come directly behind U+0001 and in Python behind U+D7FF. So no range may end at one of them.

Words as the indexes of runs and items hold them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from psycopg.adapt import Buffer
from psycopg.pq import Format
from psycopg.types.string import StrBinaryDumper, StrDumper, StrDumperUnknown, TextLoader

from orchestrator.stores.words import words

if TYPE_CHECKING:
    from psycopg import Connection


_ESCAPE = "\x01"
_TO_ESCAPE = re.compile("[\x00\x01\ud800-\udfff]")
_ESCAPED = re.compile("\x01(?:([\x01\x02])|\x03([0-9a-f]{4}))")

_LONGEST_KEY = 400
"""Bytes of a text that is part of an index as it is: an entry of a B-tree has 2,700 bytes at most."""


def escaped(text: str) -> str:
    """A text as PostgreSQL can hold it."""
    return _TO_ESCAPE.sub(_escape, text)


def unescaped(text: str) -> str:
    """The text that `escaped` was given."""
    return _ESCAPED.sub(_unescape, text) if _ESCAPE in text else text


def index_key(text: str) -> str:
    """What stands for a text in a column that has an index and is only compared for equality."""
    if len(text) * 4 <= _LONGEST_KEY:
        return text
    data = text.encode("utf-8", "surrogatepass")
    return text if len(data) <= _LONGEST_KEY else f"{text[:50]}\0\0{blake2b(data, digest_size=32).hexdigest()}"


def adapt(connection: Connection[Any]) -> None:
    """Have a connection escape all texts that it sends, and turn those that it receives back."""
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
"""Bytes of a word that is in an index as it is: an entry of one has 2,700 bytes at most."""


def key_of(word: str) -> str:
    """What stands for a word of `stores.words` in an index."""
    if len(word) * 4 <= _LONGEST:
        return word
    data = word.encode()
    # the sign is in no word, so no word stands for another one
    return word if len(data) <= _LONGEST else f"#{blake2b(data, digest_size=32).hexdigest()}"


def keys_of(texts: Iterable[str]) -> list[str]:
    """The keys of the different words of some texts, sorted."""
    return sorted({key_of(word) for word in words(" ".join(texts))})
