"""A row of the table of routes, a request as passed to its handler, and the server's state between requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias

from typing_extensions import TypeVar

from orchestrator.errors import GraphUnknown, RunExists, RunUnknown
from orchestrator.executor.run_status import with_status
from orchestrator.graph.limits import Limits, raised
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.names import plain_name
from orchestrator.graph.node_settings import with_model
from orchestrator.kernel.records import Answered, Asked
from orchestrator.spelling import did_you_mean
from orchestrator.stores.base import RunInfo
from orchestrator.web import principals
from orchestrator.web.compose.scratch import OWNER
from orchestrator.web.documents import Document
from orchestrator.web.problems import HttpProblem
from orchestrator.web.requests import Body, LimitChanges, NoQuery, Query
from orchestrator.web.settings import Risk, Settings
from orchestrator.web.streams import EventStream

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from orchestrator.executor import Executor
    from orchestrator.executor.replay.start_replay import ReplayBatch, ReplayProgress
    from orchestrator.views.call_questions import ApprovalContext
    from orchestrator.views.replay_result import Replay
    from orchestrator.web.alignments import Alignments
    from orchestrator.web.compose.checks import Texts
    from orchestrator.web.compose.saved import SavedGraphs
    from orchestrator.web.compose.scratch import Scratch
    from orchestrator.web.screens.run_feed import RunFeeds
    from orchestrator.web.streams import OpenStreams


_GOING = 8
"""Maximum number of batches that a server works on at the same time."""
_REMEMBERED = 100
"""Ended batches that are kept, with the reasons why runs could not be replayed."""
_KEPT = 500
"""Results of replays that are kept: each requires two runs to be read."""


@dataclass(slots=True)
class ReplayBatches:
    """The batches of replays of this server, by name."""

    _batches: dict[str, list[ReplayBatch]] = field(default_factory=dict)
    results: dict[str, tuple[object, Replay]] = field(default_factory=dict)
    """Replay -> the versions of both runs, and the result."""

    def check(self) -> None:
        """Check that another batch can be started.

        Raises:
            HttpProblem: no further batch can be started.
        """
        going = sum(not one.over for batches in self._batches.values() for one in batches)
        if going >= _GOING:
            detail = f"this server works on {going} batches of replays, its limit: wait for one, or stop one"
            raise HttpProblem(503, "batches-full", detail, headers={"Retry-After": "5"})

    def add(self, name: str, batch: ReplayBatch) -> None:
        """Remember a batch. Earlier batches with the same name may have started other replays of it."""
        self._batches.setdefault(name, []).append(batch)
        over = [one for one, batches in self._batches.items() if all(batch.over for batch in batches)]
        for one in over[:-_REMEMBERED]:
            del self._batches[one]

    def going(self, name: str) -> bool:
        """Return True if this server is working on a batch."""
        return any(not batch.over for batch in self._batches.get(name, ()))

    def stop(self, name: str) -> None:
        """Stop a batch."""
        for batch in self._batches.get(name, ()):
            batch.stop()

    def runs(self, name: str) -> dict[str, ReplayProgress]:
        """Return the progress of each replay, as far as known to this server."""
        return {one.replay_id: one for batch in self._batches.get(name, ()) for one in batch.runs}

    def keep(self, replay_id: str, version: object, result: Replay) -> None:
        """Keep the result of a replay."""
        self.results.pop(replay_id, None)
        self.results[replay_id] = version, result
        while len(self.results) > _KEPT:
            self.results.pop(next(iter(self.results)))


QueryT = TypeVar("QueryT", bound=Query, default=Query)
BodyT = TypeVar("BodyT", bound="Body | None", default=None)
JSON = "application/json"
RISKS: tuple[Risk, ...] = ("none", "read", "write", "dangerous")


class Surroundings(NamedTuple):
    """Context that a card shows next to a question."""

    version: object
    """Identifies the run and the question: another run may have the same id after this one is deleted."""
    input: str
    """The first line of the run's input."""
    context: ApprovalContext


