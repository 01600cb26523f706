"""Makes `docs/pictures`: a run of each shipped strategy, and the states that a node can have.

`python -m tests.render.pictures` writes them anew; a test holds those that are there to what is drawn today.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree as ET

import anyio

from orchestrator.cli.graphrefs import shipped
from orchestrator.executor import Executor, Overlay
from orchestrator.models import OfflineModel
from orchestrator.render import to_svg
from orchestrator.tools import tools_from_ref
from tests.render.sample import research, running

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
QUESTION = "What is (3 + 4) * (2 + 2)?"


async def pictures() -> dict[str, str]:
    """File name -> SVG."""
    made: dict[str, str] = {}
    async with Executor(store="memory://", model=OfflineModel(), tools=tools_from_ref("arithmetic")) as executor:
        for name in shipped():
            graph = import_module(f"graphs.{name}").graph
            run = await executor.start(graph, QUESTION, run_id=name, approve="none")
            made[f"{name}.svg"] = untimed(to_svg(graph, run))
    made["states.svg"] = to_svg(research(), everything())
    return made


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


def main() -> None:
    """Write them."""
    for name, svg in anyio.run(pictures).items():
        (FOLDER / name).write_text(svg)
        sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main()
