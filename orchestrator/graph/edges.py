"""Edges of a graph, and their arrow text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple, NoReturn, TypeAlias

from orchestrator.errors import ArrowSyntaxError
from orchestrator.graph.names import RULE, plain_name, with_marks_as_letters
from orchestrator.graph.topology import ANY, END, IF_NAMED, RESERVED, START, STOP

# -- One edge of a graph ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Edge:
    """A connection from one node to another. `str(edge)` is its arrow text.

    `outcome` None stands for every unreserved outcome that no labelled edge of the source names. `each` names a list in
    the state: the edge is taken once per item. `source` may be `START`, or `*` for a reserved outcome of any node.
    `target` may be `END` or `STOP`.
    """

    source: str
    target: str
    outcome: str | None = None
    each: str | None = None

    @property
    def label(self) -> str:
        """The text after the colon of the arrow text; may be empty."""
        return " ".join(word for word in (self.outcome, f"each {self.each}" if self.each else None) if word)

    def plain(self) -> Edge:
        """Return the edge with its names in Unicode form NFKC."""
        if f"{self.source}{self.target}{self.outcome}{self.each}".isascii():
            return self
        outcome, each = (None if one is None else plain_name(one) for one in (self.outcome, self.each))
        return Edge(plain_name(self.source), plain_name(self.target), outcome, each)

    def __str__(self) -> str:
        label = self.label
        return f"{self.source} -> {self.target}" + (f" : {label}" if label else "")


# -- The arrow text of edges -----------------------------------------------------------------------------------
# One statement a line, `#` starts a comment:
#
#     names "->" names ("->" names)* [":" [outcomes] ["each" FIELD]]
#
# Names are separated by commas; `a -> b, c` is two edges, `b, c -> j` too. A label belongs to the last arrow of
# its statement. Outcomes for failures can be a list: `* -> clean : error, exhausted` is one statement for each.


EdgeTuple: TypeAlias = tuple[str, str] | tuple[str, str, str | None] | tuple[str, str, str | None, str | None]
"""An edge as a tuple: source, target, outcome, each."""
EdgesLike: TypeAlias = str | Edge | Iterable["str | Edge | EdgeTuple | Sequence[str | None] | Mapping[str, object]"]

_NAME = r"[^\W\d](?:\w|-(?!>))*"
_TOKEN = re.compile(rf"\s*(?:(?P<arrow>->)|(?P<name>{_NAME}|\*)|(?P<mark>[,:])|(?P<end>\#|$)|(?P<bad>\S+))")
MOST_EDGES = 100_000
"""The most edges in one text: a short statement of n names to m names stands for n times m edges."""
_WRONG_ARROWS = ("=>", "-->", "→", "⟶", ">", "-", "--", "—>")


class _ArrowToken(NamedTuple):
    kind: str
    """`arrow`, `name`, `,`, `:` or `end`."""
    text: str
    column: int
    """Column of the token, from 1."""


def parse_edges(edges: EdgesLike) -> tuple[Edge, ...]:
    """Read edges in any of their forms.

    Args:
        edges: arrow text, an `Edge`, or a sequence of arrow text, edges and tuples. A tuple is (source, target),
            (source, target, outcome) or (source, target, outcome, each).

    Returns:
        The edges, in the order of the text.

    Raises:
        ArrowSyntaxError: a statement cannot be read; names line, column and a fix.
    """
    if isinstance(edges, str):
        return tuple(_parse_text(edges, 1))
    if isinstance(edges, Edge):
        return (edges,)
    if isinstance(edges, Mapping) or not isinstance(edges, Iterable):
        found = "empty" if edges is None else f"of type {type(edges).__name__}"
        fix = "write arrow text, such as 'START -> draft', or a list of it"
        raise ArrowSyntaxError(f"'edges' is {found}", line=1, column=1, fix=fix)
    read: list[Edge] = []
    line = 1
    for item in edges:
        if isinstance(item, Edge):
            read.append(item)
        elif isinstance(item, str):
            read.extend(_parse_text(item, line))
            line += item.count("\n")
        elif isinstance(item, Mapping):
            read.append(_of_mapping(item, line))
        elif isinstance(item, Sequence):
            read.append(_of_parts(list(item), line))
        else:
            raise ArrowSyntaxError(f"{item!r} is not an edge", line=line, column=1, fix="write 'source -> target'")
        if len(read) > MOST_EDGES:
            raise _too_many(line)
        line += 1
    return tuple(read)


def _of_mapping(item: Mapping[str, object], line: int) -> Edge:
    """Return the edge of a mapping with `source`, `target`, `outcome` and `each`."""
    arrow = next((str(key) for key in item if "->" in str(key)), None)
    if arrow is not None:  # YAML reads `- a -> b: done` as a mapping
        fix = f"quote the arrow, '{arrow} : {item[arrow]}'"
        raise ArrowSyntaxError(f"{arrow!r} is the key of a mapping", line=line, column=1, fix=fix)
    unknown = [str(key) for key in item if key not in _PARTS]
    if unknown:
        raise ArrowSyntaxError(
            f"an edge has no {unknown[0]!r}", line=line, column=1, fix=f"it has {', '.join(_PARTS)}; or write an arrow"
        )
    return _of_parts([item.get(key) for key in _PARTS], line)


_PARTS = ("source", "target", "outcome", "each")


def _of_parts(parts: list[object], line: int) -> Edge:
    if not 2 <= len(parts) <= 4 or not all(isinstance(part, str) for part in parts[:2]):
        raise ArrowSyntaxError(
            f"{tuple(parts)!r} is not an edge", line=line, column=1, fix="write (source, target, outcome, each)"
        )
    source, target, outcome, each = [None if part is None else str(part) for part in (*parts, None, None)][:4]
    return Edge(source or "", target or "", outcome, each)


def iter_edges(text: str) -> Iterator[Edge]:
    """Yield the edges of a text one by one, as `parse_edges` reads them.

    Raises:
        ArrowSyntaxError: a statement cannot be read; the edges before it have already been yielded.
    """
    return _parse_text(text, 1)


def _parse_text(text: str, first_line: int) -> Iterator[Edge]:
    made = 0
    for number, line in enumerate(text.split("\n"), first_line):
        tokens = list(_tokens(line, number))
        if tokens[0].kind == "end":
            continue
        for edge in _Statement(line, number, tokens).edges():
            made += 1
            if made > MOST_EDGES:
                raise _too_many(number)
            yield edge


def _too_many(line: int) -> ArrowSyntaxError:
    fix = "'a, b -> c, d' is an edge for each pair: name fewer nodes, or split the graph"
    return ArrowSyntaxError(f"up to here there are more than {MOST_EDGES:,} edges", line=line, column=1, fix=fix)


def _tokens(line: str, number: int) -> Iterator[_ArrowToken]:
    position, letters = 0, with_marks_as_letters(line)
    while True:
        match = _TOKEN.match(letters, position)
        assert match is not None  # this alternative matches any character that is left
        kind = match.lastgroup or ""
        start, end = match.span(kind)
        text, column = line[start:end], start + 1
        position = match.end()
        if kind == "bad":
            _refuse_token(line, number, column, text)
        yield _ArrowToken(text if kind == "mark" else kind, text, column)
        if kind == "end":
            return


def _refuse_token(line: str, number: int, column: int, text: str) -> NoReturn:
    if text.startswith(_WRONG_ARROWS):
        fault, fix = f"{text!r} is not an arrow", "write '->'"
    elif text.startswith(";"):
        fault, fix = "';' does not end a statement", "write one statement per line"
    else:
        fault = f"{text!r} cannot start a name"
        fix = RULE
    raise ArrowSyntaxError(fault, line=number, column=column, text=line, fix=fix)


class _Statement:
    """A cursor over the tokens of one line."""

    def __init__(self, line: str, number: int, tokens: list[_ArrowToken]) -> None:
        self.line, self.number, self.tokens = line, number, tokens
        self.at = 0

    def edges(self) -> Iterator[Edge]:
        groups = [self._names("a name")]
        while self._next().kind == "arrow":
            self.at += 1
            groups.append(self._names("a name after '->'"))
        if len(groups) == 1:
            self._refuse("there is no arrow", "write 'source -> target'")
        outcomes, each = self._label()
        if self._next().kind != "end":
            self._refuse(f"{self._next().text!r} is unexpected", "write one statement per line")
        last = len(groups) - 2
        for place, (sources, targets) in enumerate(pairwise(groups)):
            for outcome in outcomes if place == last else (None,):
                label = (outcome, each if place == last else None)
                for source in sources:
                    self._check_source(source, *label)
                    for target in targets:
                        self._check_target(target)
                        yield Edge(source.text, target.text, *label)

    def _next(self) -> _ArrowToken:
        return self.tokens[self.at]

    def _names(self, wanted: str) -> list[_ArrowToken]:
        names = [self._name(wanted)]
        while self._next().kind == ",":
            self.at += 1
            names.append(self._name("a name after ','"))
        return names

    def _name(self, wanted: str) -> _ArrowToken:
        token = self._next()
        if token.kind != "name":
            got = "the line ends" if token.kind == "end" else f"there is {token.text!r}"
            self._refuse(f"{got}, expected {wanted}", "write 'source -> target : outcome'")
        self.at += 1
        return token

    def _label(self) -> tuple[list[str | None], str | None]:
        """Read the label: the outcomes of the statement, or None if it names none, and the field of its map."""
        if self._next().kind != ":":
            return [None], None
        self.at += 1
        first = self._name("an outcome or 'each FIELD'")
        outcomes: list[str | None] = [None]
        if first.text != "each":
            outcomes = [*self._outcomes(first)]
            if self._next().text != "each":
                return outcomes, None
            self.at += 1
        field = self._name("a state field after 'each'")
        if not field.text.isidentifier():
            self._refuse(f"{field.text!r} is not a field", "name a list in the state after 'each'", field)
        return outcomes, field.text

    def _outcomes(self, first: _ArrowToken) -> Iterator[str]:
        named = [first]
        while self._next().kind == ",":
            self.at += 1
            named.append(self._name("an outcome after ','"))
        for number, token in enumerate(named):
            if token.text in (ANY, START, END, STOP):
                self._refuse(f"{token.text!r} is not an outcome", "name an outcome that the node declares", token)
            if len(named) > 1 and token.text not in IF_NAMED:
                fix = "write one statement for each outcome"
                self._refuse(f"a list of outcomes takes {', '.join(IF_NAMED)} only", fix, token)
            if token.text in [one.text for one in named[:number]]:
                self._refuse(f"{token.text!r} occurs twice", "remove one", token)
            yield token.text

    def _check_source(self, token: _ArrowToken, outcome: str | None, each: str | None) -> None:
        if token.text in (END, STOP):
            self._refuse(f"{token.text} is an end: no edge starts there", "remove what follows it", token)
        if token.text == ANY and outcome not in RESERVED:
            fix = "write '* -> NODE : error', ': timeout' or ': exhausted'"
            self._refuse("'*' as a source takes only a reserved outcome", fix, token)
        if token.text == START and outcome is not None:
            self._refuse("START has no outcomes", f"remove {outcome!r}", token)

    def _check_target(self, token: _ArrowToken) -> None:
        if token.text == START:
            self._refuse("no edge can lead back to START", "name the first node instead", token)
        if token.text == ANY:
            self._refuse("'*' is not a target", "name a node", token)

    def _refuse(self, fault: str, fix: str, token: _ArrowToken | None = None) -> NoReturn:
        token = token or self._next()
        raise ArrowSyntaxError(fault, line=self.number, column=token.column, text=self.line.rstrip(), fix=fix)


# -- writing ----------------------------------------------------------------------------------------------------


class _ArrowLine(NamedTuple):
    groups: list[tuple[str, ...]]
    label: str


def format_edges(edges: Iterable[Edge], *, lists: bool = False) -> str:
    """Write edges as arrow text, one statement a line.

    Args:
        edges: the edges.
        lists: True to join statements that differ only in their outcomes for failures into one with a list of outcomes.

    Returns:
        Text from which `parse_edges` reads the same edges in the same order.
    """
    lines: list[_ArrowLine] = []
    for line in _listed(_fans(edges)) if lists else _fans(edges):
        # A label would apply to the last arrow of a chain only, so only arrows without a label are chained.
        if lines and not lines[-1].label and not line.label and lines[-1].groups[-1] == line.groups[0]:
            previous = lines.pop()
            lines.append(_ArrowLine([*previous.groups, *line.groups[1:]], ""))
        else:
            lines.append(line)
    return "\n".join(_write(line) for line in lines)


def _fans(edges: Iterable[Edge]) -> Iterator[_ArrowLine]:
    """Yield consecutive edges with one source and label as one line, and such lines with the same targets and label."""
    out: list[_ArrowLine] = []
    for (source, label), row in groupby(edges, key=lambda edge: (edge.source, edge.label)):
        targets = tuple(edge.target for edge in row)
        if out and out[-1].label == label and out[-1].groups[1] == targets:
            sources = (*out.pop().groups[0], source)
            out.append(_ArrowLine([sources, targets], label))
        else:
            out.append(_ArrowLine([(source,), targets], label))
    return iter(out)


def _listed(lines: Iterable[_ArrowLine]) -> Iterator[_ArrowLine]:
    out: list[_ArrowLine] = []
    for line in lines:
        before = out[-1] if out else None
        if before is not None and before.groups == line.groups and line.label in IF_NAMED:
            said = before.label.split(", ")
            if set(said).issubset(IF_NAMED) and line.label not in said:
                out[-1] = _ArrowLine(line.groups, f"{before.label}, {line.label}")
                continue
        out.append(line)
    return iter(out)


def _write(line: _ArrowLine) -> str:
    text = " -> ".join(", ".join(group) for group in line.groups)
    return f"{text} : {line.label}" if line.label else text
