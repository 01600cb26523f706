"""Short names of steps, such as `search_web 'weather Oslo'` or `fetch page-092`, and the map items that they work on.

Names are for people: secrets are redacted and texts are bounded, so that any view can show them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from orchestrator.redaction import redacted
from orchestrator.views.safe_text import BEHIND, cut, told
from orchestrator.views.timeline import Timeline, TimelineRow

LONGEST_NAME = 60
"""Characters of a node's or tool's name."""
LONGEST_SUBJECT = 80
"""Characters of the subject of a step."""
LONGEST_PLACE = 60
_NAMED = ("name", "title", "id", "key", "url", "path")
"""Keys that name an item of a map, the best one first."""
_MAIN = ("query", "q", "question", "expression", "url", "path", "command", "code", "text", "name", "id")
"""Arguments that identify a call, the best one first."""
_MOST_TOOLS = 3
_DEEPEST = 2


@dataclass(frozen=True, slots=True)
class StepName:
    """The name of a step."""

    what: str
    """The tool, if the step called exactly one; else the node."""
    about: str = ""
    """The main argument of the call, the item of a map, or the names of several tools; may be empty."""
    where: str = ""
    """The enclosing subgraph nodes, and the node if `what` is a tool; the middle of a long path is left out."""

    def __str__(self) -> str:
        return f"{self.what} {self.about}".rstrip()


def step_name(row: TimelineRow) -> StepName:
    """Return the name of a row's step.

    Args:
        row: the row, with its calls and questions so far.
    """
    node = told(row.node, LONGEST_NAME)
    calls = [call.intended for call in row.calls if call.intended.kind == "tool" and not call.intended.inside]
    called = [(one.name, one.request.get("args", one.request)) for one in calls]
    if len(called) == 1:
        name, args = called[0]
        what = told(name, LONGEST_NAME)
        return StepName(what, main_argument(args), _place(row.place, row.node if what != node else ""))
    about = _approved_call(row) or (item_name(row.item[0]) if row.item else "")
    if len(called) > 1 and not about:
        about = _counted(Counter(told(name, LONGEST_NAME) for name, _ in called))
    return StepName(node, about, _place(row.place))


def main_argument(args: object) -> str:
    """Return the argument that identifies a call best, on one line; empty without one.

    Args:
        args: the arguments by name, or the only one.
    """
    if not isinstance(args, Mapping):
        return _short(args)
    given = {str(name): value for name, value in args.items() if value not in (None, "", [], {})}
    texts = [name for name, value in given.items() if isinstance(value, str)]
    best = [name for name in _MAIN if name in given] + texts + list(given)
    return _short(given[best[0]], best[0]) if best else ""


def item_name(item: object) -> str:
    """Return an item of a map on one line: its name, title or id; for a planned call the tool and argument.

    Args:
        item: the item, as plain JSON or as in the state.
    """
    fields = item if isinstance(item, Mapping) else getattr(item, "__dict__", None)
    if not isinstance(fields, Mapping) or not fields:
        return _short(item)
    given = {str(name): value for name, value in fields.items()}
    name, args = given.get("name"), given.get("arguments", given.get("args"))
    if isinstance(name, str) and isinstance(args, Mapping):
        return told(f"{_short(name)} {main_argument(args)}".rstrip(), LONGEST_SUBJECT)
    best = [key for key in _NAMED if isinstance(given.get(key), str | int) and given[key] != ""]
    best += [key for key, value in given.items() if isinstance(value, str) and value] + list(given)
    return _short(given[best[0]], best[0])


def _approved_call(row: TimelineRow) -> str:
    """Return the tool call that the step's questions are about, the number of further ones; empty if there is none."""
    approvals = [one.question.payload for one in row.asked if one.question.kind == "approval"]
    calls = {payload.get("call_id"): payload for payload in approvals if isinstance(payload.get("tool"), str)}
    if not calls:
        return ""
    first, more = next(iter(calls.values())), f" and {len(calls) - 1} more" if len(calls) > 1 else ""
    said = f"{told(str(first['tool']), LONGEST_NAME)} {main_argument(first.get('args', {}))}"
    return cut(said.rstrip(), LONGEST_SUBJECT - len(more)) + more


