"""The events of a run as a stream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING

from starlette.responses import Response

from orchestrator.executor import Event
from orchestrator.json import in_pieces
from orchestrator.kernel.status import FINAL
from orchestrator.redaction import redacted
from orchestrator.tasks import away
from orchestrator.web.endpoint import Call
from orchestrator.web.problems import fields_problem
from orchestrator.web.requests import EventsQuery

if TYPE_CHECKING:
    from starlette.types import ASGIApp


_SPACED = json.JSONEncoder()


async def stream(call: Call[EventsQuery]) -> ASGIApp:
    """Stream the events of a run until it ends.

    A run that has ended and has no further records is answered with 204, at which a browser connects no more.
    """
    after = _after(call)
    if call.run.status in FINAL and call.run.head <= after:
        return Response(status_code=204)
    events = call.executor.events(call.run_id, after=after, follow=True)
    return call.stream(texts(events))


async def texts(events: AsyncIterator[Event]) -> AsyncIterator[str]:
    """Events as texts of a stream: the number of a record is its `id`."""
    async for event in events:
        yield await away(partial(_text, event), event.data)


def _text(event: Event) -> str:
    number = "" if event.seq is None else f"id: {event.seq}\n"
    return f"{number}data: {''.join(in_pieces(redacted(event.to_json()), _SPACED))}\n\n"


def _after(call: Call[EventsQuery]) -> int:
    """The last record that the reader has. A browser that connects again says it in a header."""
    said = call.request.headers.get("last-event-id", "")
    if not said:
        return call.query.after
    if not (said.isascii() and said.isdecimal() and len(said) <= 16):
        raise fields_problem([{"field": "Last-Event-ID", "message": "it is not the number of a record"}], "query")
    return int(said)
