"""Bytes as text, by what a server, a page or the bytes themselves say. Never by a name that Python takes for a codec of
another kind: `zip`, `idna` and the like are not letters."""

from __future__ import annotations

import codecs
import re

_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_META = re.compile(rb"""<meta[^>]{0,200}?charset\s*+=\s*+["']?\s*+([A-Za-z0-9_:-]{1,40})""", re.IGNORECASE)
_DECLARED = re.compile(rb"""^<\?xml[^>]{0,200}?encoding\s*+=\s*+["']([A-Za-z0-9_:-]{1,40})""")
_KNOWN = re.compile(
    r"utf-?8|utf-?16(le|be)?|(us-)?ascii|iso-?8859-\d{1,2}|latin-?1|(windows-|cp)125\d|koi8-[ru]|gb2312|gbk|gb18030|"
    r"big5(-hkscs)?|euc-(jp|kr)|shift[_-]jis|iso-2022-jp|macintosh"
)
_BROWSERS = {"iso-8859-1": "cp1252", "latin1": "cp1252", "latin-1": "cp1252", "ascii": "cp1252", "us-ascii": "cp1252",
             "gb2312": "gbk", "macintosh": "mac-roman", "utf-16": "utf-16-le"}  # fmt: skip
"""What browsers take some names for."""


def text_of(data: bytes, charset: str, *, markup: bool = False) -> str | None:
    """The text, with U+FFFD for what cannot be read; None if it is no text at all.

    Args:
        charset: what the server says.
        markup: whether the page may say it, too.
    """
    name = next((name for mark, name in _MARKS if data.startswith(mark)), "")
    if not name and _KNOWN.fullmatch(charset):
        name = charset
    if not name and markup:
        said = _DECLARED.search(data[:1024]) or _META.search(data[:2048])
        told = said[1].decode("ascii").lower() if said else ""
        # A page that can be read as far as this is not in UTF-16, whatever it says.
        name = told if _KNOWN.fullmatch(told) and not told.startswith(("utf-16", "utf16")) else ""
    name = _BROWSERS.get(name, name or "utf-8")
    try:
        found = data.decode(name, "replace")
    except LookupError:
        found = data.decode("utf-8", "replace")
    return None if "\0" in found[:10_000] else found
