"""Groups of tools that come with the library. Each is a module here whose tools are its group."""

from __future__ import annotations

from collections.abc import Iterable


def texts(name: str, given: Iterable[str]) -> tuple[str, ...]:
    """The texts, as they are. One text alone is a list, too, of its letters: `hosts="*.example.org"` allowed every
    host, as one of these letters is `*`.

    Args:
        name: how the list is called where it is given.

    Raises:
        TypeError: it is one text, or holds something else.
    """
    if isinstance(given, str | bytes):
        raise TypeError(f"{name}={given!r} is one text, and would be read letter by letter: write {name}=[{given!r}]")
    found = tuple(given)
    for one in found:
        if not isinstance(one, str):  # pyright: ignore[reportUnnecessaryIsInstance]  what callers without a checker give
            raise TypeError(f"{name}= holds {one!r}, which is not a text")
    return found
