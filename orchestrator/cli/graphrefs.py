"""GRAPH on the command line: a shipped name, `module:attr`, `module`, `file.py:attr`, or a YAML or JSON file."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import orchestrator
from orchestrator.cli.environment import import_for
from orchestrator.cli.exits import UsageError
from orchestrator.cli.output import warn
from orchestrator.cli.redaction import redacted
from orchestrator.cli.trust_prompt import DATA, reach, refused, source_of, trust_of
from orchestrator.errors import GraphUnknown, OrchestratorError
from orchestrator.graph.refs import attribute, module_named, module_of_file

if TYPE_CHECKING:
    from orchestrator.graph import GraphDefinition
    from orchestrator.graph_class import Graph

_HOME = Path(orchestrator.__file__).parent / "strategies"
"""Where the shipped graphs are."""


def shipped() -> tuple[str, ...]:
    """The names of the graphs that come with the library."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(_HOME)]) if module.name[0] != "_"))


def is_file_ref(ref: str) -> bool:
    """Whether a reference can only be one to a graph: it names a file or an attribute."""
    return ":" in ref or ref.endswith((*DATA, ".py"))


def absolute(ref: str) -> str:
    """The same reference for a process that runs in another directory."""
    file, colon, attribute = ref.partition(":")
    if file == "mcp":
        from orchestrator.tools.mcp.servers import absolute as absolute_server

        return absolute_server(ref)
    return f"{Path(file).absolute()}{colon}{attribute}" if file.endswith((*DATA, ".py")) else ref


def graph_from_ref(ref: str, directory: str | None = None, trust: Sequence[str] = ()) -> Graph:
    """The graph that a reference names. Imports the module that it is in.

    Args:
        directory: where a module that is not installed is looked for; by default the current directory.
        trust: the modules that a graph file may name code of.

    Raises:
        GraphUnknown: there is no such graph; the message lists what there is.
        InvalidGraph: there is one and its checks found problems.
        UsageError: its module cannot be imported, or a graph file names code that is not trusted.
    """
    directory = directory or os.getcwd()
    if ref.endswith(DATA):
        return _from_data(ref, directory, trust)
    place, colon, name = ref.partition(":")
    if colon or ref not in shipped():
        import_for(ref, directory)
    if place.endswith(".py"):
        with importing(place):
            module = module_of_file(place)
    elif colon:
        module = _module(module_named(place), ref)
    elif ref in shipped():
        module, name = module_from_name(f"orchestrator.strategies.{ref}"), "graph"
    else:
        module = _module(module_named(place), ref)
    return _attribute(module, name, place) if name else _only(module, place)


def _from_data(ref: str, directory: str, trust: Sequence[str]) -> Graph:
    from orchestrator.graph.text.source import located
    from orchestrator.graph_class import Graph

    source = source_of(ref)
    data = source.data
    unknown = dict.fromkeys(one.ref.partition(":")[0] for one in refused(data, trust))
    if unknown:
        options = " ".join(f"--trust {module}" for module in unknown)
        raise UsageError(f"{ref} refers to code that is not trusted: if you know what it does, add {options}")
    reach(ref, data, directory)
    with importing(ref), located(Path(ref), source.text):
        return Graph.from_data(data, resolve=trust_of(trust))


def shape_from_ref(ref: str, trust: Sequence[str] = ()) -> tuple[GraphDefinition, tuple[str, ...]]:
    """The graph that a reference names, to check and to draw it; and what only its code could tell.

    Of a graph file that names code outside of `trust`, its outline: nothing that it names is imported.

    Raises:
        GraphUnknown, InvalidGraph, UsageError: as `graph_from_ref`.
    """
    if ref.endswith(DATA) and refused((source := source_of(ref)).data, trust):
        from orchestrator.graph.text.outline import outline
        from orchestrator.graph.text.source import located

        with located(Path(ref), source.text):
            found = outline(source.data)
        return found.graph, found.skipped
    return graph_from_ref(ref, None, trust), ()


def _module(name: str, ref: str) -> ModuleType:
    with importing(name):
        there = _is_there(name)
    if not there:
        raise unknown(
            ref, f"there is no module {name!r}" if name != ref else "it is neither a shipped graph nor a module"
        )
    return module_from_name(name)


def _is_there(name: str) -> bool:
    """Whether there is a module of this name. Of `a.b` it imports `a`."""
    if not all(name.split(".")):
        return False
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        return False


def module_from_name(name: str) -> ModuleType:
    """Import a module that a user named."""
    with importing(name):
        return importlib.import_module(name)


@contextmanager
def importing(name: str, verb: str = "imported") -> Iterator[None]:
    """Turns what a user's module raises on import into a usage error, with where it happened.

    Raises:
        UsageError: importing failed.
    """
    try:
        yield
    except (OrchestratorError, UsageError):
        raise
    except (Exception, SystemExit) as error:
        ours = (str(Path(orchestrator.__file__).parent), "<frozen importlib")
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
        frames = [frame for frame in frames if frame.filename != importlib.__file__]
        if frames:
            warn(str(redacted("".join(traceback.format_list(frames)).rstrip())))
        raise UsageError(f"{name} cannot be {verb}: {type(error).__name__}: {error}") from None


def _graphs_in(module: ModuleType) -> dict[str, Graph]:
    from orchestrator.graph_class import Graph

    # A lazy attribute of the module imports more as soon as its `__class__` is read: look at the type only.
    things = list(vars(module).items())
    found = {name: thing for name, thing in things if issubclass(type(thing), Graph) and name[0] != "_"}
    return {name: thing for name, thing in found.items() if next(n for n in found if found[n] is thing) == name}


def _attribute(module: ModuleType, name: str, place: str) -> Graph:
    from orchestrator.graph_class import Graph

    thing = attribute(module, name)
    if isinstance(thing, Graph):
        return thing
    fault = (
        f"{place} has no {name!r}" if thing is None else f"{place}:{name} is not a Graph but a {type(thing).__name__}"
    )
    there = _graphs_in(module)
    raise GraphUnknown(f"{fault}; {_listed('graphs there', there)}")


def _only(module: ModuleType, place: str) -> Graph:
    there = _graphs_in(module)
    if len(there) == 1:
        return next(iter(there.values()))
    if not there:
        raise unknown(place, f"module {place} contains no graph")
    choices = ", ".join(f"{place}:{name}" for name in there)
    raise GraphUnknown(f"{place} has several graphs; choose one: {choices}")


def unknown(ref: str, fault: str) -> GraphUnknown:
    """The error that there is no such graph, with those that there are."""
    names = shipped()
    close = get_close_matches(ref, names, 1)
    guess = f"; did you mean {close[0]!r}?" if close else "."
    return GraphUnknown(
        f"unknown graph {ref!r}: {fault}{guess} {_listed('Shipped graphs', names)}. "
        "Name other graphs as 'module:attr', 'file.py:attr', or by a YAML or JSON file."
    )


def _listed(title: str, names: Iterable[str]) -> str:
    return f"{title}: {', '.join(names) or 'none'}"
