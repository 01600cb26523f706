"""A page as docs/web_applications.md describes it: it connects, shows what comes, and connects again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing

import httpx2

from orchestrator.executor import Event
from tests.executor.test_replies import Screen


class Page(Screen):
    """One page of one run."""

    def __init__(self, url: str, run_id: str) -> None:
        super().__init__()
        self._address = f"{url}/runs/{run_id}/events"
        self._last = ""
        self.streamed: dict[str, str] = {}
        """Key of a call -> its text by live events, when the reply was settled."""

    def show(self, event: Event) -> None:
        """Take one event, also the text of a settled reply."""
        super().show(event)
        key = str(event.data.get("key", ""))
        if event.type == "effect_settled" and key in self.settled:
            if key in self.texts:
                self.streamed[key] = self.texts[key]
            self.texts[key] = self.settled[key]

    async def read(self, until: str = "ended", times: int = 1) -> bool:
        """Connect, and show events until one of a type has come so often. False: the connection ended before."""
        headers = {"Last-Event-ID": self._last} if self._last else {}
        async with (
            httpx2.AsyncClient(timeout=60) as client,
            client.stream("GET", self._address, headers=headers) as found,
        ):
            assert found.headers["content-type"].startswith("text/event-stream")
            try:
                async with aclosing(self._events(found)) as events:
                    async for event in events:
                        self.show(event)
                        times -= event.type == until
                        if not times:
                            return True
            except httpx2.TransportError:  # the server has gone
                return False
        return False

    async def _events(self, response: httpx2.Response) -> AsyncIterator[Event]:
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                self._last = value
            elif name == "data":
                data = json.loads(value)
                own = {field: data.pop(field) for field in ("type", "seq", "ts", "run_id")}
                yield Event(**own, data=data)
