"""What a server says that it has. Nothing of it is trusted: it is bounded, cleaned, or left out."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.json import digest
from orchestrator.tools.keywords import BY_NAME
from orchestrator.tools.mcp.schemas import checked_schema
from orchestrator.tools.mcp.tail import plain, seen

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import Tool

log = logging.getLogger("orchestrator")

_PAGES = 100
_TOOLS = 1_000
_DESCRIPTION = 8_000
"""Characters of a description that a model is told."""
_REFUSED = re.compile(r"[^A-Za-z0-9_.-]")
_LONGEST = 64
"""Characters of a name that all providers of models take."""


@dataclass(frozen=True)
class Hints:
    """What the server says that calls of a tool do. It may be a mistake, or a lie."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None


@dataclass(frozen=True)
class Listed:
    """A tool as a server lists it, cleaned."""

    name: str
    """What the server calls it."""
    description: str
    parameters: Mapping[str, Any] = field(repr=False)
    hints: Hints
    digest: str = field(repr=False)
    """Of all that the server says of it: whoever approved it has read this."""
    wrapped: bool = False
    """Whether its results are objects only to wrap a value: `result` is the one property of their schema."""
    output: Mapping[str, Any] | None = field(default=None, repr=False)
    """JSON Schema of its structured results; for a wrapped result, of the value inside."""


async def listed_by(client: Client, server: str) -> dict[str, Listed]:
    """The tools of a server, by their names there, in its order. Those that cannot be used are logged and left out.

    Raises:
        MCPError: it does not list them.
    """
    found: dict[str, Listed] = {}
    seen: set[str] = set()
    cursor: str | None = None
    empty = 0
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor)
        empty = 0 if page.tools else empty + 1
        for tool in page.tools:
            why = "it is listed twice" if tool.name in found else _flaw(tool)
            if why is None and len(found) < _TOOLS:
                found[tool.name] = _listed(tool)
            else:
                log.warning("MCP server %r: tool %r is left out: %s", server, plain(tool.name)[:200], why or "too many")
        cursor = page.next_cursor
        if cursor is None or cursor in seen or len(found) >= _TOOLS or empty > 1:
            break
        seen.add(cursor)
    return found


def _flaw(tool: Tool) -> str | None:
    if not tool.name or len(tool.name) > 1_000:
        return "it has no usable name"
    try:
        checked_schema(tool.input_schema)
    except ValueError as error:
        return str(error)
    if tool.execution is not None and tool.execution.task_support == "required":
        return "it can only be called as a task, which is not supported"
    return None


def _listed(tool: Tool) -> Listed:
    said = tool.annotations
    plain_hints = None if said is None else said.model_dump(mode="json", exclude_none=True)
    told = [tool.name, tool.title, tool.description, tool.input_schema, plain_hints]
    description = seen(plain(tool.description or tool.title or "")).strip()
    if len(description) > _DESCRIPTION:
        description = description[:_DESCRIPTION] + " [...]"
    hints = Hints() if said is None else Hints(said.read_only_hint, said.destructive_hint, said.idempotent_hint)
    parameters = _seen_in(checked_schema(tool.input_schema))
    gives = tool.output_schema
    return Listed(tool.name, description, parameters, hints, digest(told), _wraps(gives), _output(gives))


def _output(schema: object) -> Mapping[str, Any] | None:
    """Schema of results; None if missing or unusable, which does not drop the tool."""
    try:
        found = checked_schema(schema)
    except ValueError:
        return None
    inner = found["properties"]["result"] if _wraps(found) else found
    return {**inner, "$defs": found.get("$defs", {})} if isinstance(inner, dict) else None


def _wraps(schema: Mapping[str, Any] | None) -> bool:
    properties = schema.get("properties") if schema is not None else None
    return isinstance(properties, Mapping) and properties.keys() == {"result"}


def _seen_in(schema: dict[str, object]) -> dict[str, object]:
    """The schema with what it says to people and models as they see it; names and values stay as the server knows."""
    return {key: _said_in(key, value) for key, value in schema.items()}


def _said_in(keyword: str, value: object) -> object:
    if keyword == "description" and isinstance(value, str):
        return seen(plain(value))
    if keyword in ("default", "const", "enum", "required"):
        return value
    if isinstance(value, dict):
        named = keyword in BY_NAME
        return {
            key: _seen_in(one) if named and isinstance(one, dict) else _said_in(key, one) for key, one in value.items()
        }
    if isinstance(value, list):
        return [_seen_in(one) if isinstance(one, dict) else one for one in value]
    return value


def names_of(remote: Iterable[str], prefix: str = "") -> dict[str, str]:
    """A name that models can call for each name that a server has.

    A name that fits stays as it is. In others each sign that does not fit becomes `_`; where that, or cutting it to 64
    signs, makes it no longer tell the tools apart, a few signs of the digest of its own name are put behind it. So what
    a tool is called does not depend on the order in which they are listed.
    """
    wanted = {name: _REFUSED.sub("_", prefix + name)[:_LONGEST] for name in remote}
    taken: dict[str, list[str]] = {}
    for name, short in wanted.items():
        taken.setdefault(short, []).append(name)
    found: dict[str, str] = {}
    for name, short in wanted.items():
        alone = len(taken[short]) == 1 and short.strip("_.-")
        if alone or short == prefix + name:
            found[name] = short
        else:
            tail = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
            found[name] = f"{short[: _LONGEST - 9]}_{tail}"
    return found
