"""Tools as a table: what each is called with, what it can do, what it is for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.render.terminal.colours import RISK
from orchestrator.render.terminal.table import PLAIN, Cell, Column, Looks, table
from orchestrator.render.terminal.texts import plain, short
from orchestrator.visible import shown as visible

if TYPE_CHECKING:
    from orchestrator.tools import Tool

_DEEPEST = 4
_COLUMNS = (
    Column("tool"), Column("risk"), Column("effect"), Column("arguments", least=16), Column("what it does", least=16),
)  # fmt: skip


def tool_table(groups: Mapping[str, Sequence[Tool]], looks: Looks = PLAIN) -> str:
    """The tools of several groups, each group under its name.

    Args:
        groups: tools by the name of their group.
        looks: what the terminal allows.
    """
    rows: list[Sequence[Cell | str] | str] = []
    for name, tools in groups.items():
        rows += [name, *map(_row, tools)]
    return table(_COLUMNS, rows, looks)


def whole(tool: Tool) -> str:
    """All that a model is told of a tool: its description, and the JSON Schema of its arguments."""
    said = visible(tool.description.strip())
    schema = visible(plain(tool.parameters))
    return "\n".join(("", said, "", schema) if said else ("", schema))


def _row(tool: Tool) -> tuple[Cell | str, ...]:
    about = tool.description.strip().partition("\n")[0]
    risk = Cell(tool.risk, RISK.get(tool.risk, ""))
    return tool.name, risk, tool.effect, Cell(arguments(tool.parameters), "dim"), about


def arguments(schema: Mapping[str, Any]) -> str:
    """The parameters of a tool on one line: `city: string, days: integer = 3, unit?: "C" | "F"`."""
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
    """A schema's type in few words."""
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
