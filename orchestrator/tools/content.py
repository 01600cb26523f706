"""What a tool can give beside its output: pictures, which a model is shown, and other binary data, which it is not."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Self, TypeAlias

from pydantic import BaseModel, ConfigDict, field_validator

from orchestrator.models.messages import Image

_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,127}/[A-Za-z0-9!#$&^_.+-]{1,127}")
_DATA_URL = re.compile(r"data:([^;,]{1,255})[^,]{0,255},")
_STARTS = ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF87a", "gif"), (b"GIF89a", "gif"))


class Blob(BaseModel):
    """Binary data that no model is shown: sound, a document, an archive. The journal keeps it, as base64."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str
    """The bytes, as base64."""
    media_type: str = "application/octet-stream"
    name: str = ""
    """What a file with it would be called."""

    @field_validator("media_type")
    @classmethod
    def _check_type(cls, media_type: str) -> str:
        if not _MEDIA_TYPE.fullmatch(media_type):
            raise ValueError(f"{media_type[:40]!r} is not a media type: use one such as audio/wav")
        return media_type

    @field_validator("data")
    @classmethod
    def _check_data(cls, data: str) -> str:
        try:
            base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"{data[:40]!r} is not base64: make it with Blob.of(data)") from None
        return data

    @classmethod
    def of(cls, data: bytes, media_type: str = "application/octet-stream", *, name: str = "") -> Self:
        """Make binary content from bytes.

        Args:
            data: the bytes.
            media_type: their media type.
            name: a name to show, such as that of a file.

        Returns:
            The content.
        """
        return cls(data=base64.b64encode(data).decode(), media_type=media_type, name=name)

    @property
    def bytes(self) -> bytes:
        """The data itself."""
        return base64.b64decode(self.data)


Part: TypeAlias = Image | Blob
"""What a result holds beside its output."""


def size_of(part: Part) -> int:
    """About how many bytes the journal keeps for it."""
    return len(part.url if isinstance(part, Image) else part.data)


def told_of(part: Part) -> str:
    """A line that stands for it where it cannot be shown."""
    if isinstance(part, Blob):
        name = f"{part.name!a}, " if part.name else ""
        return f"[{name}{part.media_type}, {_bytes_in(part.data)} bytes, not shown]"
    kind = _DATA_URL.match(part.url)
    if kind is None:
        return f"[image at {part.url[:200]}]"
    return f"[{kind[1]}, {_bytes_in(part.url[kind.end() :])} bytes]"


def part_of(data: bytes) -> Part | str:
    """Bytes as what they are: a picture by how it begins, a text if they are one, else a blob."""
    for start, kind in _STARTS:
        if data.startswith(start):
            return Image.of(data, f"image/{kind}")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return Image.of(data, "image/webp")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return Blob.of(data)
    return Blob.of(data) if "\0" in text else text


def _bytes_in(data: str) -> int:
    return len(data) * 3 // 4 - data[-2:].count("=")
