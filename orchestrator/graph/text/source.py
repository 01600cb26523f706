"""Text of a graph file: YAML or JSON, read within bounds, with faults in plain words and the lines of its parts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator.errors import ArrowSyntaxError, GraphError, GraphUnknown, InvalidGraph, Problem
from orchestrator.graph.edges import Edge, iter_edges, parse_edges
from orchestrator.graph.faults import BOOLEANS, Fault, GraphFaults, Place, PlacedFault, place_of

if TYPE_CHECKING:
    import yaml


# -- What is wrong with a text that is no YAML: the line first, then a suggested fix ---------------------------


_FIXES = (
    ("character '\\t'", "indent with spaces, YAML takes no tabs"),
    ("a constructor for the tag", "tags are not read: remove it, and write plain values"),
    ("undefined alias", "an alias *name refers to an anchor &name before it; quote a text that begins with *"),
    ("duplicate anchor", "give the anchors different names"),
    ("unexpected end of stream", "close the quote"),
    ("found unexpected document", "close the quote"),
    ("another document", "a file holds one graph: remove the line ---"),
    ("got '['", 'quote a type with brackets, as in "list[str]"'),
    ("got '<stream end>'", "close the bracket"),
    ("got '<scalar>'", "close the bracket, or put a comma between the entries"),
    ("got ':'", "quote a text with a colon in it"),
    ("mapping values are not allowed", "quote a text with ': ' in it; edges are a block of text, 'edges: |'"),
    ("expected <block end>", "indent the entries of one block by the same number of spaces"),
    ("could not find expected ':'", "write 'key: value', or close the quote or the bracket before this line"),
    ("cannot start any token", "quote a text that begins with this character"),
    ("special characters are not allowed", "remove the character"),
    ("expected alphabetic or numeric character", "quote a text that begins with & or *"),
)
"""Part of what YAML says -> what to do; the first that fits."""


def yaml_fault(error: yaml.YAMLError, text: str) -> str:
    """Say in one line where a text is no YAML, why, and what to do.

    Args:
        error: the error of the parser.
        text: the text.

    Returns:
        The message, which begins with the line.
    """
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
    mark, context = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    opened = getattr(error, "context", None) in ("while parsing a flow mapping", "while parsing a flow sequence")
    quoted = getattr(error, "context", None) == "while scanning a quoted scalar"
    if context is not None and (opened or quoted) and (mark is None or mark.line > context.line):
        mark = context  # what is not closed began here
    fix = next((what for part, what in _FIXES if part in problem), "")
    if mark is not None:
        where = f"line {mark.line + 1}, column {mark.column + 1}: "
    else:
        position = getattr(error, "position", None)
        where = f"line {text.count(chr(10), 0, position) + 1}: " if isinstance(position, int) else ""
    return f"{where}{problem.removeprefix('but ')}{fix and f'; {fix}'}"


# -- The text of a graph file as plain data: YAML or JSON of bounded size, depth and number of values ----------
# Such files come from others, too. An alias of YAML stands for all that its anchor holds, so a few lines can stand for
# billions of values: what they stand for is counted before any of it is made.


LONGEST = 1_000_000
"""Bytes of a graph file."""
DEEPEST = 160
"""Levels of lists and mappings in it."""
MOST = 100_000
"""Values in it, with those that aliases stand for."""
MOST_CHARACTERS = 2_000_000
"""Characters of all texts in it, with those that aliases stand for."""
_DIGITS = 400
"""Characters of a number or a date."""
_OTHER_BASE = re.compile(r"[-+]?(?:[0-9][0-9_]*(?::[0-9.]+)+|0[0-9_]+)")
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"?|(?P<open>[\[{])|(?P<close>[\]}])', re.DOTALL)


class Source(NamedTuple):
    """A graph file that was read."""

    data: Any
    text: str


def read_source(path: Path) -> Source:
    """The data of a file, JSON if its name ends in `.json`, else YAML.

    Raises:
        OSError: it cannot be read.
        GraphError: it is not of that form, or is too large; names the file and, where there is one, the line.
    """
    with path.open("rb") as file:
        data = file.read(LONGEST + 1)
    try:
        if len(data) > LONGEST:
            raise ValueError(f"it has more than {LONGEST:,} bytes, and a graph file at most that: split the graph")
        text = _decoded(data)
        return Source(read_json(text) if path.suffix == ".json" else read_yaml(text), text)
    except ValueError as error:
        raise GraphError(f"{path}: {error}") from None


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line} is not UTF-8 ({error.reason}): save the file as UTF-8") from None


def read_json(text: str) -> Any:
    """
    Raises:
        ValueError: it is not JSON, has a key twice, or is nested too deeply.
    """
    depth = 0
    for bracket in _BRACKET.finditer(text):
        depth += bool(bracket["open"]) - bool(bracket["close"])
        if depth > DEEPEST:
            raise ValueError(_too_deep(text.count("\n", 0, bracket.start()) + 1))
    return json.loads(text, object_pairs_hook=_once)


def _too_deep(line: int) -> str:
    return f"line {line} is nested more than {DEEPEST} levels deep: flatten it"


def _once(pairs: list[tuple[object, object]]) -> dict[object, object]:
    """A mapping whose keys are all different: what is written twice would be lost once without a word."""
    found: dict[object, object] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key!r} occurs twice: keep one")
        found[key] = value
    return found


def read_yaml(text: str) -> Any:
    """
    Raises:
        ValueError: it is no YAML, has a key twice, or stands for too much.
    """
    return read_marked(text).data


class Marked(NamedTuple):
    """A text that was read."""

    data: Any
    root: Any
    """The node of YAML that the data was made of, with its places in the text; None: there is none."""


def read_marked(text: str, *, most: int = MOST) -> Marked:
    """The data of a YAML text, and where its parts are. It reads JSON, too, but for odd signs in it.

    Args:
        text: the text.
        most: how many values it may have, with those that aliases stand for.

    Raises:
        ValueError: it is no YAML, has a key twice, or stands for too much.
    """
    import yaml

    try:
        loader: Any = _loader()(text, most)  # a safe loader
        root = loader.get_single_node()
        return Marked(None if root is None else loader.construct_document(root), root)
    except yaml.YAMLError as error:
        raise ValueError(yaml_fault(error, text)) from None


def _check_number(text: str, line: int) -> None:
    """Refuse numbers that are too long, and those that YAML reads as other ones than they look like.

    Raises:
        ValueError: it is one of these.
    """
    if len(text) > _DIGITS:
        raise ValueError(f"line {line}: a number of more than {_DIGITS} characters: quote it if it is text")
    if _OTHER_BASE.fullmatch(text):
        raise ValueError(
            f"line {line}: YAML reads {text} as a number of another base (60 with colons, 8 with a zero in front): "
            "write the number that is meant, or quote it if it is text"
        )


def _length_of(node: Any) -> int:
    """The characters of a node that is a text; 0 for a list or mapping, whose parts are counted."""
    return len(node.value) if isinstance(getattr(node, "value", None), str) else 0


def _loader() -> Callable[[str, int], yaml.SafeLoader]:
    """A safe loader that counts what it composes, made when it is needed: `yaml` takes a while to load."""
    import yaml

    numbers = {f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "timestamp")}

    class Loader(yaml.SafeLoader):
        def __init__(self, stream: str, most: int) -> None:
            super().__init__(stream)
            self._depth = self._count = self._length = 0
            self._most = most
            self._sizes: dict[int, tuple[int, int]] = {}
            """Numbers of values and characters that each composed node stands for, by its id; the document keeps the
            nodes alive."""

        def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]  # its stubs omit it
            line = event.start_mark.line + 1
            alias = isinstance(event, yaml.AliasEvent)
            before, length = self._count, self._length
            self._depth += 1
            if self._depth > DEEPEST:
                raise ValueError(_too_deep(line))
            node = super().compose_node(parent, index)
            self._depth -= 1
            if alias and id(node) not in self._sizes:
                raise ValueError(f"line {line}: the alias refers to a value that contains it: write the value out")
            values, characters = self._sizes[id(node)] if alias else (1, _length_of(node))
            self._count += values
            self._length += characters
            if self._count > self._most:
                raise ValueError(
                    f"line {line}: up to here the file has more than {self._most:,} values, with those that aliases "
                    "stand for: use fewer aliases, or split the graph"
                )
            if self._length > MOST_CHARACTERS:
                raise ValueError(
                    f"line {line}: up to here the texts of the file have more than {MOST_CHARACTERS:,} characters, "
                    "with those that aliases stand for: use fewer aliases"
                )
            if not alias:
                self._sizes[id(node)] = self._count - before, self._length - length
                if isinstance(node, yaml.ScalarNode) and node.tag in numbers:
                    _check_number(node.value, line)
            return node

    def mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
        loader.flatten_mapping(node)
        read = loader.construct_object
        found: dict[Any, Any] = {}
        lines: dict[Any, int] = {}
        for place, value in node.value:
            key, line = read(place, deep=True), place.start_mark.line + 1
            if not isinstance(key, Hashable):
                raise ValueError(f"line {line}: a key is a list or a mapping: write a text, in quotes if it has braces")
            if key in found:
                word = f"{place.value} ({BOOLEANS})" if isinstance(key, bool) else f"{key!r}"
                raise ValueError(f"line {line}: {word} occurs twice, first on line {lines[key]}: keep one")
            found[key], lines[key] = read(value, deep=True), line
        return found

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    return Loader


# -- Lines of the file on which the parts of its graph begin, for messages --------------------------------------


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
        for key, spec in _pairs(_value_of(graph, "nodes")):
            path = (*names, _key(key))
            first = int(key.start_mark.line) + 1
            found[path] = NodeLines(first, max(first, _last_line(spec, lines)))
            inner = _value_of(spec, "graph")
            if len(path) < _DEEPEST_NODE and len(found) < _MOST_NODES and inner is not None:
                ahead.append((path, inner))
    return found


_DEEPEST_NODE = 50
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
    """Return True if a line holds nothing of a value that ends at a mark: no text, or only a comment."""
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
"""Beginning of the message of a fault of YAML or JSON itself."""


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
    """The places of the parts of a text, indexed once: a text can have thousands of problems."""

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
    for line, text in _edge_texts(_value_of(root, "edges")):
        with suppress(GraphError):
            yield from ((edge, line) for edge in iter_edges(text))


def _value_of(node: Any, key: str) -> Any:
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
