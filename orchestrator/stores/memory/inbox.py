"""Messages for runs in memory."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection

from orchestrator.stores.rows import NOTICE, Message


class Inbox:
    """The messages of all runs, in the order in which they came. The store's lock is held around each call."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._messages: dict[int, tuple[str, str]] = {}
        """Id -> run, and the body as JSON."""
        self._keys: dict[tuple[str, str], int] = {}
        """Run, and the key of a message for it -> its id."""
        self._keyed: dict[int, tuple[str, str]] = {}
        """Id of a message with a key -> its run and key."""
        self.sizes: dict[str, int] = {}
        """Run -> characters of its messages."""

    def post(self, run_id: str, text: str, key: str | None) -> int:
        """Add a message, once for each key of a run; returns its id."""
        if key is not None and (run_id, key) in self._keys:
            return self._keys[run_id, key]
        message = next(self._ids)
        self._messages[message] = (run_id, text)
        self.sizes[run_id] = self.sizes.get(run_id, 0) + len(text)
        if key is not None:
            self._keys[run_id, key] = message
            self._keyed[message] = (run_id, key)
        return message

    def messages(self, run_ids: Collection[str]) -> list[Message]:
        """The messages of some runs."""
        if not self._messages:
            return []
        wanted = frozenset(run_ids)
        return [Message(key, to, json.loads(text)) for key, (to, text) in self._messages.items() if to in wanted]

    def notices(self) -> list[Message]:
        """The notices of all runs."""
        return [Message(key, to, json.loads(text)) for key, (to, text) in self._messages.items() if _is_notice(text)]

    def first(self) -> dict[str, int]:
        """Run -> the id of its oldest message that is no notice."""
        found: dict[str, int] = {}
        for message, (run_id, text) in self._messages.items():
            if not _is_notice(text):
                found.setdefault(run_id, message)
        return found

    def consume(self, run_id: str, message: int) -> None:
        """Delete a message of a run; one of another run stays."""
        if self._messages.get(message, ("", ""))[0] == run_id:
            self.forget(message)

    def forget(self, message: int) -> None:
        """Delete a message."""
        run_id, text = self._messages.pop(message, ("", ""))
        left = self.sizes.get(run_id, 0) - len(text)
        if left > 0:
            self.sizes[run_id] = left
        else:
            self.sizes.pop(run_id, None)
        key = self._keyed.pop(message, None)
        if key is not None:
            del self._keys[key]

    def forget_run(self, run_id: str, *, notices: bool = True) -> None:
        """Delete the messages of a run, with or without its notices."""
        found = [(key, text) for key, (to, text) in self._messages.items() if to == run_id]
        for message, text in found:
            if notices or not _is_notice(text):
                self.forget(message)


def _is_notice(text: str) -> bool:
    return NOTICE in text and json.loads(text).get("type") == NOTICE
