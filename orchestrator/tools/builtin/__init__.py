"""Groups of tools that come with the library. Each module here defines one group: the tools in the module."""

from __future__ import annotations

from collections.abc import Iterable


def texts(name: str, given: Iterable[str]) -> tuple[str, ...]:
    """Return the strings of a list as a tuple. A single string is refused, as it would be read as a list of its
    letters: in `hosts="*.example.org"`, the letter `*` would allow every host.

    Args:
        name: name of the list in error messages.

    Raises:
        TypeError: it is a single string, or has an item that is not a string.
    """
    if isinstance(given, str | bytes):
        raise TypeError(
            f"{name}={given!r} is a single string, and would be read as a list of letters: write {name}=[{given!r}]"
        )
    found = tuple(given)
    for one in found:
        if not isinstance(one, str):  # pyright: ignore[reportUnnecessaryIsInstance]  what callers without a checker give
            raise TypeError(f"{name}= contains {one!r}, which is not a string")
    return found
