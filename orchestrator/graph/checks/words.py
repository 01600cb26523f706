"""Words that the messages of several checks share."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def listed(names: Iterable[str]) -> str:
    """Names in a row, at most ten of them."""
    names = list(names)
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def mend_name(name: str, known: Iterable[str], otherwise: str) -> str:
    """The likeliest mend for a name that is not there."""
    close = get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else otherwise
