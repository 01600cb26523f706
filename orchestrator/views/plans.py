"""Plans that a run makes itself: maps over items that depend on each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from orchestrator.graph.versions import Renames
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, MapItem, OrderedMap
from orchestrator.views.overlay import Planned, PlannedState, PlannedStep


class _PlannedMap:
    """One such map, with its steps."""

    __slots__ = ("busy", "edge", "ended", "group", "path", "steps")

    def __init__(self, path: str, edge: int, items: Sequence[object], group: OrderedMap) -> None:
        self.path, self.edge, self.group = path, edge, group
        self.steps = [_step(number, item) for number, item in enumerate(items)]
        self.busy: Counter[tuple[int, str]] = Counter()
        """(number of a step, `running` or `waiting`) -> number of tokens."""
        self.ended: dict[int, PlannedState] = {}

    def move(self, number: int, state: str, by: int) -> None:
        """Change the number of a step's tokens in a state."""
        self.busy[number, state] += by
        self.look(number)

    def end(self, number: int, state: PlannedState) -> None:
        """A step ended."""
        self.ended[number] = state
        self.look(number)

    def restore(self, number: int) -> None:
        """A step that failed is begun again."""
        if self.ended.get(number) == "failed":
            del self.ended[number]
        self.look(number)

    def look(self, number: int) -> None:
        """Update the state of a step."""
        step = self.steps[number]
        state: PlannedState = self.ended.get(number, "planned")
        if self.busy[number, "waiting"]:
            state = "waiting"
        elif self.busy[number, "running"]:
            state = "running"
        if state != step.state:
            self.steps[number] = replace(step, state=state)

    def settle(self, item: MapItem) -> None:
        """End a step whose tokens all reached a join or END, and the steps that are skipped because of it."""
        pending = [item]
        while pending:
            item = pending.pop()
            if item.done and item.index not in self.ended:
                self.end(item.index, "visited" if item.versions or item.ended else "skipped")
                pending += [self.group.items[index] for index in self.group.dependents.get(item.index, ())]


class PlannedMaps:
    """All plans of a run, in the order in which it made them."""

    def __init__(self) -> None:
        self._plans: list[_PlannedMap] = []
        self._numbers: dict[int, int] = {}
        """Identity of a map in the kernel -> number of its plan, which keeps that map alive."""

    def __len__(self) -> int:
        return len(self._plans)

    def planned(self, number: int) -> Planned:
        """A plan after the last record."""
        plan = self._plans[number]
        return Planned(plan.path, plan.edge, tuple(plan.steps))

    def open(
        self,
        group: OrderedMap,
        path: str,
        edge: int,
        items: Sequence[object],
        doing: Iterable[tuple[str, Activation]],
    ) -> int:
        """Add the plan of a map that the last record opened, and return its number.

        Args:
            group: the map, in the kernel.
            path: path of its graph.
            edge: number of its edge.
            items: its items, as plain JSON.
            doing: states of the tokens that run or wait already.
        """
        number = self._numbers[id(group)] = len(self._plans)
        plan = _PlannedMap(path, edge, items, group)
        self._plans.append(plan)
        for state, token in doing:
            for item in token.map_items:
                if item.ordered_map is group:
                    plan.move(item.index, state, 1)
        for item in group.items:
            plan.settle(item)  # a map may lead right to its join
        return number

    def move(self, machine: RunState, names: Renames) -> None:
        """The run moved to another version of its graph, in which its maps are other objects."""
        there = {
            item.ordered_map.items[0].fork.key: item.ordered_map
            for token in machine.live_tokens()
            for item in token.map_items
        }
        self._numbers = {}
        for number, plan in enumerate(self._plans):
            plan.path = names.place(plan.path)
            if plan.group.items:
                plan.group = there.get(plan.group.items[0].fork.key, plan.group)
            self._numbers[id(plan.group)] = number

    def moves(self, token: Activation, state: str, by: int) -> Collection[int]:
        """A token enters (1) or leaves (-1) a state. Returns the numbers of the plans that change."""
        found = self._of(token)
        for number, item in found:
            self._plans[number].move(item.index, state, by)
        return {number for number, _ in found}

    def settles(self, token: Activation) -> Collection[int]:
        """A token landed or was dropped. Returns the numbers of the plans that may change."""
        found = self._of(token)
        for number, item in found:
            self._plans[number].settle(item)
        return {number for number, _ in found}

    def restores(self, token: Activation) -> Collection[int]:
        """A token that failed is begun again. Returns the numbers of the plans that may change."""
        found = self._of(token)
        for number, item in found:
            self._plans[number].restore(item.index)
        return {number for number, _ in found}

    def fails(self, token: Activation) -> None:
        """A token failed without a further attempt."""
        for number, item in self._of(token):
            self._plans[number].end(item.index, "failed")

    def _of(self, token: Activation) -> list[tuple[int, MapItem]]:
        """The plans and items that a token belongs to."""
        return [
            (self._numbers[id(item.ordered_map)], item)
            for item in token.map_items
            if id(item.ordered_map) in self._numbers
        ]


def _step(number: int, item: object) -> PlannedStep:
    if not isinstance(item, Mapping):
        return PlannedStep(str(number), (), item)
    needs = item.get("needs")
    listed = needs if isinstance(needs, list | tuple) else () if needs is None else (needs,)
    return PlannedStep(str(item.get("id", number)), tuple(map(str, listed)), item)
