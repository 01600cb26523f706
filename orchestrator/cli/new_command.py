"""Command `new`: a small project that runs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED, UsageError


class Kind(StrEnum):
    """What a project is."""

    agent = "agent"
    graph = "graph"
    tool = "tool"


def new(
    kind: Annotated[
        Kind,
        typer.Argument(
            metavar="agent|graph|tool",
            help="An agent with a tool, a graph of fixed steps with a tool, or a tool alone.",
            show_default=False,
        ),
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the module and the graph, or of the tool.")],
    directory: Annotated[
        Path | None, typer.Option("--directory", metavar="DIR", help="Where the files go. Default: ./NAME.")
    ] = None,
    yaml: Annotated[bool, typer.Option("--yaml", help="Write the graph as a YAML file.")] = False,
    json: options.Json = False,
) -> int:
    """Write a small project that runs.

    It has a graph, a tool, a test, .env.example and a README. The test needs no model, and the graph runs offline. No
    file is ever overwritten: if one is there already, nothing is written.

    Example: orchestrator new agent calculator
    """
    from orchestrator.cli.output import out, out_json, warn
    from orchestrator.cli.project.files import commands, project_files
    from orchestrator.cli.project.names import check_name
    from orchestrator.cli.words import quoted, visible

    if yaml and kind is Kind.tool:
        raise UsageError("a tool is a Python function: leave --yaml out, or make an agent or a graph")
    check_name(name, kind.value)
    folder = Path(name) if directory is None else directory
    files = project_files(kind.value, name, yaml=yaml)
    written = _write(folder, files)
    if json:
        out_json({"directory": str(folder), "files": [path.name for path in written]})
        return COMPLETED
    out("\n".join(visible(str(path)) for path in written))
    look, run = commands(kind.value, name, yaml=yaml)
    enter = "" if folder.resolve() == Path.cwd() else f"  {visible(quoted(['cd', str(folder)]))}\n"
    warn(f"Try it:\n{enter}  pytest\n  {look}\n  {run}")
    return COMPLETED


def _write(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write files, all of them or none.

    Raises:
        UsageError: one is there already, or cannot be written.
    """
    there = [name for name in files if (folder / name).exists() or (folder / name).is_symlink()]
    if there:
        raise UsageError(f"{folder} has {', '.join(there)} already: choose another NAME, or another --directory")
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            with (folder / name).open("x", encoding="utf-8", newline="\n") as file:
                written.append(folder / name)
                file.write(text)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise UsageError(f"{error.filename or folder} cannot be written ({error.strerror or error})") from None
    return written
