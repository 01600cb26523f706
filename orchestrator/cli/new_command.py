"""The command `new`: a small project that runs. Its files, and the rules for its name."""

from __future__ import annotations

import builtins
import keyword
import os
import re
import sys
import unicodedata
from collections.abc import Mapping
from enum import StrEnum
from importlib.machinery import PathFinder
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED, UsageError
from orchestrator.cli.graph_refs import shipped
from orchestrator.cli.output import out, out_json, quoted, warn
from orchestrator.visible import shown as visible


class Kind(StrEnum):
    """Kind of a project."""

    agent = "agent"
    graph = "graph"
    tool = "tool"
    application = "application"


def new(
    kind: Annotated[
        Kind,
        typer.Argument(
            metavar="agent|graph|tool|application",
            help="An agent with tools, a graph of fixed steps with a tool, a tool alone, or an agent in FastAPI.",
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

    It has a graph, tools, tests, .env.example and a README, whose commands work as they are: the tests need no model,
    and the graph runs offline. No file is ever overwritten: if one is there already, nothing is written.

    Example: orchestrator new agent calculator
    """

    if yaml and kind in (Kind.tool, Kind.application):
        raise UsageError(f"the files of a new {kind.value} are Python: leave --yaml out, or make an agent or a graph")
    check_name(name, kind.value)
    folder = Path(name) if directory is None else directory
    files = project_files(kind.value, name, yaml=yaml)
    written = _write(folder, files)
    if json:
        out_json({"directory": str(folder), "files": [path.name for path in written]})
        return COMPLETED
    out("\n".join(visible(str(path)) for path in written))
    enter = [] if folder.resolve() == Path.cwd() else [visible(quoted(["cd", str(folder)]))]
    warn("\n  ".join(["Try it, as README.md says:", *enter, *commands(files)]))
    return COMPLETED


def _write(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write files, all of them or none.

    Raises:
        UsageError: a file already exists, or cannot be written.
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


_PROJECTS = Path(__file__).with_name("projects")
"""A folder for each kind of project; `common` is part of all of them, and KIND_yaml has what differs with --yaml."""


def project_files(kind: str, name: str, *, yaml: bool = False) -> Mapping[str, str]:
    """Return the files of a project.

    Args:
        kind: `agent`, `graph`, `tool` or `application`.
        name: its name.
        yaml: whether its graph is a YAML file.

    Returns:
        Contents by file name.
    """
    folders = ["common", *(["agent"] if kind == "application" else []), kind, *([f"{kind}_yaml"] if yaml else [])]
    words = {"name": name, "file": f"{name}.{'yaml' if yaml else 'py'}"}
    found: dict[str, str] = {}
    for path in (path for folder in folders for path in sorted((_PROJECTS / folder).glob("*.txt"))):
        target = path.name.removesuffix(".txt").replace("NAME", name).replace("dot.", ".")
        found[target] = Template(path.read_text(encoding="utf-8")).substitute(words)
    if yaml:
        del found[f"{name}.py"]
    return dict(sorted(found.items()))


def commands(files: Mapping[str, str]) -> list[str]:
    """Return the commands with which a project's README begins."""
    return [line.strip() for line in files["README.md"].splitlines() if line.startswith("    ")]


LONGEST = 30
_OURS = ("orchestrator", "graphs", "test", "tests", "conftest", "pytest", "setup", "main", "tool", "agent", "graph")
_NEEDED = ("fastapi", "httpx2", "jinja2", "starlette", "uvicorn")
"""Modules of the requirements of an application, which may not be installed yet."""


def check_name(name: str, kind: str) -> None:
    """Check that a name hides no module and is a valid module name.

    Args:
        name: the name.
        kind: kind of project: `agent`, `graph`, `tool` or `application`.

    Raises:
        UsageError: the name cannot be used; the message suggests another one.
    """
    fault = _form_fault(name) or _taken(name)
    if fault:
        raise UsageError(f"{name!r} {fault}; choose another one, such as {suggestion(name, kind)}")


def suggestion(name: str, kind: str) -> str:
    """Return a similar name that can be used.

    Args:
        name: the name.
        kind: kind of project.
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", plain)
    made = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_").removeprefix("test_").removesuffix("_test")
    made = made[: LONGEST - len(kind) - 1].strip("_").lstrip("0123456789_")
    for one in (made, f"{made}_{kind}"):
        if made and not _form_fault(one) and not _taken(one):
            return one
    return f"my_{kind}"


def _form_fault(name: str) -> str:
    if not name.isidentifier() or not name.isascii():
        return "is not the name of a module: use letters from a to z, digits and _, and begin with a letter"
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        return "is a keyword of Python"
    if name != name.lower() or name.startswith("_"):
        return "is not the name of a module: use small letters, and begin with one"
    if name.startswith("test_") or name.endswith("_test"):
        return "is a name of tests for pytest"
    return f"has more than {LONGEST} characters" if len(name) > LONGEST else ""


def _taken(name: str) -> str:

    if name in sys.stdlib_module_names:
        return "is a module of Python"
    if name in shipped():
        return "is a graph that comes with the library"
    if hasattr(builtins, name):
        return "is a function or type of Python"
    if name in _NEEDED:
        return "would hide a module that applications use"
    if name in _OURS:
        return "is a name that the project, its tests or the library use"
    modules = (f"{name}{suffix}" for suffix in ("", "_tools", "_app", "_client"))
    return next((f"would hide the installed module {one}" for one in modules if _installed(one)), "")


def _installed(module: str) -> bool:
    """Return True if such a module exists outside of the current directory. Nothing is imported."""
    here = os.getcwd()
    found = PathFinder.find_spec(module, [path for path in sys.path if path and os.path.abspath(path) != here])
    return found is not None and found.origin is not None
