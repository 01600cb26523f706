"""The door of a protocol: an ASGI application whose requests are checked as those of the web API.

Host, origin and token are checked by the web API's guard, each request by `authorize` with the web API's names of
actions, and bodies and streams are bounded alike.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from orchestrator.errors import OrchestratorError, RunUnknown
from orchestrator.executor.run_status import with_status
from orchestrator.protocols.conversation import Conversation
from orchestrator.protocols.turns import Reading
from orchestrator.stores.base import RunInfo
from orchestrator.web import principals, problems
from orchestrator.web.guard import Guard, origins_of
from orchestrator.web.problems import HttpProblem
from orchestrator.web.requests import parsed_body, trace_context
from orchestrator.web.settings import LOOPBACK, Settings
from orchestrator.web.streams import EventStream, OpenStreams

if TYPE_CHECKING:
    from pydantic import BaseModel
    from starlette.types import ASGIApp

    from orchestrator.executor import Executor
    from orchestrator.graph.model import GraphDefinition
    from orchestrator.kernel.question import Question
    from orchestrator.web.principals import Authorize

BodyT = TypeVar("BodyT", bound="BaseModel")
Handler: TypeAlias = "Callable[[Request], Awaitable[ASGIApp]]"
LONGEST = 4 << 20
"""Bytes of a body: clients send the whole conversation with each message."""


@dataclass(frozen=True)
class Offer:
    """A graph as protocols offer it."""

    graph: GraphDefinition
    input: str
    """The field that gets the user's first message."""
    shown: Collection[str] | None = None
    """Names of the nodes whose replies are shown; None: all."""
    state: tuple[str, ...] = ()
    """Fields of the state that clients are shown."""
    cancels: bool = False
    """True if a run is cancelled when the client that started or continued it goes away."""

    @classmethod
    def of(
        cls,
        executor: Executor,
        graph: GraphDefinition | str,
        *,
        replies: Collection[str] | None,
        state: Collection[str],
        cancels: bool,
    ) -> Offer:
        """Make the offer, and add the graph to the executor if it is not one of its graphs.

        Raises:
            ValueError: a field or node does not exist, or the graph has no input.
        """
        found = executor.graphs[graph] if isinstance(graph, str) else graph
        if found.name not in executor.graphs:
            executor.add_graph(found)
        if not found.input_fields:
            raise ValueError(f"graph {found.name!r} has no input field for the user's message: set Graph(input=...)")
        for name in state:
            if name not in found.schema.fields:
                raise ValueError(f"state: graph {found.name!r} has no field {name!r}: it has {[*found.schema.fields]}")
        for name in replies or ():
            if name not in found.nodes:
                raise ValueError(f"replies: graph {found.name!r} has no node {name!r}: it has {[*found.nodes]}")
        return cls(found, found.input_fields[0], replies, tuple(state), cancels)

    def conversation(self, earlier: Conversation | None = None) -> Conversation:
        """Return a conversation of a run of the graph that has only what earlier runs of its thread have."""
        return Conversation(self.input, shown=self.shown, state=self.state, earlier=earlier)


