"""Text of a graph file: YAML or JSON, read within bounds, with faults in plain words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator.errors import GraphError
from orchestrator.graph.faults import BOOLEANS

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
            """How many values and characters each composed node stands for, by its id; the document keeps the nodes
            alive."""

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
