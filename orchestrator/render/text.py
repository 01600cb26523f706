"""A graph, or a run in it, as lines for a terminal.

Every node and every edge appears once. Nodes on every path are aligned straight down; nodes on only some paths are
indented (the tree of dominators). Any other edge names its target node.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.graph.model import GraphDefinition
from orchestrator.render.build import draw
from orchestrator.render.drawing import Drawing, EdgeMark, Level, NodeMark, backward, dominators
from orchestrator.render.geometry import head_texts, node_name
from orchestrator.render.overlaid import RunLike
from orchestrator.render.plans import plan_drawings, steps_of

_ASCII = str.maketrans({
    "│": "|", "├": "+", "└": "`", "─": "-", "┊": ":", "→": ">", "⇉": ">", "⇢": ">", "↓": "v", "⇊": "v", "⇣": "v",
    "↑": "^", "×": "x", "·": "-", "✓": "+", "▶": ">", "‖": "=", "✗": "!", "●": "o", "◎": "o", "■": "o", "…": "~",
    "□": "=", "»": ">",
})  # fmt: skip
_TERMINALS = {"start": "●", "end": "◎", "stop": "■", "any": "*"}
_STATES = {
    "failed": "✗ failed",
    "waiting": "‖ waiting",
    "running": "▶ running",
    "interrupted": "□ interrupted",
    "queued": "… queued",
    "faulty": "! call failed",
    "skipped": "- skipped",
    "passed": "»",
    "visited": "✓",
}
_DEEPEST = 96
"""Columns; deeper levels are not indented further."""


def to_text(graph: GraphDefinition, run: RunLike | None = None, *, ascii: bool = False) -> str:  # noqa: A002  says best what it does
    """Draw a graph as plain text, without colours or escape sequences, even in labels.

    Args:
        graph: The graph; subgraphs are below their nodes.
        run: The run to draw over it: anything with `.overlay()`.
        ascii: Draw with ASCII only, for terminals without Unicode.
    """
    drawing = draw(graph, run)
    levels = drawing.levels()
    status = drawing.status.texts.get("status", "")
    title = f"{drawing.name}  [{status}]" if status else drawing.name
    made = (title, *_TextTree(drawing, levels, None).lines(), *_plans(drawing))
    text = "\n".join(line.rstrip() for line in made) + "\n"
    return text.translate(_ASCII) if ascii else text


class _TextTree:
    """A level: the top, or the inside of a subgraph."""

    def __init__(self, drawing: Drawing, levels: dict[str | None, Level], cluster: str | None) -> None:
        self.drawing, self.levels = drawing, levels
        self.heads = {mark.key: mark for mark in levels[cluster].clusters}
        level = levels[cluster]
        starts = ("start", "any")  # first, so that they are roots
        nodes = sorted(level.nodes, key=lambda node: node.look not in starts)
        keys = [*(node.key for node in nodes), *self.heads]
        self.back = backward(level)
        self.following: dict[str, dict[str, list[EdgeMark]]] = {key: {} for key in keys}
        sources: dict[str, set[str]] = {key: set() for key in keys}
        for edge in level.edges:
            self.following[edge.source].setdefault(edge.target, []).append(edge)
            if edge.key not in self.back:
                sources[edge.target].add(edge.source)
        self.above = {key: up for key, up in dominators(keys, level.edges).items() if not self._ends(key)}
        self.below: dict[str, list[str]] = {key: [] for key in keys}
        self.size = dict.fromkeys(keys, 1)
        for key, up in self.above.items():
            if up is not None:
                self.below[up].append(key)
        for key, up in reversed(self.above.items()):
            if up is not None:
                self.size[up] += self.size[key]
        self.meets = {key for key, up in self.above.items() if sources[key] - {up}}

    def _ends(self, key: str) -> bool:
        return self.drawing.by_key[key].look in ("end", "stop")

    def lines(self) -> Iterator[str]:
        """Yield the lines: START and its successors, then nodes only reachable from `*`."""
        roots = [key for key in self.following if key in self.above and self.above[key] is None]
        for number, root in enumerate(roots):
            if number:
                yield ""
            yield from self._walk(root, "", "")

    def _walk(self, key: str, head: str, left: str) -> Iterator[str]:
        """Draw a node and all nodes that it dominates. `head` is the prefix of the node, `left` that of the rest."""
        while True:
            yield head + self._node(key)
            if key in self.heads:
                yield from (f"{left}┊ {line}" for line in _TextTree(self.drawing, self.levels, key).lines())
            groups = self.following[key]
            straight = self._straight(key, left)
            led = [target for target in straight if target not in self.meets]  # along an edge from here
            beside = [target for target in groups if target not in led]
            for number, target in enumerate(beside):
                last = number + 1 == len(beside) and not straight
                arrow = f"{left}{'└' if last else '├'}─{_arrow(groups[target], 'across')} "
                if self.above.get(target) == key and target not in self.meets:
                    yield from self._walk(target, arrow, f"{left}{'   ' if last else '│  '}")
                else:
                    back = " ↑" if groups[target][0].key in self.back else ""
                    yield f"{arrow}{self._name(target)}{back}"
            if not straight:
                return
            for target in straight[:-1]:
                yield left + (_arrow(groups[target], "down") if target in led else "│")
                yield from self._walk(target, left, left)
            key = straight[-1]
            yield left + (_arrow(groups[key], "down") if key in led else "│")
            head = left

    def _straight(self, key: str, left: str) -> list[str]:
        """Return the nodes straight below: where paths meet again, else one that outweighs all others."""
        below = self.below[key]
        meeting = [target for target in below if target in self.meets]
        if meeting or not below:
            return meeting
        if len(left) >= _DEEPEST:
            return below
        largest = max(below, key=self.size.__getitem__)
        return [largest] if 2 * self.size[largest] > sum(self.size[target] for target in below) else []

    def _name(self, key: str) -> str:
        node = self.drawing.by_key[key]
        return f"{_TERMINALS[node.look]} {node_name(node)}" if node.terminal else node_name(node)

    def _node(self, key: str) -> str:
        node = self.drawing.by_key[key]
        if node.terminal:
            return self._name(key)
        detail = head_texts(self.heads[key])[1] if key in self.heads else node.detail
        said = [self._name(key), f"{detail} · per item" if node.per_item else detail]
        state = _state(node)
        return "  ".join([*said, state] if state else said)


def _plans(drawing: Drawing) -> Iterator[str]:
    """Yield the steps of each plan, with their needs."""
    for number, plan, steps, mark in plan_drawings(drawing.planned):
        yield ""
        yield f"plan {number}: {steps_of(plan)}  {mark.texts.get('times', '')}"
        needs: dict[str, list[str]] = {}
        for edge in steps.edges:
            needs.setdefault(edge.target, []).append(edge.names[0])
        for node in steps.nodes:
            after = f"  after {', '.join(needs[node.key])}" if node.key in needs else ""
            yield f"  {node.name}  {node.kind}{after}  {_state(node)}"


def _state(node: NodeMark) -> str:
    said = next((words for name, words in _STATES.items() if name in node.states), "")
    return " ".join(filter(None, (said, node.count, node.asked, node.mark.texts.get("took", ""))))


def _arrow(edges: list[EdgeMark], way: str) -> str:
    words = ", ".join(filter(None, (f"{edge.label} {edge.counted}".strip() for edge in edges)))
    if way == "down":
        return f"{_pick(edges, '⇊', '⇣', '↓')} {words}"
    return f"{f' {words} ' if words else ''}{_pick(edges, '⇉', '⇢', '→')}"


def _pick(edges: list[EdgeMark], mapped: str, reserved: str, plain: str) -> str:
    if any(edge.mapped for edge in edges):
        return mapped
    return reserved if all(edge.reserved for edge in edges) else plain
