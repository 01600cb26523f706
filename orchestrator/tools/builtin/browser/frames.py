"""Messages between the library and the process of its browser: a length of four bytes, then JSON."""

from __future__ import annotations

import json
import struct
from typing import Any

LENGTH = struct.Struct(">I")
MOST = 64_000_000
"""Bytes of the longest message: a screenshot is in one."""


def packed(message: dict[str, Any]) -> bytes:
    """A message as bytes."""
    data = json.dumps(message, ensure_ascii=False).encode(errors="replace")
    return LENGTH.pack(len(data)) + data


def length_of(head: bytes) -> int:
    """How many bytes follow.

    Raises:
        ValueError: more than any message has.
    """
    found: int = LENGTH.unpack(head)[0]
    if found > MOST:
        raise ValueError(f"a message of {found} bytes is longer than {MOST}")
    return found


def unpacked(data: bytes) -> dict[str, Any]:
    """A message from its bytes."""
    found: dict[str, Any] = json.loads(data)
    return found
