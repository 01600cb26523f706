"""Packages that load what they name when it is first used.

A package so made costs next to nothing to import, and its modules can be imported one by one without the others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType


def late(package: str, homes: Mapping[str, tuple[str, ...]]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` of a package.

        if not TYPE_CHECKING:  # a type checker knows the names from imports, and reports all others
            __getattr__, __dir__ = late(__name__, {"shapes.circle": ("Circle",), "shapes.square": ("Square",)})

    A name stands for the thing in its module from its first use on, as if the package had imported it. A name that a
    submodule has, too, is that thing and never the module. The modules of `homes` are attributes as if imported, too.

    Args:
        package: the package's name. It has `__all__`.
        homes: module -> the names of the package that are there.

    Returns:
        The two functions.
    """
    face = sys.modules[package]
    home_of = {name: home for home, names in homes.items() for name in names}
    shadowed = [name for name, home in home_of.items() if f"{package}.{name}" in (home, *homes)]
    if shadowed:
        face.__class__ = type("Package", (ModuleType,), {name: _Kept(name, home_of[name]) for name in shadowed})

    def get(name: str) -> object:
        home = home_of.get(name)
        if home is None and f"{package}.{name}" in homes:
            return import_module(f"{package}.{name}")
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(home), name)
        setattr(face, name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(face), *face.__all__})

    return get, names


class _Kept:
    """A name of a package that the import of the submodule of this name does not replace."""

    def __init__(self, name: str, home: str) -> None:
        self._name, self._home = name, home
        self._value: object = None

    def __get__(self, face: object, kind: object = None) -> object:
        if self._value is None:
            self._value = getattr(import_module(self._home), self._name)
        return self._value

    def __set__(self, face: object, value: object) -> None:
        if not isinstance(value, ModuleType):
            self._value = value
