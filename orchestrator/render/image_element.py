"""A drawing as an HTML element that shows it also where SVG in a page loses its style, as in a foreign notebook."""

from __future__ import annotations

import re
from base64 import b64encode

_HEAD = re.compile(r"<svg [^>]*>")
_GIVEN = re.compile(r' ([\w-]+)="([^"]*)"')
_SHOWN = (("aria-label", "alt"), ("width", "width"), ("height", "height"))


def image_element(svg: str) -> str:
    """An `img` element with a drawing of `to_svg` in it, as large as the drawing and no wider than its surroundings.

    Args:
        svg: the drawing; its label becomes the text for those who do not see it.
    """
    head = _HEAD.search(svg)
    assert head is not None, "a drawing has a head"
    given = dict(_GIVEN.findall(head[0]))
    shown = " ".join(f'{wanted}="{given[name]}"' for name, wanted in _SHOWN)
    data = b64encode(svg.encode()).decode()
    return f'<img {shown} style="max-width:100%;height:auto" src="data:image/svg+xml;base64,{data}">'
