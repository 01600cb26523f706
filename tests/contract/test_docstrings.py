"""What docstrings name is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import orchestrator

LIBRARY = Path(orchestrator.__file__).parent


def test_the_arguments_of_a_docstring_are_parameters() -> None:
    files = sorted(chain(LIBRARY.rglob("*.py"), (LIBRARY.parent / "graphs").glob("*.py")))
    wrong = [f"{file}: {one}" for file in files for one in _unknown(ast.parse(file.read_text(encoding="utf-8")))]
    assert wrong == []


def _unknown(module: ast.Module) -> Iterator[str]:
    for function in _functions(module):
        docstring = ast.get_docstring(function) or ""
        if "Args:" not in docstring:
            continue
        given = function.args
        others = (one for one in (given.vararg, given.kwarg) if one is not None)
        parameters = {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, *others)}
        for entry in _entries(docstring):
            named = re.match(r"[\w*`, ]+(?=:)", entry)
            names = re.split(r", | and ", named[0]) if named else [entry]
            unknown = [name for name in names if name.strip("*`") not in parameters]
            yield from (f"{function.name} has no parameter {name!r}" for name in unknown)


def _functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.expr):
            continue  # no expression holds a function with a docstring
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            yield part
        yield from _functions(part)


def _entries(docstring: str) -> list[str]:
    """The first lines of the entries of the section `Args`."""
    section = re.search(r"^Args:\n((?:(?: {4}.*)?\n?)+)", docstring, re.MULTILINE)
    return re.findall(r"^ {4}(\S.*)", section[1], re.MULTILINE) if section else []
