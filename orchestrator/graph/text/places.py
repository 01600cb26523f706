"""The lines of a graph file on which its parts begin, for messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestrator.errors import ArrowSyntaxError, GraphError, GraphUnknown, InvalidGraph, Problem
from orchestrator.graph.edges import Edge, iter_edges, parse_edges
from orchestrator.graph.faults import Fault, GraphFaults, Place, PlacedFault, place_of


@contextmanager
def located(path: Path, text: str) -> Iterator[None]:
    """Give the faults of a graph that is read inside the name of its file, and their lines.

    Args:
        path: the file.
        text: its text, which was read without a fault.
    """
    try:
        yield
    except (PlacedFault, GraphFaults, InvalidGraph) as error:
        raise _with_lines(error, path, text) from None


@dataclass(frozen=True, slots=True)
class PlacedProblem:
    """A problem of a graph file, and its line."""

    line: int
    """From 1; 0: it is of no single line."""
    column: int
    """From 1; 0: not known."""
    problem: Problem


@dataclass(frozen=True, slots=True)
class NodeLines:
    """The lines of a node in a graph file, from 1."""

    first: int
    last: int


def node_lines(root: Any, text: str) -> dict[tuple[str, ...], NodeLines]:
    """The lines of all nodes, by the names that lead to them: one, and more for those inside of subgraphs.

    Args:
        root: the text's node of YAML, see `read_marked`.
        text: the text.
    """
    lines = text.split("\n")
    found: dict[tuple[str, ...], NodeLines] = {}
    ahead: list[tuple[tuple[str, ...], Any]] = [((), root)]
    while ahead:
        names, graph = ahead.pop()
        for key, spec in _pairs(_value(graph, "nodes")):
            path = (*names, _key(key))
            first = int(key.start_mark.line) + 1
            found[path] = NodeLines(first, max(first, _last_line(spec, lines)))
            inner = _value(spec, "graph")
            if len(path) < _DEEPEST and len(found) < _MOST_NODES and inner is not None:
                ahead.append((path, inner))
    return found


_DEEPEST = 50
"""Levels of subgraphs in which nodes are looked for."""
_MOST_NODES = 10_000
"""Nodes from which on none inside of subgraphs are looked for: aliases can stand for many."""


def _last_line(node: Any, lines: list[str]) -> int:
    """The last line of a value that is not empty: the mark of a block's end is where the next thing begins."""
    end = node.end_mark
    number = int(end.line) + (1 if end.column else 0)
    while number > node.start_mark.line + 1 and (number > len(lines) or _is_blank(lines[number - 1], end, number)):
        number -= 1
    return number


def _is_blank(line: str, end: Any, number: int) -> bool:
    """Whether there is nothing of a value on a line, which ends at a mark: no text, or only a comment."""
    text = (line[: end.column] if number == end.line + 1 else line).strip()
    return not text or text.startswith("#")


def placed(error: GraphError, text: str, root: Any = None) -> list[PlacedProblem]:
    """The problems that an error of a graph file names, in the order of their lines.

    Args:
        error: what reading or checking the file raised.
        text: the file's text.
        root: its node of YAML, if it has been read before, see `read_marked`.
    """
    lines = _Lines(text)
    if root is not None:
        lines.root = root
    if isinstance(error, InvalidGraph):
        found = [PlacedProblem(*lines.place(place_of(problem)), problem) for problem in error.problems]
    elif isinstance(error, PlacedFault | GraphFaults):
        faults = (error.fault,) if isinstance(error, PlacedFault) else error.faults
        found = [
            PlacedProblem(*lines.place(one.place, one.error), Problem("", lines.message(one), one.place[1:2]))
            for one in faults
        ]
    else:
        said = _SAID.match(str(error))
        line, column = (int(said[1]), int(said[2] or 0)) if said else (0, 0)
        found = [PlacedProblem(line, column, Problem("", str(error)))]
    return sorted(found, key=lambda one: one.line)


_SAID = re.compile(r"line (\d{1,9})\b(?:, column (\d{1,9})\b)?")
"""How the message of a fault of YAML or JSON itself begins."""


def _with_lines(error: PlacedFault | GraphFaults | InvalidGraph, path: Path, text: str) -> GraphError:
    lines = _Lines(text)
    if isinstance(error, InvalidGraph):
        placed = [
            Problem(problem.code, lines.named(place_of(problem)) + problem.message, problem.nodes, problem.edges)
            for problem in sorted(error.problems, key=lambda problem: lines.number(place_of(problem)))
        ]
        return InvalidGraph(error.name, placed)
    faults = (error.fault,) if isinstance(error, PlacedFault) else error.faults
    said = [(lines.number(fault.place, fault.error), lines.said(fault)) for fault in faults]
    if len(said) == 1:
        kind = GraphUnknown if isinstance(faults[0].error, GraphUnknown) else GraphError
        return kind(f"{path}: {said[0][1]}")
    rows = "\n".join(f"  - {row}" for _, row in sorted(said, key=lambda one: one[0]))
    kind = GraphUnknown if isinstance(error, GraphUnknown) else GraphError
    return kind(f"{path} has {len(said)} problems:\n{rows}")


