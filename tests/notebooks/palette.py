"""A PNG with at most 256 colours: drawings have few, and a file of less than half the bytes."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator

from tests.render.pixels import unfiltered

_HEAD = b"\x89PNG\r\n\x1a\n"
_ROOM = 256


def indexed(png: bytes) -> bytes:
    """The same picture; a colour that is none of the 256 most frequent becomes the nearest one of these.

    Args:
        png: of eight bits per channel, not interlaced: with alpha, as resvg writes it, or without, as browsers do.
    """
    chunks = [*_chunks(png)]
    width, height, *form = struct.unpack(">IIBBBBB", chunks[0][1])
    assert form in ([8, 6, 0, 0, 0], [8, 2, 0, 0, 0])
    channels = 4 if form[1] == 6 else 3
    opaque = [bytes([255]) * width] * (4 - channels)
    raw = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    rows: list[list[tuple[int, ...]]] = []
    above = [bytes(width)] * channels
    for at in range(0, len(raw), width * channels + 1):
        line = raw[at + 1 : at + 1 + width * channels]
        above = [unfiltered(raw[at], line[channel::channels], above[channel]) for channel in range(channels)]
        rows.append([*zip(*above, *opaque, strict=True)])
    counts = Counter(pixel for row in rows for pixel in row)
    colours = [colour for colour, _ in counts.most_common(_ROOM)]
    places = {colour: _nearest(colour, colours) for colour in counts}
    lines = b"".join(b"\0" + bytes(places[pixel] for pixel in row) for row in rows)
    return _HEAD + b"".join((
        _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        _chunk(b"PLTE", bytes(part for colour in colours for part in colour[:3])),
        _chunk(b"tRNS", bytes(colour[3] for colour in colours)),
        _chunk(b"IDAT", zlib.compress(lines, 9)),
        _chunk(b"IEND", b""),
    ))  # fmt: skip


def _nearest(wanted: tuple[int, ...], colours: list[tuple[int, ...]]) -> int:
    return min(
        range(len(colours)),
        key=lambda at: sum((one - other) ** 2 for one, other in zip(wanted, colours[at], strict=True)),
    )


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = len(_HEAD)
    while place < len(png):
        length, kind = struct.unpack(">I4s", png[place : place + 8])
        yield kind, png[place + 8 : place + 8 + length]
        place += length + 12


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
