"""Marks of a run on the parts of a picture: only classes and texts.

Every part has an id that depends on the graph alone. A `Mark` is what a run adds to it at one moment. Static, live and
replayed pictures all use the functions below.

    part                id                       classes                                          texts
    node, terminal      node-look.find           visited passed faulty running waiting failed     count, took, told,
                                                 queued interrupted current many timed asked      asked
    edge                edge-look.find--judge    taken, and w2 to w5 the more often it was         times
    second step of it   plan-1.2                 visited running waiting failed skipped current   (none)
    its need of the 1st plan-1.1--2              taken                                            (none)
    plan                plan-1                   shown                                            times
    run                 run-status               the status, if it is one of ours                 status

`current` comes with running, waiting and queued; `many` shows `count`, `timed` shows `took`, `asked` shows `asked`.
Each text is in the part's element with `data-slot` of that name; `told` is added to the part's `<title>`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from orchestrator.views.overlay import Overlay, Planned
from orchestrator.views.safe_text import told

if TYPE_CHECKING:
    from orchestrator.graph.model import Asked
    from orchestrator.kernel.question import Question

K = TypeVar("K")
V = TypeVar("V", int, float)

NODE_STATES = ("visited", "passed", "faulty", "running", "waiting", "failed", "queued", "interrupted")
"""The states of a node.

Several may apply. `passed`: no step asked the model, or the person, that its kind asks. `faulty`: it ended, but a tool
call in it failed.
"""
SAID = ("failed", "waiting", "running", "interrupted", "queued", "faulty", "skipped")
"""States shown as words in pictures without signs; the first one that applies."""
WORDS = {"faulty": "a call failed"}
"""Words for states, where they differ from the name."""
CLASSES = (*NODE_STATES, "current", "many", "timed", "asked", "taken", "w2", "w3", "w4", "w5", "skipped", "shown")
"""Every class that a run adds to parts, except `run-status`."""
STATUSES = ("running", "paused", "interrupted", "completed", "failed", "cancelled", "exhausted")
_WEIGHTS = ((100, "w5"), (30, "w4"), (10, "w3"), (3, "w2"))
_SHOWN_QUESTIONS = 3


@runtime_checkable
class HasOverlay(Protocol):
    """Interface of a run for drawings. If it has a `waiting`, its questions are shown in tooltips."""

    @abstractmethod
    def overlay(self) -> Overlay:
        """Return marks of the run's progress."""
        ...


RunLike: TypeAlias = "HasOverlay | Overlay"


@dataclass(frozen=True, slots=True)
class Mark:
    """The marks of a run on a part of a picture."""

    classes: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Slot -> text; a missing slot is empty."""


def overlay_of(run: RunLike | None) -> Overlay | None:
    """Return the overlay of a run, if one is given: frames of a subgraph node are added up, and questions are texts."""
    if run is None:
        return None
    found = run if isinstance(run, Overlay) else run.overlay()
    visits = _summed(found.visits)
    items: dict[tuple[str, str], tuple[int, int]] = {}
    for (frame, node), (done, known) in found.items.items():
        before = items.get((place(frame), node), (0, 0))
        items[place(frame), node] = (before[0] + done, before[1] + known)
    said = {(place(frame), node): tuple(lines) for (frame, node), lines in found.told.items()}
    for at, lines in _questions(getattr(run, "waiting", ())).items():
        said.setdefault(at, tuple(lines))
    if found.entered is None:
        entered = {around for path, _ in visits for around in _around(path)}
    else:
        entered = _places(found.entered)
    return Overlay(
        visits=visits,
        taken=_summed(found.taken),
        waiting=_places(found.waiting, around=True),
        running=_places(found.running, around=True),
        failed=_places(found.failed),
        status=found.status,
        seconds=_summed(found.seconds),
        items=items,
        queued=_places(found.queued, around=True),
        entered=entered,
        told=said,
        faulty=_summed(found.faulty),
        asked=_summed(found.asked),
        unasked=_summed(found.unasked),
        planned=found.planned,
    )


def _summed(found: Mapping[tuple[str, K], V]) -> Mapping[tuple[str, K], V]:
    """Return a mapping with the places of graphs as keys: the values of their branches are added up."""
    sums: defaultdict[tuple[str, K], Any] = defaultdict(int)
    for (frame, part), amount in found.items():
        sums[place(frame), part] += amount
    return sums


def node_mark(run: Overlay, path: str, node: str, asks: Asked | None = None) -> Mark:
    """Return the marks of a node. `path`: names of the enclosing subgraph nodes; `asks`: what its kind asks."""
    at = (path, node)
    visits = run.visits.get(at, 0)
    gone = run.status == "interrupted"
    running = at in run.running
    states = (
        visits > 0 or at in (run.entered or ()),
        visits > 0 and at in run.unasked and at not in run.asked,
        run.faulty.get(at, 0) > 0,
        running and not gone,
        at in run.waiting,
        at in run.failed,
        at in run.queued,
        running and gone,
    )
    classes = [name for name, held in zip(NODE_STATES, states, strict=True) if held]
    if running or at in run.waiting or at in run.queued:
        classes.append("current")
    texts: dict[str, str] = {}
    if at in run.items:
        texts["count"] = "/".join(map(short, run.items[at]))
    elif visits > 1:
        texts["count"] = f"×{short(visits)}"
    if asks is not None and (at in run.asked or at in run.unasked):
        drawn = run.items[at][0] if at in run.items else visits or len({at} & run.failed)
        if said := asked_text(asks, run.asked.get(at, 0), run.unasked.get(at, 0), drawn):
            texts["asked"] = said
    took = duration(run.seconds.get(at, 0.0))
    if took:
        texts["took"] = took
    if at in run.told:
        texts["told"] = "\n".join(told(line, 200) for line in run.told[at])
    if faulty := run.faulty.get(at, 0):
        calls = "a call of a tool failed" if faulty == 1 else f"{faulty} calls of tools failed"
        texts["told"] = "\n".join(filter(None, (texts.get("told", ""), calls)))
    classes += [name for name, slot in (("many", "count"), ("timed", "took"), ("asked", "asked")) if slot in texts]
    return Mark(tuple(classes), texts)


def asked_text(asks: Asked, asked: int, unasked: int, drawn: int) -> str:
    """Return how often the steps of a node asked, if it differs from the drawn count.

    Args:
        asks: whom they ask.
        asked: model calls, or questions to people.
        unasked: steps that asked nothing.
        drawn: the drawn count.
    """
    if not unasked and asked == drawn:
        return ""
    if not asked:
        return "no call" if asks == "model" else "passed"
    if asks == "model":
        said, rest = ("1 call" if asked == 1 else f"{short(asked)} calls"), f"{short(unasked)} without"
    else:
        said, rest = f"asked {short(asked)}", f"passed {short(unasked)}"
    return f"{said}, {rest}" if unasked else said


def edge_mark(run: Overlay, path: str, index: int) -> Mark:
    """Return the marks of an edge, given its number in its graph's `edges`."""
    taken = run.taken.get((path, index), 0)
    if not taken:
        return Mark()
    weight = next((name for least, name in _WEIGHTS if taken >= least), None)
    return Mark(("taken", weight) if weight else ("taken",), {"times": f"×{short(taken)}"} if taken > 1 else {})


