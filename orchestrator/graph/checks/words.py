"""Words that the messages of several checks share."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.graph.names_meant import close_to


def listed(names: Iterable[str]) -> str:
    """Names in a row, at most ten of them."""
    names = list(names)
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def mend_name(name: str, known: Iterable[str], otherwise: str) -> str:
    """The likeliest mend for a name that is not there."""
    close = close_to(name, known)
    return f"did you mean {close!r}?" if close else otherwise
