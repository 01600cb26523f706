"""Names of projects: they become modules, graphs and tools, so they must not hide others."""

from __future__ import annotations

import builtins
import keyword
import os
import re
import sys
import unicodedata
from importlib.machinery import PathFinder

from orchestrator.cli.exits import UsageError

LONGEST = 30
_OURS = ("orchestrator", "graphs", "test", "tests", "conftest", "pytest", "setup", "main", "tool", "agent", "graph")


def check_name(name: str, kind: str) -> None:
    """Refuse a name that would hide a module, or that no module can have.

    Args:
        name: the name.
        kind: what is made: `agent`, `graph` or `tool`.

    Raises:
        UsageError: says why, and suggests another name.
    """
    fault = _form_fault(name) or _taken(name)
    if fault:
        raise UsageError(f"{name!r} {fault}; choose another one, such as {suggestion(name, kind)}")


def suggestion(name: str, kind: str) -> str:
    """A name like this one that can be used.

    Args:
        name: the name.
        kind: what is made.
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
    from orchestrator.cli.graphrefs import shipped

    if name in sys.stdlib_module_names:
        return "is a module of Python"
    if name in shipped():
        return "is a graph that comes with the library"
    if hasattr(builtins, name):
        return "is a function or type of Python"
    if name in _OURS:
        return "is a name that the project, its tests or the library use"
    return next((f"would hide the installed module {one}" for one in (name, f"{name}_tools") if _installed(one)), "")


def _installed(module: str) -> bool:
    """Whether there is such a module outside of the current directory. Imports nothing."""
    here = os.getcwd()
    found = PathFinder.find_spec(module, [path for path in sys.path if path and os.path.abspath(path) != here])
    return found is not None and found.origin is not None
