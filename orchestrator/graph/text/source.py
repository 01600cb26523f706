"""The text of a graph file: bounded reading of YAML or JSON, and faults in plain words with the lines of the parts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from orchestrator.errors import ArrowSyntaxError, GraphError, GraphUnknown, InvalidGraph, Problem
from orchestrator.graph.edges import Edge, iter_edges, parse_edges
from orchestrator.graph.faults import BOOLEANS, Fault, GraphFaults, Place, PlacedFault, place_of

if TYPE_CHECKING:
    import yaml


# -- Faults in YAML syntax: the line first, then a suggested fix -----------------------------------------------


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
"""Part of a message of the YAML parser -> the fix; the first match counts."""


def yaml_fault(error: yaml.YAMLError, text: str) -> str:
    """Return a one-line message that names the place of a YAML fault, its cause and the fix.

    Args:
        error: the parser's error.
        text: the text.

    Returns:
        The message, which begins with the line.
    """
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
    mark, context = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    opened = getattr(error, "context", None) in ("while parsing a flow mapping", "while parsing a flow sequence")
    quoted = getattr(error, "context", None) == "while scanning a quoted scalar"
    if context is not None and (opened or quoted) and (mark is None or mark.line > context.line):
        mark = context  # the construct that is not closed started here
    fix = next((what for part, what in _FIXES if part in problem), "")
    if mark is not None:
        where = f"line {mark.line + 1}, column {mark.column + 1}: "
    else:
        position = getattr(error, "position", None)
        where = f"line {text.count(chr(10), 0, position) + 1}: " if isinstance(position, int) else ""
    return f"{where}{problem.removeprefix('but ')}{fix and f'; {fix}'}"


# -- The text of a graph file as plain data: YAML or JSON of bounded size, depth and number of values ----------
# Graph files may come from untrusted sources. A YAML alias stands for everything in its anchor, so a few lines can
# stand for billions of values: the values are counted before any of them is made.


LONGEST = 1_000_000
"""The most bytes of a graph file."""
DEEPEST = 160
"""The most levels of lists and mappings in it."""
MOST = 100_000
"""The most values in it, counting aliases in full."""
MOST_CHARACTERS = 2_000_000
"""The most characters of all strings in it, counting aliases in full."""
_DIGITS = 400
"""The most characters of a number or a date."""
_OTHER_BASE = re.compile(r"[-+]?(?:[0-9][0-9_]*(?::[0-9.]+)+|0[0-9_]+)")
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"?|(?P<open>[\[{])|(?P<close>[\]}])', re.DOTALL)


class Source(NamedTuple):
    """A graph file that was read."""

    data: Any
    text: str


def read_source(path: Path) -> Source:
    """Return the data of a file: JSON if its name ends in `.json`, else YAML.

    Raises:
        OSError: the file cannot be read.
        GraphError: the file is not in this format, or is too large; the error names the file and, if known, the line.
    """
    with path.open("rb") as file:
        data = file.read(LONGEST + 1)
    try:
        if len(data) > LONGEST:
            raise ValueError(f"it has more than {LONGEST:,} bytes, the limit for graph files: split the graph")
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
    """Parse JSON. Raises `ValueError` for invalid JSON, a duplicate key, or too many levels."""
    depth = 0
    for bracket in _BRACKET.finditer(text):
        depth += bool(bracket["open"]) - bool(bracket["close"])
        if depth > DEEPEST:
            raise ValueError(_too_deep(text.count("\n", 0, bracket.start()) + 1))
    return json.loads(text, object_pairs_hook=_once)


def _too_deep(line: int) -> str:
    return f"line {line} is nested more than {DEEPEST} levels deep: flatten it"


def _once(pairs: list[tuple[object, object]]) -> dict[object, object]:
    """Make a mapping from pairs whose keys must differ, because a duplicate key would silently replace a value."""
    found: dict[object, object] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key!r} occurs twice: keep one")
        found[key] = value
    return found


def read_yaml(text: str) -> Any:
    """Parse YAML. Raises `ValueError` for invalid YAML, a duplicate key, or too many values."""
    return read_marked(text).data


class Marked(NamedTuple):
    """The data of a YAML text, and its root node."""

    data: Any
    root: Any
    """The root of the YAML nodes that the data was made from, with their positions in the text; None for an empty text.
    """


def read_marked(text: str, *, most: int = MOST) -> Marked:
    """Return the data of a YAML text, with positions. Reads JSON, too, except for some unusual characters.

    Args:
        text: the text.
        most: the most values that it may have, counting aliases in full.

    Raises:
        ValueError: the text is not valid YAML, has a duplicate key, or has too many values.
    """
    import yaml

    try:
        loader: Any = _loader()(text, most)  # a safe loader
        root = loader.get_single_node()
        return Marked(None if root is None else loader.construct_document(root), root)
    except yaml.YAMLError as error:
        raise ValueError(yaml_fault(error, text)) from None


def _check_number(text: str, line: int) -> None:
    """Refuse numbers that are too long, and those whose value in YAML differs from their appearance.

    Raises:
        ValueError: the number is one of these.
    """
    if len(text) > _DIGITS:
        raise ValueError(f"line {line}: a number of more than {_DIGITS} characters: quote it if it is text")
    if _OTHER_BASE.fullmatch(text):
        raise ValueError(
            f"line {line}: YAML reads {text} as a number of another base (60 with colons, 8 with a zero in front): "
            "write the number that is meant, or quote it if it is text"
        )


def _length_of(node: Any) -> int:
    """Return the number of characters of a text node; 0 for a list or mapping, whose parts are counted."""
    return len(node.value) if isinstance(getattr(node, "value", None), str) else 0


def _loader() -> Callable[[str, int], yaml.SafeLoader]:
    """Return a safe loader that counts what it composes. It is made on first use because importing `yaml` is slow."""
    import yaml

    numbers = {f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "timestamp")}

    class Loader(yaml.SafeLoader):
        def __init__(self, stream: str, most: int) -> None:
            super().__init__(stream)
            self._depth = self._count = self._length = 0
            self._most = most
            self._sizes: dict[int, tuple[int, int]] = {}
            """Id of each composed node -> the numbers of values and characters that it stands for; the document keeps
            the nodes alive.
            """

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
                    f"line {line}: the file has more than {self._most:,} values up to here, counting aliases in full: "
                    "use fewer aliases, or split the graph"
                )
            if self._length > MOST_CHARACTERS:
                raise ValueError(
                    f"line {line}: the strings of the file have more than {MOST_CHARACTERS:,} characters up to here, "
                    "counting aliases in full: use fewer aliases"
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
                raise ValueError(f"line {line}: a key is a list or a mapping: write a string, quoted if it has braces")
            if key in found:
                word = f"{place.value} ({BOOLEANS})" if isinstance(key, bool) else f"{key!r}"
                raise ValueError(f"line {line}: {word} occurs twice, first on line {lines[key]}: keep one")
            found[key], lines[key] = read(value, deep=True), line
        return found

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    return Loader


# -- Positions of a graph's parts in the file, for messages -----------------------------------------------------


@contextmanager
def located(path: Path, text: str) -> Iterator[None]:
    """Add the file's name and line numbers to faults of the graph that is read in the `with` block.

    Args:
        path: the file.
        text: its text, which could be parsed.
    """
    try:
        yield
    except (PlacedFault, GraphFaults, InvalidGraph) as error:
        raise _with_lines(error, path, text) from None


class PlacedProblem(Struct, frozen=True):
    """A problem of a graph file, and its line."""

    line: int
    """Line from 1; 0 if it concerns no single line."""
    column: int
    """Column from 1; 0 if not known."""
    problem: Problem


class NodeLines(Struct, frozen=True):
    """The lines of a node in a graph file, from 1."""

    first: int
    last: int


def node_lines(root: Any, text: str) -> dict[tuple[str, ...], NodeLines]:
    """Return the lines of all nodes, by path: one name, and more for nodes inside subgraphs.

    Args:
        root: the text's root of YAML nodes, see `read_marked`.
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
"""The most levels of subgraphs that are searched for nodes."""
_MOST_NODES = 10_000
"""Number of nodes from which the insides of subgraphs are not searched: aliases can stand for many nodes."""


