"""The style sheet of drawings as presentation attributes, for programs that know no CSS variables or `:not()`.

Every rule of `style` is one of ours, so this reads only what those rules use: classes, elements, `:not(.class)`, the
space and `>`. `prefers-color-scheme` and other `@` rules are left out; a theme is chosen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Literal, NamedTuple
from xml.etree import ElementTree as ET

from orchestrator.render.style import palette, rules

_SVG = "{http://www.w3.org/2000/svg}"
_VARIABLE = re.compile(r"var\(--([a-z-]+)\)")
_PARTS = re.compile(r":not\(\.([\w-]+)\)|\.([\w-]+)|^([a-z]+)")


class _Compound(NamedTuple):
    """What one element has to be: `text`, `.node`, `.node:not(.visited)`."""

    tag: str
    held: frozenset[str]
    lacked: frozenset[str]
    direct: bool
    """Whether the compound before it is the parent, and not any ancestor."""


class _Rule(NamedTuple):
    weight: tuple[int, int, int]
    """Classes, elements, place in the sheet: of two rules the greater one holds."""
    selector: tuple[_Compound, ...]
    values: Mapping[str, str]


class _Element(NamedTuple):
    tag: str
    classes: frozenset[str]


def with_attributes(svg: str, theme: Literal["light", "dark"], **settings: str) -> str:
    """Writes what the style sheet says of each element of a drawing into its attributes.

    Args:
        svg: A drawing by `svg`.
        theme: Whose colours.
        settings: Values of properties in place of those of the sheet, such as `font_family`.

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
    """Whether a selector picks the last element of a path from the root."""
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
    """The rules in the order in which they hold: a later one replaces the values of an earlier one."""
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
