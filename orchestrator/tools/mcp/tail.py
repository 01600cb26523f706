"""The last that a server said beside its messages, as an error can quote it."""

from __future__ import annotations

import json
import re

from orchestrator.redacting import BLANK, redact

_KEPT = 8_192
_TOLD_LINES = 12
_TOLD = 1_500
_SHORTEST = 4
"""Characters of a secret that is looked for; a shorter one would be found everywhere."""
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

_WIDE = re.compile(r"[ \t]{3,}")


class Tail:
    """Keeps the end of what is said, and tells it without secrets and without what moves a terminal's cursor."""

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        self._secrets = secrets
        self._kept = b""

    def add(self, said: bytes) -> None:
        """Keep what was said."""
        self._kept = (self._kept + said)[-_KEPT:]

    @property
    def text(self) -> str:
        """The last lines; empty if nothing was said."""
        # Secrets go before anything is cut off, else half of one would stay. One that the kept end begins inside of
        # cannot be recognised, so that first line goes too.
        kept = self._kept.decode("utf-8", "replace")
        if len(self._kept) >= _KEPT:
            kept = kept.partition("\n")[2]
        said = plain(without(kept, self._secrets)).strip()
        lines = [_WIDE.sub("  ", line) for line in said.splitlines() if line.strip()][-_TOLD_LINES:]
        return "\n".join(lines)[-_TOLD:]


def without(text: str, secrets: tuple[str, ...]) -> str:
    """The text with these secrets, and whatever looks like one, blanked."""
    return redact(exactly_without(text, secrets))


def exactly_without(text: str, secrets: tuple[str, ...]) -> str:
    """The text with these secrets blanked."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            for form in {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1]}:
                text = text.replace(form, BLANK)
    return text


def plain(text: str) -> str:
    """The text without control characters, save for ends of lines and tabs."""
    return _CONTROL.sub("", text.replace("\r\n", "\n"))
