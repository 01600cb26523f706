"""The picture of all states, docs/pictures/states.svg, and how pictures are held to what is drawn today."""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree as ET

from orchestrator.executor import Overlay
from tests.render.sample import running


def everything() -> Overlay:
    """A run in which something is in every state."""
    half = running()
    return Overlay(
        visits={**half.visits, ("", "plan"): 2},
        taken={**half.taken, ("", 0): 1, ("", 1): 5, ("look", 1): 12, ("look", 2): 7, ("look", 3): 2},
        running=half.running,
        waiting={("", "vote")},
        failed=half.failed,
        queued={("", "sorry")},
        items={("", "look"): (2, 5)},
        seconds={
            ("", "plan"): 3.4,
            ("", "look"): 65.0,
            ("look", "find"): 12.2,
            ("", "facts"): 0.85,
            ("", "merge"): 0.003,
        },
        told={("", "vote"): ("approval: Publish it?",), ("", "facts"): ("failed: TimeoutError: no answer",)},
        status="running",
    )


def untimed(svg: str) -> str:
    """Without how long things took: that would be another picture each time."""
    svg = re.sub(r'(<text class="took"[^>]*>)[^<]*', r"\1", svg)
    return re.sub(r"\ntook [^\n<]*", "", svg.replace(" timed", ""))


def shape(svg: str) -> list[tuple[str, Mapping[str, str], str]]:
    """What a picture says, wherever its parts are: those depend on which Graphviz is there."""
    told = ("id", "class", "data-path", "data-node", "data-edge", "data-slot", "aria-label")
    return [
        (element.tag, {name: value for name in told if (value := element.get(name))}, (element.text or "").strip())
        for element in ET.fromstring(svg).iter()
    ]