@dataclass(frozen=True)
class Service:
    """Objects that all requests of an application share."""

    executor: Executor
    settings: Settings
    streams: OpenStreams
    feeds: RunFeeds
    texts: Texts
    alignments: Alignments
    replays: ReplayBatches
    sessions: principals.Sessions
    scratch: Scratch | None = None
    """The store of tries; None: tries are disabled."""
    saved: SavedGraphs | None = None
    """The graphs that pages save; None: saving is disabled."""
    surroundings: dict[tuple[str, str], Surroundings] = field(default_factory=dict)
    """By run and question."""

    def forget(self, run_id: str) -> None:
        """Drop the cached data of a run that is deleted."""
        for key in [key for key in self.surroundings if key[0] == run_id]:
            del self.surroundings[key]
        self.feeds.forget(run_id)
        self.alignments.forget(run_id)
        self.replays.results.pop(run_id, None)


@dataclass(frozen=True)
class Call(Generic[QueryT, BodyT]):
    """A checked request: its query and body are valid, and the principal may make it."""

    service: Service
    request: Request
    action: str
    query: QueryT
    body: BodyT
    row: RunInfo | None = None
    """The row of the run in the URL."""
    principal: str = ""
    """The name returned by `authorize`; empty without it."""

    @property
    def executor(self) -> Executor:
        """The executor that is served."""
        return self.service.executor

    @property
    def settings(self) -> Settings:
        """Settings of the application."""
        return self.service.settings

    @property
    def run(self) -> RunInfo:
        """The row of the run in the URL, if the route has one."""
        assert self.row is not None
        return self.row

    @property
    def run_id(self) -> str:
        """The id of the run in the URL."""
        return self.run.run_id

    def by(self, given: str) -> str:
        """Return the name of the acting person, for the journal.

        Args:
            given: the name in the body.

        Raises:
            HttpProblem: the principal has another name.
        """
        if self.principal and given and given != self.principal:
            raise HttpProblem(403, "by-refused", f"you are {self.principal!r} here: leave 'by' out")
        return self.principal or given

    def risk(self, approve: Risk | None) -> Risk | None:
        """Return the policy that a request asks for, if any.

        Raises:
            HttpProblem: the server does not allow a risk that high.
        """
        cap = self.settings.approve
        if approve is not None and (cap is None or RISKS.index(approve) > RISKS.index(cap)):
            allowed = "none at all" if cap is None else f"{cap!r} at most"
            raise HttpProblem(
                403, "approve-refused", f"approve={approve!r}: this server lets requests approve {allowed} in advance"
            )
        return approve

    async def limits(self, changes: LimitChanges | None, own: Limits, run: RunInfo) -> Limits | None:
        """Return the limits that a request asks for, if any.

        Args:
            changes: the limits in the request.
            own: the limits of the graph, or the current ones of the run.
            run: the row of the run, also if it is yet to be created.

        Raises:
            HttpProblem: they are higher, and neither the server nor `authorize` (as `raise_limits`) allows that.
        """
        if changes is None:
            return None
        wanted = changes.limits()
        higher = raised(wanted, own, self.settings.limits)
        if higher and not await self._may_raise_limits(run):
            raise HttpProblem(
                403,
                "limits-refused",
                f"limits: requests may lower {', '.join(higher)} on this server, but not raise: start the server with "
                "higher --max-... options, or let authorize() allow raise_limits",
            )
        return wanted

    async def _may_raise_limits(self, run: RunInfo) -> bool:
        authorize = self.settings.authorize
        if authorize is None:
            return False
        return await principals.name_of(authorize, self.request, "raise_limits", await self.labelled(run)) is not None

    async def graphs(self) -> Mapping[str, GraphDefinition]:
        """Return the graphs that the principal may see, by name; for tried texts, only its own."""
        found = self.executor.graphs
        if not self.own:
            return found
        rows = (await self.executor.runs(labels=self.own, limit=200)).runs
        tried, given = {row.content for row in rows}, self.service.texts.given
        return {name: graph for name, graph in found.items() if name in given or graph.content in tried}

    @property
    def own(self) -> Mapping[str, str]:
        """The labels that the principal's runs must have; empty: `authorize` decides, or is not set."""
        return {OWNER: self.principal} if self.settings.scratch and self.settings.authorize is not None else {}

    async def graph(self, name: str) -> GraphDefinition:
        """Return a graph of the executor. Nothing is imported.

        Raises:
            GraphUnknown: it has no graph with this name.
        """
        saved = self.service.saved
        if saved is not None:
            await saved.refresh(name)
        graphs = await self.graphs()
        found = graphs.get(plain_name(name))
        if found is None:
            if saved is not None and name in saved.faults:
                raise GraphUnknown(f"the saved graph {name!r} is not used: {saved.faults[name]}")
            known = ", ".join(sorted(graphs)) or "none"
            raise GraphUnknown(f"unknown graph {name!r}: this server has {known}")
        return found

    def with_model(self, graph: GraphDefinition, name: str | None) -> GraphDefinition:
        """Return a graph whose nodes that name no model ask one of the executor's models.

        Args:
            graph: the graph.
            name: the model's name; None: the graph is unchanged, and these nodes ask the executor's default model.

        Raises:
            HttpProblem: the executor has no model with this name.
        """
        if name is None:
            return graph
        if name not in self.executor.models:
            close = did_you_mean(name, self.executor.models)
            known = ", ".join(sorted(self.executor.models)) or "none that has a name"
            detail = f"there is no model {name!r} here{close or f': this server has {known}'}"
            raise HttpProblem(422, "model-unknown", detail, errors=[{"field": "model", "message": detail}])
        return with_model(graph, name)

    async def may_see(self, info: RunInfo) -> bool:
        """Return True if the principal may make this request about a run of a list."""
        if self.settings.authorize is None:
            return True
        asked = await self.labelled(info)
        return await principals.name_of(self.settings.authorize, self.request, self.action, asked) is not None

    async def may(self, action: str) -> bool:
        """Return True if the principal may perform an action on the run in the URL."""
        authorize = self.settings.authorize
        if authorize is None:
            return True
        return await principals.name_of(authorize, self.request, action, await self.labelled(self.run)) is not None

    async def check(self, action: str, act: principals.Act) -> None:
        """Check with `authorize` that the principal may perform the action on the run in the URL.

        Raises:
            HttpProblem: the principal may not perform it.
        """
        self.request.state.act = act
        if not await self.may(action):
            raise principals.refused(action)

    async def check_answers(self, questions: Iterable[str], at: int | None = None, *, replaced: bool = False) -> None:
        """Check with `authorize` that the principal may answer questions of the run in the URL.

        Args:
            questions: their ids.
            at: the record whose answer is replaced; None: the last one.
            replaced: whether an answer is replaced.

        Raises:
            HttpProblem: the principal may not answer them.
        """
        names = [*questions]
        if self.settings.authorize is None or not (names or replaced):
            return
        records = await self.executor.store.read(self.run_id)
        asked = {one.question.id: one.question for one in records if isinstance(one, Asked)}
        answers = [one for one in records if isinstance(one, Answered) and at in (None, one.seq)] if replaced else []
        names += [one.question for one in answers[-1:]]
        graph = self.executor.graphs.get(self.run.graph)
        tools = [*self.executor.tools, *(() if graph is None else principals.tools_of(graph))]
        for question in [asked.get(name) for name in names] or [None]:
            await self.check("answer_question", principals.answering(question, records, tools))

    async def labelled(self, info: RunInfo) -> RunInfo:
        """Return the row of a run for `authorize`, see `principals.labelled`; without `authorize` unchanged."""
        return info if self.settings.authorize is None else await principals.labelled(self.executor.store, info)

    async def check_new(self, run_id: str | None, graph: str, labels: Mapping[str, str]) -> None:
        """Check with `authorize` a run that is to be created, and any existing run with its id.

        Raises:
            HttpProblem: the principal may not create it.
            RunExists: a run with this id exists that the principal may not use for this request.
        """
        if self.settings.authorize is None:
            return
        if not await self.may_see(RunInfo(run_id or "", graph, "running", labels)):
            raise principals.refused(self.action)
        if run_id is not None:
            with suppress(RunUnknown):
                info = await self.executor.store.info(run_id)
                if not await self.may_see(info):
                    raise RunExists(run_id)

    async def seen(self, run_id: str) -> RunInfo:
        """Return the row of a run that the query or body names.

        Raises:
            RunUnknown: it does not exist, or the principal may not see it.
            HttpProblem: the principal may not make this request about it.
        """
        info = await self.executor.store.info(run_id)
        if not await self.may_see(info):
            raise await principals.refused_for(
                self.settings.authorize, self.request, self.action, await self.labelled(info)
            )
        return info

    def waiting(self, least: float = 0.0) -> AbstractAsyncContextManager[None]:
        """Count the request as a stream while it waits for a run, see `OpenStreams.waiting`."""
        return self.service.streams.waiting(self.request.receive, self.settings.wait, least)

    def stream(self, events: AsyncIterator[str], runs: Iterable[str] = ()) -> EventStream:
        """Respond with a stream, which ends with the session that opened it, and once `authorize` refuses it.

        Args:
            events: the events, each as text of the stream.
            runs: the ids of the runs in the stream, besides that in the URL.

        Raises:
            HttpProblem: no further stream can be opened.
        """
        authorize, named = self.settings.authorize, [*runs]
        session = self.request.scope.get(principals.SESSION, ())

        async def allowed() -> bool:
            if session and not self.service.sessions.has_any(session):
                return False
            if authorize is None:
                return True
            row = None
            with suppress(RunUnknown):  # a deleted run has no owner any more
                row = self.row and await self.labelled(with_status(await self.executor.store.info(self.row.run_id)))
                if await principals.name_of(authorize, self.request, self.action, row) is None:
                    return False
            for run_id in named:
                with suppress(RunUnknown):
                    if not await self.may_see(await self.executor.store.info(run_id)):
                        return False
            return True

        checked = allowed if session or authorize is not None else None
        return EventStream(events, self.service.streams, self.settings, checked)