class _Lines:
    """Where the parts of a text are. What is looked up is indexed once: a text can have thousands of problems."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._keys: dict[int, dict[str, tuple[int, int, Any]]] = {}
        self._edges: dict[int, dict[str, tuple[int, int]]] = {}

    @cached_property
    def root(self) -> Any:
        """The nodes of the text, which takes long to read; a fault of YAML itself has no use for them."""
        import yaml

        try:
            return yaml.compose(self._text, yaml.SafeLoader)  # reads JSON, too
        except yaml.YAMLError:
            return None

    def number(self, place: Place, error: GraphError | None = None) -> int:
        """The line of a part, from 1; of the innermost part around it that has one. 0: none has."""
        return self.place(place, error)[0]

    def place(self, place: Place, error: GraphError | None = None) -> tuple[int, int]:
        """Line and column of a part, from 1; of the innermost part around it that has them. 0: none has."""
        node: Any = self.root
        line = column = 0
        for key in place:
            found = self._indexed(node).get(key)
            if found is None:
                return self._edge_place(node, key) or (line, column)
            line, column, node = found
        if isinstance(error, ArrowSyntaxError) and node is not None:
            line = _first_line(node) + error.line - 1
            return line, self._column(node, line, error)
        return line, column

    def _indexed(self, node: Any) -> dict[str, tuple[int, int, Any]]:
        """Key -> its line and column, and its value, of a mapping."""
        found = self._keys.get(id(node))
        if found is None:
            found = {
                _key(key): (int(key.start_mark.line) + 1, int(key.start_mark.column) + 1, value)
                for key, value in _pairs(node)
            }
            self._keys[id(node)] = found
        return found

    def _column(self, node: Any, line: int, error: ArrowSyntaxError) -> int:
        """The column of a fault in an arrow; 0 if it is not certain, as in texts in quotes."""
        rows = self._text.split("\n")
        said = error.text.strip()
        if not error.column or not said or line > len(rows) or said not in rows[line - 1]:
            return 0
        return rows[line - 1].index(said) + error.column - (len(error.text) - len(error.text.lstrip()))

    def named(self, place: Place) -> str:
        """`line 3: `, or nothing if there is none."""
        number = self.number(place)
        return f"line {number}: " if number else ""

    def said(self, fault: Fault) -> str:
        """A fault with its line."""
        number, text = self.number(fault.place, fault.error), self.message(fault)
        return f"line {number}: {text}" if number and text else text

    def message(self, fault: Fault) -> str:
        """A fault without its line."""
        text = str(fault.error)
        if isinstance(fault.error, ArrowSyntaxError):
            column = f"column {fault.error.column}: " if "\n" in text else ""  # that of no text says nothing
            text = f"{column}{fault.error.fault}"  # its own line counts from the first of the edges
        return text

    def _edge_place(self, node: Any, edge: str) -> tuple[int, int] | None:
        """The line of an edge in the text of all edges, or in a list of them; None: it is not there."""
        found = self._edges.get(id(node))
        if found is None:
            found = self._edges[id(node)] = dict(_edges_of(node))
        return found.get(edge)


def _edges_of(node: Any) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each edge of a text of edges, or of a list of them, and its first line."""
    seen: set[str] = set()
    for line, text in _edge_texts(node):
        try:
            names = [str(one) for one in parse_edges(text)]
        except GraphError:
            continue
        for name in names:
            if name not in seen:
                seen.add(name)
                yield name, (line, 0)


def _edge_texts(node: Any) -> list[tuple[int, str]]:
    """The statements of a text of edges, or of a list of them, each with its line."""
    items = getattr(node, "value", None)
    if isinstance(items, list):
        return [(one.start_mark.line + 1, one.value) for one in items if isinstance(getattr(one, "value", 0), str)]
    return [(_first_line(node) + i, line) for i, line in enumerate(str(items or "").split("\n"))] if node else []


def edge_lines(root: Any) -> Iterator[tuple[Edge, int]]:
    """The edges of a text with their lines, from 1, without the statements that cannot be read.

    Args:
        root: the text's node of YAML, see `read_marked`.
    """
    for line, text in _edge_texts(_value(root, "edges")):
        with suppress(GraphError):
            yield from ((edge, line) for edge in iter_edges(text))


def _value(node: Any, key: str) -> Any:
    """The value of a key of a mapping; None: it has none."""
    return next((value for name, value in reversed(_pairs(node)) if _key(name) == key), None)


def _pairs(node: Any) -> list[Any]:
    """The keys and values of a mapping, as nodes of YAML."""
    import yaml

    return list(node.value) if isinstance(node, yaml.MappingNode) else []


def _key(node: Any) -> str:
    """A key as messages and places have it; `yes` is `True`."""
    if node.tag == "tag:yaml.org,2002:bool":
        return str(str(node.value).lower() in ("yes", "true", "on"))
    return str(node.value)


def _first_line(node: Any) -> int:
    """The line on which the text of a value begins: below the mark of a block."""
    first = int(node.start_mark.line) + 1
    block = getattr(node, "style", None) in ("|", ">")
    return first + 1 if block else first
