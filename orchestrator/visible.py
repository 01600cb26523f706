"""Makes untrusted text visible: nothing in it can be hidden, control a terminal, reverse directions or fake a line.

There are two ways, both used wherever text from models, tools, files or stores is shown:

    exact(value)   a value as one line of JSON; two different values never look the same. What is approved.
    shown(text)    prose: readable in every script, with its emoji; what cannot be seen is written as an escape.

Invisible are the characters that Python calls not printable (control, format, private, unassigned and surrogate code
points, separators), Unicode's `Default_Ignorable_Code_Point` (DerivedCoreProperties.txt of Unicode 16.0), and
characters with a blank glyph.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from itertools import groupby

_encoder = json.JSONEncoder(ensure_ascii=False, default=str)

UNICODE = "16.0"
"""Version of Unicode from which `DEFAULT_IGNORABLE` is taken."""

DEFAULT_IGNORABLE: tuple[tuple[int, int], ...] = (
    (0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
"""First and last code point of each range."""

BLANK: tuple[tuple[int, int], ...] = (
    (0x2800, 0x2800), (0xFFFC, 0xFFFC), (0x13441, 0x13442), (0x16FE4, 0x16FE4), (0x1D159, 0x1D159),
)  # fmt: skip
"""Characters that count as graphic and show nothing, such as the empty braille pattern."""

_HIDDEN = re.compile(
    "[" + "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in DEFAULT_IGNORABLE + BLANK) + "]"
)
_JOINERS = "\u200c\u200d"
_STYLES = "\ufe0e\ufe0f"
_KEYCAP = "\u20e3"
_JOINING = ((0x0600, 0x08FF), (0x0900, 0x0DFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x1800, 0x18AF))
"""Scripts with joiners between letters: Arabic and related ones, those of India, Burmese, Khmer, Mongolian."""
_MARKS = 4
"""Maximum number of marks above and below one letter; more would cover the lines around it."""
_RUN = 8
"""The length from which a sequence of blanks, or of equal escapes, is counted instead of shown."""
_EMPTY = 3
"""Maximum number of consecutive empty lines that are shown."""
_RUNS = re.compile(rf"( {{{_RUN},}})|((\\[nrtbf]|\\u[0-9a-f]{{4}}|\\U[0-9a-f]{{8}})\3{{{_RUN - 1},}})|\\.", re.DOTALL)
_CUT = re.compile(r"[ -\[\]-~]{11}[A-Za-z0-9](?=[ -~])")
"""The end of some ASCII text without an escape, before a character that is not a combining mark."""
_SECTION = 1 << 18
"""Maximum number of characters of a long text that are processed together, the same as `json.PIECE`."""
_BLANKS = re.compile(rf" {{{_RUN},}}")
_WORDS = {r"\n": "newlines", r"\t": "tabs", r"\r": "returns"}

BAR = "| "
"""Starts every line of untrusted text: lines without it are this library's."""


def exact(value: object) -> str:
    """Return a plain value as JSON on one line, in which everything is visible and different values look different.

    Joiners and variation selectors are escaped here, too, and so are letters that can be written in two ways. Eight or
    more blanks in a row are counted: `\\[4,800 spaces]`, which is not valid JSON.
    """
    from orchestrator.json import in_pieces

    return "".join(map(_exact, _sections("".join(in_pieces(value, _encoder)), _SECTION)))


def _exact(text: str) -> str:
    if not _plain(text) or not unicodedata.is_normalized("NFC", text):
        text = "".join(_exactly(text))
    return _RUNS.sub(_counted, text)


def _sections(text: str, least: int) -> Iterator[str]:
    """Yield a text in parts, without splitting an escape, a letter and its marks, or a sequence of blanks."""
    begin = 0
    while len(text) - begin > 2 * least:
        found = _CUT.search(text, begin + least, begin + 2 * least)
        end = begin + 2 * least if found is None else found.end()
        yield text[begin:end]
        begin = end
    yield text[begin:]


def shown(text: str) -> str:
    """Return prose in which nothing is hidden. Line breaks and tabs stay; blanks of other widths become spaces.

    Joiners stay between letters of scripts that use them and inside emoji, variation selectors after possible emoji.
    All other invisible characters become escapes (`\\u200b`).
    """
    return _shown(text) if len(text) <= _SECTION else "".join(map(_shown, _sections(text, _SECTION)))


