"""Parts of pages that are made, between `<!-- figures: NAME -->` and `<!-- end of figures -->`."""

from __future__ import annotations

import re
from collections.abc import Mapping


def with_parts(text: str, parts: Mapping[str, str]) -> str:
    """A page with new texts for some of its made parts.

    Raises:
        ValueError: the page does not have one of them just once.
    """
    for name, made in parts.items():
        pattern = rf"<!-- figures: {name} -->\n.*?<!-- end of figures -->"
        new = f"<!-- figures: {name} -->\n\n{made}\n\n<!-- end of figures -->"
        text, times = re.subn(pattern, new.replace("\\", r"\\"), text, flags=re.DOTALL)
        if times != 1:
            raise ValueError(f"the page has {times} parts {name!r}, and needs one")
    return text
