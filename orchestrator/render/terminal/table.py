"""Tables of the command line: one look for every list.

Columns are as wide as their longest cell. If a row is then wider than the terminal, the widest columns give way, as far
as each of them may; what does not fit is cut between words. Columns of ids and numbers are never cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import TextIO

from orchestrator.render.terminal.colours import coloured, wants_colours
from orchestrator.render.terminal.texts import columns_of, fitting
from orchestrator.visible import line

GAP = "  "
"""Between two columns."""
_LETTER = 12
"""Characters that one letter or emoji can have."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    least: int | None = None
    """Cells of the terminal that it keeps however narrow the terminal is; None: it is never cut."""
    right: bool = False
    """Whether it is aligned to the right, as numbers are."""
    optional: bool = False
    """Whether it is left out if all of its cells are empty."""


@dataclass(frozen=True)
class Cell:
    """A text of a table with its colour."""

    text: str
    colour: str = ""


@dataclass(frozen=True)
class Looks:
    """What the place of a table allows."""

    width: int | None = None
    """Cells in a line of the terminal; None: not a terminal, so nothing is cut."""
    colours: bool = False
    more: str = "…"
    """Marks where a text was cut."""


PLAIN = Looks()
"""For pipes and files: whole texts without colours."""


def looks_of(stream: TextIO) -> Looks:
    """What a stream allows: a terminal its width (`COLUMNS` if set), everything else whole texts.

    Args:
        stream: what is written to.
    """
    width = get_terminal_size((120, 24)).columns if stream.isatty() else None
    more = "…" if (getattr(stream, "encoding", "") or "").lower().startswith("utf") else "~"
    return Looks(width, wants_colours(stream), more)


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell | str] | str], looks: Looks = PLAIN) -> str:
    """Rows as lines under a heading.

    Nothing in a cell can command a terminal or leave its line: `visible.line` is applied to all of them.

    Args:
        columns: the columns.
        rows: the cells of each row; a row that is a text stands alone on its line, as the name of a group.
        looks: what the terminal allows.
    """
    grouped = any(isinstance(row, str) for row in rows)
    cells = [None if isinstance(row, str) else [_cell(one, looks.width) for one in row] for row in rows]
    shown = [
        number
        for number, column in enumerate(columns)
        if not column.optional or any(row is not None and row[number].text for row in cells)
    ]
    kept = [columns[number] for number in shown]
    heading = [Cell(column.name.upper(), "bold") for column in kept]
    body = [None if row is None else [row[number] for number in shown] for row in cells]
    indent = GAP if grouped else ""
    room = None if looks.width is None else looks.width - len(indent)
    widths = _widths(kept, [heading, *(row for row in body if row is not None)], room)
    lines = [indent + _row(kept, heading, widths, looks)]
    for row, given in zip(body, rows, strict=True):
        if row is None:
            text = _cut(line(str(given)), looks.width, looks.more)
            lines.append(coloured(text, "bold") if looks.colours else text)
        else:
            lines.append(indent + _row(kept, row, widths, looks))
    return "\n".join(lines)


def _cell(given: Cell | str, width: int | None) -> Cell:
    text, colour = (given, "") if isinstance(given, str) else (given.text, given.colour)
    # Of a text of many megabytes, only the start is measured.
    return Cell(line(text if width is None else text[: _LETTER * (width + 1)]), colour)


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], room: int | None) -> list[int]:
    """How wide each column is: the widest of those that may be cut give way first."""
    widths = [max(columns_of(row[number].text) for row in rows) for number in range(len(columns))]
    if room is None:
        return widths
    least = [
        width if column.least is None else min(width, max(column.least, columns_of(column.name)))
        for column, width in zip(columns, widths, strict=True)
    ]
    over = sum(widths) + len(GAP) * (len(columns) - 1) - room
    while over > 0:
        able = [number for number, width in enumerate(widths) if width > least[number]]
        if not able:
            break
        widest = max(able, key=lambda number: widths[number])
        next_widest = max((widths[number] for number in able if widths[number] < widths[widest]), default=0)
        less = min(over, widths[widest] - max(least[widest], next_widest))
        # Equal columns give way in turn, one cell at a time.
        less = max(1, less) if sum(widths[number] == widths[widest] for number in able) == 1 else 1
        widths[widest] -= less
        over -= less
    return widths


def _row(columns: Sequence[Column], cells: Sequence[Cell], widths: Sequence[int], looks: Looks) -> str:
    parts = []
    for number, (column, cell, width) in enumerate(zip(columns, cells, widths, strict=True)):
        text = _cut(cell.text, None if looks.width is None else width, looks.more)
        blank = " " * (width - columns_of(text))
        shown = coloured(text, cell.colour) if looks.colours else text
        last = number == len(columns) - 1
        parts.append(f"{blank}{shown}" if column.right else f"{shown}{'' if last else blank}")
    return GAP.join(parts).rstrip()


def _cut(text: str, width: int | None, more: str) -> str:
    return text if width is None else fitting(text, width, more)
