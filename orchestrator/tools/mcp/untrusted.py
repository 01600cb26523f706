"""Texts and errors of a server, which are not trusted: marked by their origin, bounded, and cleaned."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

from orchestrator.redaction import BLANK, forms_of, redact

_MARK = secrets.token_hex(16)
_KEPT = 8_192
_TOLD_LINES = 12
_TOLD = 1_500
_SHORTEST = 4
"""Characters of the shortest secret that is searched; a shorter one would be found everywhere."""
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_UNSEEN = re.compile(
    r"[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff"
    r"\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]++"
)
"""Runs of characters that people do not see and models read: Unicode's Default_Ignorable ones, and Braille's blank.

Not the two joiners: Persian and Hindi are written with them, and many emoji."""
_WIDE = re.compile(r"[ \t]{3,}")


def marked(data: object) -> dict[str, object]:
    """The `data` of an error that a server sent, with the mark."""
    return {**(data if isinstance(data, dict) else {}), _MARK: True}


def is_marked(data: object) -> bool:
    """True if a server sent the error with this `data`."""
    return isinstance(data, dict) and _MARK in data


def marked_error(text: str | bytes) -> str | None:
    """Mark a server's message if it is a JSON-RPC error; return None otherwise."""
    quick = b'"error"' in text if isinstance(text, bytes) else '"error"' in text
    try:
        said: Any = json.loads(text) if quick else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or not isinstance(said.get("error"), dict):
        return None
    return json.dumps(said | {"error": said["error"] | {"data": marked(said["error"].get("data"))}})


class Tail:
    """Keeps the end of a server's output, and shows it without secrets and without control characters."""

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        self._secrets = secrets
        self._kept = b""

    def add(self, said: bytes) -> None:
        """Add output."""
        self._kept = (self._kept + said)[-_KEPT:]

    @property
    def text(self) -> str:
        """The last lines; empty if there was no output."""
        # Secrets go before anything is cut off, else half of one would stay. One that the kept end begins inside of
        # cannot be recognised, so that first line goes too.
        kept = self._kept.decode("utf-8", "replace")
        if len(self._kept) >= _KEPT:
            kept = kept.partition("\n")[2]
        said = plain(without(kept, self._secrets)).strip()
        lines = [_WIDE.sub("  ", line) for line in said.splitlines() if line.strip()][-_TOLD_LINES:]
        return "\n".join(lines)[-_TOLD:]


def without(text: str, secrets: tuple[str, ...]) -> str:
    """The text with these secrets, and everything that resembles one, blanked."""
    return redact(exactly_without(text, secrets))


def exactly_without(text: str, secrets: tuple[str, ...]) -> str:
    """The text with these secrets blanked."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            for form in forms_of(secret):
                text = text.replace(form, BLANK)
    return text


def plain(text: str) -> str:
    """The text without control characters, save for ends of lines and tabs."""
    return _CONTROL.sub("", text.replace("\r\n", "\n"))


def seen(text: str) -> str:
    """The text without characters that people do not see; how many there were stands in their place.

    People who read a description see what the model receives: text in tag characters is an instruction to models alone.
    A single one, as emoji have it, goes without a word.
    """
    return _UNSEEN.sub(lambda run: "" if len(run[0]) == 1 else f"[{len(run[0])} invisible characters]", text)
