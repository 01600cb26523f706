"""The model calls that a drawing of a run shows, and those that its journal has."""

from __future__ import annotations

import re
from collections import Counter

from orchestrator import Run
from orchestrator.kernel.records import EffectIntended
from orchestrator.render.build import draw
from orchestrator.render.drawing import NodeMark
from orchestrator.views.overlay import NodeKey, place_of


def shown_calls(mark: NodeMark) -> int:
    """How many model calls the drawing of a node shows."""
    if mark.asked:
        found = re.fullmatch(r"(?:(\d+) calls?(?:, \d+ without)?|no call)", mark.asked)
        assert found is not None, f"{mark.name}: {mark.asked}"
        return int(found[1] or 0)
    if mark.count:
        return int(mark.count.removeprefix("×").partition("/")[0])
    return 1 if {"visited", "failed"} & {*mark.states} else 0


def drawn_calls(run: Run) -> dict[NodeKey, int]:
    """Node that asks a model -> the calls that the drawing of a run shows, without those that show none."""
    marks = draw(run.definition, run).by_key.values()
    found = {(mark.path, mark.name): shown_calls(mark) for mark in marks if mark.asks == "model"}
    return {node: count for node, count in found.items() if count}


def journaled_calls(run: Run) -> dict[NodeKey, int]:
    """Node -> the model calls of its steps in the journal, without those of steps that go on."""
    records = run.records()
    live = set() if run.machine.ended is not None else {token.key for token in run.machine.live_tokens()}
    calls = {
        (place_of(record.path), record.node, record.key)
        for record in records
        if isinstance(record, EffectIntended) and record.kind == "model" and not record.inside
        if record.activation not in live
    }
    return dict(Counter((path, node) for path, node, _ in calls))


def corrected_within(run: Run) -> list[str]:
    """The nodes of which a step made several model calls, as the drawing shows."""
    marks = draw(run.definition, run).by_key.values()
    return [mark.name for mark in marks if mark.asks == "model" and re.fullmatch(r"\d+ calls?", mark.asked)]
