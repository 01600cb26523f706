"""What users hold: an executor over a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Literal, Self

import anyio

from orchestrator.clock import SYSTEM_CLOCK, Clock
from orchestrator.errors import RunExists
from orchestrator.executor.answers import as_answer
from orchestrator.executor.host import deletion, delivery, recovery
from orchestrator.executor.host.child_runs import ChildRuns
from orchestrator.executor.host.host import Host
from orchestrator.executor.host.reader import RunReader
from orchestrator.executor.host.start import begin, join
from orchestrator.executor.host.streaming import Stream, streamed
from orchestrator.executor.resources import Resources
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.limits import Limits
from orchestrator.models.base import Model
from orchestrator.seals import Seal
from orchestrator.stores import open_store
from orchestrator.stores.base import Store
from orchestrator.tools.collect import ToolsLike, toolbox_of
from orchestrator.typevars import StateT
from orchestrator.views.run import Run


class Executor(RunReader):
    """Runs graphs: starts, resumes, answers, pauses and cancels runs, and looks at them.

        async with Executor(store="sqlite:///runs.db", graphs=[graph], model=model) as executor:
            run = await executor.start(graph, {"question": "..."})

    Leaving the block interrupts what still runs: it is checkpointed, and can be resumed. So do Ctrl-C and SIGTERM.

    Args:
        store: a URL (see `open_store`), or a store. One that was given as a URL is closed with the executor.
        graphs: the graphs whose runs it can resume. Nothing else resolves a graph's name.
        model: what nodes use that name no model.
        models: further models, by the names that nodes use.
        tools: what nodes may call: tools, functions, toolboxes, or references to them as the command line takes them
            (`arithmetic`, `module:attr`). Toolboxes of servers are connected while the executor is open.
        deps: what nodes get as `ctx.deps`: clients, connections, secrets. Never journaled.
        concurrency: how many steps of all its runs may run at the same time; None: any number.
        on_change: whether a run goes on in a graph whose content (prompts, parameters, code) changed since:
            `continue` and journal the differences, or `strict`: refuse with `GraphChanged`.
        lease_ttl: seconds after which another host may take over a run that this executor does not keep alive.
        seal: seals what this executor writes. Approvals and policies in records that it did not seal are then not
            believed: they are asked for again before what they allow is done. Without one the store is trusted.
        clock: says what time it is, in records and for deadlines; tests give an `orchestrator.testing.MockClock`.
            Leases go by the clocks of the machine, as they hold between processes.
    """

    def __init__(
        self,
        store: str | Store = "memory://",
        *,
        graphs: Sequence[GraphDefinition] = (),
        model: Model | None = None,
        models: Mapping[str, Model] | None = None,
        tools: ToolsLike = (),
        deps: object = None,
        concurrency: int | None = None,
        on_change: Literal["continue", "strict"] = "continue",
        lease_ttl: float = 30.0,
        seal: Seal | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if on_change not in ("continue", "strict"):
            raise ValueError(f"on_change={on_change!r}: say 'continue' or 'strict'")
        self._owned = isinstance(store, str)
        self.store: Store = open_store(store) if isinstance(store, str) else store
        children = ChildRuns()
        resources = Resources.of(
            graphs,
            model,
            models or {},
            toolbox_of(tools),
            deps,
            clock=clock,
            children=children,
            concurrency=concurrency,
        )
        self._host = Host(self.store, resources, lease_ttl=lease_ttl, strict=on_change == "strict", seal=seal)
        children.host = self._host

    @property
    def seal(self) -> Seal | None:
        """What it seals records with."""
        return self._host.seal

    async def __aenter__(self) -> Self:
        if self._host.tasks is not None:
            raise RuntimeError("the executor is already open")
        try:
            await self._host.resources.tools.__aenter__()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.close()
            raise
        await self._host.begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            await self._host.end(kind, error)
        finally:
            with anyio.CancelScope(shield=True):
                await self.close()
        if self._host.fatal is not None:
            raise self._host.fatal

    async def close(self) -> None:
        """Close the store, if it was given as a URL. Leaving the `async with` block does so."""
        if self._owned:
            await self.store.close()

    async def start(
        self,
        graph: GraphDefinition[StateT] | str,
        input: object = None,  # noqa: A002  the argument's name in the documentation
        *,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        approve: str | None = None,
        limits: Limits | None = None,
        refs: Mapping[str, object] | None = None,
    ) -> Run[StateT]:
        """Run a graph until it ends or pauses. Cancelling this call interrupts the run.

        Args:
            graph: a graph, or the name of one that the executor was given.
            input: a mapping of state fields; anything else fills the graph's `input` field.
            run_id: an id for the run. If it is taken by a run of the same graph and input, it is that run:
                it is waited for, or gone on with if nobody drives it.
            approve: questions about tools of at most this risk are approved at once.
            limits: their explicitly set fields replace those of the graph's own limits, the others stay.
            refs: what graph, tools and model are called, as text for whoever looks at the run.

        Raises:
            InvalidInput: the input does not fit the graph's state.
            RunExists: the id is taken by another run.
            GraphUnknown: a model or tool that the graph names was not given.
            StoreError, RunConflict: the journal cannot be written; the run can be resumed.
        """
        live = await begin(self._host, graph, input, run_id, labels, approve, limits, refs)
        if isinstance(live, str):
            return await join(self._host, live)
        return await self._host.drive(live)

    async def submit(
        self,
        graph: GraphDefinition | str,
        input: object = None,  # noqa: A002  the argument's name in the documentation
        *,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        approve: str | None = None,
        limits: Limits | None = None,
        refs: Mapping[str, object] | None = None,
    ) -> str:
        """Begin a run and return its id as soon as the run is durable; it goes on beside. Arguments as of `start`."""
        live = await begin(self._host, graph, input, run_id, labels, approve, limits, refs)
        if isinstance(live, str):
            return live
        self._host.background().start_soon(self._host.drive_alone, live)
        return live.run_id

    async def wait(self, run_id: str, timeout: float | None = None) -> Run:  # noqa: ASYNC109  a name of the contract
        """Wait until a run, whoever drives it, has ended or pauses, or nobody drives it any more.

        Raises:
            RunUnknown: there is no such run.
            TimeoutError: `timeout` seconds were not enough; the run goes on.
        """
        return await recovery.wait_for(self._host, run_id, timeout)

    @asynccontextmanager
    async def stream(
        self,
        graph: GraphDefinition[StateT] | str,
        input: object = None,  # noqa: A002  the argument's name in the documentation
        *,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        approve: str | None = None,
        limits: Limits | None = None,
        refs: Mapping[str, object] | None = None,
    ) -> AsyncIterator[Stream[StateT]]:
        """Begin a run and see its events: `async with executor.stream(graph, ...) as live: async for event in live`.

        When they are over, `live.run` is the run. Leaving the block early interrupts it. Arguments as of `start`.
        """
        live = await begin(self._host, graph, input, run_id, labels, approve, limits, refs)
        if isinstance(live, str):
            raise RunExists(live, "stream() starts a new run; for an existing run use events(run_id, follow=True)")
        async with streamed(self._host, live) as stream:
            yield stream

    async def answer(
        self,
        run_id: str,
        question: str,
        answer: object,
        *,
        by: str = "",
        digest: str | None = None,
        resume: bool = True,
    ) -> Run:
        """Answer a question of a run, once. Who drives the run goes on with it, else this executor does.

        Args:
            answer: `Approve`, `Deny`, or any plain JSON value.
            by: who says so.
            digest: the digest of the question that was looked at; another one is refused.
            resume: whether to go on until the run ends or pauses again. Without it no code is needed.

        Raises:
            QuestionUnknown: the run never asked this.
            StaleAnswer: it is answered or withdrawn, or is another question now.
            InvalidAnswer: the answer does not fit. After these three nothing has changed.
        """
        given = as_answer(answer)
        return await delivery.answer(self._host, run_id, question, given, by=by, digest=digest, resume=resume)

    async def resume(
        self,
        run_id: str,
        *,
        approve: str | None = None,
        accept_changes: bool = False,
        wait: float = 0.0,
        trust_answers: bool = True,
    ) -> Run:
        """Go on with a run that was interrupted or paused, until it ends or pauses.

        Args:
            approve: a new policy for questions about tools, see `start`.
            accept_changes: go on although tools changed, or the graph's content did and the executor is `strict`.
            wait: seconds to wait for a holder that may be alive.
            trust_answers: False for a run whose journal others may have written: approvals and the policy that it
                has are asked for again, as far as what they allow is not done yet.

        Raises:
            RunUnknown: there is no such run.
            RunEnded: it is over.
            RunConflict: somebody else drives it.
            GraphUnknown: its graph was not given, or lacks a model or tool.
            GraphChanged: its graph changed where it still has to go.
            ToolsChanged: tools that it may still call are missing, or take other arguments.
            ReplayMismatch: changed code would leave a settled irreversible effect behind.
        """
        return await recovery.resume(
            self._host, run_id, approve=approve, accept=accept_changes, wait=wait, trust_answers=trust_answers
        )

    async def recover(self, *, only: Collection[str] | None = None) -> list[Run]:
        """Go on with every run of the executor's graphs that was interrupted, has been answered, or is overdue.

        Args:
            only: ids of runs; others are left alone.

        Returns those that it drove, when all have ended or paused. One that cannot go on is logged and left.
        """
        return await recovery.recover(self._host, only)

    async def recoverable(self) -> list[str]:
        """The ids of the runs, of any graph, that `recover` would go on with if it had their code."""
        return await recovery.lost(self._host, None)

    async def pause(self, run_id: str, *, by: str = "", reason: str = "") -> Run:
        """Pause a run, whoever drives it: what runs lands, nothing new starts. `resume` lifts it.

        Raises:
            RunUnknown: there is no such run.
            RunEnded: it has ended.
        """
        return await delivery.pause(self._host, run_id, by=by, reason=reason)

    async def cancel(self, run_id: str, *, by: str = "", reason: str = "") -> Run:
        """Cancel a run, whoever drives it. What was finished stays in its journal.

        Raises:
            RunUnknown: there is no such run.
            RunEnded: it has ended.
        """
        return await delivery.cancel(self._host, run_id, by=by, reason=reason)

    async def delete(self, run_id: str, *, children: bool = True) -> list[str]:
        """Delete a run that is not being driven: its records, questions, messages and labels, for good.

        Args:
            children: whether the runs that its calls of graphs as tools began are deleted with it, and theirs. Their
                caller is all that knows of them. Forks and other runs that bear its label stay.

        Returns:
            The ids of the runs that were deleted, the run itself first.

        Raises:
            RunUnknown: there is no such run.
            RunConflict: it, or a run that it began, is driven; nothing was deleted.
            StoreError: the store cannot be written. What is left of the runs that it began is deleted with it later.
        """
        return await deletion.delete(self._host, run_id, children=children)
