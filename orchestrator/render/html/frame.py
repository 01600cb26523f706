"""The page of a run in a frame, for notebooks: the same modules as those of the page in a file.

The frame is a sandbox in which the page's own script runs, and no other. Where frames are left out (a notebook that is
not trusted, a preview on GitHub), so is the style that hides the picture before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from orchestrator.render.html.page import embedded, page
from orchestrator.render.image_element import image_element
from orchestrator.render.svg import to_svg
from orchestrator.render.text import to_text
from orchestrator.views.run import Run

HEIGHT = 720
"""Pixels."""
_HIDE = "<style>.orchestrator-page>img{display:none}</style>"
_LOOK = "width:100%;border:1px solid #8d98aa66;border-radius:8px"


class FramedPage:
    """What `run.page()` returns: shows itself as the last value of a notebook's cell.

    Args:
        run: the run.
        other: a second run, to compare it with.
        height: of the frame, in pixels.
        name: of the frame, in which `posted` finds it; with one, the page follows what is posted. Default: it does not.
    """

    def __init__(self, run: Run, other: Run | None = None, *, height: int = HEIGHT, name: str | None = None) -> None:
        if isinstance(height, bool) or not isinstance(height, int) or height < 1:
            raise ValueError(f"height is a number of pixels, 1 or more, not {height!r}")
        self._run, self._other, self._height, self._name = run, other, height, name

    def to_html(self) -> str:
        """The frame, and the picture that stands for it, as HTML."""
        text = page(self._run.definition, self._run, self._other, frame="frozen" if self._name is None else "live")
        inside = text.replace("&", "&amp;").replace("'", "&#39;")
        picture = image_element(to_svg(self._run.definition, self._run))
        name = "" if self._name is None else f' id="{escape(self._name)}"'
        look = f'sandbox="allow-scripts" title="Page of the run" style="height:{self._height}px;{_LOOK}"'
        return (
            f"{_HIDE}<div class=\"orchestrator-page\">{picture}<iframe{name} {look} srcdoc='{inside}'></iframe></div>"
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """For notebooks: the page, and the run as text."""
        return {"text/html": self.to_html(), "text/plain": to_text(self._run.definition, self._run)}


def framed(run: Run, other: Run | None = None, height: int | None = None) -> FramedPage:
    """The page of a run in a frame of a height in pixels; see `Run.page`."""
    return FramedPage(run, other, height=HEIGHT if height is None else height)


def posted(name: str, data: Mapping[str, Any]) -> str:
    """A script that posts a run into the frame `name`, at once and whenever the frame was loaded again.

    Args:
        name: of the frame.
        data: the run, by `run_data`.
    """
    return (
        f"<script>(() => {{const frame = document.getElementById({embedded(name)});"
        f'const send = () => frame.contentWindow?.postMessage({embedded(embedded(data))}, "*");'
        "if (frame) { frame.onload = send; send(); }})();</script>"
    )