class Door:
    """Requests to one application.

    Args:
        executor: the executor that is served.
        offer: the graph.
        authorize: see `orchestrator.web.app`.
        token: a token that each request must bring as `Authorization: Bearer TOKEN`; None: not required.
        origins: origins of pages that may send requests, besides those of this server.

    Raises:
        ValueError: the token or an origin is not usable.
    """

    def __init__(
        self,
        executor: Executor,
        offer: Offer,
        authorize: Authorize | None,
        token: str | None,
        origins: Collection[str] = (),
    ) -> None:
        self.executor, self.offer = executor, offer
        hosts = LOOPBACK if authorize is None and token is None else None
        self.settings = Settings(authorize=authorize, token=token, hosts=hosts, origins=origins_of(origins))
        self.streams = OpenStreams(self.settings.streams)

    def app(self, routes: Mapping[tuple[str, str], Handler]) -> Starlette:
        """Make the application.

        Args:
            routes: method and path -> handler.
        """
        made = Starlette(
            routes=[
                Route(path, self._answering(handler), methods=[method]) for (method, path), handler in routes.items()
            ],
            middleware=[Middleware(Guard, settings=self.settings, sessions=principals.Sessions(0.0))],
            lifespan=self._lifespan,
        )
        made.state.streams = self.streams
        return made

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Open the executor, unless the caller did, and continue the runs that an earlier process left."""
        if self.executor.is_open:
            yield
            return
        async with self.executor:
            await self.executor.recover()
            yield
            self.streams.close()

    def _answering(self, handler: Handler) -> Handler:
        async def answer(request: Request) -> ASGIApp:
            try:
                request.state.act = principals.Act()
                with self.executor.traced(trace_context(request.headers)):
                    return await handler(request)
            except HttpProblem as problem:
                return problems.answer(problem)
            except OrchestratorError as error:
                return problems.answer(problems.problem_of(error))
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception:
                return problems.answer(problems.fault())

        return answer

    async def body(self, request: Request, model: type[BodyT]) -> BodyT:
        """Return the body of a request.

        Raises:
            HttpProblem: it is not JSON, too long, too slow, or not valid.
        """
        return await parsed_body(request, model, patience=self.settings.patience, longest=LONGEST)

    async def permit(self, request: Request, action: str, row: RunInfo | None) -> str:
        """Check with `authorize` that a request is permitted. Return the name of its principal, empty if there is none.

        Args:
            request: the request.
            action: a name of docs/web_api.md.
            row: the row of the run that it is about, or that it would start; None: it is about no run.

        Raises:
            HttpProblem, RunUnknown: it is refused.
        """
        authorize = self.settings.authorize
        if authorize is None:
            return ""
        asked = None if row is None else await principals.labelled(self.executor.store, row)
        name = await principals.name_of(authorize, request, action, asked)
        if name is None:
            raise await principals.refused_for(authorize, request, action, asked if row and row.run_id else None)
        return name

    async def permit_answer(self, request: Request, row: RunInfo, question: Question) -> None:
        """Check with `authorize` that a request may answer a question.

        Raises:
            HttpProblem, RunUnknown: it may not.
        """
        if self.settings.authorize is None:
            return
        records = await self.executor.store.read(row.run_id)
        tools = [*self.executor.tools, *principals.tools_of(self.offer.graph)]
        request.state.act = principals.answering(question, records, tools)
        await self.permit(request, "answer_question", row)
        request.state.act = principals.Act()

    def reading(self, run_id: str, earlier: Conversation | None = None) -> Reading:
        """Return a reading of a run, which begins with the conversation of earlier runs of its thread."""
        return Reading(self.executor, run_id, lambda: self.offer.conversation(earlier))

    def stream(
        self,
        request: Request,
        run_id: str,
        events: AsyncIterator[str],
        *,
        new: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> EventStream:
        """Respond with a stream, which ends once `authorize` refuses it.

        Args:
            request: the request.
            run_id: the run.
            events: the events, as text of the stream.
            new: whether the request began the turn: then the run may end with its client, see `Offer.cancels`.
            headers: further headers.

        Raises:
            HttpProblem: no further stream can be opened.
        """

        async def allowed() -> bool:
            try:
                row = with_status(await self.executor.store.info(run_id))
                await self.permit(request, "stream_events", row)
            except (HttpProblem, RunUnknown):
                return False
            return True

        checked = None if self.settings.authorize is None else allowed
        gone = self._cancel(run_id) if self.offer.cancels and new else None
        return EventStream(events, self.streams, self.settings, checked, headers=headers or {}, gone=gone)

    def _cancel(self, run_id: str) -> Callable[[], Awaitable[object]]:
        async def cancel() -> None:
            row = with_status(await self.executor.store.info(run_id))
            if row.status != "running":  # its turn is over: the client has read the end
                return
            with suppress(OrchestratorError):
                await self.executor.cancel(run_id, reason="the client went away")

        return cancel
