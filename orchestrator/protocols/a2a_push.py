"""Push notifications of A2A: a task that waits or has ended is posted to addresses that the server allows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import httpx2

from orchestrator.errors import ToolError, install_command
from orchestrator.protocols import conversation as c
from orchestrator.redaction import redact, redacted
from orchestrator.tools.builtin.web_fetch.guard import Guard

try:
    from a2a.types import a2a_pb2 as pb
    from google.protobuf.json_format import MessageToDict
except ImportError:
    raise ImportError(f"A2A needs other packages: {install_command('a2a')}") from None

from orchestrator.protocols.a2a_tasks import status_of
from orchestrator.protocols.incoming import THREAD

if TYPE_CHECKING:
    from orchestrator.executor import Run

log = logging.getLogger("orchestrator.protocols")
_TASKS, _EACH = 10_000, 10
"""Tasks with registered addresses, and addresses of one task."""
_LONGEST = 4_000
"""Characters of a token."""
_SECONDS = 10.0
"""Most seconds that a request may take in total."""


@dataclass
class _Registered:
    config: pb.TaskPushNotificationConfig
    sent: int = 0
    """The last record about which it was notified."""


class A2aPush:
    """Sends push notifications. It is an observer of the executor, and clients register with the application:

        push = A2aPush(["hooks.example.org"])
        executor = Executor(..., observers=[push.notify])
        app = a2a_app(executor, graph, url=..., push=push)

    Addresses are kept in memory, because they come with tokens: after a restart, clients register again.

    Args:
        hosts: names of the hosts to which notifications are sent, with `*` for any part of a name.
        private: networks besides the public internet in which these hosts may be, such as `10.0.0.0/8`.

    Raises:
        ValueError: a network is not valid.
    """

    def __init__(self, hosts: Sequence[str], *, private: Sequence[str] = ()) -> None:
        self._guard = Guard(hosts=hosts, private=private, ports=None)
        self._configs: dict[str, dict[str, _Registered]] = {}

    def of(self, task: str) -> dict[str, pb.TaskPushNotificationConfig]:
        """Return the configurations of a task, by id."""
        return {name: one.config for name, one in self._configs.get(task, {}).items()}

    def drop(self, task: str, name: str) -> None:
        """Forget a configuration of a task, by id."""
        self._configs.get(task, {}).pop(name, None)

    async def check(self, config: pb.TaskPushNotificationConfig) -> None:
        """Check an address that a client wants to register.

        Raises:
            ValueError: it is not allowed.
        """
        try:
            url = self._guard.url(config.url)
            await self._guard.addresses(url.host, url.port or 443)
        except ToolError as error:
            raise ValueError(f"push notifications: {error}") from None
        secrets = f"{config.token}{config.authentication.scheme}{config.authentication.credentials}"
        if len(secrets) > _LONGEST or not (secrets.isascii() and secrets.isprintable()):
            raise ValueError(f"push notifications: a token has at most {_LONGEST:,} printable ASCII characters")

    def add(self, task: str, config: pb.TaskPushNotificationConfig) -> pb.TaskPushNotificationConfig:
        """Register an address that was checked. Of those of a task, and of all tasks, the oldest are dropped.

        Args:
            task: the task.
            config: the configuration, with or without an id.

        Returns:
            The configuration, with an id.
        """
        kept = pb.TaskPushNotificationConfig()
        kept.CopyFrom(config)
        kept.ClearField("tenant")  # the only text without a bound, and not used
        kept.id, kept.task_id = config.id[:200] or task, task
        known = self._configs.setdefault(task, {})
        known[kept.id] = _Registered(kept)
        while len(known) > _EACH:
            del known[next(iter(known))]
        while len(self._configs) > _TASKS:
            del self._configs[next(iter(self._configs))]
        return kept

    async def notify(self, run: Run, seq: int) -> None:
        """Send the status of a run that waits for a person or has ended; an observer of the executor."""
        asked = tuple(one for one in run.waiting if one.kind in c.FOR_PEOPLE)
        if run.run_id not in self._configs or not (run.machine.ended or (run.status == "paused" and asked)):
            return
        error = "" if run.error is None else redact(str(run.error))
        alone = len(asked) == 1 and c.awaits_text(asked[0])
        end = c.TurnEnded(run.status, asked, alone, redacted(run.output), error)
        status = status_of(run.run_id, end)
        status.timestamp.GetCurrentTime()
        context = run.labels.get(THREAD) or run.run_id
        update = pb.TaskStatusUpdateEvent(task_id=run.run_id, context_id=context, status=status)
        body = MessageToDict(pb.StreamResponse(status_update=update))
        for one in [*self._configs[run.run_id].values()]:
            if one.sent >= run.seq:
                continue
            one.sent = run.seq
            try:
                await self._post(one.config, body)
            except (ToolError, httpx2.HTTPError, TimeoutError) as fault:
                log.warning("task %s: no push notification: %s", run.run_id, redact(str(fault) or type(fault).__name__))
        if run.machine.ended:
            self._configs.pop(run.run_id, None)

    async def _post(self, config: pb.TaskPushNotificationConfig, body: dict[str, Any]) -> None:
        """Post to the address that was checked, not to one that the name has a moment later. The answer is not read."""
        url = self._guard.url(config.url)
        (address, *_) = await self._guard.addresses(url.host, url.port or (443 if url.scheme == "https" else 80))
        headers = {"Host": url.netloc.decode(), "A2A-Version": "1.0"}
        if config.token:
            headers["X-A2A-Notification-Token"] = config.token
        if config.authentication.scheme:
            headers["Authorization"] = f"{config.authentication.scheme} {config.authentication.credentials}".strip()
        extensions = {"sni_hostname": url.host} if url.scheme == "https" else {}
        with anyio.fail_after(_SECONDS):
            async with (
                httpx2.AsyncClient(follow_redirects=False, trust_env=False) as client,
                client.stream(
                    "POST", url.copy_with(host=address), json=body, headers=headers, extensions=extensions
                ) as response,
            ):
                response.raise_for_status()
