"""Code that is loaded when it is first used.

- `lazy_names`: the names of a package, which is then cheap to import, and whose modules can be imported one by one
  without the others;
- `lazy_modules`: modules that most processes never use;
- `above`: classes and modules of higher layers that a lower layer uses.
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

    On first use, a name is replaced by the object in its module, as if the package had imported it. A name that is also
    the name of a submodule refers to that object and never to the module. The modules of `homes` become attributes, as
    if imported, too.

    Args:
        package: the package's name. It has `__all__`.
        homes: module -> the names of the package that it defines.

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
    """Return modules that are imported on first use, for code that most processes never use.

        if TYPE_CHECKING:
            from shapes import circle, square
        else:
            circle, square = lazy_modules("shapes", "circle square")

    Args:
        package: the package that contains them.
        modules: their names, separated by spaces.

    Returns:
        For each module, an object with its attributes.
    """
    return tuple(_Later(f"{package}.{module}") for module in modules.split())


class _Later:
    """A module that is imported when one of its attributes is first used."""

    __slots__ = ("_found", "_module")

    def __init__(self, module: str) -> None:
        self._module = module
        self._found: ModuleType | None = None

    def __getattr__(self, name: str) -> object:
        if self._found is None:
            self._found = import_module(self._module)
        return getattr(self._found, name)


class _Kept:
    """A name of a package that importing the submodule with the same name does not replace.

    It can be replaced like any other name, and has its own value again once the replacement is deleted, as mocks do.
    """

    def __init__(self, submodule: str, name: str, home: str) -> None:
        self._submodule, self._name, self._home = submodule, name, home
        self._value: tuple[object, ...] = ()  # empty until the attribute is loaded

    def __get__(self, face: object, kind: object = None) -> object:
        if not self._value:
            self._value = (getattr(import_module(self._home), self._name),)
        return self._value[0]

    def __set__(self, face: object, value: object) -> None:
        if not (isinstance(value, ModuleType) and value.__name__ == self._submodule):
            self._value = (value,)

    def __delete__(self, face: object) -> None:
        self._value = ()


# -- Uses of higher layers ---------------------------------------------------------------------------------------
# Imports point to lower layers, for types too. Six features need a higher layer:
#
# - a `GraphDefinition` is always made as a `Graph`, which runs and draws itself;
# - a run draws itself;
# - a node takes functions and toolboxes as its own tools;
# - an executor returns the events of a run in another format;
# - a stored graph finds the node kinds of the library;
# - the fields of a state defined as data can be messages, calls and results.
#
# The lower layer declares the type that it receives (a base class, or a protocol), and `above` loads it on first use.


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
    """Return the class or module of a higher layer. Annotate it with a type of your own layer."""
    module, _, attribute = _ABOVE[name].partition(":")
    found = import_module(module)
    return getattr(found, attribute) if attribute else found
