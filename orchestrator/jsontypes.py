"""Plain JSON values: their type, their one canonical text, their digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
JsonObject: TypeAlias = Mapping[str, object]
"""A JSON object. Its values are plain JSON, which `canonical` proves and a type checker need not."""

_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical(value: object) -> str:
    """The one text of a JSON value: sorted keys, no white space, no escapes that are not needed.

    Raises:
        ValueError: the value holds NaN or an infinity, which JSON cannot say.
        TypeError: the value is not plain JSON.
    """
    return _encoder.encode(value)


def digest(value: object) -> str:
    """The first 128 bits, in hex, of the SHA-256 of a value's canonical text."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:32]
