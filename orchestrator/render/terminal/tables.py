"""Tables of the command line: the common format, and the tables of runs, statistics, workers and tools.

Columns are as wide as their longest cell. If a row is then wider than the terminal, the widest columns are narrowed, up
to their limits, and texts are cut between words. Columns of ids and numbers are never cut.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, TextIO

from orchestrator.kernel.status import FINAL
from orchestrator.redaction import redacted
from orchestrator.render.terminal.texts import (
    RISK,
    STATUS,
    ago,
    coloured,
    columns_of,
    duration,
    fitting,
    plain,
    short,
    wants_colours,
)
from orchestrator.stores.rows import MAX_DEATHS
from orchestrator.values import MAX_NAME, cut, shown_labels
from orchestrator.views.worker_info import moment
from orchestrator.visible import line
from orchestrator.visible import shown as visible

if TYPE_CHECKING:
    from orchestrator.stores import RunInfo, StatsRow
    from orchestrator.tools import Tool
    from orchestrator.views.worker_info import WorkerInfo


GAP = "  "
"""Space between two columns."""
_LETTER = 12
"""Characters that one letter or emoji can have."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    least: int | None = None
    """Its minimum number of terminal cells; None: it is never cut."""
    right: bool = False
    """True if it is aligned to the right, such as numbers."""
    optional: bool = False
    """True if it is left out when all its cells are empty."""


@dataclass(frozen=True)
class Cell:
    """Text of a table cell with its colour."""

    text: str
    colour: str = ""


@dataclass(frozen=True)
class Looks:
    """Display capabilities of the output."""

    width: int | None = None
    """Cells in a line of the terminal; None: not a terminal, so nothing is cut."""
    colours: bool = False
    more: str = "…"
    """Marks cut text."""


PLAIN = Looks()
"""For pipes and files: complete texts without colours."""


