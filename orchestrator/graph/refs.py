"""References to code such as `module:attr`: resolving them, trusting them, and listing those in a graph's data."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from msgspec import Struct
from pydantic import BaseModel

from orchestrator._lazy import above
from orchestrator.errors import GraphUnknown, UntrustedCode
from orchestrator.json import digest
from orchestrator.spelling import did_you_mean, no_file

# -- References to code as text: `module:attr`, or `file.py` for a module that is named by its file ------------
# Writing one is always safe. `resolve` and `module_of_file` import, so they are called only for text from a trusted
# person: a graph file given to `Graph.load`, or an argument of the command line. They are never called for the contents
# of a store.
#
# References to the strategies of this library are written `graphs.react:...`, after their source folder. Their modules
# are those of `orchestrator.strategies`.


_STRATEGIES = "orchestrator.strategies."
_AS_WRITTEN = "graphs."
_FOLDER = Path(__file__).parents[1] / "strategies"


def strategies() -> tuple[str, ...]:
    """Return the names of the strategies in the library. Imports none of them."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(_FOLDER)]) if module.name[0] != "_"))


def ref_of(thing: object) -> str | None:
    """Return `module:qualname` of a function or class; None if it has no such name (a lambda, a closure)."""
    module = getattr(thing, "__module__", None)
    name = getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        return None
    module = _importable(module)
    return f"{_AS_WRITTEN}{module[len(_STRATEGIES) :]}:{name}" if module.startswith(_STRATEGIES) else f"{module}:{name}"


def module_named(module: str) -> str:
    """Return the module's real name: `orchestrator.strategies.react` for `graphs.react`.

    If the program has imported its own module `graphs.react`, the name refers to that one.
    """
    top, _, rest = module.partition(".")
    if top != "graphs" or not (_FOLDER / f"{rest}.py").is_file():
        return module
    strategy = f"{_STRATEGIES}{rest}"
    return strategy if sys.modules.get(module) in (None, sys.modules.get(strategy)) else module


def _importable(module: str) -> str:
    """Return the name under which another process can import a module that is the main program here."""
    if module != "__main__":
        return module
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    return Path(file).stem if file and Path(file).stem.isidentifier() else "__main__"


def find(ref: str) -> object | None:
    """Return the object that a reference names in modules that are already imported, else None. Imports and runs
    nothing."""
    name, _, path = ref.partition(":")
    module_name = module_named(name)
    main = sys.modules.get("__main__")
    module = main if main is not None and _importable("__main__") == module_name else sys.modules.get(module_name)
    return _held(module, path)


def _held(thing: object, path: str) -> object | None:
    """Return the object at `path`, through modules and classes alone, else None.

    It runs none of their code: a module with a `__getattr__` may import others, and a property may do anything.
    """
    for part in path.split("."):
        if isinstance(thing, ModuleType):
            thing = vars(thing).get(part)
        elif isinstance(thing, type):
            thing = next((vars(base)[part] for base in type.mro(thing) if part in vars(base)), None)
            thing = thing.__func__ if isinstance(thing, staticmethod) else thing
        else:
            return None
    return thing


def attribute(thing: object, path: str) -> object | None:
    """Return the object at `path` (`name.name...`) from a module or another object, else None."""
    for part in path.split("."):
        thing = getattr(thing, part, None)
    return thing


def resolve(ref: str) -> object:
    """Import what a reference names.

    Raises:
        GraphUnknown: the text is not a reference, or there is no such module or attribute.
    """
    module_name, colon, path = ref.partition(":")
    if not colon or not module_name or not path:
        raise GraphUnknown(f"{ref!r} is not a reference: write 'module:attribute'")
    known = find(ref)
    if known is not None:
        return known
    try:
        thing: object = importlib.import_module(module_named(module_name))
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name + ".").startswith(error.name + "."):
            raise GraphUnknown(f"{ref!r}: there is no module {error.name!r}; is its folder on sys.path?") from None
        raise
    for part in path.split("."):
        try:
            thing = getattr(thing, part)
        except AttributeError:
            guess = did_you_mean(part, getattr(thing, "__dict__", ()))
            raise GraphUnknown(f"{ref!r}: module {module_name!r} has no {path!r}{guess}") from None
    return thing


