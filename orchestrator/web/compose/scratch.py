"""Tries: runs of texts in a store of their own, which is in memory, bounded, and gone with the server.

They are driven by an executor of their own beside that of the server, with its tools, dependencies and models, and
served under `/try` by the same routes. What bounds them:

    runs        `MOST_RUNS`; a further one replaces the oldest of whoever has most, one that has ended first
    bytes       `MOST_BYTES` of journals, messages and graphs; a run that would write more is given up, and deleted
    age         `LONGEST` seconds since a run was last written to
    one run     `STEPS` steps and `SECONDS` seconds alive at most

Calls of tools that change something are asked about, whatever the text says. With `authorize`, a principal sees its own
tries only.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskStatus

from orchestrator.errors import OrchestratorError
from orchestrator.executor import Executor, Run
from orchestrator.executor.executor import executor_like
from orchestrator.graph.limits import Limits
from orchestrator.graph.model import GraphDefinition, Node
from orchestrator.graph_class import nodes_with
from orchestrator.kernel.status import FINAL
from orchestrator.models.base import Model
from orchestrator.models.refs import model_from_ref
from orchestrator.web.compose.scratch_store import ScratchStore
from orchestrator.web.principals import name_of
from orchestrator.web.problems import HttpProblem

if TYPE_CHECKING:
    from starlette.requests import Request

    from orchestrator.stores.base import RunInfo
    from orchestrator.web.principals import Authorize

log = logging.getLogger("orchestrator.web")
MOST_RUNS = 50
LONGEST = 3600.0
STEPS = 500
SECONDS = 120.0
OFFLINE, DEFAULT = "offline", "default"
"""Names of models beside those of the server: the one that does arithmetic, and that of nodes that name none."""
OWNER = "principal"
"""The label that names whoever began a try."""
_PAUSE = 1.0
"""Seconds between two looks at what is to be deleted."""
_PATIENCE = 5.0
"""Seconds in which a run that is to be deleted must stop."""


class Scratch:
    """The tries of one server.

    Args:
        executor: the executor of the server.
    """

    def __init__(self, executor: Executor) -> None:
        self._outer = executor
        self.store = ScratchStore()
        models: dict[str, Model] = {**executor.models, OFFLINE: model_from_ref(OFFLINE)}
        if executor.model is not None:
            models.setdefault(DEFAULT, executor.model)
        self.executor = executor_like(executor, self.store, model=models[OFFLINE], models=models)
        self._graphs: dict[str, GraphDefinition] = {}
        self._opening = False
        self._opened: anyio.Event | None = None

    async def start(
        self,
        graph: GraphDefinition,
        given: object,
        *,
        model: str | None,
        limits: Limits | None,
        approve: str | None,
        labels: Mapping[str, str],
        principal: str = "",
    ) -> Run:
        """Try a graph.

        Args:
            graph: the graph.
            given: the input.
            model: the name of the model of nodes that name none; None: no model but the offline one.
            limits: limits of the run; they can only be lower than those of tries.
            approve: the highest risk of calls that need no approval.
            labels: labels of the run.
            principal: the name of whoever tries it; empty without `authorize`.

        Raises:
            HttpProblem: there is no such model.
            OrchestratorError: the run cannot begin.
        """
        chosen = self._with_model(graph, model)
        await self._open()
        await self._make_room()
        if chosen.content not in self._graphs:
            self.executor.add_graph(chosen, ask_from="write")
            self._graphs[chosen.content] = chosen
        run_id = os.urandom(8).hex()
        kept = chosen.limits.changed(limits)
        bounds = Limits(
            steps=min(kept.steps or STEPS, STEPS), seconds=min(kept.seconds or SECONDS, SECONDS),
            **({} if limits is None else limits.model_dump(exclude_unset=True, exclude={"steps", "seconds"})),
        )  # fmt: skip
        refs = {"graph": chosen.name, "tools": [], "model": model or OFFLINE}
        labels = {**labels, OWNER: principal} if principal else labels
        await self.executor.submit(
            self._graphs[chosen.content], given, run_id=run_id, limits=bounds, approve=approve, labels=labels, refs=refs
        )
        return await self.executor.load(run_id)

    def _with_model(self, graph: GraphDefinition, model: str | None) -> GraphDefinition:
        """The graph with a model for the nodes that ask one: offline for all, another for those that name none.

        Raises:
            HttpProblem: there is no such model.
        """
        models = self.executor.models
        if model is not None and model not in models:
            known = ", ".join(models)
            raise HttpProblem(422, "model-unknown", f"there is no model {model!r} here: name one of {known}")
        if model is None or model == OFFLINE:
            nodes = nodes_with(graph.nodes, lambda node: node.model is not None, "model", OFFLINE)
        else:
            nodes = nodes_with(graph.nodes, _asks_unnamed, "model", model)
        return graph.model_copy(update={"nodes": nodes})

    # -- opening and tidying -------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        """Open the executor, once, in the background of that of the server."""
        if self._opened is None:
            self._opened = anyio.Event()
            try:
                await self._outer.workers.start_task(self._work)
            except BaseException:
                self._opened = None
                raise
        await self._opened.wait()

    async def _work(self, status: TaskStatus[None]) -> None:
        try:
            async with self.executor:
                assert self._opened is not None
                self._opened.set()
                status.started()
                while True:
                    await anyio.sleep(_PAUSE)
                    await self._tidy()
        except Exception:  # the runs of the server go on without tries
            log.exception("the executor of tries failed")
        finally:
            self._opened = None

    async def _make_room(self) -> None:
        """Delete the oldest run if there are as many as there may be."""
        await self._tidy()
        rows = await self._rows()
        for row in self._oldest(rows)[: max(0, len(rows) - MOST_RUNS + 1)]:
            await self._delete(row)

    async def _tidy(self) -> None:
        """Delete what is too old, and what is too much."""
        rows = await self._rows()
        now = time.time()
        old = [row for row in rows if now - row.updated > LONGEST]
        many = [row for row in self._oldest(rows) if row not in old][: max(0, len(rows) - len(old) - MOST_RUNS)]
        full = self.store.largest() if self.store.full else None
        large = [row for row in rows if row.run_id == full]
        for row in dict.fromkeys(row.run_id for row in (*old, *many, *large)):
            await self._delete(next(one for one in rows if one.run_id == row))
        left = {row.content for row in await self._rows()}
        for content in self._graphs.keys() - left:
            self.executor.graphs.remove(self._graphs.pop(content))
        self.store.drop_graphs()

    async def _rows(self) -> list[RunInfo]:
        return list((await self.executor.runs(limit=4 * MOST_RUNS)).runs)

    def _oldest(self, rows: list[RunInfo]) -> list[RunInfo]:
        held = Counter(map(_owner, rows))
        return sorted(rows, key=lambda row: (-held[_owner(row)], row.status not in FINAL, row.updated))

    async def _delete(self, row: RunInfo) -> None:
        self.store.ending = row.run_id
        try:
            with anyio.move_on_after(_PATIENCE):
                with suppress(OrchestratorError):  # it has just ended, or was given up
                    if row.status not in FINAL:
                        await self.executor.cancel(row.run_id, reason="the store of tries needs room")
                await self.executor.delete(row.run_id)
        except OrchestratorError as error:
            log.warning("the try %s could not be deleted: %s", row.run_id, error)
        finally:
            self.store.ending = None


def of_own(authorize: Authorize | None) -> Authorize | None:
    """`authorize` for tries: a principal may do nothing with those of others."""
    if authorize is None:
        return None

    async def checked(request: Request, action: str, run: RunInfo | None) -> str | None:
        principal = await name_of(authorize, request, action, run)
        return None if run is not None and _owner(run) != principal else principal

    return checked


def _owner(run: RunInfo) -> str:
    return run.labels.get(OWNER, "")


def _asks_unnamed(node: Node) -> bool:
    return node.asks_model and node.model is None
