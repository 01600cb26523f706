"""When a run worked: seconds of each step, the idle times, and steps in the order of a tree."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.views.timeline import Timeline, TimelineRow

_SHORTEST = 0.001
"""Seconds. A shorter idle span is left out."""


def working_seconds(timeline: Timeline) -> list[float]:
    """Seconds that each row worked, by row number; a row with a graph inside works while a row inside does."""
    found = [row.working(timeline.end) for row in timeline.rows]
    inside = [0.0] * len(found)
    for row in reversed(timeline.rows):
        if row.graph:
            found[row.number] = min(found[row.number], inside[row.number])
        if row.parent is not None:
            inside[row.parent] += found[row.number]
    return found


def idle_spans(timeline: Timeline) -> list[tuple[float, float]]:
    """Times (start and end, Unix seconds) in which no row worked, because every live one waited."""
    edges: list[tuple[float, int]] = []
    for row in timeline.rows:
        if row.graph:
            continue  # the rows inside say when it works
        at = row.started
        end = timeline.end if row.ended is None else row.ended
        for wait in sorted(row.waits, key=lambda one: one.start):
            edges += [(at, 1), (max(at, wait.start), -1)]
            at = max(at, end if wait.end is None else wait.end)
        edges += [(at, 1), (max(at, end), -1)]
    found: list[tuple[float, float]] = []
    working, since = 0, timeline.start
    for at, step in sorted(edges, key=lambda edge: (edge[0], -edge[1])):
        if not working and step > 0 and at - since > _SHORTEST:
            found.append((since, at))
        working += step
        if not working:
            since = at
    if not working and timeline.end - since > _SHORTEST:
        found.append((since, timeline.end))
    return found


def nested(rows: Sequence[TimelineRow]) -> list[TimelineRow]:
    """Rows in the order in which they began; rows of a graph inside follow the row that it runs in."""
    inside: dict[int | None, list[TimelineRow]] = {}
    for row in rows:
        inside.setdefault(row.parent, []).append(row)
    found: list[TimelineRow] = []
    left = inside.get(None, [])[::-1]
    while left:
        row = left.pop()
        found.append(row)
        left += inside.get(row.number, [])[::-1]
    return found