def _last_line(node: Any, lines: list[str]) -> int:
    """Return the last non-empty line of a value: the end mark of a block is at the start of whatever follows."""
    end = node.end_mark
    number = int(end.line) + (1 if end.column else 0)
    while number > node.start_mark.line + 1 and (number > len(lines) or _is_blank(lines[number - 1], end, number)):
        number -= 1
    return number


def _is_blank(line: str, end: Any, number: int) -> bool:
    """Return True if a line adds nothing to a value that ends at a mark: it is empty or only a comment."""
    text = (line[: end.column] if number == end.line + 1 else line).strip()
    return not text or text.startswith("#")


def placed(error: GraphError, text: str, root: Any = None) -> list[PlacedProblem]:
    """Return the problems that an error of a graph file reports, ordered by line.

    Args:
        error: the error from reading or checking the file.
        text: the file's text.
        root: its root of YAML nodes, if it has been read before; see `read_marked`.
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
"""Start of the parser's message for a fault in the YAML or JSON syntax."""


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
    """The positions of the parts of a text, indexed once: a text can have thousands of problems."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._keys: dict[int, dict[str, tuple[int, int, Any]]] = {}
        self._edges: dict[int, dict[str, tuple[int, int]]] = {}

    @cached_property
    def root(self) -> Any:
        """The text's root of YAML nodes. Slow to read, and not needed for syntax faults."""
        import yaml

        try:
            return yaml.compose(self._text, yaml.SafeLoader)  # this parser reads JSON, too
        except yaml.YAMLError:
            return None

    def number(self, place: Place, error: GraphError | None = None) -> int:
        """Return the line of a part, from 1, or of the innermost enclosing part that has one; 0 if none has."""
        return self.place(place, error)[0]

    def place(self, place: Place, error: GraphError | None = None) -> tuple[int, int]:
        """Return line and column of a part, from 1, or of the innermost enclosing part that has them; 0 if none has."""
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
        """Return a mapping's keys, each with its line, its column and its value."""
        found = self._keys.get(id(node))
        if found is None:
            found = {
                _key(key): (int(key.start_mark.line) + 1, int(key.start_mark.column) + 1, value)
                for key, value in _pairs(node)
            }
            self._keys[id(node)] = found
        return found

    def _column(self, node: Any, line: int, error: ArrowSyntaxError) -> int:
        """Return the column of a fault in an arrow; 0 if it is uncertain, as in quoted texts."""
        rows = self._text.split("\n")
        said = error.text.strip()
        if not error.column or not said or line > len(rows) or said not in rows[line - 1]:
            return 0
        return rows[line - 1].index(said) + error.column - (len(error.text) - len(error.text.lstrip()))

    def named(self, place: Place) -> str:
        """Return `line 3: `, or an empty text if the line is not known."""
        number = self.number(place)
        return f"line {number}: " if number else ""

    def said(self, fault: Fault) -> str:
        """Return the message of a fault, with its line."""
        number, text = self.number(fault.place, fault.error), self.message(fault)
        return f"line {number}: {text}" if number and text else text

    def message(self, fault: Fault) -> str:
        """Return the message of a fault, without its line."""
        text = str(fault.error)
        if isinstance(fault.error, ArrowSyntaxError):
            column = f"column {fault.error.column}: " if "\n" in text else ""  # of no use without a text
            text = f"{column}{fault.error.fault}"  # the line number in the message counts from the first edge
        return text

    def _edge_place(self, node: Any, edge: str) -> tuple[int, int] | None:
        """Return the position of an edge in the text of all edges, or in a list of them; None if it is not there."""
        found = self._edges.get(id(node))
        if found is None:
            found = self._edges[id(node)] = dict(_edges_of(node))
        return found.get(edge)


