"""The source of the function behind a node, as text, from the process that serves the page."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from orchestrator.graph.function import FunctionNode
from orchestrator.tasks import away
from orchestrator.views.safe_text import BEHIND
from orchestrator.web.documents import Document, blank
from orchestrator.web.endpoint import Call
from orchestrator.web.problems import HttpProblem
from orchestrator.web.requests import Name, Query

if TYPE_CHECKING:
    from orchestrator.graph.model import GraphDefinition, Node

_MOST = 50_000
"""Maximum number of characters of a source."""
_MOST_OF_FILE = 2_000_000
"""Maximum number of characters of the file that contains it: all of it is compiled, to find the function."""


class SourceQuery(Query):
    """A node of the run's graph."""

    node: Name = Field(description="The node's name; `OUTER/INNER` in a subgraph.")


class SourceDocument(Document):
    """The source of a node's function."""

    node: str
    file: str
    line: Annotated[int, Field(description="The number of its first line.")]
    text: Annotated[str, Field(description="At most 50,000 characters, with secrets blanked.")]
    same: Annotated[bool, Field(description="Whether the server's graph is the one that the run began with.")]


async def show(call: Call[SourceQuery]) -> SourceDocument:
    """Return the source of a node's function, if the server may show it."""
    if not call.settings.sources:
        raise HttpProblem(403, "sources-off", "this server shows no source code (`--sources`, or `sources=True`, does)")
    graph, name = await call.graph(call.run.graph), call.query.node
    node = _node(graph, name)
    code = _code(node) if isinstance(node, FunctionNode) else None
    found = None if code is None else await away(lambda: _source(code))
    if found is None:
        raise HttpProblem(404, "source-unknown", f"the server has no source of node {name!r} of graph {graph.name!r}")
    if found.line == 0:
        why = f"the file of node {name!r} has changed since the server loaded it: restart the server to see it"
        raise HttpProblem(409, "source-changed", why)
    same = graph.content == call.run.content
    return SourceDocument(node=name, file=found.file, line=found.line, text=found.text, same=same)


def _node(graph: GraphDefinition, name: str) -> Node | None:
    """Return a node by its path; None if the graph has no such node."""
    outer, _, inner = name.partition("/")
    node = graph.nodes.get(outer)
    if not inner or node is None:
        return node
    return None if node.subgraph is None else _node(node.subgraph, inner)


def _code(node: FunctionNode[..., Any]) -> CodeType | None:
    """Return the code of a node's function, without its wrappers; None if it is no function of Python."""
    try:
        function = inspect.unwrap(node.fn)
    except ValueError:  # it wraps itself
        return None
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code if isinstance(code, CodeType) else None


@dataclass(frozen=True, slots=True)
class _Source:
    file: str
    line: int
    """0: the file has changed since the function was made from it."""
    text: str


def _source(code: CodeType) -> _Source | None:
    """Return the source of a function, and nothing that stands beside it; None if its file cannot be read."""
    try:
        lines, _ = inspect.findsource(code)
        file = str(blank(inspect.getsourcefile(code) or ""))
    except (OSError, TypeError, IndexError):
        return None
    text = "".join(lines)
    if len(text) > _MOST_OF_FILE:
        return None
    try:
        tree = ast.parse(text)
        made = compile(text, code.co_filename, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _Source(file, 0, "")
    part = _part(tree, code) if any(_is_same(one, code) for one in _codes(made)) else None
    if part is None:
        return _Source(file, 0, "")
    if isinstance(part, ast.Lambda):
        said = ast.get_source_segment(text, part) or ""
    else:
        said = "".join(lines[code.co_firstlineno - 1 : part.end_lineno])
    return _Source(file, code.co_firstlineno, str(blank(said[: _MOST + BEHIND]))[:_MOST])


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a module, and of all functions in it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _is_same(one: CodeType, other: CodeType) -> bool:
    """Return True if both were compiled from the same lines. A debugger or a profiler may have changed other parts."""
    if (one.co_firstlineno, one.co_name, one.co_names) != (other.co_firstlineno, other.co_name, other.co_names):
        return False
    if one.co_code != other.co_code or len(one.co_consts) != len(other.co_consts):
        return False
    return all(
        _is_same(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else type(a) is type(b) and a == b
        for a, b in zip(one.co_consts, other.co_consts, strict=True)
    )


def _part(tree: ast.Module, code: CodeType) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None:
    """Return the part of a file that is a function; of several lambdas on its line, the inner one around its code."""
    found: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None = None
    for one in ast.walk(tree):  # outer parts come first
        if isinstance(one, ast.Lambda):
            if code.co_name == "<lambda>" and one.lineno == code.co_firstlineno and _is_around(one, code):
                found = one
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name == code.co_name:
            first = min([one.lineno, *(above.lineno for above in one.decorator_list)])
            found = one if first == code.co_firstlineno else found
    return found


def _is_around(part: ast.Lambda, code: CodeType) -> bool:
    begin, end = (part.lineno, part.col_offset), (part.end_lineno or 0, part.end_col_offset or 0)
    places = [(line, column) for line, _, column, _ in code.co_positions() if line and column]
    return bool(places) and all(begin <= place < end for place in places)