Handler: TypeAlias = "Callable[[Call[Any, Any]], Awaitable[Document | ASGIApp]]"


@dataclass(frozen=True)
class Endpoint:
    """A row of the table of routes."""

    method: Literal["GET", "POST", "DELETE"]
    path: str
    """With `{run_id}` or `{name}`; a path with `{run_id}` is about a run."""
    action: str
    """Name of the action for `authorize`, and the operation's id in OpenAPI. Unique in the table."""
    handler: Handler
    summary: str
    answer: type[Document] | None
    """The model of the response; None: it has another media type."""
    query: type[Query] = NoQuery
    body: type[Body] | None = None
    status: int = 200
    problems: tuple[int, ...] = ()
    """Statuses of problems besides those that every such route has, see `statuses`."""
    media: str = JSON
    streams: type[Document] | None = None
    """The model of the events, if the response is or can be a stream of these."""
    headers: tuple[str, ...] = field(default=())
    """Headers of the response that clients read."""
    below: str = ""
    """The path before that of the created run, in the header `Location`."""

    @property
    def writes(self) -> bool:
        """True if it can change something, and is omitted from a read-only server."""
        return self.method != "GET" and self.action not in _PURE

    @property
    def of_run(self) -> bool:
        """True if its URL names a run."""
        return "{run_id}" in self.path

    def statuses(self) -> tuple[int, ...]:
        """Return the statuses of all problems in its responses."""
        found = {400, 401, 403, 422, 500, 503, *self.problems}
        if "{" in self.path:
            found.add(404)
        if self.body is not None:
            found |= {408, 413, 415}
        return tuple(sorted(found))


_PURE = frozenset({"check_graph", "log_out"})
"""Actions with methods other than GET that change neither runs nor graphs."""