def _edges_of(node: Any) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield each edge of a text of edges, or of a list of them, and its first line."""
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
    """Return the statements of a text of edges, or of a list of them, each with its line."""
    items = getattr(node, "value", None)
    if isinstance(items, list):
        return [(one.start_mark.line + 1, one.value) for one in items if isinstance(getattr(one, "value", 0), str)]
    return [(_first_line(node) + i, line) for i, line in enumerate(str(items or "").split("\n"))] if node else []


def edge_lines(root: Any) -> Iterator[tuple[Edge, int]]:
    """Yield the edges of a text with their lines, from 1, without the statements that cannot be read.

    Args:
        root: the text's root of YAML nodes, see `read_marked`.
    """
    for line, text in _edge_texts(_value_of(root, "edges")):
        with suppress(GraphError):
            yield from ((edge, line) for edge in iter_edges(text))


def _value_of(node: Any, key: str) -> Any:
    """Return the value of a mapping's key; None if it has no such key."""
    return next((value for name, value in reversed(_pairs(node)) if _key(name) == key), None)


def _pairs(node: Any) -> list[Any]:
    """Return the keys and values of a mapping, as YAML nodes."""
    import yaml

    return list(node.value) if isinstance(node, yaml.MappingNode) else []


def _key(node: Any) -> str:
    """Return a key in the form used by messages and places; `yes` is `True`."""
    if node.tag == "tag:yaml.org,2002:bool":
        return str(str(node.value).lower() in ("yes", "true", "on"))
    return str(node.value)


def _first_line(node: Any) -> int:
    """Return the line on which the text of a value starts: below the mark of a block."""
    first = int(node.start_mark.line) + 1
    block = getattr(node, "style", None) in ("|", ">")
    return first + 1 if block else first
