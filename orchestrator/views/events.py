"""Events of a run: journaled ones, which are its records, and live ones, which are provisional."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from orchestrator.kernel.records import RECORD_TYPES, Record, RunStarted, as_json, record_from_fields

LIVE_TYPES = ("step_started", "token", "reset", "progress", "emitted")
"""Types of live events: they are not journaled, so `seq` is None and a replay lacks them."""
EVENT_TYPES = (*RECORD_TYPES, *LIVE_TYPES)
_APART = frozenset({"type", "seq", "ts", "v", "run_id", "seal"})
"""Fields of a record that are not in the data of its event."""
"""Every `type` that an event can have."""


class Event(BaseModel):
    """Something that happened in a run. A journaled event has a `seq` and is the same each time it is read."""

    model_config = ConfigDict(frozen=True)

    type: str
    """A name of `EVENT_TYPES`, or of another style."""
    seq: int | None
    """The record's number; None for a live event."""
    ts: float
    """Unix seconds."""
    run_id: str
    data: dict[str, object] = {}
    """The other fields of the record, without defaults; for a live event the data of its type."""

    @property
    def node(self) -> str:
        """The node of the event; empty for events of the whole run."""
        return str(self.data.get("node", ""))

    @property
    def path(self) -> str:
        """The path of the event's branch."""
        return str(self.data.get("path", ""))

    def to_json(self) -> dict[str, object]:
        """Return the event as one flat JSON object: `type`, `seq`, `ts`, `run_id`, and the fields of `data`."""
        return {"type": self.type, "seq": self.seq, "ts": self.ts, "run_id": self.run_id, **self.data}

    def to_sse(self) -> str:
        """Return the event as a server-sent event: its JSON as `data`, and for a journaled event its number as `id`."""
        number = "" if self.seq is None else f"id: {self.seq}\n"
        return f"{number}data: {json.dumps(self.to_json())}\n\n"


def event_of(run_id: str, record: Record) -> Event:
    """Return the event of a record."""
    data = {name: value for name, value in as_json(record).items() if name not in _APART}
    if isinstance(record, RunStarted) and record.run_id != run_id:  # in a fork it is the first record of another run
        data["root"] = record.run_id
    return Event(type=record.type, seq=record.seq, ts=record.ts, run_id=run_id, data=data)


def record_of(event: Event) -> Record | None:
    """Return the record of a journaled event; None for a live event.

    Raises:
        ValueError: the record is unknown to this version, or the event has another style.
    """
    if event.seq is None:
        return None
    data, run_id = dict(event.data), event.run_id
    if event.type == "run_started":
        run_id = str(data.pop("root", run_id))
    return record_from_fields({**data, "type": event.type, "seq": event.seq, "ts": event.ts}, run_id)


class EventStyle(Protocol):
    """Converts the records of one run, in order, to events with other names."""

    @abstractmethod
    def events_of(self, record: Record) -> Sequence[Event]:
        """Return the events of a record, often none."""
        ...
