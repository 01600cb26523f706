"""Principals: the makers of requests, what `authorize` permits them, and the sessions of their browsers.

A session has a separate id in a cookie, and expires. A browser sends a cookie to every port of its host. So the cookie
is not the token, and other servers of the host only get an id that expires.
"""

from __future__ import annotations

import inspect
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast, runtime_checkable

from starlette.datastructures import Headers

from orchestrator.errors import RunUnknown
from orchestrator.kernel.question import parts_of
from orchestrator.kernel.records import EffectIntended
from orchestrator.tools.result import RISKS
from orchestrator.web.problems import HttpProblem

if TYPE_CHECKING:
    from starlette.requests import Request

    from orchestrator.graph.model import GraphDefinition
    from orchestrator.kernel.question import Question
    from orchestrator.kernel.records import Record
    from orchestrator.stores.base import RunInfo, Store
    from orchestrator.tools import Tool


@runtime_checkable
class Named(Protocol):
    """A principal: a user object with a name."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Act:
    """Details of a request besides its run: `request.state.act` in `authorize`."""

    question: Question | None = None
    """The question to answer; None if there is none."""
    redact: bool = True
    """True if text that looks like a secret is redacted in the response."""
    tool: str = ""
    """The tool whose call is approved or denied, or whose outcome is given; empty if the question has none."""
    risk: str = ""
    """The risk of that call; empty: unknown."""


def answering(question: Question | None, records: Sequence[Record], tools: Iterable[Tool]) -> Act:
    """Return the details of a request to answer a question, for `authorize`.

    Args:
        question: the question; None if there is none.
        records: the journal of its run.
        tools: tools of the run: a question about an unknown outcome does not contain the risk of its call.
    """
    if question is None:
        return Act()
    payload = question.payload
    call = parts_of(question.kind, payload).call
    tool, risk = call.get("tool", ""), call.get("risk", "")
    if question.kind == "approval" and "risk_of_call" in payload:  # a replay's question, about a possible call
        tool, risk = payload.get("call"), payload["risk_of_call"]
    key = payload.get("key") if question.kind == "unknown_outcome" else None
    if any(isinstance(one, EffectIntended) and one.key == key and one.kind == "tool" for one in records):
        risk = max((one.risk for one in tools if one.name == tool), key=RISKS.index, default="")
    return Act(question, tool=str(tool), risk=str(risk))


def tools_of(graph: GraphDefinition) -> Iterator[Tool]:
    """Yield the tools that nodes of a graph declare."""
    for node in graph.nodes.values():
        yield from (cast("Tool", one) for one in node.toolset or () if not isinstance(one, str))
        if node.subgraph is not None:
            yield from tools_of(node.subgraph)


Principal: TypeAlias = "str | Named"
Authorize: TypeAlias = "Callable[[Request, str, RunInfo | None], Principal | Awaitable[Principal | None] | None]"


_GENERATIONS = 100
"""Ancestors that are read for the labels of one run."""


async def labelled(store: Store, info: RunInfo) -> RunInfo:
    """Return the row of a run for `authorize`, with the labels of the runs that it comes from.

    Replays, and runs that a graph calls as a tool, have no labels of their own, but contain data of those runs.
    """
    labels, parent = dict(info.labels), info.parent
    for _ in range(_GENERATIONS):
        if parent is None:
            break
        try:
            row = await store.info(parent.run_id)
        except RunUnknown:  # it was deleted together with its labels
            break
        labels, parent = {**row.labels, **labels}, row.parent
    return info if labels == dict(info.labels) else info.changed(labels=labels)


async def name_of(authorize: Authorize | None, request: Request, action: str, run: RunInfo | None) -> str | None:
    """Return the name of the permitted principal; empty without `authorize`, None if it refuses.

    Raises:
        TypeError: `authorize` returned something else.
    """
    if authorize is None:
        return ""
    found = authorize(request, action, run)
    principal = await found if inspect.isawaitable(found) else found
    if principal is None or (isinstance(principal, str) and principal):
        return principal
    if isinstance(principal, Named) and isinstance(principal.name, str) and principal.name:
        return principal.name
    raise TypeError("authorize() must return None, a non-empty string, or an object with a non-empty `name`")


def refused(action: str) -> HttpProblem:
    """Return the problem of a request that `authorize` refuses."""
    return HttpProblem(403, "not-authorized", f"you may not do this here: {action}")


async def refused_for(
    authorize: Authorize | None, request: Request, action: str, run: RunInfo | None
) -> HttpProblem | RunUnknown:
    """Return the problem of a refused request about a run: that of an unknown run if the principal may not see it.

    Otherwise a principal who may not see a run could find out that its id exists.
    """
    if run is not None and await name_of(authorize, request, "show_run", run) is None:
        return RunUnknown(run.run_id)
    return refused(action)


SESSION = "orchestrator.session"
"""Key in the scope of a request that was admitted by its session: the ids that it brought."""
_MOST = 10_000


class Sessions:
    """The open sessions of a server, in memory only.

    Args:
        seconds: how long a session lasts.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends: dict[bytes, float] = {}
        """Digest of each session's id -> its end, by `time.monotonic`.

        Keyed by digest, so that the time of a look-up reveals nothing about an id.
        """

    def open(self) -> str:
        """Open a session; returns its id."""
        self._drop_ended()
        while len(self._ends) >= _MOST:
            del self._ends[next(iter(self._ends))]
        made = secrets.token_urlsafe(32)
        self._ends[_digest(made)] = time.monotonic() + self._seconds
        return made

    def has_any(self, ids: Iterable[str]) -> bool:
        """Return True if one of these is the id of an open session."""
        self._drop_ended()
        return any(_digest(one) in self._ends for one in ids)

    def close(self, ids: Iterable[str]) -> int:
        """End the sessions with these ids; returns how many there were."""
        return sum(self._ends.pop(_digest(one), None) is not None for one in ids)

    def _drop_ended(self) -> None:
        now = time.monotonic()
        while self._ends and self._ends[first := next(iter(self._ends))] <= now:
            del self._ends[first]


def _digest(given: str) -> bytes:
    return sha256(given.encode("utf-8", "surrogatepass")).digest()


def cookies(headers: Headers, name: str) -> list[str]:
    """Return all cookies with a name: a browser also sends those that another server of this host has set."""
    pairs = (part.strip().partition("=") for line in headers.getlist("cookie") for part in line.split(";"))
    return [value.strip('"') for key, _, value in pairs if key == name]
