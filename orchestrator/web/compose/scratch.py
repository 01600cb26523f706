"""Tries: runs of texts in a separate store, which is in memory, bounded, and lost with the server.

They are driven by a second executor with the server's tools, dependencies and models, and served under `/try` by the
same routes. Bounds:

    runs        `MOST_RUNS`; a further one replaces the oldest of the principal with the most, ended runs first
    bytes       `MOST_BYTES` of journals, messages and graphs; a run that would write more is abandoned and deleted
    age         `LONGEST` seconds since a run was last written to
    one run     `STEPS` steps and `SECONDS` seconds alive at most

Calls of tools that change something need approval, regardless of the text. With `authorize`, a principal sees only its
own tries.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskStatus

from orchestrator.errors import OrchestratorError, StoreError
from orchestrator.executor import Executor, Run
from orchestrator.executor.executor import executor_like
from orchestrator.graph.limits import Limits
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.node_settings import nodes_with, with_model
from orchestrator.json import JsonObject
from orchestrator.kernel.records import Record
from orchestrator.kernel.status import FINAL
from orchestrator.models.base import Model
from orchestrator.models.refs import model_from_ref
from orchestrator.stores.memory import MemoryStore
from orchestrator.web.principals import name_of
from orchestrator.web.problems import HttpProblem

if TYPE_CHECKING:
    from starlette.requests import Request

    from orchestrator.stores.base import RunInfo
    from orchestrator.stores.items import Area, Item
    from orchestrator.stores.requests import Append, NewRun
    from orchestrator.web.principals import Authorize


MOST_BYTES = 64 << 20
"""Bytes of all journals, snapshots, messages and graphs."""
MOST_ITEMS = 16 << 20
"""Bytes of all values in memory across runs, and of all cached results."""
_UNUSED = 5.0
"""Seconds for which a graph without runs is kept: a run names its graph in the record after the one that stores it."""


@dataclass(slots=True)
class _Journal:
    """Counts of a run. An append only counts what it appends."""

    size: int = 0
    records: int = 0
    snapshots: dict[int, int] = field(default_factory=dict)
    graphs: set[str] = field(default_factory=set)
    """Contents of the run's current and former graphs."""


