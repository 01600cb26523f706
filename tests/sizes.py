"""The sizes of the library: files, code lines, imports, small modules with one importer, and long functions.

    python -m tests.sizes

A code line holds code: blanks, comments, docstrings and the texts below attributes do not count.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tests.architecture import ROOT, imports, modules
from tests.support.sources import imports_of, text_of

LONGEST_FUNCTION = 60
"""Code lines that a function has at most."""
SMALL_MODULE = 60
"""Code lines below which a module that one other imports is listed."""

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


class Function(NamedTuple):
    """A function or method, and its size."""

    file: str
    name: str
    """With the names of the classes and functions around it."""
    lines: int
    """Code lines from `def` to the end, without decorators."""
    body: int
    """Those of them that stand below its parameters."""


class Part(NamedTuple):
    """A package, and its size."""

    files: int
    code: int
    imports: int
    """Code lines of import statements."""


@cache
def files() -> tuple[Path, ...]:
    """The files of the library and of its strategies."""
    return tuple(sorted(path for name in ("orchestrator", "graphs") for path in (ROOT / name).rglob("*.py")))


def code_lines(text: str) -> frozenset[int]:
    """The numbers of the lines of a program that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(_lines(node))
    return frozenset(lines)


@cache
def code_of(file: Path) -> frozenset[int]:
    """The numbers of the lines of a file that hold code."""
    return code_lines(text_of(file))


def part(chosen: list[Path]) -> Part:
    """The size of some files."""
    return Part(
        len(chosen),
        sum(len(code_of(file)) for file in chosen),
        sum(len(_lines(one.statement)) for file in chosen for one in imports_of(file)),
    )


def functions(file: Path) -> Iterator[Function]:
    """The functions of a file, with inner ones."""
    code, name = code_of(file), str(file.relative_to(ROOT))

    def inside(node: ast.AST, path: tuple[str, ...]) -> Iterator[Function]:
        for inner in ast.iter_child_nodes(node):
            if not isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from inside(inner, path)
                continue
            if not isinstance(inner, ast.ClassDef):
                sizes = (len(code.intersection(lines)) for lines in (_lines(inner), _lines(inner, inner.body[0])))
                yield Function(name, ".".join((*path, inner.name)), *sizes)
            yield from inside(inner, (*path, inner.name))

    yield from inside(ast.parse(text_of(file)), ())


def with_one_importer() -> dict[str, int]:
    """The modules that exactly one other module imports, and their code lines. A package itself is not one."""
    importers = Counter(name for file in modules().values() for name in imports(file, True))
    return {
        name: len(code_of(file))
        for name, file in modules().items()
        if importers[name] == 1 and file.name != "__init__.py"
    }


def long_functions() -> list[Function]:
    """The functions over the bound, the longest first."""
    long = [file for file in files() if _has_long(ast.parse(text_of(file)))]
    found = [one for file in long for one in functions(file) if one.lines > LONGEST_FUNCTION]
    return sorted(found, key=lambda one: -one.lines)


def _lines(node: ast.stmt, first: ast.stmt | None = None) -> range:
    return range((first or node).lineno, (node.end_lineno or node.lineno) + 1)


def _has_long(node: ast.AST) -> bool:
    """Whether a function is over the bound with its blanks and comments, which is quick to see."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and len(_lines(node)) > LONGEST_FUNCTION:
        return True
    return any(_has_long(inner) for inner in ast.iter_child_nodes(node) if not isinstance(inner, ast.expr))


def _packages() -> dict[str, list[Path]]:
    packages: dict[str, list[Path]] = {}
    for file in files():
        parts = file.relative_to(ROOT).parts
        packages.setdefault("/".join(parts[:2]) if len(parts) > 2 else parts[0], []).append(file)
    return packages


def main() -> None:
    """Print all of it."""
    console = Console(width=120, soft_wrap=True)
    table = Table("package", *("files", "code lines", "a file", "imports"), box=None)
    for name, chosen in [*_packages().items(), ("together", list(files()))]:
        size = part(chosen)
        table.add_row(
            name, str(size.files), f"{size.code:,}", f"{size.code / size.files:.0f}", f"{size.imports / size.code:.1%}"
        )
    for column in table.columns[1:]:
        column.justify = "right"
    console.print(table)
    lonely = with_one_importer()
    small = {name: lines for name, lines in lonely.items() if lines < SMALL_MODULE}
    console.print(f"\nmodules with one importer: {len(lonely)}, of under {SMALL_MODULE} code lines: {len(small)}")
    for name, lines in small.items():
        console.print(f"{lines:4} {name}")
    console.print(f"\nfunctions over {LONGEST_FUNCTION} code lines: {len(long_functions())}")
    for one in long_functions():
        console.print(f"{one.lines:4} {one.file}: {one.name}")


if __name__ == "__main__":
    main()
