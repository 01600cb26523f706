"""The words of a text, as `Store.runs(search=)` compares them: the same in every store."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_ASCII_WORD = re.compile("[a-z0-9]+")


class _Signs(dict[int, int | str]):
    """What becomes of each sign of a text: it stays, goes, or separates words. Filled in as signs are met."""

    def __missing__(self, code: int) -> int | str:
        sign = chr(code)
        kept = "" if unicodedata.combining(sign) else code if unicodedata.category(sign)[0] in "LN" else " "
        self[code] = kept
        return kept


_SIGNS = _Signs()


def words(text: str) -> list[str]:
    """The words of a text: sequences of letters and digits, without regard to case and diacritics."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return plain.translate(_SIGNS).split()


def contains(wanted: Sequence[str], *texts: str) -> bool:
    """Whether all of these words occur in these texts; no words occur in none."""
    missing = set(wanted)
    for text in texts:
        missing -= found_in(missing, text)
    return bool(wanted) and not missing


def found_in(wanted: set[str], text: str) -> set[str]:
    """Those of these words that occur in a text."""
    if not wanted:
        return set()
    if text.isascii():  # most texts are: look for the letters first, which is far quicker
        lowered = text.lower()
        if not any(word in lowered for word in wanted):
            return set()
    return wanted.intersection(words(text))
