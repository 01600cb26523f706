"""A drawing as an `img` element."""

from __future__ import annotations

from base64 import b64decode
from html.parser import HTMLParser

from orchestrator.render import to_svg
from orchestrator.render.svg import image_element
from tests.render.sample import HOSTILE, research


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_it_is_one_element_with_the_whole_drawing_and_its_label() -> None:
    svg = to_svg(research(), prefix="x-")
    reader = _Tags()
    reader.feed(image_element(svg))
    ((tag, given),) = reader.found
    assert tag == "img"
    assert b64decode(str(given["src"]).removeprefix("data:image/svg+xml;base64,")).decode() == svg
    assert str(given["alt"]).startswith("Graph research: ")
    assert f'width="{given["width"]}" height="{given["height"]}"' in svg


def test_a_hostile_label_stays_a_label() -> None:
    svg = to_svg(research()).replace('aria-label="Graph research', f'aria-label="{_escaped(HOSTILE)}', 1)
    reader = _Tags()
    reader.feed(image_element(svg))
    assert [tag for tag, _ in reader.found] == ["img"]


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
