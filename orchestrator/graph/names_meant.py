"""The name that was probably meant where an unknown one is written."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def close_to(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name that is most like a name, or the same in another case of letters; None if there is none.

    Args:
        name: the name that is not known.
        known: the names that are.
        cutoff: how alike they have to be, from 0 to 1.
    """
    names = list(known)
    close = get_close_matches(name, names, n=1, cutoff=cutoff)
    if close:
        return close[0]
    return next((one for one in names if one.casefold() == name.casefold()), None)
