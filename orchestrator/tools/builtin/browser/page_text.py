"""What a page says, as text for a model: quoted line by line, so that none of it can pass for the tool's own words."""

from __future__ import annotations

import re

from orchestrator.tools.builtin.web_fetch.readable import CONTROL

QUOTE = "| "
"""Begins each line that a stranger wrote."""
_ELEMENT = re.compile(r'([a-z]+(?: "(?:[^"\\]|\\.)*")?)((?: \[[^\]"]*\])*)')
"""Role and name, which a page may choose, and the attributes behind them."""
_NUMBER = re.compile(r" \[ref=((?:f\d+)?e\d+)\]")
_ODD = re.compile(r"[^\w. -]+")
_LINE = re.compile(r"[\r\n\u2028\u2029\x85]+")


def quoted(text: str) -> list[str]:
    """The lines of a text, each marked as a quotation; at least one."""
    return [QUOTE + line.translate(CONTROL) for line in _LINE.split(text)] or [QUOTE]


def elements(snapshot: str) -> dict[str, str]:
    """The numbered elements of a snapshot as role and name: `e12` -> `button "Send"`."""
    found = {}
    for line in snapshot.splitlines():
        text = line.strip().removeprefix("- ")
        if text.startswith("'"):  # a key that YAML needs quoted
            text = text[1:].replace("''", "'")
        match = _ELEMENT.match(text)
        number = _NUMBER.search(match[2]) if match else None
        if match and number:
            found[number[1]] = match[1]
    return found


def file_name(suggested: str) -> str:
    """A name for a file like the one that a server suggests, which leads to no other folder."""
    return _ODD.sub("_", suggested.replace("\\", "/").rpartition("/")[2]).strip(". ")[:100].strip(". ") or "download"


def same(found: str, said: str) -> bool:
    """Whether a description is that of an element, but for blanks and quotes."""
    return _plain(found) == _plain(said)


def _plain(text: str) -> str:
    return " ".join(text.replace("'", '"').strip().strip("-").split()).rstrip(":")
