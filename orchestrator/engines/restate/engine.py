"""A Restate server from outside: runs are submitted by its ingress, looked up and cancelled by its admin API."""

from __future__ import annotations

import logging
import string
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlsplit

import anyio

from orchestrator.errors import EngineUnavailable, InvalidValue, install_command

if TYPE_CHECKING:
    import httpx2

    from orchestrator.engines.base import Deliveries, EngineStatus


INGRESS, ADMIN, WORKER = 8080, 9070, 9080
"""The ports that Restate uses by default."""
SERVICE = "orchestrator"
"""The name of the service by default."""
HANDLER = "deliver"
"""The name of the service's handler."""
EXTRA = f"deliveries by Restate need the extra `restate`: {install_command('restate')}"

_PARAMETERS = ("admin", "listen", "workers", "service")
_IN_NAMES = string.ascii_letters + string.digits + "._-"


@dataclass(frozen=True)
class RestateAddress:
    """Parts of the URL of a Restate server."""

    ingress: str
    """URL to which runs are submitted, such as `http://127.0.0.1:8080`."""
    admin: str
    """URL at which workers are registered, and deliveries are looked up and cancelled."""
    listen: tuple[str, int]
    """Host and port on which a worker listens for deliveries."""
    workers: str
    """The URL at which the server reaches all workers."""
    service: str
    """The name of the service. Apps that share a server, and no store, need one each."""


def address_of(url: str) -> RestateAddress:
    """Read `restate://HOST:PORT?admin=HOST:PORT&listen=HOST:PORT&workers=URL&service=NAME`.

    Args:
        url: host and port are those of the ingress, by default 127.0.0.1:8080. `admin` is port 9070 of the same host by
            default, `listen` 127.0.0.1:9080, `workers` that port as a URL, and `service` is `orchestrator`.

    Raises:
        InvalidValue: it is no such URL.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidValue(
            "a restate:// URL is restate://HOST:PORT, with [ ] around a host of IPv6", where="engine"
        ) from None
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(given.keys() - set(_PARAMETERS))
    if parts.username is not None or parts.path not in ("", "/") or unknown:
        what = f"parameter {unknown[0]!r}" if unknown else "user, password or path"
        raise InvalidValue(f"a restate:// URL has no {what}: use {', '.join(_PARAMETERS)}", where="engine")
    host, port = _host_and_port(parts.netloc or "127.0.0.1", "127.0.0.1", INGRESS)
    admin = _host_and_port(given.get("admin", ""), host, ADMIN)
    listen = _host_and_port(given.get("listen", ""), "127.0.0.1", WORKER)
    workers = given.get("workers") or f"http://{_shown(*listen)}"
    if not _is_http(workers):
        raise InvalidValue(f"workers={workers}: use a URL such as http://workers.internal:9080", where="engine")
    service = given.get("service") or SERVICE
    if service[0] not in string.ascii_letters or service.strip(_IN_NAMES):
        raise InvalidValue(f"service={service}: use letters, digits, dots, dashes and underscores", where="engine")
    return RestateAddress(f"http://{_shown(host, port)}", f"http://{_shown(*admin)}", listen, workers, service)


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _host_and_port(text: str, host: str, port: int) -> tuple[str, int]:
    """HOST, HOST:PORT, :PORT or PORT. What is missing is taken from the arguments."""
    if text.isdecimal():
        text = f":{text}"
    wrong = InvalidValue(f"{text!r} is no address: use HOST:PORT, such as 127.0.0.1:{port}", where="engine")
    try:
        parts = urlsplit(f"//{text}")
        found = parts.hostname or host, port if parts.port is None else parts.port
    except ValueError:
        raise wrong from None
    if parts.path or parts.query or parts.username is not None:
        raise wrong
    return found


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


log = logging.getLogger("orchestrator.worker")

_LOOKS = 5.0
"""Seconds between checks that the workers are still registered with the server, which may have lost its data."""
_PATIENCE = 10.0
"""Seconds within which the server answers."""
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
        InvalidValue: the URL is wrong.
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
        """Tell the server at which URL the workers are. Doing so again changes nothing.

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
        """Register the workers as soon as the server is available, and again when it has lost them."""
        pause, registered = 0.2, False
        while True:
            try:
                if registered and not await self._is_registered():
                    log.warning("Restate does not know the workers any more; they are registered again")
                    registered = False
                if not registered:
                    await self.register()
                    log.info("the workers at %s are registered with Restate", self.address.workers)
                pause, registered = 0.2, True
                await anyio.sleep(_LOOKS)
            except EngineUnavailable as error:
                what = "Restate cannot be asked for its workers" if registered else "the workers are not registered"
                log.warning("%s, the next attempt is in %.1f s: %s", what, pause, error)
                await anyio.sleep(pause)
                pause = min(30.0, pause * 2)

    async def _is_registered(self) -> bool:
        url = f"{self.address.admin}/services/{quote(self.address.service, safe='')}"
        return await self._ask("GET", url, accept=(404,)) is not None

    async def _invocations(self, run_id: str) -> list[tuple[str, str]]:
        """Id and status of each delivery of a run at the server."""
        key, service = (text.replace("'", "''") for text in (run_id, self.address.service))
        query = (
            "SELECT id, status FROM sys_invocation"
            f" WHERE target_service_name = '{service}' AND target_service_key = '{key}'"
        )
        answer = await self._ask("POST", f"{self.address.admin}/query", json={"query": query})
        return [(str(row["id"]), str(row["status"])) for row in answer["rows"]]

    async def _ask(self, method: str, url: str, *, accept: tuple[int, ...] = (), **how: Any) -> Any:
        """Ask the server for something, as JSON.

        Args:
            accept: HTTP statuses that are no errors, in addition to those of success.
            how: arguments of the HTTP client.

        Raises:
            EngineUnavailable: it does not answer, or refuses.
        """
        import httpx2  # late: it takes long to load

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
