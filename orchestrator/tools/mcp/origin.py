"""Errors that a server sent, told apart from those that a transport makes in a server's place.

A transport reports what goes wrong as JSON-RPC errors, with codes that servers use, too. So every error that is read
from a server gets a mark, which no server knows.
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
    """A message of a server, marked, if it is a JSON-RPC error; else None."""
    quick = b'"error"' in text if isinstance(text, bytes) else '"error"' in text
    try:
        said: Any = json.loads(text) if quick else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or not isinstance(said.get("error"), dict):
        return None
    return json.dumps(said | {"error": said["error"] | {"data": marked(said["error"].get("data"))}})