def status_mark(run: Overlay) -> Mark:
    """Return the status at the top of the picture."""
    status = told(run.status, 40)
    # A status may have any name; as a class it is a known one, or empty.
    known = "exhausted" if status == "diverged" else status
    return Mark((known,) if known in STATUSES else (), {"status": status})


def plan_marks(number: int, plan: Planned) -> dict[str, Mark]:
    """Return the marks of a plan, by the ids of its parts. Plans are numbered from 1."""
    place = places(plan)
    done = {index for index, step in enumerate(plan.steps, 1) if step.state == "visited"}
    begun = any(step.state != "planned" for step in plan.steps)
    marks = {f"plan-{number}": Mark(("shown",), {"times": f"{len(done)}/{len(plan.steps)}"} if begun else {})}
    for index, step in enumerate(plan.steps, 1):
        now = ("current",) if step.state in ("running", "waiting") else ()
        marks[step_id(number, index)] = Mark() if step.state == "planned" else Mark((step.state, *now))
        for need in step.needs:
            if need in place:
                taken = ("taken",) if place[need] in done else ()
                marks[need_id(number, place[need], index)] = Mark(taken)
    return marks


def places(plan: Planned) -> dict[str, int]:
    """Return the place in the plan of each step, from 1, by the step's own id."""
    return {step.id: index for index, step in enumerate(plan.steps, 1)}


def step_id(number: int, index: int) -> str:
    """Return the id of a step's part. It has the place, since a step's own id may be any text of any length."""
    return f"plan-{number}.{index}"


def need_id(number: int, need: int, index: int) -> str:
    """Return the id of the part that shows that a step needs another one."""
    return f"plan-{number}.{need}--{index}"


def place(frame: str) -> str:
    """Return the node names in a frame's path: its other segments are branches (`fork.0`)."""
    if "." not in frame:
        return frame
    return "/".join(segment for segment in frame.split("/") if segment.replace("-", "_").isidentifier())


def short(count: int) -> str:
    """Return a count in at most four characters: `7`, `950`, `12k`, `3M`."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if count >= size * 10 or (unit == "M" and count >= size):
            return f"{count // size}{unit}"
    return str(count)


def duration(seconds: float) -> str:
    """Return a duration in at most seven characters: `3 ms`, `1.2 s`, `2m05`, `3h07`; empty below 0.5 ms."""
    if seconds < 0.0005:
        return ""
    if seconds < 0.9995:
        return f"{round(seconds * 1000)} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{round(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}" if hours < 100 else f"{hours // 24} days"


def _places(found: Iterable[tuple[str, str]], *, around: bool = False) -> set[tuple[str, str]]:
    places: set[tuple[str, str]] = set()
    for frame, node in found:
        path = place(frame)
        places.add((path, node))
        if around:
            places.update(_around(path))
    return places


def _around(path: str) -> Iterable[tuple[str, str]]:
    while path:
        path, _, name = path.rpartition("/")
        yield path, name


def _questions(waiting: object) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    questions: Iterable[Question] = waiting if isinstance(waiting, list | tuple) else ()
    for question in questions:
        lines = found.setdefault((place(question.path), question.node), [])
        if len(lines) < _SHOWN_QUESTIONS:
            lines.append(f"{question.kind}: {question.prompt}".rstrip(": "))
    return found
