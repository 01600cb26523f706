"""The lines of a graph file on which its parts begin, for messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestrator.errors import ArrowSyntaxError, GraphError, GraphUnknown, InvalidGraph
from orchestrator.graph.arrows import parse_edges
from orchestrator.graph.faults import Fault, GraphFaults, Place, PlacedFault, place_of
from orchestrator.problem import Problem


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
    problem: Problem


def placed(error: GraphError, text: str) -> list[PlacedProblem]:
    """The problems that an error of a graph file names, in the order of their lines.

    Args:
        error: what reading or checking the file raised.
        text: the file's text.
    """
    lines = _Lines(text)
    if isinstance(error, InvalidGraph):
        found = [PlacedProblem(lines.number(place_of(problem)), problem) for problem in error.problems]
    elif isinstance(error, PlacedFault | GraphFaults):
        faults = (error.fault,) if isinstance(error, PlacedFault) else error.faults
        found = [
            PlacedProblem(lines.number(one.place, one.error), Problem("", lines.message(one), one.place[1:2]))
            for one in faults
        ]
    else:
        said = _SAID.match(str(error))
        found = [PlacedProblem(int(said[1]) if said else 0, Problem("", str(error)))]
    return sorted(found, key=lambda one: one.line)


_SAID = re.compile(r"line (\d{1,9})\b")
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
    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _root(self) -> Any:
        """The nodes of the text, which takes long to read; a fault of YAML itself has no use for them."""
        import yaml

        try:
            return yaml.compose(self._text, yaml.SafeLoader)  # reads JSON, too
        except yaml.YAMLError:
            return None

    def number(self, place: Place, error: GraphError | None = None) -> int:
        """The line of a part, from 1; of the innermost part around it that has one. 0: none has."""
        node: Any = self._root
        line = 0
        for key in place:
            found = next((pair for pair in _pairs(node) if _key(pair[0]) == key), None)
            if found is None:
                return self._edge_line(node, key) or line
            line, node = int(found[0].start_mark.line) + 1, found[1]
        if isinstance(error, ArrowSyntaxError) and node is not None:
            return _first_line(node) + error.line - 1
        return line

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

    def _edge_line(self, node: Any, edge: str) -> int:
        """The line of an edge in the text of all edges, or in a list of them."""
        items = getattr(node, "value", None)
        if isinstance(items, list):
            texts = [(one.start_mark.line + 1, one.value) for one in items if isinstance(getattr(one, "value", 0), str)]
        else:
            texts = [(_first_line(node) + i, line) for i, line in enumerate(str(items or "").split("\n"))]
        line: int
        for line, text in texts:
            try:
                if any(str(one) == edge for one in parse_edges(text)):
                    return line
            except GraphError:
                continue
        return 0


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
