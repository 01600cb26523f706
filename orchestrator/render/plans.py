"""Plans that a run made, each as a small separate drawing.

The layout of the graph does not change: plans are below it, each laid out once for its steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.render import geometry
from orchestrator.render.drawing import LONGEST_DOES, Drawing, EdgeMark, Look, NodeMark
from orchestrator.render.geometry import Layout, Position
from orchestrator.render.layers import layered
from orchestrator.render.layout import lay_out
from orchestrator.render.overlaid import Mark, need_id, places, plan_marks, step_id
from orchestrator.views.overlay import Planned, PlannedStep
from orchestrator.views.safe_text import plain, told

MOST_PLANS = 12
"""Maximum number of plans that are drawn; a loop can make more."""
_NAMES = ("tool", "name", "title", "kind", "task", "action", "query", "text")
"""Keys of an item whose text describes the step best."""
_SMALL = 60
"""Maximum number of steps for the better layout."""
_GAP, _HEAD = 18.0, 38.0


@dataclass(frozen=True, slots=True)
class Sheet:
    """A plan with the layout of its drawing."""

    id: str
    name: str
    detail: str
    mark: Mark
    drawing: Drawing
    layout: Layout
    width: float
    height: float
    inset: Position
    """Position of the drawing on the sheet."""


def plan_drawings(planned: Sequence[Planned]) -> Iterator[tuple[int, Planned, Drawing, Mark]]:
    """Yield (number, plan, drawing of its steps, the plan's own mark) of the plans to draw."""
    for number, plan in enumerate(planned[:MOST_PLANS], 1):
        marks = plan_marks(number, plan)
        yield number, plan, _drawing(number, plan, marks), marks[f"plan-{number}"]


def sheets(planned: Sequence[Planned], widest: float) -> list[Sheet]:
    """Return the layouts of a run's plans; rows of steps are broken at `widest` pixels."""
    found: list[Sheet] = []
    for number, plan, drawing, mark in plan_drawings(planned):
        layout = _laid_out(drawing, widest - 2 * _GAP)
        name = f"plan {number}" if len(planned) > 1 else "plan"
        more = len(planned) - number if number == MOST_PLANS else 0
        detail = steps_of(plan) + (f" · {more} more plans are not drawn" if more else "")
        head = geometry.text_width(name + detail, geometry.NAME_SIZE) + 90
        width = max(layout.width + 2 * _GAP, head)
        inset = Position((width - layout.width) / 2, _HEAD)
        height = layout.height + _HEAD + _GAP
        found.append(Sheet(f"plan-{number}", name, detail, mark, drawing, layout, width, height, inset))
    return found


def _laid_out(drawing: Drawing, widest: float) -> Layout:
    if len(drawing.nodes) <= _SMALL:
        found = lay_out(drawing)
        if found.width <= widest:
            return found
    return layered(drawing, widest=widest)


def steps_of(plan: Planned) -> str:
    """Describe a plan in a few words."""
    where = f" in {plain(plan.path, 40)}" if plan.path else ""
    return f"{len(plan.steps)} planned step{'s' if len(plan.steps) != 1 else ''}{where}"


def _drawing(number: int, plan: Planned, marks: Mapping[str, Mark]) -> Drawing:
    place = places(plan)
    nodes = tuple(_step(number, index, step, marks) for index, step in enumerate(plan.steps, 1))
    edges: list[EdgeMark] = []
    for index, step in enumerate(plan.steps, 1):
        for need in dict.fromkeys(step.needs):
            if need in place:
                part = need_id(number, place[need], index)
                edges.append(
                    EdgeMark(
                        key=f"p{number}e{len(edges)}",
                        id=part,
                        index=len(edges),
                        path=f"plan-{number}",
                        source=nodes[place[need] - 1].key,
                        target=nodes[index - 1].key,
                        names=(_name(need), _name(step.id)),
                        mark=marks[part],
                    )
                )
    by_key = {mark.key: mark for mark in nodes}
    return Drawing(name=f"plan {number}", nodes=nodes, edges=tuple(edges), run=True, by_key=by_key)


def _step(number: int, index: int, step: PlannedStep, marks: Mapping[str, Mark]) -> NodeMark:
    item = step.item if isinstance(step.item, Mapping) else {}
    named = next((item[name] for name in _NAMES if isinstance(item.get(name), str) and item[name]), "")
    given = item.get("input")
    look: Look = "tool" if isinstance(item.get("tool"), str) and item["tool"] else "custom"
    return NodeMark(
        key=f"p{number}s{index}",
        id=step_id(number, index),
        name=_name(step.id),
        path=f"plan-{number}",
        look=look,
        kind=told(str(named), 40).strip() or "step",
        does=told(
            f"{named}[{given}]" if look == "tool" and isinstance(given, str) else str(named), LONGEST_DOES
        ).strip(),
        tooltip=told(f"{step.id}: {json.dumps(step.item, ensure_ascii=False, default=str)}", 400),
        mark=marks[step_id(number, index)],
    )


def _name(given: str) -> str:
    """Return an id for display; a blank one would be invisible."""
    return told(given, 60).strip() or "(blank)"
