"""Charts as SVG texts that need nothing else, in the colours of the library's pictures, light and dark.

Both axes of `lines` are logarithmic, so that a cost that grows with the length is a rising line, and a cost that does
not is a flat one. Names stand at the ends of their lines, which need no legend.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Literal, TypeAlias

from orchestrator.render.geometry import text_width
from orchestrator.render.svg import palette

Points: TypeAlias = Sequence[tuple[float, float]]
Unit: TypeAlias = Literal["us", "ms", "bytes"]

COLOURS: Mapping[str, str] = {
    "ours": "busy",
    "floor": "soft",
    "langgraph": "fail",
    "langgraph_delta": "wait",
    "burr": "done",
    "pydantic_graph": "model",
    "llama_index": "tool",
    "dbos": "human",
}
"""Subject -> colour, the same in every chart."""
NAMES: Mapping[str, str] = {
    "ours": "agent-graph-orchestrator",
    "floor": "floor",
    "floor_sized": "floor, sized log",
    "langgraph": "LangGraph",
    "langgraph_delta": "LangGraph, delta",
    "burr": "Burr",
    "pydantic_graph": "pydantic-graph",
    "llama_index": "LlamaIndex",
    "dbos": "DBOS",
}
"""Subject -> what it is called."""
_USED = ("page", "line", "ink", *dict.fromkeys(COLOURS.values()))
_WIDTH, _HEIGHT = 760.0, 380.0
_LEFT, _TOP, _BOTTOM = 78.0, 64.0, 52.0
_BAR, _GAP = 22.0, 12.0
_SIZE, _APART = 12.0, 15.0


def said(value: float, unit: Unit) -> str:
    """A value with the unit that suits it: `250 µs`, `1.5 ms`, `332 MB`."""
    if unit == "bytes":
        scale = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
    else:
        value = value / (1e6 if unit == "us" else 1e3)
        scale = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
    factor, name = next((pair for pair in scale if value >= pair[0] * 0.9995), scale[-1])
    number = value / factor
    return f"{number:.0f} {name}" if number >= 99.5 else f"{number:.3g} {name}"


def ticks(low: float, high: float) -> list[float]:
    """Round values that lie around all values: powers of ten, and 2 and 5 times these if there would be few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    fine = last - first <= 2
    found = [10.0**power * times for power in range(first, last + 1) for times in ((1, 2, 5) if fine else (1,))]
    begin = max(tick for tick in found if tick <= low)
    end = min((tick for tick in found if tick >= high), default=found[-1])
    return [tick for tick in found if begin <= tick <= end]


