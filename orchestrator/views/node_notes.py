"""Notes on nodes, for a drawing: their open questions, and why they failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from orchestrator.kernel.question import Question
from orchestrator.views.overlay import NodeKey

_MOST = 3
"""Questions of one node that are listed; further ones are counted."""


class NodeNotes:
    """Keeps the notes of a run's nodes.

    Attributes:
        texts: Node -> its notes. Nodes without any are missing.
    """

    def __init__(self) -> None:
        self.texts: dict[NodeKey, Sequence[str]] = {}
        self._questions: dict[NodeKey, dict[str, Question]] = {}
        self._failures: dict[NodeKey, str] = {}

    def ask(self, node: NodeKey, question: Question) -> None:
        """A node asks a question."""
        self._questions.setdefault(node, {})[question.id] = question
        self._update(node)

    def withdraw(self, node: NodeKey, question: str) -> None:
        """A question, named by its id, is not open any more."""
        asked = self._questions.get(node, {})
        asked.pop(question, None)
        if not asked:
            self._questions.pop(node, None)
        self._update(node)

    def fail(self, node: NodeKey, reason: str) -> None:
        """A node failed."""
        self._failures[node] = reason
        self._update(node)

    def recover(self, node: NodeKey) -> None:
        """A node that failed before did not fail this time."""
        self._failures.pop(node, None)
        self._update(node)

    def rename(self, at: Callable[[NodeKey], NodeKey]) -> None:
        """Move the notes to the names that nodes have in another version of the graph."""
        self.texts = {at(node): notes for node, notes in self.texts.items()}
        self._questions = {at(node): asked for node, asked in self._questions.items()}
        self._failures = {at(node): reason for node, reason in self._failures.items()}

    def _update(self, node: NodeKey) -> None:
        asked = self._questions.get(node, {})
        notes = [f"{question.kind}: {question.prompt}".rstrip(": ") for question in islice(asked.values(), _MOST)]
        if len(asked) > _MOST:
            notes.append(f"{len(asked) - _MOST} more questions")
        if node in self._failures:
            notes.append(self._failures[node])
        if notes:
            self.texts[node] = tuple(notes)
        else:
            self.texts.pop(node, None)
