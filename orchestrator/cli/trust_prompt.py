"""Whether a graph file may name the code that it names: `--trust`, or a question on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.cli import words
from orchestrator.cli.environment import forget_what_was_typed, import_for, on_terminal
from orchestrator.cli.exits import UsageError
from orchestrator.cli.output import warn
from orchestrator.errors import GraphUnknown
from orchestrator.graph.refs import Trust, code_refs, is_ours
from orchestrator.visible import narrow

if TYPE_CHECKING:
    from orchestrator.graph.refs import CodeRef
    from orchestrator.graph.text.source import Source

DATA = (".yaml", ".yml", ".json")
"""How the names of graph files end."""


def read(file: str) -> Any:
    """What is in a graph file, see `source_of`."""
    return source_of(file).data


def source_of(file: str) -> Source:
    """What is in a graph file, with its text. Follows no reference.

    Raises:
        GraphUnknown: there is no such file.
        GraphError: it is neither YAML nor JSON, or is too large.
    """
    from orchestrator.graph.text.source import read_source

    if not Path(file).is_file():
        raise GraphUnknown(f"there is no file {file!r}")
    return read_source(Path(file))


def trust_of(modules: Sequence[str]) -> Trust:
    """What the command line trusts: modules that were named, and this library."""
    return Trust(modules=tuple(modules))


def refused(data: object, modules: Sequence[str]) -> list[CodeRef]:
    """The references of a graph file into modules that are not trusted."""
    trust = trust_of(modules)
    return [one for one in code_refs(data) if trust.refuses(one.ref, one.role)]


def admitted(graph: str, modules: Sequence[str]) -> tuple[str, ...]:
    """The modules that a graph file may name: those of `--trust`, and those that the person at the terminal admits.

    Raises:
        UsageError: there are others, and no person to ask, or they said no.
    """
    if not graph.endswith(DATA):
        return tuple(modules)
    data = read(graph)
    from orchestrator.graph.reading import refuse_untrusted

    refuse_untrusted(data, Trust(everything=True))  # what no trust would help
    found = refused(data, modules)
    if not found:
        return tuple(modules)
    needed = tuple(dict.fromkeys(one.ref.partition(":")[0] for one in found))
    listed = "\n".join(f"  {one.place}: {narrow(one.ref)}" for one in found)
    warn(f"{graph} refers to code, which runs when it is imported:\n{listed}")
    if not agrees(f"Import {narrow(', '.join(needed))}?"):
        trusting = [word for module in needed for word in ("--trust", words.line(module))]
        command = words.command(*sys.argv[1:2], *trusting, *sys.argv[2:])
        raise UsageError(f"{graph}: its code is not trusted. If you know what it does:\n  {words.visible(command)}")
    return (*modules, *needed)


def agrees(question: str) -> bool:
    """Return True if the person at the terminal says yes, False without a terminal."""
    return decides(question) is True


def decides(question: str) -> bool | None:
    """Return the yes or no of the person at the terminal; None if they only press Enter, or there is no terminal."""
    if not on_terminal():
        return None
    forget_what_was_typed()
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    word = sys.stdin.readline().strip().lower()
    return True if word in ("y", "yes") else False if word in ("n", "no") else None


def reach(file: str, data: object, directory: str) -> None:
    """Let the code that a graph file names be imported from its folder and from a directory, after other places."""
    for one in code_refs(data):
        module = one.ref.partition(":")[0]
        if not is_ours(module):
            import_for(module, str(Path(file).absolute().parent))
            import_for(module, directory)
