"""Results of calls, as servers write them, converted to results of tools. Each block is read by itself.

What has another form than the protocol requires is kept as JSON, with a line in the log: the call was made.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import JsonValue, ValidationError

from orchestrator.errors import ToolError
from orchestrator.models.messages import Image
from orchestrator.tools.mcp.untrusted import exactly_without
from orchestrator.tools.result import Blob, Part, ToolFailure, ToolResult, as_text, placeholder_of

log = logging.getLogger("orchestrator")

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Media types that models accept as images."""


def as_result(
    found: Mapping[str, Any], secrets: tuple[str, ...] = (), *, wrapped: bool = False, server: str = ""
) -> ToolResult:
    """Convert the result of a call: structured content becomes the output if there is any, else the texts.

    Texts next to structured content say the same in words: models are shown these. Pictures and other data are stored
    next to the output; if structured content repeats their bytes, a line replaces them there.

    Args:
        found: the server's answer.
        secrets: values that were passed to the server and must not be returned.
        wrapped: whether `{"result": ...}` only wraps the value, because structured content has to be an object.
        server: the server's name in the log.

    Raises:
        ToolError: it contains values that JSON cannot represent.
    """
    texts: list[str] = []
    parts: list[Part] = []
    blocks = found.get("content")
    blocks = blocks if isinstance(blocks, list) else [] if blocks is None else [blocks]
    for block in blocks:
        one = _part(block)
        if one is None:
            log.warning("MCP server %r: a block of a result has an unknown form; it is kept as JSON", server)
            one = block if isinstance(block, str) else as_text(_json(block, ()))
        if isinstance(one, str):
            texts.append(exactly_without(one, secrets))
        elif isinstance(one, Blob):
            parts.append(one.model_copy(update={"name": exactly_without(one.name, secrets)}))
        else:
            parts.append(one)
    structured = found.get("structuredContent")
    if found.get("isError") not in (None, False, "false"):
        said = "\n".join(texts) or (None if structured is None else as_text(_json(structured, secrets)))
        return ToolFailure(error=said or "it failed without an error message", content=parts)
    output: JsonValue = "\n".join(texts) if texts else None
    shown = ""
    if structured is not None:
        shown, output = "\n".join(texts), _json(structured, secrets)
        if wrapped and isinstance(output, dict) and output.keys() == {"result"}:
            output = output["result"]
        output = _without_bytes(output, blocks, parts)
        shown = "" if shown == as_text(output) else shown
    elif not texts and not parts:
        output = ""
    return ToolResult(output=output, content=parts, shown=shown)


def _without_bytes(value: JsonValue, blocks: Sequence[object], parts: Sequence[Part]) -> JsonValue:
    """Return a value in which each string that repeats the data of a block is replaced by a line."""
    lines = {
        part.url.partition(",")[2] if isinstance(part, Image) else part.data: placeholder_of(part) for part in parts
    }
    for block in blocks:  # the original data of the server, which may have line breaks
        data = block.get("data") if isinstance(block, Mapping) else None
        if isinstance(data, str) and (line := lines.get("".join(data.split()))):
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


def _part(block: object) -> Part | str | None:
    """Convert a block of the answer: to a text, or to a part for `content`; None if its form is unknown."""
    said: Mapping[str, Any] = block if isinstance(block, Mapping) else {}
    match said:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "audio", "data": str(data), "mimeType": str(media_type)}:
            return _binary(data, media_type)
        case {"type": "resource_link", "uri": str(uri)}:
            about = said.get("description")
            return f"[{said.get('name', 'resource')} at {uri}{f': {about}' if about else ''}]"
        case {"type": "resource", "resource": Mapping() as inner}:
            return content_of(inner)
        case _:
            return None


def content_of(resource: Mapping[str, Any]) -> Part | str | None:
    """Convert the content of a resource: to a text, or to a part for `content`; None if its form is unknown."""
    match resource:
        case {"text": str(text)}:
            return text
        case {"blob": str(data)}:
            media_type = resource.get("mimeType")
            name = str(resource.get("uri", "")).rpartition("/")[2]
            return _binary(data, media_type if isinstance(media_type, str) else "application/octet-stream", name)
        case _:
            return None


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