class ScratchStore(MemoryStore):
    """A store in memory with a limited size in bytes.

    Args:
        most: maximum number of bytes of records, snapshots, messages and graphs; the write that reaches it is the last.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        super().__init__()
        self._most = most
        self._journals: dict[str, _Journal] = {}
        self._bytes = 0
        self._graph_sizes: dict[str, int] = {}
        self._unused: dict[str, float] = {}
        self.ending: str | None = None
        """The run that may still write its final records."""

    @property
    def size(self) -> int:
        """Bytes of all records, snapshots, messages and graphs."""
        with self._lock:
            return self._bytes + sum(self._inbox.sizes.values()) + sum(self._graph_sizes.values())

    @property
    def full(self) -> bool:
        """True if it accepts no more data."""
        return self.size >= self._most

    def largest(self) -> str | None:
        """Return the id of the run with the most bytes; None if there is no run."""
        with self._lock:
            return max(self._journals, key=self._size_of, default=None)

    async def create(self, new: NewRun) -> None:
        """See `Store.create`."""
        info = new.info
        self._check(info.run_id)
        await super().create(new)
        self._count(info.run_id, [info.content, *_contents(new.records)])
        self._count_graph(info.content)

    async def append(self, append: Append) -> int:
        """See `Store.append`."""
        self._check(append.run_id)
        head = await super().append(append)
        self._count(append.run_id, _contents(append.records))
        return head

    async def put_snapshot(self, run_id: str, seq: int, data: bytes) -> None:
        """See `Store.put_snapshot`."""
        self._check(run_id)
        await super().put_snapshot(run_id, seq, data)
        self._count(run_id, ())

    async def put_graph(self, digest: str, data: JsonObject) -> None:
        """See `Store.put_graph`."""
        self._check("")
        await super().put_graph(digest, data)
        self._count_graph(digest)

    async def post(self, run_id: str, body: JsonObject, *, key: str | None = None) -> int:
        """See `Store.post`."""
        self._check(run_id)
        return await super().post(run_id, body, key=key)

    async def put_item(self, area: Area, item: Item, *, most: int | None = None, **options: Any) -> None:
        """See `Store.put_item`."""
        bound = MOST_ITEMS if most is None else min(most, MOST_ITEMS)
        await super().put_item(area, item, most=bound, **options)

    async def delete(self, run_id: str) -> bool:
        """See `Store.delete`."""
        deleted = await super().delete(run_id)
        with self._lock:
            journal = self._journals.pop(run_id, None)
            self._bytes -= 0 if journal is None else journal.size
        return deleted

    def drop_graphs(self) -> None:
        """Delete the graphs that have been without runs for a while."""
        with self._lock:
            now, used = time.monotonic(), {name for journal in self._journals.values() for name in journal.graphs}
            self._unused = {name: self._unused.get(name, now) for name in self._graphs if name not in used}
            for name in [name for name, since in self._unused.items() if now - since >= _UNUSED]:
                del self._unused[name], self._graphs[name]
                self._graph_sizes.pop(name, None)

    def _check(self, run_id: str) -> None:
        if self.full and run_id != self.ending:
            raise StoreError(f"the store of tries is full: it takes {self._most:,} bytes; its largest run is deleted")

    def _size_of(self, run_id: str) -> int:
        return self._journals[run_id].size + self._inbox.sizes.get(run_id, 0)

    def _count(self, run_id: str, graphs: Iterable[str]) -> None:
        with self._lock:
            run = self._runs.get(run_id)
            if run is None:
                return
            journal = self._journals.setdefault(run_id, _Journal())
            journal.graphs.update(graphs)
            added = sum(map(len, run.records[journal.records :]))
            journal.records = len(run.records)
            for seq in reversed(run.snapshots):  # those that were counted come first
                if journal.snapshots.get(seq) == len(run.snapshots[seq]):
                    break
                added += len(run.snapshots[seq]) - journal.snapshots.get(seq, 0)
                journal.snapshots[seq] = len(run.snapshots[seq])
            journal.size += added
            self._bytes += added

    def _count_graph(self, digest: str) -> None:
        with self._lock:
            text = self._graphs.get(digest)
            if text is not None:
                self._graph_sizes.setdefault(digest, len(text))


def _contents(records: Sequence[Record]) -> list[str]:
    """Return the contents of the graphs that records name."""
    named = (getattr(record, "content", None) for record in records)
    return [content for content in named if isinstance(content, str) and content]


log = logging.getLogger("orchestrator.web")
MOST_RUNS = 50
LONGEST = 3600.0
STEPS = 500
SECONDS = 120.0
OFFLINE, DEFAULT = "offline", "default"
"""Names of models besides those of the server: the offline one, and the one for nodes that name none."""
OWNER = "principal"
"""The label that names the principal that started a try."""
_PAUSE = 1.0
"""Seconds between two searches for tries to delete."""
_PATIENCE = 5.0
"""Seconds within which a run that will be deleted must stop."""


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
            model: the model for nodes that name none; None: only the offline model.
            limits: limits of the run, at most those of tries.
            approve: the highest risk of calls that need no approval.
            labels: labels of the run.
            principal: the name of the principal that tries it; empty without `authorize`.

        Raises:
            HttpProblem: there is no such model.
            OrchestratorError: the run cannot start.
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
            steps=min(kept.steps or STEPS, STEPS),
            seconds=min(kept.seconds or SECONDS, SECONDS),
            **({} if limits is None else limits.model_dump(exclude_unset=True, exclude={"steps", "seconds"})),
        )
        refs = {"graph": chosen.name, "tools": [], "model": model or OFFLINE}
        labels = {**labels, OWNER: principal} if principal else labels
        await self.executor.submit(
            self._graphs[chosen.content], given, run_id=run_id, limits=bounds, approve=approve, labels=labels, refs=refs
        )
        return await self.executor.load(run_id)

    def _with_model(self, graph: GraphDefinition, model: str | None) -> GraphDefinition:
        """Return the graph with models: the offline one for all nodes, another one only for nodes that name none.

        Raises:
            HttpProblem: there is no such model.
        """
        models = self.executor.models
        if model is not None and model not in models:
            known = ", ".join(models)
            raise HttpProblem(422, "model-unknown", f"there is no model {model!r} here: name one of {known}")
        if model is None or model == OFFLINE:
            nodes = nodes_with(graph.nodes, lambda node: node.model is not None, "model", OFFLINE)
            return graph.model_copy(update={"nodes": nodes})
        return with_model(graph, model)

    # -- opening and cleanup
    # ---------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        """Open the executor, once, in the background of the server's executor."""
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
        except Exception:  # the server's runs continue without tries
            log.exception("the executor of tries failed")
        finally:
            self._opened = None

    async def _make_room(self) -> None:
        """Delete the oldest run if the maximum number of runs is reached."""
        await self._tidy()
        rows = await self._rows()
        for row in self._oldest(rows)[: max(0, len(rows) - MOST_RUNS + 1)]:
            await self._delete(row)

    async def _tidy(self) -> None:
        """Delete runs that are too old, and runs beyond the bounds."""
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
                with suppress(OrchestratorError):  # it has just ended, or was abandoned
                    if row.status not in FINAL:
                        await self.executor.cancel(row.run_id, reason="removed to make room in the store of tries")
                await self.executor.delete(row.run_id)
        except OrchestratorError as error:
            log.warning("the try %s could not be deleted: %s", row.run_id, error)
        finally:
            self.store.ending = None


def of_own(authorize: Authorize | None) -> Authorize | None:
    """Return `authorize`, if given, for tries: a principal has no access to the tries of others."""
    if authorize is None:
        return None

    async def checked(request: Request, action: str, run: RunInfo | None) -> str | None:
        principal = await name_of(authorize, request, action, run)
        return None if run is not None and _owner(run) != principal else principal

    return checked


def _owner(run: RunInfo) -> str:
    return run.labels.get(OWNER, "")
