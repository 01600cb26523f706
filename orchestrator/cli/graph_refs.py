"""GRAPH on the command line: a shipped name, `module:attr`, `module`, `file.py:attr`, or a YAML or JSON file.

An attribute is a graph, or a function that builds one, with options as in `file.py:attr?rounds=3`.
A file may name code only if its modules are trusted: by `--trust`, or by an answer on the terminal.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import pkgutil
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import orchestrator
from orchestrator._lazy import lazy_modules
from orchestrator.cli.environment import agrees, import_for
from orchestrator.cli.exits import UsageError
from orchestrator.cli.graph_options import build, graph_of, parted
from orchestrator.cli.output import redacted, shell_command, warn
from orchestrator.errors import GraphUnknown, OrchestratorError
from orchestrator.graph.reading import refuse_untrusted
from orchestrator.graph.refs import Trust, attribute, code_refs, is_ours, module_named, module_of_file
from orchestrator.graph.text.source import located, read_source
from orchestrator.graph_class import Graph
from orchestrator.spelling import did_you_mean, no_file
from orchestrator.visible import line, narrow
from orchestrator.visible import shown as visible

if TYPE_CHECKING:
    from orchestrator.graph import GraphDefinition
    from orchestrator.graph.refs import CodeRef
    from orchestrator.graph.text import outline
    from orchestrator.graph.text.source import Source
    from orchestrator.tools.mcp import servers
else:  # few references need them
    (outline,) = lazy_modules("orchestrator.graph.text", "outline")
    (servers,) = lazy_modules("orchestrator.tools.mcp", "servers")


DATA = (".yaml", ".yml", ".json")
"""Suffixes of graph files."""


def read(file: str) -> Any:
    """Return the data of a graph file, see `source_of`."""
    return source_of(file).data


def source_of(file: str) -> Source:
    """Read a graph file, and return its data and text. References are not resolved.

    Raises:
        GraphUnknown: the file does not exist.
        GraphError: the file is neither YAML nor JSON, or is too large.
    """

    if not Path(file).is_file():
        raise GraphUnknown(no_file(file))
    return read_source(Path(file))


def trust_of(modules: Sequence[str]) -> Trust:
    """Return the trust of the command line: the named modules, and this library."""
    return Trust(modules=tuple(modules))


def refused(data: object, modules: Sequence[str]) -> list[CodeRef]:
    """Return the references of a graph file into modules that are not trusted."""
    trust = trust_of(modules)
    return [one for one in code_refs(data) if trust.refuses(one.ref, one.role)]


def admitted(graph: str, modules: Sequence[str]) -> tuple[str, ...]:
    """Return the modules that a graph file may name: those of `--trust`, and those that the user admits.

    Raises:
        UsageError: the file names other modules, and the user refused or cannot be asked.
    """
    graph, _ = parted(graph)
    if not graph.endswith(DATA):
        return tuple(modules)
    data = read(graph)

    refuse_untrusted(data, Trust(everything=True))  # references that would be invalid even if trusted
    found = refused(data, modules)
    if not found:
        return tuple(modules)
    needed = tuple(dict.fromkeys(one.ref.partition(":")[0] for one in found))
    listed = "\n".join(f"  {one.place}: {narrow(one.ref)}" for one in found)
    warn(f"{graph} refers to code, which runs when it is imported:\n{listed}")
    if not agrees(f"Import {narrow(', '.join(needed))}?"):
        trusting = [word for module in needed for word in ("--trust", line(module))]
        command = shell_command(*sys.argv[1:2], *trusting, *sys.argv[2:])
        raise UsageError(f"{graph}: its code is not trusted. If you know what it does:\n  {visible(command)}")
    return (*modules, *needed)


def reach(file: str, data: object, directory: str) -> None:
    """Make the code that a graph file names importable from its folder and from a directory, after other locations."""
    for one in code_refs(data):
        module = one.ref.partition(":")[0]
        if not is_ours(module):
            import_for(module, str(Path(file).absolute().parent))
            import_for(module, directory)


_HOME = Path(orchestrator.__file__).parent / "strategies"
"""Folder of the shipped graphs."""


def shipped() -> tuple[str, ...]:
    """Return the names of the graphs that come with the library."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(_HOME)]) if module.name[0] != "_"))


def is_file_ref(ref: str) -> bool:
    """Return True if a reference can only be a graph: it names a file or an attribute, or has options."""
    ref, options = parted(ref)
    return bool(options) or ":" in ref or ref.endswith((*DATA, ".py"))


def absolute(ref: str) -> str:
    """Return the reference in a form that works in another directory."""
    file = parted(ref)[0].partition(":")[0]
    if file == "mcp":
        return servers.absolute(ref)
    return f"{Path(file).absolute()}{ref[len(file) :]}" if file.endswith((*DATA, ".py")) else ref


