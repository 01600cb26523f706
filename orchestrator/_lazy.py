"""Code that is loaded when it is first used.

- `lazy_names`: the names of a package, which then costs next to nothing to import, and whose modules can be imported
  one by one without the others;
- `lazy_modules`: modules that most processes do not come to;
- `above`: what a room uses of rooms above it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Literal


def lazy_names(
    package: str, homes: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` of a package.

        if not TYPE_CHECKING:  # a type checker knows the names from imports, and reports all others
            __getattr__, __dir__ = lazy_names(__name__, {"shapes.circle": ("Circle",), "shapes.square": ("Square",)})

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
        kept = {name: _Kept(f"{package}.{name}", name, home_of[name]) for name in shadowed}
        face.__class__ = type("Package", (ModuleType,), kept)

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


def lazy_modules(package: str, modules: str) -> tuple[Any, ...]:
    """Modules that are imported when something in them is first used, for code that most processes do not come to.

        if TYPE_CHECKING:
            from shapes import circle, square
        else:
            circle, square = lazy_modules("shapes", "circle square")

    Args:
        package: the package that they are in.
        modules: their names, separated by blanks.

    Returns:
        For each what has its attributes.
    """
    return tuple(_Later(f"{package}.{module}") for module in modules.split())


class _Later:
    """A module that is imported when it is asked for something."""

    __slots__ = ("_found", "_module")

    def __init__(self, module: str) -> None:
        self._module = module
        self._found: ModuleType | None = None

    def __getattr__(self, name: str) -> object:
        if self._found is None:
            self._found = import_module(self._module)
        return getattr(self._found, name)


class _Kept:
    """A name of a package that the import of the submodule of this name does not replace.

    It can be replaced like any other name, and has its own value again once that is deleted, as mocks do.
    """

    def __init__(self, submodule: str, name: str, home: str) -> None:
        self._submodule, self._name, self._home = submodule, name, home
        self._value: tuple[object, ...] = ()  # none until it is loaded

    def __get__(self, face: object, kind: object = None) -> object:
        if not self._value:
            self._value = (getattr(import_module(self._home), self._name),)
        return self._value[0]

    def __set__(self, face: object, value: object) -> None:
        if not (isinstance(value, ModuleType) and value.__name__ == self._submodule):
            self._value = (value,)

    def __delete__(self, face: object) -> None:
        self._value = ()


# -- What rooms use of rooms above them ------------------------------------------------------------------------
# Imports point downward, for types too. Six conveniences run the other way:
#
# - a `GraphDefinition` is always made as a `Graph`, which runs and draws itself;
# - a run draws itself;
# - a node takes functions and toolboxes as its own tools;
# - an executor gives the events of a run in another style;
# - a stored graph finds the kinds of nodes that come with the library;
# - the fields of a state that is written as data can be messages, calls and results.
#
# The lower room declares what it gets (a base class, or a protocol), and the door loads it when it is first used.


_ABOVE = {
    "Graph": "orchestrator.graph_class:Graph",
    "drawings": "orchestrator.render:",
    "embedia": "orchestrator.views.embedia:Embedia",
    "messages": "orchestrator.models.messages:",
    "node_tools": "orchestrator.tools.toolbox:",
    "nodes": "orchestrator.nodes:",
}
"""Name -> class or module."""


def above(name: Literal["Graph", "drawings", "embedia", "messages", "node_tools", "nodes"]) -> Any:
    """Return the class or module that a higher room has under this name. Annotate it with the type of your own room."""
    module, _, attribute = _ABOVE[name].partition(":")
    found = import_module(module)
    return getattr(found, attribute) if attribute else found