def _shown(text: str) -> str:
    return text if _plain(text) else "".join(_readable(text))


def narrow(text: str) -> str:
    """Return `shown` on one line, with long sequences of blanks counted."""
    return _BLANKS.sub(lambda run: f"[{len(run[0]):,} spaces]", " ".join(shown(text).replace("\t", " ").splitlines()))


def line(text: str) -> str:
    """Return a name from a store or a server as part of one line: line breaks and tabs are escaped as well."""
    return shown(text).replace("\n", "\\n").replace("\t", "\\t")


def barred(text: str, bar: str = BAR) -> str:
    """Return untrusted text: `shown`, with a bar before each line."""
    lines = _BLANKS.sub(lambda run: f"[{len(run[0]):,} spaces]", shown(text).expandtabs(4)).splitlines() or [""]
    found: list[str] = []
    for empty, group in groupby(lines, lambda line: not line.strip()):
        some = list(group)
        found += [f"[{len(some):,} empty lines]"] if empty and len(some) > _EMPTY else some
    return "\n".join(f"{bar}{line}".rstrip() for line in found)


def behind(text: str) -> str:
    """Return untrusted text after trusted text: the first line continues the trusted one, the others have bars."""
    first, *rest = barred(text, "").split("\n")
    return "\n".join([first, *(f"  {BAR}{line}".rstrip() for line in rest)])


def is_hidden(char: str) -> bool:
    """Return True if a character is not printable, or invisible."""
    return not char.isprintable() or _HIDDEN.match(char) is not None


def without_hidden(text: str) -> str:
    """Return a text without invisible characters."""
    return _HIDDEN.sub("", text)


def escaped(char: str) -> str:
    """Return a character as an escape."""
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def _plain(text: str) -> bool:
    return text.isprintable() and (
        text.isascii() or (_HIDDEN.search(text) is None and not any(map(unicodedata.combining, text)))
    )


def _exactly(text: str) -> Iterator[str]:
    cluster, marks, escapes = "", 0, False
    for char in text:
        marks = marks + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        cluster = cluster + char if marks else cluster[-1:] + char
        # A mark after an escape would be drawn on the last letter of the escape.
        doubled = (marks and escapes) or not unicodedata.is_normalized("NFC", cluster)
        escapes = is_hidden(char) or bool(doubled) or marks > _MARKS
        yield escaped(char) if escapes else char
        cluster = "" if escapes else cluster


def _readable(text: str) -> Iterator[str]:
    marks = 0
    for index, char in enumerate(text):
        category = unicodedata.category(char)
        marks = marks + 1 if category in ("Mn", "Me") and not _HIDDEN.match(char) else 0
        if char in "\n\t":
            yield char
        elif category == "Zs":
            yield " "
        elif marks > _MARKS:
            yield escaped(char)
        elif not is_hidden(char) or _means_something(text, index):
            yield char
        else:
            yield escaped(char)


def _means_something(text: str, index: int) -> bool:
    """Return True if an invisible character is part of a word or an emoji."""
    char = text[index]
    if index == 0 or char not in _JOINERS + _STYLES:
        return False
    before = text[index - 1]
    after = text[index + 1] if index + 1 < len(text) else ""
    if char in _STYLES:
        return unicodedata.category(before) in ("So", "Sm") or (after == _KEYCAP and before in "#*0123456789")
    if _is_emoji(before) and _is_emoji(after) and char == "\u200d":
        return True
    return _joins(before) and _joins(after)


def _is_emoji(char: str) -> bool:
    return bool(char) and (unicodedata.category(char) in ("So", "Sk") or char in "\ufe0f\u2640\u2642\u2695")


def _joins(char: str) -> bool:
    return (
        bool(char)
        and unicodedata.category(char)[0] in "LM"
        and any(first <= ord(char) <= last for first, last in _JOINING)
    )


def _counted(found: re.Match[str]) -> str:
    if found[1]:
        return f"\\[{len(found[1]):,} spaces]"
    if found[2]:
        one = found[3]
        return f"\\[{len(found[2]) // len(one):,} {_WORDS.get(one, 'times ' + one)}]"
    return found[0]