def lines(title: str, series: Mapping[str, Points], across: str, unit: Unit) -> str:
    """Values against a length, both logarithmic.

    Args:
        title: Over the chart.
        series: Subject -> (length, value).
        across: What the length is.
        unit: Of the values.
    """
    values = [y for points in series.values() for _, y in points]
    lengths = sorted({x for points in series.values() for x, _ in points})
    marks = ticks(min(values), max(values))
    low, high = math.log(marks[0]), math.log(marks[-1])
    short, long = math.log(lengths[0]), math.log(lengths[-1])
    names = 1.15 * max(text_width(NAMES[name], _SIZE) for name in series)  # bold
    right, bottom = _WIDTH - 18 - names, _HEIGHT - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        along = (math.log(x) - short) / ((long - short) or 1)
        up = (math.log(y) - low) / ((high - low) or 1)
        return _LEFT + 12 + along * (right - _LEFT - 24), bottom - up * (bottom - _TOP)

    def parts() -> Iterator[str]:
        for mark in marks:
            y = place(lengths[0], mark)[1]
            yield f'<path class="grid" d="M{_LEFT:.1f} {y:.1f}H{right:.1f}"/>'
            yield f'<text class="tick" x="{_LEFT - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{said(mark, unit)}</text>'
        for length in lengths:
            x = place(length, marks[0])[0]
            yield f'<path class="grid" d="M{x:.1f} {bottom:.1f}v5"/>'
            yield f'<text class="tick" x="{x:.1f}" y="{bottom + 19:.1f}" text-anchor="middle">{length:,.0f}</text>'
        middle = (_LEFT + right) / 2
        yield f'<text class="tick" x="{middle:.1f}" y="{_HEIGHT - 12:.1f}" text-anchor="middle">{escape(across)}</text>'
        placed = {name: [place(*point) for point in points] for name, points in series.items()}
        stops = {points[-1][0] for points in placed.values()}
        beside = {}
        for stop in stops:
            beside.update(_apart({name: points[-1][1] for name, points in placed.items() if points[-1][0] == stop}))
        for name, points in placed.items():
            colour = COLOURS[name]
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            yield f'<g class="{name}"><path class="curve {colour}" d="M{path}"/>'
            yield (
                "".join(f'<circle class="{colour}-dot" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in points) + "</g>"
            )
        for name, points in placed.items():  # over all lines
            x, y = points[-1][0] + 10, beside[name] + 4
            yield f'<text class="name {COLOURS[name]}-text" x="{x:.1f}" y="{y:.1f}">{NAMES[name]}</text>'

    ends = "; ".join(f"{NAMES[name]} {said(points[-1][1], unit)}" for name, points in series.items())
    return _svg(title, f"{title}. At the longest: {ends}.", _WIDTH, _HEIGHT, parts())


def bars(title: str, values: Mapping[str, float], unit: Unit) -> str:
    """A bar for each subject, the shortest first.

    Args:
        title: Over the chart.
        values: Subject -> value.
        unit: Of the values.
    """
    ordered = sorted(values.items(), key=lambda pair: pair[1])
    height = _TOP + len(ordered) * (_BAR + _GAP) + 4
    left = 34 + 1.1 * max(text_width(NAMES[name], _SIZE) for name in values)  # bold
    room = _WIDTH - left - 100

    def parts() -> Iterator[str]:
        for number, (name, value) in enumerate(ordered):
            y = _TOP - 10 + number * (_BAR + _GAP)
            wide = max(2.0, room * value / ordered[-1][1])
            yield f'<text class="name" x="{left - 10:.1f}" y="{y + 15:.1f}" text-anchor="end">{NAMES[name]}</text>'
            place = f'x="{left:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{_BAR:g}"'
            yield f'<rect class="{COLOURS[name]}-dot" {place} rx="3"/>'
            yield f'<text class="tick" x="{left + wide + 8:.1f}" y="{y + 15:.1f}">{said(value, unit)}</text>'

    about = "; ".join(f"{NAMES[name]} {said(value, unit)}" for name, value in ordered)
    return _svg(title, f"{title}: {about}.", _WIDTH, height, parts())


def _apart(wanted: Mapping[str, float]) -> dict[str, float]:
    """Heights of names that would lie on one another, moved apart as little as possible."""
    groups: list[tuple[list[str], float]] = []  # names from above, and where their middle is
    for name, y in sorted(wanted.items(), key=lambda pair: pair[1]):
        names, middle = [name], y
        while groups and groups[-1][1] + (len(groups[-1][0]) + len(names)) * _APART / 2 > middle:
            names = groups.pop()[0] + names
            middle = sum(wanted[one] for one in names) / len(names)
        groups.append((names, middle))
    return {
        name: middle + (number - (len(names) - 1) / 2) * _APART
        for names, middle in groups
        for number, name in enumerate(names)
    }


def _svg(title: str, about: str, width: float, height: float, parts: Iterator[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" style="max-width:100%;height:auto" role="img" aria-label="{escape(about)}">'
        f"<style>{_style()}</style>"
        f'<rect class="page" width="{width:g}" height="{height:g}" rx="8"/>'
        f'<text class="title" x="24" y="32">{escape(title)}</text>' + "\n".join(parts) + "</svg>\n"
    )


def _style() -> str:
    light, dark = (
        "".join(f"--{name}:{palette(theme)[name]};" for name in _USED)  # type: ignore[arg-type]
        for theme in ("light", "dark")
    )
    colours = "".join(
        f".chart .{name}{{stroke:var(--{name})}}.chart .{name}-dot,.chart .{name}-text{{fill:var(--{name})}}"
        for name in dict.fromkeys(COLOURS.values())
    )
    return (
        f".chart{{{light}}}@media (prefers-color-scheme:dark){{.chart{{{dark}}}}}"
        '.chart text{font-family:ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,'
        f'"DejaVu Sans",sans-serif;font-size:{_SIZE:g}px;fill:var(--ink)}}'
        ".chart .page{fill:var(--page)}.chart .title{font-size:15px;font-weight:600}.chart .tick{fill:var(--soft)}"
        ".chart .name{font-weight:600;paint-order:stroke;stroke:var(--page);stroke-width:4px;stroke-linejoin:round}"
        ".chart .grid{stroke:var(--line);stroke-width:1;fill:none}"
        f".chart .curve{{fill:none;stroke-width:2;stroke-linejoin:round}}{colours}"
        ".chart .ours .curve{stroke-width:3.2}.chart .floor .curve{stroke-dasharray:5 4}"
    )
