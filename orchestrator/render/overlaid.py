"""What a run did, added up for a drawing: all frames of one subgraph node count as one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from orchestrator.executor.overlay import Overlay
from orchestrator.render.words import told

if TYPE_CHECKING:
    from orchestrator.kernel.question import Question

_SHOWN_QUESTIONS = 3


@runtime_checkable
class HasOverlay(Protocol):
    """A run, as far as drawings care. If it has a `waiting`, its questions are told in tooltips."""

    def overlay(self) -> Overlay:
        """Where the run has been and where it is."""
        ...


RunLike: TypeAlias = "HasOverlay | Overlay"


@dataclass(frozen=True, slots=True)
class Traces:
    """Counts by (path of names, node), and by (path of names, edge number)."""

    visits: Counter[tuple[str, str]] = field(default_factory=Counter)
    taken: Counter[tuple[str, int]] = field(default_factory=Counter)
    waiting: AbstractSet[tuple[str, str]] = frozenset()
    running: AbstractSet[tuple[str, str]] = frozenset()
    failed: AbstractSet[tuple[str, str]] = frozenset()
    questions: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    status: str = ""
    present: bool = False

    @classmethod
    def of(cls, run: RunLike | None) -> Traces:
        """What to draw of a run; nothing for none."""
        if run is None:
            return cls()
        overlay = run if isinstance(run, Overlay) else run.overlay()
        visits: Counter[tuple[str, str]] = Counter()
        for (frame, node), count in overlay.visits.items():
            visits[place(frame), node] += count
        taken: Counter[tuple[str, int]] = Counter()
        for (frame, index), count in overlay.taken.items():
            taken[place(frame), index] += count
        return cls(
            visits=visits,
            taken=taken,
            waiting=_places(overlay.waiting),
            running=_places(overlay.running),
            failed=_places(overlay.failed),
            questions=_questions(getattr(run, "waiting", ())),
            status=told(overlay.status, 40),
            present=True,
        )

    def states(self, path: str, node: str) -> tuple[str, ...]:
        """The classes of a node."""
        at = (path, node)
        found = [
            name
            for name, held in (
                ("visited", self.visits[at] > 0),
                ("running", at in self.running),
                ("waiting", at in self.waiting),
                ("failed", at in self.failed),
            )
            if held
        ]
        if "running" in found or "waiting" in found:
            found.append("current")
        return tuple(found)


def place(frame: str) -> str:
    """The names in a frame's path: its other segments say in which branch (`fork.0`) the frame runs."""
    return "/".join(segment for segment in frame.split("/") if segment.replace("-", "_").isidentifier())


def _places(found: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    return frozenset((place(frame), node) for frame, node in found)


def _questions(waiting: object) -> dict[tuple[str, str], list[str]]:
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    questions: Iterable[Question] = waiting if isinstance(waiting, list | tuple) else ()
    for question in questions:
        at = (place(question.path), question.node)
        if len(found[at]) < _SHOWN_QUESTIONS:
            found[at].append(told(f"{question.kind}: {question.prompt}".rstrip(": "), 200))
    return dict(found)
