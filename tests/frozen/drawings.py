"""Drawings of graphs and runs in every format, and the pages of runs."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator

import anyio

from orchestrator import Run
from orchestrator.render import render, to_html, to_svg, to_yaml
from tests.frozen import contract, strategies
from tests.frozen.keeping import Kept, kept, looking, named
from tests.frozen.staging import Piece, still
from tests.frozen.texts import Sections

WAYS = ("approved", "left", "denied", "spent")
"""Runs of each strategy that are drawn."""
SMALL = (
    "loop", "all-calls", "stop", "fork-join", "fork-first", "conflict", "map", "map-empty", "map-needs", "map-fork",
    "choice", "race", "failed", "failed-star", "failed-branch", "retried", "timeout-edge", "model-unavailable",
    "ask-left", "ask-cancelled", "confirm-denied", "asks-beside", "unknown-tool-retry", "limit-steps-edge",
    "limit-fork", "inside-asks", "inside-left", "inside-fails", "inside-deep", "graph-tool-left", "essay-denied",
    "essay-left",
)  # fmt: skip
PAGED = (
    "tool_user-approved",
    "react-left",
    "failed-branch",
    "inside-left",
    "graph-tool-left",
    "race",
    "tool_user-spent",
)
"""Runs whose whole pages are frozen: completed, paused, failed, cancelled branches, exhausted."""
WITH_DOT = ("tool_user-approved", "rewoo-left", "map-fork", "inside-asks", "essay-left", "failed-star")
"""Runs that are laid out with the program `dot` too; all others with our own layout only."""


def pieces() -> Iterator[Piece]:
    """The runs that are drawn."""
    for piece in contract.pieces():
        if piece.name in SMALL:
            yield piece
    for piece in strategies.pieces():
        if piece.name.rpartition("-")[2] in WAYS:
            yield piece


def runs(wanted: Callable[[str], bool] = lambda name: True) -> list[tuple[Kept, Run]]:
    """These runs, with fixed times, as an executor without code loads them."""

    async def loaded() -> list[tuple[Kept, Run]]:
        found = [await kept(piece) for piece in pieces() if wanted(piece.name)]
        async with looking("memory://", found) as executor:
            return [(one, await executor.load(one.info.run_id)) for one in found]

    with still():
        return anyio.run(loaded)


def drawings() -> Sections:
    """Every drawing by run and format; the layout is our own, which needs no Graphviz."""
    found: dict[str, str] = {}
    for one, run in runs():
        for form in ("text", "mermaid", "dot"):
            for shown, about in ((None, "graph"), (run, "run")):
                found[f"{run.run_id} {about} {form}"] = named(str(render(one.graph, form, shown)), [one])
        found[f"{run.run_id} graph svg"] = named(to_svg(one.graph, engine="simple"), [one])
        found[f"{run.run_id} run svg"] = named(to_svg(run.definition, run, engine="simple"), [one])
        middle = run.at(max(1, run.seq // 2))
        found[f"{run.run_id} half svg"] = named(to_svg(run.definition, middle, engine="simple"), [one])
        found[f"{run.run_id} half text"] = named(str(render(run.definition, "text", middle)), [one])
    return found


def graphs() -> Sections:
    """The strategies as YAML."""
    return {name: to_yaml(make()) for name, make in strategies.MAKERS.items()}


def layouts() -> Sections:
    """The same where Graphviz lays them out: the program, and the WebAssembly build."""
    found = {"dot": graphviz()}
    for one, run in runs(WITH_DOT.__contains__):
        found[f"{run.run_id} dot"] = named(to_svg(run.definition, run, engine="dot"), [one])
        found[f"{run.run_id} wasi"] = named(to_svg(run.definition, run, engine="wasi"), [one])
    return found


def graphviz() -> str:
    """The version of the program `dot`; empty where it is not there."""
    try:
        return subprocess.run(["dot", "-V"], capture_output=True, text=True, check=True).stderr.strip()
    except FileNotFoundError:
        return ""


def pages() -> Sections:
    """Pages of runs, one alone and two beside each other."""
    found = runs(PAGED.__contains__)
    made = {run.run_id: to_html(run.definition, run) for _, run in found}
    (_, first), (_, second) = found[0], found[1]
    made["two"] = to_html(first.definition, first, second)
    return {name: named(_DATA.sub(_sorted, page), [one for one, _ in found]) for name, page in made.items()}


_DATA = re.compile(r'(?<=<script type="application/json" id="data">).*?(?=</script>)', re.DOTALL)


def _sorted(found: re.Match[str]) -> str:
    """A page's data, one value a line; the keys of some of its objects come in the order of a set."""
    return json.dumps(json.loads(found[0]), ensure_ascii=False, indent=0, sort_keys=True)