def module_of_file(file: str) -> ModuleType:
    """Import the module in a file, once, with its folder at the end of `sys.path`, so that it hides no package.

    It keeps its own name if that is free, because references to its functions contain the name.

    Raises:
        GraphUnknown: there is no such file, or it is not a Python file.
    """
    path = Path(file)
    if not path.is_file():
        raise GraphUnknown(no_file(file))
    path = path.resolve()
    if path.parent == _FOLDER.resolve():
        return importlib.import_module(f"{_STRATEGIES}{path.stem}")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    for known in list(sys.modules.values()):
        if getattr(known, "__file__", None) == str(path):
            return known
    name = path.stem
    taken = "." in name or name in sys.modules
    found = None if taken else importlib.util.find_spec(name)
    if found is not None and found.origin == str(path):
        return importlib.import_module(name)
    if taken or found is not None:
        name = f"{name.replace('.', '_')}_{digest(str(path))[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise GraphUnknown(f"{file!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


# -- Trust in the references of a graph file -------------------------------------------------------------------
# A graph file is data that may come from anywhere, and each `module:attr` in it makes this process run code: importing
# a module runs it, and a tool, a reducer or a function is called later. A reference is therefore followed only into
# trusted modules, and only to an object of the kind that its place in the file needs:
#
#     Trust.of(None)        declarations for graphs in modules that are already imported
#     Trust.of(["shop"])    the module `shop` and its submodules as well; they are imported
#     Trust.of(True)        every module
#
# *Declarations for graphs* are nodes (`@node`), node kinds, tools (`@tool`), reducers (`Reducer`), graphs and pydantic
# models. A plain function is accepted only if a module named as trusted defines it, and never from the standard
# library: otherwise a file could make a tool of `subprocess:getoutput`. This library's own tools are declared, but
# those with a risk need trust all the same, because a file could call them without asking for approval.


T = TypeVar("T")

Trusted: TypeAlias = bool | str | Iterable[str] | None
"""The modules that `Graph.load` trusts: names of modules, True for every module, None for modules already imported."""

Role: TypeAlias = Literal["state", "node", "kind", "tool", "reducer", "graph", "function"]
"""The role of a reference in a graph file. `function` is the function that a node of kind `call` calls."""

_PLAIN: tuple[Role, ...] = ("node", "tool", "reducer")
"""Roles that a plain function may have, too, if a trusted module defines it."""
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
    """Return a decorator for classes whose instances graph files may name in this role."""

    def mark(cls: type[T]) -> type[T]:
        _MADE_FOR[role] = cls
        return cls

    return mark


class Trust(Struct, frozen=True):
    """The modules that references may lead into."""

    modules: tuple[str, ...] = ()
    """The trusted modules: they and their submodules are imported when needed."""
    everything: bool = False
    imported: bool = False
    """True to trust declarations for graphs in imported modules, too."""

    @classmethod
    def of(cls, trusted: Trusted | Trust) -> Trust:
        """Return the trust that an argument of `Graph.load` describes."""
        if isinstance(trusted, Trust):
            return trusted
        if isinstance(trusted, bool) or trusted is None:
            return cls(everything=bool(trusted), imported=trusted is None)
        return cls(modules=(trusted,) if isinstance(trusted, str) else tuple(trusted), imported=True)

    def names(self, module: str) -> bool:
        """Return True if a module or a package that contains it was named as trusted."""
        return self.everything or any(f"{module}.".startswith(f"{name}.") for name in self.modules)

    def kinds(self, every: Mapping[str, type[T]]) -> Mapping[str, type[T]]:
        """Return the node kinds that a file may name without a reference.

        Args:
            every: the kinds in this process, by name.
        """
        return every

    def refuses(self, ref: str, role: Role) -> bool:
        """Return True if the module of a reference is not trusted for its place in the file. Imports nothing."""
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
        """Return the object that a reference names.

        Raises:
            UntrustedCode: its module is not trusted, or the object does not suit its place.
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
        """Return True if a trusted module defines this plain function, which then needs no declaration."""
        module = _home(found)
        if role == "function":
            return callable(found) and self.names(module)
        plain = role in _PLAIN and isinstance(found, FunctionType | MethodType)
        return plain and self.names(module) and not _of_python(module)


NOTHING = Trust()
"""Trusts only the code of this library."""


def refuse_impossible(ref: str, role: Role) -> None:
    """Raise `UntrustedCode` if the object of a reference cannot be of the needed kind, whatever is trusted."""
    if role == "function":
        return
    if _of_python(ref.partition(":")[0]):
        raise UntrustedCode([], f"{ref!r} is from Python's standard library, but a graph file names {_WANTED[role]}")
    found = find(ref)
    plain = isinstance(found, FunctionType | MethodType) and role in _PLAIN
    if found is not None and not plain and not _declared(found, role):
        raise _unfit(ref, found, role)


def _unfit(ref: str, found: object, role: Role) -> UntrustedCode:
    return UntrustedCode([], f"{ref!r} is {_said(found)}, but a graph file names {_WANTED[role]}")


def _declared(found: object, role: Role) -> bool:
    """Return True if an object is declared for graphs, in this role."""
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
    """Return the module that defines a function, a class, or the class of any other object."""
    defined = isinstance(thing, FunctionType | MethodType | BuiltinFunctionType | type)
    return str(getattr(thing if defined else type(thing), "__module__", None) or "")


def _of_python(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _through_a_module(module: str, path: str) -> bool:
    """Return True if a path leads to, or through, another module that the named one has imported."""
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
    """Return True if a module is one of this library, its strategies included. Imports nothing."""
    return module_named(module).partition(".")[0] == "orchestrator"


# -- The references to code in a graph's data. Reading them imports nothing ------------------------------------


class CodeRef(NamedTuple):
    """A reference in a graph's data."""

    place: str
    """Its place, such as `node 'write'`."""
    ref: str
    """`module:attr`."""
    role: Role


def code_refs(data: object) -> Iterator[CodeRef]:
    """Yield the references in a graph's data, in order."""
    if not isinstance(data, Mapping):
        return
    yield from _of_state(data.get("state"))
    nodes = data.get("nodes")
    for name, spec in nodes.items() if isinstance(nodes, Mapping) else ():
        for found in _of_node(spec):
            yield found._replace(place=f"node {name!r}{found.place and ', '}{found.place}")


def _of_state(state: object) -> Iterator[CodeRef]:
    if isinstance(state, str) and ":" in state:
        yield CodeRef("state", state, "state")
    if not isinstance(state, Mapping):
        return
    if isinstance(state.get("ref"), str):
        yield CodeRef("state", state["ref"], "state")
        return
    fields = state.get("fields")
    for name, spec in fields.items() if isinstance(fields, Mapping) else ():
        reducer = spec.get("reducer") if isinstance(spec, Mapping) else None
        if isinstance(reducer, str) and ":" in reducer:
            yield CodeRef(f"field {name!r}", reducer, "reducer")


def _of_node(spec: object) -> Iterator[CodeRef]:
    if isinstance(spec, str) and ":" in spec:
        yield CodeRef("", spec, "node")
    if not isinstance(spec, Mapping):
        return
    kind, ref = spec.get("kind"), spec.get("ref")
    if isinstance(ref, str) and kind in ("function", "call"):
        yield CodeRef("", ref, "node" if kind == "function" else "function")
    if isinstance(spec.get("class"), str):
        yield CodeRef("", spec["class"], "kind")
    if kind == "complete" and isinstance(spec.get("output"), str):
        yield CodeRef("output", spec["output"], "state")
    tools: object = spec.get("tools")
    for tool in tools if isinstance(tools, list | tuple) else ():
        if isinstance(tool, str) and ":" in tool[1:]:
            yield CodeRef("tools", tool, "tool")
        elif isinstance(tool, Mapping):
            if isinstance(tool.get("graph"), str) and ":" in tool["graph"]:
                yield CodeRef("tools", tool["graph"], "graph")
            yield from code_refs(tool.get("graph"))
    graph = spec.get("graph")
    if isinstance(graph, str) and ":" in graph:
        yield CodeRef("graph", graph, "graph")
    yield from code_refs(graph)


# -- A node's own tools. Package `tools` makes them of functions, tools and toolboxes -----------------------


class NodeTool(Protocol):
    """The part of a tool's interface that a graph uses."""

    @property
    def name(self) -> str: ...
    @property
    def risk(self) -> str: ...


class NodeTools(Protocol):
    """The functions of package `tools` that make a node's own tools."""

    def tools_of_a_node(self, things: object) -> dict[str, tuple[object, NodeTool] | None]: ...
    def handoff(self, outcome: str, **fields: Any) -> NodeTool: ...
    def tools_in(self, thing: object) -> Sequence[NodeTool] | None: ...


def node_tools() -> NodeTools:
    """Return the functions of package `tools`."""
    found: NodeTools = above("node_tools")
    return found