def looks_of(stream: TextIO) -> Looks:
    """Return the capabilities of a stream: a terminal has a width (`COLUMNS` if set), others get complete texts.

    Args:
        stream: the output stream.
    """
    width = get_terminal_size((120, 24)).columns if stream.isatty() else None
    more = "…" if (getattr(stream, "encoding", "") or "").lower().startswith("utf") else "~"
    return Looks(width, wants_colours(stream), more)


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell | str] | str], looks: Looks = PLAIN) -> str:
    """Format rows as lines under a heading.

    Control sequences and line breaks in cells are escaped with `visible.line`.

    Args:
        columns: the columns.
        rows: the cells of each row; a string is a row alone on its line, such as the name of a group.
        looks: capabilities of the terminal.
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
    # For a text of many megabytes, only the start is measured.
    return Cell(line(text if width is None else text[: _LETTER * (width + 1)]), colour)


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], room: int | None) -> list[int]:
    """Return the width of each column: the widest ones that may be cut are narrowed first."""
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
        # Equal columns are narrowed in turn, one cell at a time.
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


_RUN_COLUMNS = (
    Column("run"),
    Column("graph", least=12),
    Column("status"),
    Column("changed"),
    Column("labels", least=10, optional=True),
    Column("what happened", least=16),
)


def run_table(found: Sequence[RunInfo], looks: Looks = PLAIN, now: float | None = None) -> str:
    """Format runs as lines under a heading: id, graph, status, age, labels, and what happened.

    Args:
        found: the rows.
        looks: capabilities of the terminal.
        now: Unix seconds, for ages; None: the present.
    """
    rows = [
        (
            cut(info.run_id, MAX_NAME),
            Cell(cut(info.graph, MAX_NAME), "dim"),
            Cell(_status(info), STATUS.get(info.status, "")),
            Cell(ago(info.updated, now), "dim"),
            _labels(info),
            what_happened(info),
        )
        for info in found
    ]
    return table(_RUN_COLUMNS, rows, looks)


def _labels(info: RunInfo) -> str:
    return " ".join(f"{key}={value}" for key, value in shown_labels(info.labels).items())


def _status(info: RunInfo) -> str:
    status = "diverged" if info.ended_diverged else info.status
    return status if info.archived is None else f"{status}, archived"


def what_happened(info: RunInfo) -> str:
    """Return the main text of a run on one line: its question, error, answer, or input with the scheduled start."""
    if info.deaths and info.status not in FINAL:
        times = f"{info.deaths} {'time' if info.deaths == 1 else 'times'}"
        text = f"{'parked, ' if info.deaths >= MAX_DEATHS else ''}given up {times}: {info.fault}"
    elif info.question:
        text = f"asks: {info.question}"
    elif info.status == "running" and info.due is not None:
        text = f"waits to be taken up from {moment(info.due)} on: {info.input}"
    else:
        text = info.error or info.output or info.input
    if info.parent is not None:
        text = f"{_RELATIONS.get(info.parent.relation, info.parent.relation)} {info.parent.run_id}: {text}"
    return " ".join(str(redacted(text)).split())


_RELATIONS = {"fork": "fork of", "replay": "replay of", "call": "called by"}


_NUMBERS = ("runs", "failed", "calls", "tools", "failed", "tokens in", "out", "cost", "p50", "p95")


def stats_table(names: Sequence[str], rows: Sequence[StatsRow], currency: str, looks: Looks = PLAIN) -> str:
    """Format groups as lines under a heading. The first `FAILED` counts ended runs, the second tool calls.

    Args:
        names: the grouping.
        rows: the groups.
        currency: the name of the currency of costs.
        looks: capabilities of the terminal.
    """
    numbers = [f"{name} {currency}" if name == "cost" else name for name in _NUMBERS]
    columns = (*(Column(name, least=10) for name in names), *(Column(name, right=True) for name in numbers))
    cells = [_stats_cells(names, row) for row in rows]
    if any(row.cache_savings for row in rows):
        columns = (*columns, Column("cache saved", right=True))
        cells = [(*found, f"{row.cache_savings or 0:.4f}") for found, row in zip(cells, rows, strict=True)]
    if any(row.replayed_calls for row in rows):
        columns = (*columns, Column("calls replayed", right=True), Column("saved", right=True))
        said = [
            (f"{row.replayed_calls or 0:,}", f"{row.replay_savings:.4f}" if row.replay_savings else "-") for row in rows
        ]
        cells = [(*found, *more) for found, more in zip(cells, said, strict=True)]
    return table(columns, cells, looks)


def _stats_cells(names: Sequence[str], row: StatsRow) -> tuple[Cell | str, ...]:
    group = (row.group.get(name) for name in names)
    return (
        *("-" if value is None else value for value in group),
        f"{row.runs:,}",
        _rate(row.failed_rate),
        f"{row.calls:,}",
        f"{row.tool_calls:,}",
        _rate(row.failed_tool_rate),
        f"{row.input_tokens:,}",
        f"{row.output_tokens:,}",
        row.cost_text(f"{row.cost:.4f}"),
        _time(row.p50),
        _time(row.p95),
    )


def _rate(rate: float | None) -> Cell:
    return Cell("-" if rate is None else f"{rate:.1%}", "red" if rate else "")


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)


_WORKER_COLUMNS = (
    Column("holder"),
    Column("state"),
    Column("host", least=8),
    Column("pid", right=True),
    Column("heartbeat"),
    Column("holds", right=True),
    Column("graphs", least=12),
    Column("runs", least=12, optional=True),
)
_WORKER_COLOURS = {"alive": "green", "draining": "yellow", "lapsed": "red", "dead": "red"}


def worker_table(found: Sequence[WorkerInfo], looks: Looks = PLAIN) -> str:
    """Format workers as lines under a heading: name, state, and held runs.

    Args:
        found: the workers, and other executors that hold runs.
        looks: capabilities of the terminal.
    """
    return table(_WORKER_COLUMNS, [_worker_cells(one) for one in found], looks)


def _worker_cells(one: WorkerInfo) -> tuple[Cell | str, ...]:
    places = str(one.held) if one.slots is None else f"{one.held}/{one.slots}"
    more = f", and {one.held - len(one.runs)} more" if one.held > len(one.runs) else ""
    return (
        one.id,
        Cell(one.state, _WORKER_COLOURS[one.state]),
        one.host or "-",
        "-" if one.pid is None else str(one.pid),
        f"{duration(one.heartbeat)} ago",
        places,
        ", ".join(one.graphs) if one.worker else Cell("no worker", "dim"),
        ", ".join(one.runs) + more,
    )


_DEEPEST = 4
_TOOL_COLUMNS = (
    Column("tool"),
    Column("risk"),
    Column("effect"),
    Column("arguments", least=16),
    Column("what it does", least=16),
)


def tool_table(groups: Mapping[str, Sequence[Tool]], looks: Looks = PLAIN) -> str:
    """Format the tools of several groups, each group under its name.

    Args:
        groups: tools by the name of their group.
        looks: capabilities of the terminal.
    """
    rows: list[Sequence[Cell | str] | str] = []
    for name, tools in groups.items():
        rows += [name, *map(_tool_cells, tools)]
    return table(_TOOL_COLUMNS, rows, looks)


def whole(tool: Tool) -> str:
    """Return all that a model receives about a tool: its description, and the JSON Schema of its arguments."""
    said = visible(tool.description.strip())
    schema = visible(plain(tool.parameters))
    return "\n".join(("", said, "", schema) if said else ("", schema))


def _tool_cells(tool: Tool) -> tuple[Cell | str, ...]:
    about = tool.description.strip().partition("\n")[0]
    risk = Cell(tool.risk, RISK.get(tool.risk, ""))
    return tool.name, risk, tool.effect, Cell(arguments(tool.parameters), "dim"), about


def arguments(schema: Mapping[str, Any]) -> str:
    """Return the parameters of a tool on one line: `city: string, days: integer = 3, unit?: "C"

    "F"`.
    """
    properties = schema.get("properties")
    required = schema.get("required") or ()
    parts: list[str] = []
    for name, inner in (properties if isinstance(properties, Mapping) else {}).items():
        inner = inner if isinstance(inner, Mapping) else {}
        kind = type_words(inner, schema)
        if name in required:
            parts.append(f"{name}: {kind}")
        elif "default" in inner:
            parts.append(f"{name}: {kind} = {_short_json(inner['default'])}")
        else:
            parts.append(f"{name}?: {kind}")
    if schema.get("additionalProperties"):
        parts.append("...")
    return ", ".join(parts) or "-"


def type_words(schema: object, root: Mapping[str, object], depth: int = 0) -> str:
    """Return a schema's type in a few words."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return "any"
    if isinstance(schema.get("$ref"), str):
        return str(schema["$ref"]).rpartition("/")[2]
    if isinstance(schema.get("enum"), Sequence):
        return " | ".join(map(_short_json, schema["enum"]))
    if "const" in schema:
        return _short_json(schema["const"])
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), Sequence):
            return " | ".join(dict.fromkeys(type_words(one, root, depth + 1) for one in schema[key]))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"[{type_words(schema.get('items', {}), root, depth + 1)}]"
    return " | ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _short_json(value: object) -> str:
    return short(json.dumps(value, ensure_ascii=False, default=str), 24)
