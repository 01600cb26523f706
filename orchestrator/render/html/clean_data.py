"""Values of a run as plain JSON for a page: secrets redacted, texts bounded, numbers that a browser keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from orchestrator.redaction import redact, redacted
from orchestrator.views.safe_text import BEHIND, told

LONGEST = 50_000
"""Characters of one text that a page keeps."""
_EXACT = 2**53
"""Above it numbers lose digits in a browser."""


def clean(value: object) -> Any:
    """Plain JSON for a page: secrets blanked, texts bounded, numbers that a browser would change written out."""
    return _plain(redacted(value, _text))


def clean_patch(patch: Mapping[str, list[object]]) -> dict[str, Any]:
    """The same of a patch: what a field is called counts for what is put into it."""
    found: dict[str, object] = {}
    for name, (kind, value, *rest) in patch.items():
        (said,) = clean({name: value}).values()
        found[name] = [kind, said, *(clean(one) for one in rest)]
    return found


def _text(text: str) -> str:
    if text.startswith("data:") and len(text) > 1000:
        return f"[{told(text[:40].partition(',')[0], 40)}, {len(text):,} characters]"
    if len(text) <= LONGEST:
        return redact(text)
    # Cut first, with what a secret at the cut needs to be known as one.
    start = redact(text[: LONGEST + BEHIND])[:LONGEST]
    return f"{start}… [{len(text) - LONGEST:,} characters more]"


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not -_EXACT <= value <= _EXACT:
        return str(value)
    return value
