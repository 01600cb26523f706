"""Which code the references of a graph file may name.

A graph file is data that may come from anywhere, and each `module:attr` in it makes this process run code: importing
a module runs it, and a tool, a reducer or a function is called later. So a reference is followed only into modules
that are trusted, and only to an object of the kind that its place in the file needs:

    Trust.of(None)        what the modules that are imported already declare for graphs
    Trust.of(["shop"])    the module `shop` and its submodules as well; they are imported
    Trust.of(True)        every module

*Declared for graphs* are nodes (`@node`), node kinds, tools (`@tool`), reducers (`Reducer`), graphs and pydantic
models. A plain function is followed only if it is defined in a module that was named as trusted, and never into the
standard library: otherwise a file could make a tool of `subprocess:getoutput`. This library's own tools are declared,
and those of a risk need trust all the same, because a file could call them where nothing asks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel

from orchestrator.errors import UntrustedCode
from orchestrator.graph.node_tools import node_tools
from orchestrator.graph.refs import attribute, find, module_named, resolve

T = TypeVar("T")

Trusted: TypeAlias = bool | str | Iterable[str] | None
"""What `Graph.load` takes: names of modules, True for every module, None for what is imported already."""

Role: TypeAlias = Literal["state", "node", "kind", "tool", "reducer", "graph", "function"]
"""What a reference stands for in a graph file. `function` is what a node of kind `call` calls."""

_PLAIN: tuple[Role, ...] = ("node", "tool", "reducer")
"""Where a plain function may stand, too, if a trusted module defines it."""
_WANTED: dict[Role, str] = {
    "state": "a pydantic model",
    "node": "a node: decorate the function with @node",
    "kind": "a subclass of Node",
    "tool": "a tool: decorate the function with @tool",
    "reducer": "a reducer",
    "graph": "a Graph",
    "function": "a function",
}


_MADE_FOR: dict[Role, type] = {}


def made_for(role: Role) -> Callable[[type[T]], type[T]]:
    """Marks a class whose instances are made to be named in graph files, in places of this role."""

    def mark(cls: type[T]) -> type[T]:
        _MADE_FOR[role] = cls
        return cls

    return mark


@dataclass(frozen=True, slots=True)
class Trust:
    """The modules that references may lead into."""

    modules: tuple[str, ...] = ()
    """Named as trusted: they and their submodules are imported where they are needed."""
    everything: bool = False
    imported: bool = False
    """Whether what imported modules declare for graphs is trusted, too."""

    @classmethod
    def of(cls, trusted: Trusted | Trust) -> Trust:
        """From what `Graph.load` takes."""
        if isinstance(trusted, Trust):
            return trusted
        if isinstance(trusted, bool) or trusted is None:
            return cls(everything=bool(trusted), imported=trusted is None)
        return cls(modules=(trusted,) if isinstance(trusted, str) else tuple(trusted), imported=True)

    def names(self, module: str) -> bool:
        """Whether a module was named as trusted, or a package that it is in."""
        return self.everything or any(f"{module}.".startswith(f"{name}.") for name in self.modules)

    def kinds(self, every: Mapping[str, type[T]]) -> Mapping[str, type[T]]:
        """The kinds of nodes that a file may name without a reference.

        Args:
            every: those of this process, by name.
        """
        return every

    def refuses(self, ref: str, role: Role) -> bool:
        """Whether the module of a reference is not trusted for its place in the file. Imports nothing."""
        module = ref.partition(":")[0]
        if self.names(module):
            return False
        if is_ours(module):
            return role == "function"
        if role == "function" or not self.imported:
            return True
        found = find(ref)
        return module not in sys.modules if found is None else not _declared(found, role)

    def follow(self, ref: str, role: Role) -> Any:
        """What a reference names.

        Raises:
            UntrustedCode: its module is not trusted, or it leads to something else than its place needs.
            GraphUnknown: there is no such module or attribute.
        """
        refuse_impossible(ref, role)
        if self.refuses(ref, role):
            raise UntrustedCode([ref])
        found = resolve(ref)
        module, _, path = ref.partition(":")
        named = self.names(module)
        if _through_a_module(module_named(module), path):
            raise UntrustedCode([], f"{ref!r} leads through another module: name that module in its place")
        if _declared(found, role):
            if role == "tool" and not named and _shipped_with_risk(found):
                raise UntrustedCode([ref])
            return found
        if named and self._defines(found, role):
            return found
        raise _unfit(ref, found, role)

    def _defines(self, found: object, role: Role) -> bool:
        """Whether a trusted module defines a plain function, which may stand here without being declared."""
        module = _home(found)
        if role == "function":
            return callable(found) and self.names(module)
        plain = role in _PLAIN and isinstance(found, FunctionType | MethodType)
        return plain and self.names(module) and not _of_python(module)


NOTHING = Trust()
"""Only what comes with this library."""


def refuse_impossible(ref: str, role: Role) -> None:
    """
    Raises:
        UntrustedCode: what a reference names cannot be of the kind that is needed, whatever is trusted.
    """
    if role == "function":
        return
    if _of_python(ref.partition(":")[0]):
        raise UntrustedCode([], f"{ref!r} is of Python's standard library, and a graph file names {_WANTED[role]}")
    found = find(ref)
    plain = isinstance(found, FunctionType | MethodType) and role in _PLAIN
    if found is not None and not plain and not _declared(found, role):
        raise _unfit(ref, found, role)


def _unfit(ref: str, found: object, role: Role) -> UntrustedCode:
    return UntrustedCode([], f"{ref!r} is {_said(found)}, and a graph file names {_WANTED[role]}")


def _declared(found: object, role: Role) -> bool:
    """Whether something was made to be named in graphs, in this place."""
    if role == "tool":
        return node_tools().tools_in(found) is not None
    if role in ("state", "kind"):
        wanted = BaseModel if role == "state" else _MADE_FOR.get("node", ())
        return isinstance(found, type) and issubclass(found, wanted)
    return isinstance(found, _MADE_FOR.get(role, ()))


def _shipped_with_risk(found: object) -> bool:
    homes = ((tool, _home(getattr(tool, "function", tool))) for tool in node_tools().tools_in(found) or ())
    return any(tool.risk != "none" and is_ours(home) for tool, home in homes)


def _home(thing: object) -> str:
    """The module that defines a function or class, or the class of anything else."""
    defined = isinstance(thing, FunctionType | MethodType | BuiltinFunctionType | type)
    return str(getattr(thing if defined else type(thing), "__module__", None) or "")


def _of_python(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _through_a_module(module: str, path: str) -> bool:
    """Whether a path leads to, or through, a module that the named one has imported."""
    thing: object = sys.modules.get(module)
    for part in path.split("."):
        thing = attribute(thing, part)
        if isinstance(thing, ModuleType):
            return True
    return False


def _said(found: object) -> str:
    if isinstance(found, FunctionType | BuiltinFunctionType | MethodType):
        return f"the function {found.__module__}.{found.__qualname__}"
    return f"the class {found.__qualname__}" if isinstance(found, type) else f"a {type(found).__name__}"


def is_ours(module: str) -> bool:
    """Whether a module is one of this library, its strategies included. Imports nothing."""
    return module_named(module).partition(".")[0] == "orchestrator"
