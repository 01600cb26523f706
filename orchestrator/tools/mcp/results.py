"""What a server gave, as the result of a tool call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from pydantic import JsonValue, ValidationError

from orchestrator.errors import ToolError
from orchestrator.models.messages import Image
from orchestrator.tools.content import Blob, Part, told_of
from orchestrator.tools.mcp.tail import exactly_without
from orchestrator.tools.result import ToolFailure, ToolResult, as_text

if TYPE_CHECKING:
    from mcp.types import CallToolResult, ContentBlock

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""What models look at."""


def as_result(found: CallToolResult, secrets: tuple[str, ...] = (), *, wrapped: bool = False) -> ToolResult:
    """The result of a call: structured content as the output if there is any, else the texts.

    Texts beside structured content say the same in words: they are what a model is shown. Pictures and other data are
    kept beside the output; where structured content holds their bytes, too, a line replaces them.

    Args:
        found: what the server answered.
        secrets: what the server was given and must not say.
        wrapped: whether `{"result": ...}` only wraps the value, because structured content has to be an object.

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
    shown = ""
    if found.structured_content is not None:
        shown, output = "\n".join(texts), _json(found.structured_content, secrets)
        if wrapped and isinstance(output, dict) and output.keys() == {"result"}:
            output = output["result"]
        output = _without_bytes(output, found.content, parts)
        shown = "" if shown == as_text(output) else shown
    elif not texts and not parts:
        output = ""
    return ToolResult(output=output, content=parts, shown=shown)


def _without_bytes(value: JsonValue, blocks: Sequence[ContentBlock], parts: Sequence[Part]) -> JsonValue:
    """A value with a line in place of each text that is the data of a block."""
    lines = {part.url.partition(",")[2] if isinstance(part, Image) else part.data: told_of(part) for part in parts}
    for block in blocks:  # as the server wrote it, which may have line breaks
        data = str(getattr(block, "data", ""))
        if data and (line := lines.get("".join(data.split()))):
            lines[data] = line
    lines.pop("", None)

    def walked(one: JsonValue) -> JsonValue:
        if isinstance(one, str):
            return lines.get(one, one)
        if isinstance(one, list):
            return [walked(item) for item in one]
        return {name: walked(item) for name, item in one.items()} if isinstance(one, dict) else one

    try:
        return walked(value) if lines else value
    except RecursionError:
        raise ToolError("its result is nested too deeply") from None


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
