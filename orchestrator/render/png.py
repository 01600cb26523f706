"""A graph, or a run in it, as PNG: the same drawing as its SVG, painted by resvg."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Literal

from orchestrator.errors import install_command
from orchestrator.render.backends import TIMEOUT, RenderError
from orchestrator.render.css_attributes import with_attributes
from orchestrator.render.geometry import Direction, Engine
from orchestrator.render.svg import to_svg

if TYPE_CHECKING:
    from orchestrator.graph.model import GraphDefinition
    from orchestrator.render.overlaid import RunLike

FONTS = (
    "DejaVu Sans", "Noto Sans", "Liberation Sans", "Helvetica Neue", "Helvetica", "Arial", "Segoe UI", "Roboto",
    "Ubuntu", "Cantarell", "Verdana",
)  # fmt: skip
"""The fonts that labels may have, the first one that is installed. All fit the room that a layout leaves."""
MOST_PIXELS = 64_000_000
"""Pixels of the largest picture; a larger one is drawn at a lower resolution."""
_NO_FONT = "no font"
_CSS_DPI = 96


def to_png(
    graph: GraphDefinition,
    run: RunLike | None = None,
    *,
    direction: Direction = "TB",
    theme: Literal["light", "dark"] = "light",
    dpi: int = 144,
    engine: Engine | None = None,
    timeout: float = TIMEOUT,
) -> bytes:
    """Draws a graph as PNG.

    Args:
        graph: The graph.
        run: Laid over it: anything with `.overlay()`.
        direction: Down the page, or to the right.
        theme: Light or dark.
        dpi: Dots per inch; a pixel of the SVG is 1/96 inch. At most what fits in `MOST_PIXELS`.
        engine: What lays out, as for `to_svg`.
        timeout: Seconds for the layout.

    Raises:
        RenderError: The package `resvg-py` is missing, no font of `FONTS` is installed, or the drawing is too large.
    """
    return painted(to_svg(graph, run, direction=direction, theme=theme, engine=engine, timeout=timeout), theme, dpi)


def painted(svg: str, theme: Literal["light", "dark"] = "light", dpi: int = 144) -> bytes:
    """Paint a drawing of `to_svg`; see `to_png`."""
    family = font()
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert found is not None, "a drawing has a size"
    pixels = float(found[1]) * float(found[2])
    zoom = min(dpi / _CSS_DPI, (MOST_PIXELS / pixels) ** 0.5)
    if zoom < min(0.2, dpi / _CSS_DPI):
        raise RenderError("the drawing is too large for PNG: its texts would be unreadable; draw SVG")
    return _resvg(with_attributes(svg, theme, font_family=f"'{family}'"), zoom)


@cache
def font() -> str:
    """The font of labels in PNG: the first one of `FONTS` that is installed.

    Raises:
        RenderError: None is, or the package `resvg-py` is missing.
    """
    empty = _resvg(_probe(_NO_FONT), 1)
    found = next((family for family in FONTS if _resvg(_probe(family), 1) != empty), None)
    if found is None:
        raise RenderError(
            f"PNG needs one of the fonts {', '.join(FONTS)}, and none is installed; install one "
            "(Debian, Ubuntu: `apt install fonts-dejavu-core`), or draw SVG"
        )
    return found


def _probe(family: str) -> str:
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">'
        f'<text x="2" y="15" font-size="12" font-family="\'{family}\'">Hag</text></svg>'
    )


def _resvg(svg: str, zoom: float) -> bytes:
    try:
        import resvg_py
    except ImportError as error:
        raise RenderError(
            f"PNG needs the package `resvg-py` ({error}); install it (`{install_command('png')}`), or draw SVG"
        ) from error
    try:
        # No font in place of one that is missing: its texts would be drawn in one that does not fit, or not at all.
        return resvg_py.svg_to_bytes(svg_string=svg, zoom=zoom, font_family=_NO_FONT, serif_family=_NO_FONT)
    except ValueError as error:
        raise RenderError(f"resvg cannot draw this ({error}); draw SVG") from error
