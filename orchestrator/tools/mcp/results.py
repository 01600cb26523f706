"""What a server gave, as the result of a tool call."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from pydantic import JsonValue, ValidationError

from orchestrator.errors import ToolError
from orchestrator.models.messages import Image
from orchestrator.tools.content import Blob, Part
from orchestrator.tools.mcp.tail import exactly_without
from orchestrator.tools.result import ToolFailure, ToolResult

if TYPE_CHECKING:
    from mcp.types import CallToolResult, ContentBlock

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""What models look at."""


def as_result(found: CallToolResult, secrets: tuple[str, ...] = ()) -> ToolResult:
    """The result of a call: structured content as the output if there is any, else the texts.

    Texts beside structured content say the same in words, so they are left out; pictures and other data are kept.

    Args:
        secrets: what the server was given and must not say.

    Raises:
        ToolError: it holds what JSON cannot say.
    """
    texts: list[str] = []
    parts: list[Part] = []
    for block in found.content:
        one = _part(block)
        if isinstance(one, str):
            texts.append(exactly_without(one, secrets))
        else:
            parts.append(one)
    if found.is_error:
        said = "\n".join(texts) or _json(found.structured_content, secrets)
        return ToolFailure(error=str(said or "it failed without saying why"), content=parts)
    output: JsonValue = "\n".join(texts) if texts else None
    if found.structured_content is not None:
        output = _json(found.structured_content, secrets)
    elif not texts and not parts:
        output = ""
    return ToolResult(output=output, content=parts)


def _part(block: ContentBlock) -> Part | str:
    """A part of the answer: a text, or what goes beside the output."""
    match block.type:
        case "text":
            return block.text
        case "image":
            return _binary(block.data, block.mime_type)
        case "audio":
            return _binary(block.data, block.mime_type)
        case "resource_link":
            about = f": {block.description}" if block.description else ""
            return f"[{block.name} at {block.uri}{about}]"
        case "resource":
            inner = block.resource
            text = getattr(inner, "text", None)
            if isinstance(text, str):
                return text
            name = str(inner.uri).rpartition("/")[2]
            return _binary(str(getattr(inner, "blob", "")), inner.mime_type or "application/octet-stream", name)


def _binary(data: str, media_type: str, name: str = "") -> Part | str:
    kind = media_type.partition(";")[0].strip().lower()
    try:
        blob = Blob(data="".join(data.split()), media_type=kind, name=name[:200])
    except ValidationError:
        return f"[{kind[:100]!a}: data that cannot be read]"
    if kind in _IMAGES:
        return Image(url=f"data:{kind};base64,{blob.data}")
    return blob


def _json(value: object, secrets: tuple[str, ...]) -> JsonValue:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        raise ToolError("its result contains a value that JSON cannot represent, such as an infinite number") from None
    if not secrets:
        return cast(JsonValue, value)
    return cast(JsonValue, json.loads(exactly_without(text, secrets)))
