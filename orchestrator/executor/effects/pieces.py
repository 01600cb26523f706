"""The pieces of one reply on their way to the watchers of a run, as live events `token` and `reset`."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from orchestrator.executor.effects.effect import Attempt
from orchestrator.executor.replies import PartialReply
from orchestrator.models.base import ModelEvent
from orchestrator.redaction import without_known


class Pieces:
    """One reply while it comes; a context manager around one try of its call.

    Whatever happens, the texts behind the last `reset` of a call make up the text of the reply that is journaled.
    """

    def __init__(self, attempt: Attempt, key: str) -> None:
        self._attempt, self._key = attempt, key
        self._reply = PartialReply({**attempt.about(), "attempt": attempt.activation.attempt, "key": key})

    def __enter__(self) -> Self:
        log = self._attempt.log
        log.replies[self._key] = self._reply
        entry = log.machine.ledger.entry(self._key)
        if entry is not None and entry.intended.again:  # what was shown of it before counts no more
            self._tell("reset")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        replies = self._attempt.log.replies
        if replies.get(self._key) is self._reply:
            del replies[self._key]

    def add(self, event: ModelEvent) -> None:
        """Show a piece."""
        if not event.text and not event.reasoning:
            return
        text, reasoning = without_known(event.text), without_known(event.reasoning)
        self._reply.add(text, reasoning)
        if reasoning:
            self._tell("token", text=text, reasoning=reasoning)
        else:
            self._tell("token", text=text)

    def end(self, text: str) -> None:
        """The reply is whole. Show its text where the pieces do not make it up, because it was read from them."""
        text = without_known(text)
        if not self._reply.is_text(text):
            if self._reply.length:
                self._tell("reset")
            self._tell("token", text=text)

    def _tell(self, kind: str, **data: object) -> None:
        self._attempt.log.tell(kind, {**self._reply.about, **data})
