"""Unknown names that people write, and the known name that was probably meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

RENAMED: Mapping[str, tuple[str, ...]] = {
    "chatllm": ("model",),
    "llm": ("model",),
    "max_duration": ("max_seconds", "seconds"),
    "max_retries": ("max_steps", "attempts"),
    "env_cls": ("pool",),
    "pool_size": ("pool",),
    "stateful": ("pool",),
}
"""Name of an option in other agent frameworks -> its names here."""


def close_to(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name most similar to an unknown one, or the same in another case; None if none is similar.

    A name that other agent frameworks use for the same thing is similar.

    Args:
        name: the unknown name.
        known: the known names.
        cutoff: the least similarity, from 0 to 1.
    """
    names = list(known)
    renamed = [one for one in RENAMED.get(name, ()) if one in names]
    if renamed:
        return renamed[0]
    close = get_close_matches(name, names, n=1, cutoff=cutoff)
    if close:
        return close[0]
    return next((one for one in names if one.casefold() == name.casefold()), None)


def unknown_field(name: object, fields: Iterable[str]) -> str:
    """Return the message for an unknown field.

    Args:
        name: the unknown name.
        fields: the names of the existing fields.
    """
    fields = list(fields)
    close = close_to(str(name), fields, cutoff=0.65)
    return f"has no {name!r}: " + (f"did you mean {close!r}?" if close else f"it has {', '.join(fields)}")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return `: did you mean 'NAME'?` for the known name most similar to an unknown one; empty if none is similar."""
    close = close_to(str(name), known)
    return f": did you mean {close!r}?" if close else ""


def no_file(file: str) -> str:
    """Return the message for a file that does not exist, with the most similar name in its folder, if it has any."""
    path = Path(file)
    beside = [one.name for one in path.parent.glob(f"*{path.suffix}")] if path.suffix else []
    return f"there is no file {file!r}{did_you_mean(path.name, beside)}"


def checks_names(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function: an unknown keyword argument is an error that suggests the right name."""
    names = tuple(signature(function).parameters)

    @wraps(function)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        for name in options:
            if name not in names:
                raise TypeError(f"{function.__qualname__.removesuffix('.__init__')}() {unknown_field(name, names)}")
        return function(*args, **options)

    return checked
