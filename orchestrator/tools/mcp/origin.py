"""Tells errors that a server sent from errors that the transport made up.

Transports report their own failures as JSON-RPC errors, with codes that servers use, too. So every error read from a
server gets a random mark, which no server can guess.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

_MARK = secrets.token_hex(16)


def marked(data: object) -> dict[str, object]:
    """The `data` of an error that a server sent, with the mark."""
    return {**(data if isinstance(data, dict) else {}), _MARK: True}


def is_marked(data: object) -> bool:
    """Whether a server sent the error that has this `data`."""
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
