"""GRAPH on the command line: a shipped name, `module:attr`, `module`, `file.py:attr`, or a YAML or JSON file."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from orchestrator.cli.environment import import_from
from orchestrator.cli.exits import UsageError
from orchestrator.cli.output import warn
from orchestrator.errors import GraphUnknown, OrchestratorError
from orchestrator.jsontypes import digest

if TYPE_CHECKING:
    from orchestrator.graph import Graph

DATA = (".yaml", ".yml", ".json")


def shipped() -> tuple[str, ...]:
    """The names of the graphs that come with the library."""
    import graphs

    return tuple(sorted(module.name for module in pkgutil.iter_modules(graphs.__path__) if module.name[0] != "_"))


def is_file_ref(ref: str) -> bool:
    """Whether a reference can only be one to a graph: it names a file or an attribute."""
    return ":" in ref or ref.endswith((*DATA, ".py"))


def absolute(ref: str) -> str:
    """The same reference for a process that runs in another directory."""
    file, colon, attribute = ref.partition(":")
    return f"{Path(file).absolute()}{colon}{attribute}" if file.endswith((*DATA, ".py")) else ref


def graph_from_ref(ref: str) -> Graph:
    """The graph that a reference names. Imports the module that it is in.

    Raises:
        GraphUnknown: there is no such graph; the message lists what there is.
        InvalidGraph: there is one and its checks found problems.
        UsageError: its module cannot be imported.
    """
    if ref.endswith(DATA):
        return _from_data(ref)
    place, colon, attribute = ref.partition(":")
    if place.endswith(".py"):
        module = _module_of_file(Path(place), ref)
    elif colon:
        module = _module(place, ref)
    elif ref in shipped():
        module, attribute = _import(f"graphs.{ref}"), "graph"
    else:
        module = _module(place, ref)
    return _attribute(module, attribute, place) if attribute else _only(module, place)


def _from_data(ref: str) -> Graph:
    from orchestrator.graph import Graph

    if not Path(ref).is_file():
        raise GraphUnknown(f"there is no file {ref!r}")
    import_from(str(Path(ref).absolute().parent))  # a graph file names its functions as module:attr
    return Graph.load(ref)


def _module_of_file(path: Path, ref: str) -> ModuleType:
    if not path.is_file():
        raise GraphUnknown(f"{ref!r}: there is no file {str(path)!r}")
    path = path.resolve()
    import_from(str(path.parent))
    for known in list(sys.modules.values()):
        if getattr(known, "__file__", None) == str(path):
            return known
    # Its own name is kept where it is free: references to its functions are written with it.
    found = importlib.util.find_spec(path.stem) if path.stem.isidentifier() else None
    if found is not None and found.origin == str(path):
        return _import(path.stem)
    name = path.stem if found is None else f"{path.stem}_{digest(str(path))[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with importing(str(path)):
        spec.loader.exec_module(module)
    return module


def _module(name: str, ref: str) -> ModuleType:
    try:
        found = importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError):
        found = None
    if found is None:
        raise _unknown(ref, f"there is no module {name!r}" if name != ref else "it is neither shipped nor a module")
    return _import(name)


def _import(name: str) -> ModuleType:
    with importing(name):
        return importlib.import_module(name)


@contextmanager
def importing(name: str) -> Iterator[None]:
    """Turns what a user's module raises on import into a usage error, with where it happened.

    Raises:
        UsageError: importing failed.
    """
    try:
        yield
    except OrchestratorError:
        raise
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
        warn("".join(traceback.format_list(frames[1:])).rstrip())
        raise UsageError(f"{name} cannot be imported: {type(error).__name__}: {error}") from None


def _graphs_in(module: ModuleType) -> dict[str, Graph]:
    from orchestrator.graph import Graph

    found = {name: thing for name, thing in vars(module).items() if isinstance(thing, Graph) and name[0] != "_"}
    return {name: thing for name, thing in found.items() if next(n for n in found if found[n] is thing) == name}


def _attribute(module: ModuleType, name: str, place: str) -> Graph:
    from orchestrator.graph import Graph

    thing: object = module
    for part in name.split("."):
        thing = getattr(thing, part, None)
    if isinstance(thing, Graph):
        return thing
    fault = f"{place} has no {name!r}" if thing is None else f"{place}:{name} is no Graph but a {type(thing).__name__}"
    there = _graphs_in(module)
    raise GraphUnknown(f"{fault}; {_listed('graphs there', there)}")


def _only(module: ModuleType, place: str) -> Graph:
    there = _graphs_in(module)
    if len(there) == 1:
        return next(iter(there.values()))
    if not there:
        raise _unknown(place, f"module {place} has no graph in it")
    choices = ", ".join(f"{place}:{name}" for name in there)
    raise GraphUnknown(f"{place} has several graphs; say which: {choices}")


def _unknown(ref: str, fault: str) -> GraphUnknown:
    names = shipped()
    close = get_close_matches(ref, names, 1)
    guess = f"; did you mean {close[0]!r}?" if close else ""
    return GraphUnknown(
        f"unknown graph {ref!r}: {fault}{guess} {_listed('Shipped graphs', names)}. "
        "Others are named 'module:attr', 'file.py:attr' or by their YAML or JSON file."
    )


def _listed(title: str, names: Iterable[str]) -> str:
    return f"{title}: {', '.join(names) or 'none'}"
