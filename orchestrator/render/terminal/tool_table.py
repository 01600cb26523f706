"""Tools as a table: what each is called with, what it can do, what it is for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.render.terminal.texts import plain, short
from orchestrator.visible import line
from orchestrator.visible import shown as visible

if TYPE_CHECKING:
    from orchestrator.tools import Tool

_DEEPEST = 4
_WIDEST = 60


def table(groups: Mapping[str, Sequence[Tool]]) -> str:
    """The tools of several groups, each group under its name."""
    rows = {name: [_row(tool) for tool in tools] for name, tools in groups.items()}
    widths = [max((len(row[n]) for found in rows.values() for row in found), default=0) for n in range(4)]
    head = ("tool", "arguments", "risk", "effect")
    widths = [max(width, len(word)) for width, word in zip(widths, head, strict=True)]
    lines = [_line((*head, "what it does"), widths)]
    for name, found in rows.items():
        lines.append(line(name))
        lines += [_line(row, widths) for row in found]
    return "\n".join(lines)


def whole(tool: Tool) -> str:
    """All that a model is told of a tool: its description, and the JSON Schema of its arguments."""
    said = visible(tool.description.strip())
    schema = visible(plain(tool.parameters))
    return "\n".join(("", said, "", schema) if said else ("", schema))


def _row(tool: Tool) -> tuple[str, ...]:
    said = tool.description.strip().partition("\n")[0]
    return tuple(line(cell) for cell in (tool.name, arguments(tool.parameters), tool.risk, tool.effect, said))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  " + "  ".join(cell.ljust(widths[n]) if n < len(widths) else cell for n, cell in enumerate(cells)).rstrip()


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
    return short(", ".join(parts), _WIDEST) or "-"


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
