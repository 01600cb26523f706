"""Names of graphs, nodes, outcomes and pools: letters and digits of any script, `_` and `-`, in the form NFKC.

NFKC gives one spelling to names that can be written in several ways: with full-width letters, ligatures or combining
accents. Python uses it for identifiers, so names of state fields have it, too.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

from orchestrator.visible import is_hidden

RULE = "use letters, digits, '_' and '-', and start with a letter or '_'"


def plain_name(name: str) -> str:
    """Return a name in form NFKC."""
    return unicodedata.normalize("NFKC", name) if isinstance(name, str) and not name.isascii() else name


def is_name(text: str) -> bool:
    """Return True if a string can be a name."""
    plain = text.replace("-", "_") if text[:1] != "-" else ""
    return plain.isidentifier() and (plain.isascii() or not any(map(is_hidden, text)))


def with_marks_as_letters(text: str) -> str:
    """Replace combining marks, as in Hindi and Thai, by letters that match `\\w`; the length stays the same."""
    if text.isascii():
        return text
    return "".join("_" if unicodedata.category(one)[0] == "M" else one for one in text)


_CYRILLIC, _AS_LATIN = "АВЕКМНОРСТУХЅІЈаеорсухѕіјһԁԛԝ", "ABEKMHOPCTYXSIJaeopcyxsijhdqw"
_GREEK, _LIKE_LATIN = "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧνορικυαγ", "ABEZHIKMNOPTYXvopikuay"
_LIKE = str.maketrans(_CYRILLIC + _GREEK + "ı", _AS_LATIN + _LIKE_LATIN + "i")
"""Cyrillic and Greek letters -> the Latin letters that look like them."""


def look_of(name: str) -> str:
    """Return a key that is the same for all names that look alike."""
    return name if name.isascii() else unicodedata.normalize("NFD", name).translate(_LIKE)


def look_alikes(names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield pairs of names that look alike, each with the Unicode name of a letter that differs in the second one."""
    unique, seen = dict.fromkeys(names), dict[str, str]()
    if "".join(unique).isascii():
        return
    for name in unique:
        first = seen.setdefault(look_of(name), name)
        if first != name:
            letter = next((two for one, two in zip(first, name, strict=False) if one != two), name[-1])
            yield first, name, unicodedata.name(letter, "another letter")
