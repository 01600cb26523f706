"""What a page says, as text for a model: quoted line by line, so that none of it can pass for the tool's own words."""

from __future__ import annotations

import re
from collections.abc import Iterator

from orchestrator.tools.builtin.web_fetch.readable import CONTROL

QUOTE = "| "
"""Begins each line that a stranger wrote."""
_ELEMENT = re.compile(r'([a-z]+(?: "(?:[^"\\]|\\.)*"| /(?:[^\[\]]*/)?)?)((?: \[[^\]"]*\])*)')
"""Role and name, which a page may choose, and the attributes behind them. A name from slash to slash has no quotes."""
_NUMBER = re.compile(r" \[ref=((?:f\d+)?e\d+)\]")
_ODD = re.compile(r"[^\w. -]+")
_ACTIVE = re.compile(r" \[active\]")
_NOTHING = frozenset({"generic", "document", "iframe"})
"""What has the focus when no element of a page has, or a frame does."""
_LONGEST = 200
"""Bytes of the name of a file: systems allow 255, and a number may be added."""
_LINE = re.compile(r"[\r\n\u2028\u2029\x85]+")


def quoted(text: str) -> list[str]:
    """The lines of a text, each marked as a quotation; at least one."""
    return [QUOTE + line.translate(CONTROL) for line in _LINE.split(text)] or [QUOTE]


def part(text: str, start: int, end: int) -> str:
    """Characters of a quoted text, also marked if they begin within a line."""
    return (QUOTE if start and text[start - 1] != "\n" else "") + text[start:end]


def elements(snapshot: str) -> dict[str, str]:
    """The numbered elements of a snapshot as role and name, as they are shown: `e12` -> `button "Send"`."""
    found = {}
    for element, attributes in _listed(snapshot):
        number = _NUMBER.search(attributes)
        if number:
            found[number[1]] = element
    return found


def focused(snapshot: str) -> str | None:
    """What has the focus, as role and name; None if it is the page itself."""
    active = [element for element, attributes in _listed(snapshot) if _ACTIVE.search(attributes)]
    return active[-1] if active and active[-1] not in _NOTHING else None


def _listed(snapshot: str) -> Iterator[tuple[str, str]]:
    for line in snapshot.splitlines():
        text = line.translate(CONTROL).strip().removeprefix("- ")
        if text.startswith("'"):  # a key that YAML needs quoted
            text = text[1:].replace("''", "'")
        if match := _ELEMENT.match(text):
            yield match[1], match[2]


def file_name(suggested: str) -> str:
    """A name for a file like the one that a server suggests, which leads to no other folder."""
    name = _ODD.sub("_", suggested.replace("\\", "/").rpartition("/")[2]).strip(". ").lstrip(".- ")
    stem, dot, end = name.rpartition(".")
    if not stem or len(end.encode()) > 20:
        stem, dot, end = name, "", ""
    room = _LONGEST - len((dot + end).encode())
    stem = stem.encode()[:room].decode(errors="ignore").strip(". ")
    return stem + dot + end if stem else "download"


def same(found: str, said: str) -> bool:
    """Whether a description is that of an element, but for blanks and quotes."""
    return _plain(found) == _plain(said)


def _plain(text: str) -> str:
    return " ".join(text.replace("\\", "").replace("'", '"').strip().strip("-").split()).rstrip(":")
