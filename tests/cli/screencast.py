"""Screens of a terminal as an animated SVG: no scripts, no fonts of its own, each text at a fixed place.

Whoever prefers reduced motion, and a program without animations, sees the last screen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from xml.etree import ElementTree as ET

from rich.cells import cell_len

CELL, LINE = 8.2, 17
"""Width and height of a cell in pixels."""
_LEFT, _TOP, _UNDER = 14, 48, 12
_COLOURS = {31: "r", 32: "g", 33: "y", 35: "m", 36: "c"}
_STYLE = """
text{font:13.6px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d7dde4;white-space:pre}
.d{fill:#98a2ad}.b{font-weight:700}.r{fill:#ff8078}.g{fill:#5fd07b}.y{fill:#e8bf55}.m{fill:#d7a0f5}.c{fill:#67d0e4}
.t{fill:#aeb7c1}.k{fill:#ffb3ad;font-weight:700}
"""


@dataclass(frozen=True)
class Span:
    """Characters of one style, from a cell on."""

    column: int
    text: str
    style: str


@dataclass(frozen=True)
class Frame:
    """A screen, and for how long it stands."""

    rows: tuple[tuple[Span, ...], ...]
    cursor: tuple[int, int]
    """Column and row."""
    seconds: float
    note: str = ""
    """What happens outside this terminal meanwhile."""

    @property
    def text(self) -> str:
        """The lines, and the note."""
        lines = []
        for row in self.rows:
            line = ""
            for span in row:
                line += " " * (span.column - cell_len(line)) + span.text
            lines.append(line)
        return "\n".join([*lines, self.note]).rstrip()


def rows_of(captured: str, masks: Sequence[tuple[re.Pattern[str], str]]) -> tuple[tuple[Span, ...], ...]:
    """The rows of a screen as `tmux capture-pane -e` writes it.

    Args:
        captured: text with the sequences of colours.
        masks: what is different each time, and what stands in its place.
    """
    style, rows = frozenset[str](), []
    for line in captured.split("\n"):
        cells: list[tuple[str, str]] = []
        for part in re.split(r"(\x1b\[[0-9;]*m)", line):
            if part.startswith("\x1b["):
                style = _styled(style, part[2:-1])
            else:
                cells += [(char, " ".join(sorted(style))) for char in part]
        rows.append(tuple(_spans(_masked(cells, masks))))
    return tuple(rows)


def _styled(style: frozenset[str], codes: str) -> frozenset[str]:
    for code in map(int, (codes or "0").split(";")):
        if code == 0:
            style = frozenset()
        elif code in (1, 2):
            style |= {"b" if code == 1 else "d"}
        elif code == 22:
            style -= {"b", "d"}
        elif code == 39 or code in _COLOURS:
            style -= {*_COLOURS.values()}
            style |= {_COLOURS[code]} if code in _COLOURS else set()
    return style


def _masked(cells: list[tuple[str, str]], masks: Sequence[tuple[re.Pattern[str], str]]) -> list[tuple[str, str]]:
    for pattern, instead in masks:
        for found in reversed([*pattern.finditer("".join(char for char, _ in cells))]):
            cells[found.start() : found.end()] = [(char, cells[found.start()][1]) for char in found.expand(instead)]
    return cells


def _spans(cells: list[tuple[str, str]]) -> list[Span]:
    """Runs of one style. Blanks belong to no run, if two of them follow each other."""
    found, column = list[Span](), 0
    for style, run in groupby(cells, key=lambda cell: cell[1]):
        for part in re.split(r"( {2,}|^ | $)", "".join(char for char, _ in run)):
            if part.strip():
                found.append(Span(column, part, style))
            column += cell_len(part)
    return found


def svg(frames: Sequence[Frame], columns: int, rows: int, title: str, description: str) -> str:
    """The screens as an animation that begins again after the last one.

    Args:
        frames: the screens; the last one stands still for those who want no motion.
        columns: cells in a line.
        rows: lines of the terminal.
        title: what it is, for those who do not see it.
        description: what happens in it.
    """
    width, height = round(columns * CELL + 2 * _LEFT), _TOP + rows * LINE + _UNDER
    shown: dict[str, list[int]] = {}
    for number, frame in enumerate(frames):
        for part in _parts(frame, width):
            shown.setdefault(part, []).append(number)
    groups: dict[tuple[int, ...], list[str]] = {}
    for part, numbers in shown.items():
        groups.setdefault(tuple(numbers), []).append(part)
    total = sum(frame.seconds for frame in frames)
    begins = [100 * sum(frame.seconds for frame in frames[:number]) / total for number in range(len(frames))]
    rules, body = [], []
    for number, (those, parts) in enumerate(groups.items()):
        last = len(frames) - 1 in those
        if len(those) == len(frames):
            body.append(f"<g>{''.join(parts)}</g>")
            continue
        rules.append(f"@keyframes f{number}{{{_keys(those, begins)}}}.f{number}{{animation-name:f{number}}}")
        body.append(f'<g class="f f{number}{" last" if last else ""}"{"" if last else _HIDDEN}>{"".join(parts)}</g>')
    motion = (
        ""
        if len(frames) == 1
        else (
            f".f{{visibility:hidden;animation:{total:g}s step-end infinite}}.last{{visibility:visible}}"
            "@media (prefers-reduced-motion:reduce){.f{animation:none!important}}"
        )
    )
    dots = "".join(
        f'<circle cx="{20 + 18 * n}" cy="18" r="5.5" fill="{colour}"/>'
        for n, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return "\n".join([
        (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-labelledby="title description">'),
        f'<title id="title">{escape(title)}</title>', f'<desc id="description">{escape(description)}</desc>',
        f"<style>{_STYLE}{motion}{''.join(rules)}</style>",
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="9" fill="#11161d" stroke="#4a5561"/>',
        dots, *body, "</svg>\n",
    ])  # fmt: skip


_HIDDEN = ' visibility="hidden"'


def _keys(those: Sequence[int], begins: Sequence[float]) -> str:
    """When a part is seen, as key frames."""
    keys = ["0%{visibility:hidden}"] if those[0] else []
    for number in range(len(begins)):
        if (number in those) != (number - 1 in those) or number == 0:
            if number == 0 and number not in those:
                continue
            keys.append(f"{begins[number]:.2f}%{{visibility:{'visible' if number in those else 'hidden'}}}")
    return "".join(keys)


def _parts(frame: Frame, width: int) -> list[str]:
    """The elements of a screen."""
    parts = []
    for number, row in enumerate(frame.rows):
        y = _TOP + LINE * number + 12
        line = []
        for span in row:
            style = f' class="{span.style}"' if span.style else ""
            long = f"{cell_len(span.text) * CELL:g}"
            line.append(
                f'<text x="{_LEFT + span.column * CELL:g}" y="{y}"{style} textLength="{long}" '
                f'lengthAdjust="spacingAndGlyphs">{escape(span.text, quote=False)}</text>'
            )
        if line:
            parts.append("".join(line))
    column, row = frame.cursor
    parts.append(
        f'<rect x="{_LEFT + column * CELL:g}" y="{_TOP + LINE * row - 1}" width="{CELL:g}" height="{LINE - 2}" '
        'fill="#d7dde4" opacity=".75"/>'
    )
    if frame.note:
        parts.append(f'<text x="{width / 2:g}" y="22" text-anchor="middle" class="k">{escape(frame.note)}</text>')
    else:
        parts.append(f'<text x="{width / 2:g}" y="22" text-anchor="middle" class="t">bash</text>')
    return parts


def texts(picture: str) -> list[tuple[str, str, str, str]]:
    """What a picture says: in which screens, where, and what."""
    found = []
    for group in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}g"):
        for text in group.iter("{http://www.w3.org/2000/svg}text"):
            found.append((group.get("class", ""), text.get("x", ""), text.get("y", ""), text.text or ""))
    return found