def graph_from_ref(ref: str, directory: str | None = None, trust: Sequence[str] = ()) -> Graph:
    """Return the graph that a reference names. Imports its module.

    Args:
        directory: directory searched for a module that is not installed; default: the current directory.
        trust: modules whose code a graph file may name.

    Raises:
        GraphUnknown: there is no such graph; the message lists the known ones.
        InvalidGraph: the graph's checks found problems.
        UsageError: its module cannot be imported, or a graph file names code that is not trusted.
    """
    directory = directory or os.getcwd()
    ref, options = parted(ref)
    if ref.endswith(DATA):
        if options:
            raise UsageError(f"--set {next(iter(options))}: {ref} has no options: change the file")
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
        module, name = module_from_name(f"orchestrator.strategies.{ref}"), ref if options else "graph"
    else:
        module = _module(module_named(place), ref)
    return _attribute(module, name, ref, options) if name else _only(module, place, options)


def _from_data(ref: str, directory: str, trust: Sequence[str]) -> Graph:

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
    """Return the graph that a reference names, for checks and drawings, and what only its code could determine.

    If a graph file names code outside of `trust`, return its outline; its code is not imported.

    Raises:
        GraphUnknown, InvalidGraph, UsageError: as `graph_from_ref`.
    """
    if ref.endswith(DATA) and refused((source := source_of(ref)).data, trust):
        with located(Path(ref), source.text):
            found = outline.outline(source.data)
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
    """Return True if a module with this name exists. For `a.b`, import `a`."""
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


def load_code(name: str) -> None:
    """Import a module or a Python file that a user named, also from the current directory."""
    import_for(name, os.getcwd())
    with importing(name):
        module_of_file(name) if name.endswith(".py") else importlib.import_module(name)


@contextmanager
def importing(name: str, verb: str = "imported") -> Iterator[None]:
    """Convert an exception raised by a user's module on import into a usage error with its location.

    Raises:
        UsageError: the import failed.
    """
    try:
        yield
    except UsageError:
        raise
    except OrchestratorError as error:
        _tell_frames(_frames_of(error)[-1:])
        raise
    except (Exception, SystemExit) as error:
        _tell_frames(_frames_of(error))
        raise UsageError(f"{name} cannot be {verb}: {type(error).__name__}: {error}") from None


def _frames_of(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames of the user's code in which an error was raised."""
    ours = (str(Path(orchestrator.__file__).parent), "<frozen importlib", importlib.__file__, contextlib.__file__)
    return [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]


def _tell_frames(frames: list[traceback.FrameSummary]) -> None:
    if frames:
        warn(str(redacted("".join(traceback.format_list(frames)).rstrip())))


def _graphs_in(module: ModuleType) -> dict[str, Graph]:

    # A lazy attribute of the module imports more as soon as its `__class__` is read, so only its type is read.
    things = list(vars(module).items())
    found = {name: thing for name, thing in things if issubclass(type(thing), Graph) and name[0] != "_"}
    return {name: thing for name, thing in found.items() if next(n for n in found if found[n] is thing) == name}


def _attribute(module: ModuleType, name: str, ref: str, options: Mapping[str, str]) -> Graph:
    thing = attribute(module, name)
    if isinstance(thing, FunctionType) and not inspect.iscoroutinefunction(thing):
        with importing(ref, "built"):
            return graph_of(build(thing, ref, options), ref)
    if options:
        raise _no_function(module, ref, options)
    if isinstance(thing, Graph):
        return thing
    place = ref.partition(":")[0]
    fault = (
        f"{place} has no {name!r}" if thing is None else f"{place}:{name} is not a Graph but a {type(thing).__name__}"
    )
    there = _graphs_in(module)
    guess = did_you_mean(name, there) if thing is None else ""
    raise GraphUnknown(f"{fault}{guess or ';'} {_listed('graphs there', there)}")


def _no_function(module: ModuleType, ref: str, options: Mapping[str, str]) -> UsageError:
    own = [name for name, one in vars(module).items() if isinstance(one, FunctionType) and name[0] != "_"]
    place, there = ref.partition(":")[0], [name for name in own if vars(module)[name].__module__ == module.__name__]
    return UsageError(
        f"--set {next(iter(options))}: options are for a function that builds a graph, as in {place}:FUNCTION; "
        f"{_listed('functions there', there)}"
    )


def _only(module: ModuleType, place: str, options: Mapping[str, str]) -> Graph:
    if options:
        raise _no_function(module, place, options)
    there = _graphs_in(module)
    if len(there) == 1:
        return next(iter(there.values()))
    if not there:
        raise unknown(place, f"module {place} contains no graph")
    choices = ", ".join(f"{place}:{name}" for name in there)
    raise GraphUnknown(f"{place} has several graphs; choose one: {choices}")


def unknown(ref: str, fault: str) -> GraphUnknown:
    """Return the error for an unknown graph, which lists the known graphs."""
    names = shipped()
    return GraphUnknown(
        f"unknown graph {ref!r}: {fault}{did_you_mean(ref, names) or '.'} {_listed('Shipped graphs', names)}. "
        "Name other graphs as 'module:attr', 'file.py:attr', or by a YAML or JSON file."
    )


def _listed(title: str, names: Iterable[str]) -> str:
    return f"{title}: {', '.join(names) or 'none'}"