def _counted(tools: Counter[str]) -> str:
    said = [name if count == 1 else f"{name} ×{count}" for name, count in tools.most_common(_MOST_TOOLS)]
    left = len(tools) - len(said)
    return told(", ".join(said) + (f" and {left} more" if left > 0 else ""), LONGEST_SUBJECT)


def _place(place: str, node: str = "") -> str:
    names: Sequence[str] = [name for name in (*place.split("/"), node) if name]
    if len(names) > 2:
        names = (names[0], "…", names[-1])
    return told(" › ".join(names), LONGEST_PLACE)


def _short(value: object, key: str = "", depth: int = 0) -> str:
    """Return the start of a value on one line; a text with spaces is quoted.

    Args:
        value: any value.
        key: its name. The values of some keys are secrets.
        depth: number of enclosing values.
    """
    if isinstance(value, str):
        text = told(str(_clean(value[: LONGEST_SUBJECT + BEHIND], key)), LONGEST_SUBJECT - 2)
        return f"'{text}'" if " " in text else text
    if value is None or isinstance(value, bool | int | float):
        return told(json.dumps(_clean(value, key)), LONGEST_SUBJECT)
    if isinstance(value, Mapping | list | tuple) and value and depth > _DEEPEST:
        return "…"
    rest = ", …" if isinstance(value, Mapping | list | tuple) and len(value) > 1 else ""
    if isinstance(value, Mapping):
        name, first = next(iter(value.items()), ("", None))
        said = f"{told(str(name), LONGEST_NAME)}: {_short(first, str(name), depth + 1)}{rest}" if value else ""
        return cut(f"{{{said}}}", LONGEST_SUBJECT)
    if isinstance(value, list | tuple):
        said = f"{_short(value[0], key, depth + 1)}{rest}" if value else ""
        return cut(f"[{said}]", LONGEST_SUBJECT)
    return told(type(value).__name__, LONGEST_SUBJECT)


def _clean(value: object, key: str) -> object:
    clean = redacted({key: value})
    assert isinstance(clean, Mapping)
    return next(iter(clean.values()))


Places: TypeAlias = tuple[tuple[int, int], ...]
"""Number of a map and of an item in it, from 0, outermost first."""


@dataclass(slots=True)
class MapGroup:
    """A map that the run opened, with the items that its steps used."""

    source: str
    """The activation whose outcome opened it; for a graph's start the key of the graph."""
    each: str
    """The field with its items."""
    target: str
    """Its target node."""
    count: int
    """Number of its items."""
    around: tuple[int, int] | None
    """The enclosing map in the same graph, and the item."""
    items: dict[int, object] = field(default_factory=dict)
    """Its items that were used by a step, by number."""


class MapGroups:
    """The maps of a timeline.

    Args:
        timeline: rows of a run.

    Attributes:
        groups: In the order in which their first items started.
        places: Activation -> its innermost map and item; steps outside of maps are missing.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.groups: list[MapGroup] = []
        self._origins = timeline.causes.origins
        self._known: dict[str, Places] = {}
        self._numbers: dict[tuple[str, int], int] = {}
        self.places: dict[str, tuple[int, int]] = {}
        for row in timeline.rows:
            self.add(row)

    def add(self, row: TimelineRow) -> None:
        """Add a new row of the timeline. Rows arrive in the order in which they started."""
        places = self._known[row.activation] = self._places(row.activation)[: row.maps]
        if places:
            group, item = self.places[row.activation] = places[-1]
            if row.item:
                self.groups[group].items.setdefault(item, row.item[0])

    def _places(self, key: str) -> Places:
        """Return the maps that are open at an activation, which may wait at a join, as far as is known."""
        way: list[str] = []
        while key not in self._known and key not in way and (came := self._origins.get(key)) is not None:
            way.append(key)
            if not came.after:
                break
            key = came.after[0]
        places = self._known.get(key, ())
        for one in reversed(way):
            places = self._known[one] = places + self._opened(one, places)
        return places

    def _opened(self, key: str, around: Places) -> Places:
        came = self._origins[key]
        if came.by != "edge" or came.edge is None or came.branch is None or came.edge.edge.each is None:
            return ()
        edge, source = came.edge.edge, came.after[0]
        number = self._numbers.setdefault((source, came.edge.index), len(self.groups))
        if number == len(self.groups):
            each, last = edge.each or "", around[-1] if around else None
            self.groups.append(MapGroup(source, each, edge.target, came.branches, last))
        return ((number, came.branch),)
