"""A graph, or a run in it, as PNG: the same drawing as its SVG, painted by resvg.

resvg supports neither CSS variables nor `:not()`, so the style sheet is applied first, as presentation attributes. Only
the syntax in the rules of `style` is supported: classes, elements, `:not(.class)`, the space and `>`.
`prefers-color-scheme` and other `@` rules are ignored; the theme is an argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple
from xml.etree import ElementTree as ET

from orchestrator.errors import install_command
from orchestrator.render.backends import TIMEOUT, RenderError
from orchestrator.render.geometry import Direction, Engine
from orchestrator.render.svg import palette, rules, to_svg

if TYPE_CHECKING:
    from orchestrator.graph.model import GraphDefinition
    from orchestrator.render.overlaid import RunLike


FONTS = (
    "DejaVu Sans",
    "Noto Sans",
    "Liberation Sans",
    "Helvetica Neue",
    "Helvetica",
    "Arial",
    "Segoe UI",
    "Roboto",
    "Ubuntu",
    "Cantarell",
    "Verdana",
)
"""Fonts for labels; the first installed one is used. All fit the room in a layout."""
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
    """Draw a graph as PNG.

    Args:
        graph: The graph.
        run: The run to draw over it: anything with `.overlay()`.
        direction: Down the page, or to the right.
        theme: Light or dark.
        dpi: Dots per inch; a pixel of the SVG is 1/96 inch. Reduced to fit `MOST_PIXELS`.
        engine: Layout engine, as for `to_svg`.
        timeout: Seconds for the layout.

    Raises:
        RenderError: The package `resvg-py` is missing, no font of `FONTS` is installed, or the drawing is too large.
    """
    return painted(to_svg(graph, run, direction=direction, theme=theme, engine=engine, timeout=timeout), theme, dpi)


def painted(svg: str, theme: Literal["light", "dark"] = "light", dpi: int = 144) -> bytes:
    """Draw the result of `to_svg` as PNG; see `to_png`.

    Raises:
        RenderError: the drawing is too large, or a font or the package `resvg-py` is missing.
    """
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
    """Return the font of labels in PNG: the first installed one of `FONTS`.

    Raises:
        RenderError: No font of `FONTS` is installed, or the package `resvg-py` is missing.
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
        # No substitute for a missing font: its texts would not fit, or would not be drawn.
        return resvg_py.svg_to_bytes(svg_string=svg, zoom=zoom, font_family=_NO_FONT, serif_family=_NO_FONT)
    except ValueError as error:
        raise RenderError(f"resvg cannot draw this ({error}); draw SVG") from error


_SVG = "{http://www.w3.org/2000/svg}"
_VARIABLE = re.compile(r"var\(--([a-z-]+)\)")
_PARTS = re.compile(r":not\(\.([\w-]+)\)|\.([\w-]+)|^([a-z]+)")


class _Compound(NamedTuple):
    """A compound selector: `text`, `.node`, `.node:not(.visited)`."""

    tag: str
    held: frozenset[str]
    lacked: frozenset[str]
    direct: bool
    """True if the compound before it is the parent, rather than any ancestor."""


class _Rule(NamedTuple):
    weight: tuple[int, int, int]
    """Classes, elements, place in the sheet: the rule with the greater weight applies."""
    selector: tuple[_Compound, ...]
    values: Mapping[str, str]


class _Element(NamedTuple):
    tag: str
    classes: frozenset[str]


def with_attributes(svg: str, theme: Literal["light", "dark"], **settings: str) -> str:
    """Write the style sheet's settings for each element of a drawing into its attributes.

    Args:
        svg: A drawing by `svg`.
        theme: Theme of the colours.
        settings: Values of properties that replace those of the sheet, such as `font_family`.

    Returns:
        The same drawing, without a style sheet.
    """
    root = ET.fromstring(svg)
    forced = {name.replace("_", "-"): value for name, value in settings.items()}
    for sheet in root.findall(f"{_SVG}style"):
        root.remove(sheet)
    _apply(root, (), _sheet(theme), forced)
    ET.register_namespace("", _SVG.strip("{}"))
    return ET.tostring(root, encoding="unicode")


def _apply(
    element: ET.Element, around: tuple[_Element, ...], sheet: tuple[_Rule, ...], forced: Mapping[str, str]
) -> None:
    path = (*around, _Element(element.tag.removeprefix(_SVG), frozenset(element.get("class", "").split())))
    for rule in sheet:
        if _matches(rule.selector, path):
            for name, value in rule.values.items():
                element.set(name, forced.get(name, value))
    for inner in element:
        _apply(inner, path, sheet, forced)


def _matches(selector: tuple[_Compound, ...], path: tuple[_Element, ...]) -> bool:
    """Return True if a selector matches the last element of a path from the root."""
    last, element = selector[-1], path[-1]
    if last.tag not in ("", element.tag) or not last.held <= element.classes or last.lacked & element.classes:
        return False
    before, above = selector[:-1], path[:-1]
    if not before:
        return True
    lengths = (len(above),) if last.direct else range(len(above), 0, -1)
    return any(length > 0 and _matches(before, above[:length]) for length in lengths)


@cache
def _sheet(theme: Literal["light", "dark"]) -> tuple[_Rule, ...]:
    """Return the rules in the order of precedence: a later one overrides an earlier one."""
    return tuple(sorted(_rules(palette(theme)), key=lambda rule: rule.weight))


def _rules(colours: Mapping[str, str]) -> Iterator[_Rule]:
    plain = re.sub(r"@[^{]*\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}", "", rules())
    for place, (selectors, body) in enumerate(re.findall(r"([^{}]+)\{([^{}]*)\}", plain)):
        values = {
            name: _VARIABLE.sub(lambda found: colours[found[1]], value)
            for name, _, value in (part.partition(":") for part in body.split(";") if part)
        }
        for selector in selectors.split(","):
            compounds = tuple(_compounds(selector))
            classes = sum(len(one.held) + len(one.lacked) for one in compounds)
            yield _Rule((classes, sum(bool(one.tag) for one in compounds), place), compounds, values)


def _compounds(selector: str) -> Iterator[_Compound]:
    direct = False
    for word in selector.replace(">", " > ").split():
        if word == ">":
            direct = True
            continue
        parts = _PARTS.findall(word)
        yield _Compound(
            tag="".join(tag for _, _, tag in parts),
            held=frozenset(name for _, name, _ in parts if name),
            lacked=frozenset(name for name, _, _ in parts if name),
            direct=direct,
        )
        direct = False
