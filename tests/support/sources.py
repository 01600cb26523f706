"""The code of the library, read once for all tests of a process that inspect it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Imported(NamedTuple):
    """An import statement."""

    statement: ast.Import | ast.ImportFrom
    for_types: bool
    """Whether only type checkers follow it."""


@cache
def text_of(file: Path) -> str:
    """Return the text of a file."""
    return file.read_text(encoding="utf-8")


@cache
def imports_of(file: Path) -> tuple[Imported, ...]:
    """Return the import statements of a file, also those in functions.

    Only these are kept: whole trees would be objects that each pass of the garbage collector traverses.
    """
    return tuple(_imports(ast.parse(text_of(file)), False))


def _imports(node: ast.AST, for_types: bool) -> Iterator[Imported]:
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.expr):
            continue  # no expression holds a statement
        if isinstance(part, ast.Import | ast.ImportFrom):
            yield Imported(part, for_types)
        else:
            types = isinstance(part, ast.If) and "TYPE_CHECKING" in ast.unparse(part.test)
            yield from _imports(part, for_types or types)
