"""What is in a PNG, and where a drawing has texts."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple
from xml.etree import ElementTree as ET

from orchestrator.render.geometry import text_width

_SVG = "{http://www.w3.org/2000/svg}"
_BOLD = 1.1
"""How much wider the widest of our fonts is in bold than `text_width` takes it to be."""
_SEEN = 24
"""Of 255: what differs less is rounding of edges that are half transparent."""
_MOVED = re.compile(r"(translate|scale)\(([^)]*)\)")


@dataclass(frozen=True)
class Picture:
    """The green channel of a picture: enough to find ink on any of our grounds."""

    width: int
    height: int
    rows: tuple[bytes, ...]

    @classmethod
    def of(cls, png: bytes) -> Picture:
        """Read a PNG of eight bits per channel, with or without alpha, not interlaced."""
        assert png.startswith(b"\x89PNG\r\n\x1a\n")
        place, data = 8, b""
        width = height = channels = 0
        while place < len(png):
            length, kind = struct.unpack(">I4s", png[place : place + 8])
            body = png[place + 8 : place + 8 + length]
            if kind == b"IHDR":
                width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
                assert (depth, interlaced) == (8, 0)
                channels = {2: 3, 6: 4}[colour]
            data += body if kind == b"IDAT" else b""
            place += length + 12
        raw = zlib.decompress(data)
        stride = width * channels + 1
        rows: list[bytes] = []
        above = bytes(width)
        for row in range(height):
            line = raw[row * stride : (row + 1) * stride]
            above = unfiltered(line[0], line[2::channels], above)
            rows.append(above)
        return cls(width, height, tuple(rows))


def unfiltered(kind: int, line: bytes, above: bytes) -> bytes:
    if kind == 0:
        return line
    if kind == 2:
        return bytes([(one + up) & 255 for one, up in zip(line, above, strict=True)])
    found, left, corner = bytearray(), 0, 0
    for one, up in zip(line, above, strict=True):
        if kind == 1:
            left = (one + left) & 255
        elif kind == 3:
            left = (one + (left + up) // 2) & 255
        else:
            a, b, c = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
            left = (one + (left if a <= b and a <= c else up if b <= c else corner)) & 255
        corner = up
        found.append(left)
    return bytes(found)


class Label(NamedTuple):
    """A text and the room that a layout gives it, in pixels of the drawing."""

    text: str
    left: float
    top: float
    right: float
    bottom: float


def labels(svg: str) -> list[Label]:
    """The visible texts of a drawing whose style is in attributes."""
    return [*_labels(ET.fromstring(svg), 0.0, 0.0)]


def without_texts(svg: str) -> str:
    """The same drawing without its texts."""
    return re.sub(r"<text\b.*?</text>", "", svg, flags=re.DOTALL)


def _labels(element: ET.Element, x: float, y: float) -> Iterator[Label]:
    if element.get("display") == "none" or element.get("visibility") == "hidden":
        return
    for kind, numbers in _MOVED.findall(element.get("transform", "")):
        if kind == "translate":
            dx, dy = map(float, numbers.split())
            x, y = x + dx, y + dy
    if element.tag == f"{_SVG}text" and (said := "".join(element.itertext()).strip()):
        size = _size(element)
        parts = [(element.text or "", size), *((part.text or "", _size(part, size)) for part in element)]
        gaps = sum(float(part.get("dx", 0)) for part in element)
        wide = (
            sum(text_width(text, size) for text, size in parts) * (_BOLD if element.get("font-weight") else 1.0) + gaps
        )
        left, base = x + float(element.get("x", 0)), y + float(element.get("y", 0))
        left -= {"middle": wide / 2, "end": wide}.get(element.get("text-anchor", ""), 0.0)
        yield Label(said, left, base - size, left + wide, base + 0.35 * size)
    for inner in element:
        yield from _labels(inner, x, y)


def _size(element: ET.Element, inherited: float = 16.0) -> float:
    said = element.get("font-size", "")
    return float(said.removesuffix("px")) if said else inherited


def ink(one: Picture, other: Picture, label: Label) -> int:
    """How many pixels of a label's room differ between two pictures of the same size."""
    columns = slice(max(0, int(label.left)), int(label.right) + 1)
    rows = range(max(0, int(label.top)), min(one.height, int(label.bottom) + 1))
    return sum(
        abs(a - b) > _SEEN
        for row in rows
        for a, b in zip(one.rows[row][columns], other.rows[row][columns], strict=True)
    )


def outside(one: Picture, other: Picture, labels: list[Label], slack: float = 6.0) -> int:
    """How many pixels differ between two pictures in no label's room."""
    found = 0
    for row, (a, b) in enumerate(zip(one.rows, other.rows, strict=True)):
        if a == b:
            continue
        held = sorted((x.left - slack, x.right + slack) for x in labels if x.top - slack <= row <= x.bottom + slack)
        ends = [(-1.0, 0.0), *held, (float(one.width), 0.0)]
        reach = 0.0
        for (_, end), (begin, _) in pairwise(ends):
            reach = max(reach, end)
            columns = slice(int(reach), max(int(reach), int(begin)))
            found += sum(abs(x - y) > _SEEN for x, y in zip(a[columns], b[columns], strict=True))
    return found
