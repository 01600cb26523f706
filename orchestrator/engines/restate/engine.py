"""A client of a Restate server: runs are submitted by its ingress, looked up and cancelled by its admin API."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import anyio

from orchestrator.engines.restate.address import HANDLER, address_of
from orchestrator.errors import EngineUnavailable

if TYPE_CHECKING:
    import httpx2

    from orchestrator.engines.base import Deliveries, EngineStatus

log = logging.getLogger("orchestrator.worker")

_LOOKS = 5.0
"""Seconds between checks that the workers are still registered with the server, which may have lost its data."""
_PATIENCE = 10.0
"""Seconds within which the server must answer."""
_STATUSES: dict[str, EngineStatus] = {
    "pending": "queued",
    "scheduled": "queued",
    "ready": "queued",
    "backing-off": "queued",
    "paused": "queued",
    "running": "running",
    "suspended": "running",
    "completed": "done",
}
"""Status of an invocation -> status of the run."""


class RestateEngine:
    """The Restate server of a URL: an `Engine`. It works on asyncio and trio; `serve` needs asyncio.

    Args:
        url: `restate://HOST:PORT` with the parameters of docs/engines.md.

    Raises:
        InvalidValue: the URL is not valid.
    """

    def __init__(self, url: str = "restate://127.0.0.1:8080") -> None:
        self.address = address_of(url)
        self._opened: httpx2.AsyncClient | None = None

    async def submit(self, run_id: str, *, at: float | None = None) -> None:
        """See `Engine.submit`."""
        path = f"{self.address.service}/{quote(run_id, safe='')}/{HANDLER}/send"
        delay = 0 if at is None else max(0, round((at - time.time()) * 1000))
        await self._ask("POST", f"{self.address.ingress}/{path}", json={}, params={"delay": f"{delay}ms"})

    async def cancel(self, run_id: str) -> None:
        """See `Engine.cancel`. A delivery in progress continues; it does nothing with an ended run."""
        for invocation, status in await self._invocations(run_id):
            if _STATUSES.get(status) == "queued":
                url = f"{self.address.admin}/invocations/{invocation}/kill"
                await self._ask("PATCH", url, accept=(404, 409))  # it has ended meanwhile

    async def status(self, run_id: str) -> EngineStatus:
        """See `Engine.status`. Restate forgets deliveries an hour after they have ended."""
        found = {_STATUSES.get(status, "queued") for _, status in await self._invocations(run_id)}
        known: tuple[EngineStatus, ...] = ("running", "queued", "done")
        for one in known:
            if one in found:
                return one
        return "unknown"

    async def register(self) -> None:
        """Register the URL of the workers at the server. Repeated calls change nothing.

        Raises:
            EngineUnavailable: the server cannot be reached, or cannot reach this worker.
        """
        await self._ask("POST", f"{self.address.admin}/deployments", json={"uri": self.address.workers})

    async def serve(self, deliveries: Deliveries, *, stop: anyio.Event) -> None:
        """See `ServedEngine.serve`. Workers on one machine may listen on the same port and share its connections."""
        try:
            from orchestrator.engines.restate.worker import listen, service
        except ImportError as error:
            raise EngineUnavailable(str(error)) from error

        async with anyio.create_task_group() as tasks:
            made = service(deliveries, name=self.address.service)
            await listen(made, self.address.listen, stop, listening=lambda: tasks.start_soon(self._keep_registered))
            tasks.cancel_scope.cancel()

    async def aclose(self) -> None:
        """See `ServedEngine.aclose`."""
        client, self._opened = self._opened, None
        if client is not None:
            await client.aclose()

    async def _keep_registered(self) -> None:
        """Register the workers as soon as the server is available, and again if it has lost them."""
        pause, registered = 0.2, False
        while True:
            try:
                if registered and not await self._is_registered():
                    log.warning("the workers are no longer registered with Restate; they are registered again")
                    registered = False
                if not registered:
                    await self.register()
                    log.info("the workers at %s are registered with Restate", self.address.workers)
                pause, registered = 0.2, True
                await anyio.sleep(_LOOKS)
            except EngineUnavailable as error:
                what = (
                    "the workers registered with Restate cannot be listed"
                    if registered
                    else "the workers are not registered"
                )
                log.warning("%s; the next attempt is in %.1f s: %s", what, pause, error)
                await anyio.sleep(pause)
                pause = min(30.0, pause * 2)

    async def _is_registered(self) -> bool:
        url = f"{self.address.admin}/services/{quote(self.address.service, safe='')}"
        return await self._ask("GET", url, accept=(404,)) is not None

    async def _invocations(self, run_id: str) -> list[tuple[str, str]]:
        """Return the id and the status of each delivery of a run at the server."""
        key, service = (text.replace("'", "''") for text in (run_id, self.address.service))
        query = (
            "SELECT id, status FROM sys_invocation"
            f" WHERE target_service_name = '{service}' AND target_service_key = '{key}'"
        )
        answer = await self._ask("POST", f"{self.address.admin}/query", json={"query": query})
        return [(str(row["id"]), str(row["status"])) for row in answer["rows"]]

    async def _ask(self, method: str, url: str, *, accept: tuple[int, ...] = (), **how: Any) -> Any:
        """Send a request to the server and return the JSON of its response.

        Args:
            accept: HTTP statuses that are not errors, besides those of success.
            how: arguments of the HTTP client.

        Raises:
            EngineUnavailable: the server does not answer, or refuses.
        """
        import httpx2  # imported late: it takes long to load

        if self._opened is None:
            self._opened = httpx2.AsyncClient(
                timeout=_PATIENCE, trust_env=False, headers={"Accept": "application/json"}
            )
        try:
            answer = await self._opened.request(method, url, **how)
            if answer.is_success:
                return answer.json() if answer.content else None
        except (httpx2.HTTPError, ValueError) as error:
            raise EngineUnavailable(
                f"Restate at {url.split('/', 3)[2]} does not answer ({type(error).__name__}: {error}); start it, or"
                " correct the restate:// URL"
            ) from error
        if answer.status_code in accept:
            return None
        raise EngineUnavailable(f"Restate refused {method} {url} with status {answer.status_code}: {answer.text[:300]}")
