"""A run for users, as of the time at which it was loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar, cast

import anyio
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from orchestrator._lazy import above
from orchestrator.errors import InvalidValue, RunFailed, RunUnknown, StoreError
from orchestrator.graph.codec import explain
from orchestrator.graph.isolation import isolated, json_copy
from orchestrator.graph.limits import Usage
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.typevars import StateT
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.queries import Branch, branches, open_questions, state_values
from orchestrator.kernel.question import AnyQuestion
from orchestrator.kernel.records import Failure, Record
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.status import Parent
from orchestrator.redaction import redact
from orchestrator.stores.requests import RunQuery
from orchestrator.stores.rows import Note
from orchestrator.values import shown_labels
from orchestrator.views.reader import read

if TYPE_CHECKING:
    from orchestrator.errors import Archived
    from orchestrator.views.explainer import Explainer, RunExplanation
    from orchestrator.views.overlay import Overlay
    from orchestrator.views.timeline import Timeline
    from orchestrator.views.transcript import Entry
    from orchestrator.views.worker_info import Standby

T = TypeVar("T")


class Drawings(Protocol):
    """Draws runs; implemented by `render`."""

    def to_svg(self, graph: GraphDefinition, run: Run, /) -> str: ...
    def to_mermaid(self, graph: GraphDefinition, run: Run, /) -> str: ...
    def to_text(self, graph: GraphDefinition, run: Run, /) -> str: ...
    def to_html(self, graph: GraphDefinition, run: Run, other: Run | None, /, *, notes: bool) -> str: ...
    def framed(self, run: Run, other: Run | None, height: int | None, /) -> Page: ...


class Page(Protocol):
    """A page of a run that notebooks show."""

    def to_html(self) -> str: ...
    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]: ...


class ForkInfo(Protocol):
    """A run in the list of a run's forks."""

    @property
    def run_id(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def created(self) -> float: ...
    @property
    def parent(self) -> Parent | None: ...


class ForkPage(Protocol):
    """A part of a list of runs."""

    @property
    def runs(self) -> Sequence[ForkInfo]: ...
    @property
    def cursor(self) -> str | None: ...


class RecordSource(Protocol):
    """Reads records and rows of runs, as a store does."""

    def read_now(self, run_id: str, *, upto: int | None = None) -> Sequence[Record]: ...
    def notes_now(self, run_id: str) -> Sequence[Note]: ...
    async def runs(self, query: RunQuery, /) -> ForkPage: ...


def _drawings() -> Drawings:
    found: Drawings = above("drawings")
    return found


class Run(Generic[StateT]):
    """A run at one point in time. It does not change afterwards.

    `Run[State]` declares the class of its `state`. The run of a `Graph[State]` is a `Run[State]`. For a run that was
    loaded by its id, an annotation can declare the class: `run: Run[Essay] = await executor.load(run_id)`.

    Attributes:
        run_id: its id.
        graph: its graph's name; `definition` is the graph itself, without code if the executor does not have it.
        status: `running`, `paused`, `interrupted`, `completed`, `failed`, `cancelled` or `exhausted`.
        seq: number of the last record that it includes.
        labels: its labels.
        queued: whether it is `running` and waits for an executor: it was enqueued, or an answer or event let it
            continue while no process drove it.
        standby: when it continues, and why its last drive stopped, if no process drives it and the store has the
            reason.
        archived: the place of its records if they were moved to an archive; else None.
    """

    REDACTED: ClassVar = ("output", "error", "labels", "standby")
    """Fields of `to_json` that people, models and tools wrote: views redact the secrets in them.

    Open questions are not included, because calls to approve are shown unchanged.
    """

    def __init__(
        self,
        machine: RunState,
        definition: GraphDefinition[StateT],
        store: RecordSource,
        *,
        interrupted: bool = False,
        queued: bool = False,
        standby: Standby | None = None,
        archived: Archived | None = None,
    ) -> None:
        self.machine, self.definition = machine, definition
        self._store = store
        self.run_id: str = machine.run_id
        self.graph: str = definition.name
        self.status: str = "interrupted" if interrupted and machine.status == "running" else machine.status
        self.queued = queued and self.status == "running"
        self.standby, self.archived = standby, archived
        self.seq: int = machine.head
        self.labels: Mapping[str, str] = dict(machine.labels)

    @property
    def plan(self) -> Plan:
        """The plan to fold its records with: that of its first graph, and those of the graphs that it migrated to."""
        return self.machine.from_start

    @cached_property
    def values(self) -> dict[str, Any]:
        """The state as plain JSON; during a fork, that of the outermost fork with the merges of its joins."""
        return dict(state_values(self.machine))

    @property
    def state(self) -> StateT:
        """The state as an instance of the state class; without the class, an object with the same attributes."""
        schema = self.machine.plan.schema
        view: StateT = schema.view(schema.decode(self.values))
        return view

    @cached_property
    def branches(self) -> Sequence[Branch]:
        """Path, node, phase and values of every live token."""
        return branches(self.machine)

    @cached_property
    def output(self) -> Any:
        """The graph's output as plain JSON; None before the end, and if the run failed or was cancelled."""
        return None if self.machine.ended is None else json_copy(self.machine.ended.output)

    def output_as(self, type: type[T]) -> T:  # noqa: A002  a public name
        """Return the output as a value of a type: `run.output_as(list[str])`.

        Args:
            type: a class that pydantic can validate, also with parameters.

        Returns:
            The validated output.

        Raises:
            InvalidValue: the output does not match the type.
            RunFailed: the run has no output, because it is neither completed nor exhausted.
        """
        if self.status != "exhausted":
            self.raise_for_status()
        try:
            return TypeAdapter(type).validate_json(to_json(self.output), strict=False, by_alias=True, by_name=True)
        except ValidationError as error:
            raise InvalidValue(f"the output of run {self.run_id!r}: {explain(error)}", where="output") from None

    @cached_property
    def waiting(self) -> tuple[AnyQuestion, ...]:
        """Its open questions, in the order of the places of the steps that ask, regardless of their age."""
        # Copies, since the originals belong to the machine. The executor gave each question the payload of its kind.
        return cast("tuple[AnyQuestion, ...]", tuple(map(isolated, open_questions(self.machine))))

    @property
    def usage(self) -> Usage:
        """Usage of the run: steps, calls, tokens, cost, seconds; for a fork without `inherited`."""
        return self.machine.own_usage

    @property
    def saved(self) -> Usage:
        """For a replay, usage that it took from the replayed run and did not spend. It counts against the limits."""
        return self.machine.saved

    @property
    def diverged(self) -> bool:
        """True if it is a replay that made a request that the replayed run did not make."""
        return self.machine.diverged

    @property
    def ended_diverged(self) -> bool:
        """True if it is a replay that ended there by itself: its status is `cancelled`, but nobody cancelled it."""
        return self.status == "cancelled" and bool(self.machine.diverged_because)

    @property
    def inherited(self) -> Usage:
        """For a fork, the usage of its parent up to the fork. It counts against the limits of the fork."""
        return self.machine.inherited

    @property
    def steps(self) -> int:
        """Number of ended steps; for a fork only its own."""
        return self.usage.steps

    @property
    def seconds(self) -> float:
        """Seconds alive, without pauses and gaps after a crash; for a fork only its own."""
        return self.usage.seconds

    @property
    def root_id(self) -> str:
        """The id of the run at the root of its forks, from which the ids of activations are derived; else its own."""
        return self.machine.root_id

    @property
    def parent(self) -> Parent | None:
        """The run that it was forked from, and that run's last record that it contains; None if it is not a fork."""
        fork = self.machine.fork
        return None if fork is None else Parent(fork.parent, fork.at, fork.relation)

    def forks(self) -> list[ForkInfo]:
        """List the forks of the run, without replays, the newest first. Reads the store and blocks."""
        with ThreadPoolExecutor(1) as threads:  # a separate event loop, also if one is running
            return threads.submit(anyio.run, self._forks).result()

    async def _forks(self) -> list[ForkInfo]:
        found: list[ForkInfo] = []
        cursor: str | None = None
        while True:
            page = await self._store.runs(RunQuery(parent=self.run_id, relation="fork", after=cursor))
            found += page.runs
            cursor = page.cursor
            if cursor is None:
                return found

    @property
    def error(self) -> Failure | None:
        """The failure of the run; for an interrupted run the error of a model's server, if any."""
        machine = self.machine
        if machine.ended is not None:
            return machine.ended.error
        if self.status != "interrupted":
            return None
        tried = (entry.failed_try for entry in machine.ledger.entries())
        return next((failed.error for failed in tried if failed is not None and not failed.tries), None)

    def raise_for_status(self) -> Self:
        """Return the run if it completed.

        Raises:
            RunFailed: the run failed (the error has the traceback of the node), is exhausted, cancelled,
                interrupted or still running, or is paused (the error names its questions).
        """
        if self.status == "completed":
            return self
        error, why = self.error, ""
        if error is not None:
            place = f"{error.path}/{error.node}" if error.path and error.node else error.node
            why = f"{error}{f' (at {place})' if place else ''}"
        elif self.status == "paused":
            asked = [f"{one.kind} {one.id}{f': {one.prompt}' if one.prompt else ''}" for one in self.waiting]
            why = f"it waits for {'; '.join(asked)}" if asked else "it waits"
        kind, trace = ("", "") if error is None else (error.type, redact(error.traceback))
        raise RunFailed(self.run_id, self.status, why, type=kind, traceback=trace)

    @property
    def refs(self) -> Mapping[str, object]:
        """The references to its code, as text: those it was started with, or the latest ones."""
        return dict(self.machine.refs)

    def to_json(self) -> dict[str, Any]:
        """Return the result document as plain JSON. Views redact the fields in `REDACTED`."""
        return {
            "run_id": self.run_id,
            "graph": self.graph,
            "status": self.status,
            "output": self.output,
            "waiting": [question.model_dump(mode="json") for question in self.waiting],
            "steps": self.steps,
            "usage": self.usage.model_dump(mode="json", exclude=None if self.usage.estimated else {"estimated"}),
            "seconds": self.seconds,
            "error": None if self.error is None else self.error.model_dump(mode="json"),
            "seq": self.seq,
            "labels": shown_labels(self.labels),
            "parent": None if self.parent is None else asdict(self.parent),
            "diverged": self.diverged,
            "inherited": None if self.parent is None else self.inherited.model_dump(mode="json"),
            "queued": self.queued,
            "standby": None if self.standby is None else asdict(self.standby),
            "archived": None if self.archived is None else self.archived.to_json(),
        }

    def __repr__(self) -> str:
        return f"Run({self.run_id!r}, graph={self.graph!r}, status={self.status!r}, seq={self.seq})"

    # -- drawing -------------------------------------------------------------------------------------------------

    def overlay(self) -> Overlay:
        """Return the marks of the run for a drawing of its graph. The first call reads the store and blocks."""
        return self._overlay

    @cached_property
    def _overlay(self) -> Overlay:
        from orchestrator.views.overlay import machine_overlay
        from orchestrator.views.trace import overlay_of

        try:
            records = self.records()
        except (StoreError, RunUnknown):  # its store was deleted, but the loaded state can be shown
            return machine_overlay(self.machine, self.status, self.error)
        return overlay_of(self.plan, records, self.status)

    def records(self) -> Sequence[Record]:
        """Return the journal up to record `seq`. Reads the store and blocks."""
        return self._store.read_now(self.run_id, upto=self.seq)

    def notes(self) -> Sequence[Note]:
        """Return what people wrote about the run and its steps. Reads the store and blocks."""
        return self._store.notes_now(self.run_id)

    def at(self, seq: int) -> Run[StateT]:
        """Return the run in its state after record `seq`. Reads the store and blocks.

        Args:
            seq: the number of a record of the run.

        Returns:
            A view of the earlier state.
        """
        records = self._store.read_now(self.run_id, upto=seq)
        machine = read(self.plan, records)
        graph = machine.plan.graph if machine.lineage != self.machine.lineage else None
        return Run(machine, cast("GraphDefinition[StateT]", graph or self.definition), self._store)

    def why(self, seq: int | None = None) -> RunExplanation:
        """Explain the state of the run, or why the step that record `seq` ended ran and which edges it took.

        Reads the store and blocks.

        Args:
            seq: the number of the record that ended the step, or at which it ran; None: the run itself.

        Returns:
            The explanation; `orchestrator why` prints its text form.

        Raises:
            ValueError: the run has no record `seq`.
        """
        return explainer_of(self).explain(seq)

    def transcript(self) -> list[Entry]:
        """Return what models were told and replied, tools that were called, and what people decided, in order.

        Reads the store and blocks.

        Returns:
            The entries; `Entry.to_json()` is plain JSON.
        """
        from orchestrator.views.transcript import transcript

        return transcript(self.plan, self.records())

    def to_svg(self, at: int | None = None) -> str:
        """Draw the run over its graph, as SVG.

        Args:
            at: the number of the last record to show; None: the whole run.

        Returns:
            An SVG document.
        """
        shown = self if at is None else self.at(at)
        return _drawings().to_svg(shown.definition, shown)

    def to_mermaid(self, at: int | None = None) -> str:
        """Draw the run over its graph, as Mermaid text.

        Args:
            at: the number of the last record to show; None: the whole run.

        Returns:
            The text of a Mermaid diagram.
        """
        shown = self if at is None else self.at(at)
        return _drawings().to_mermaid(shown.definition, shown)

    def to_html(self, other: Run | None = None, *, notes: bool = True) -> str:
        """Make a self-contained page of the run with its replay, steps, states, prompts and calls.

        Args:
            other: a second run to show next to it.
            notes: whether it has the notes that people wrote about the run.

        Returns:
            An HTML document.
        """
        return _drawings().to_html(self.definition, self, other, notes=notes)

    def page(self, other: Run | None = None, *, height: int | None = None) -> Page:
        """Show the page of `to_html` in a notebook, as the last value of a cell. Reads the store and blocks.

        A saved notebook keeps the page, which takes 130 KB and more.

        Args:
            other: a second run to show next to it.
            height: of the frame, in pixels. Default: 720.

        Returns:
            An object that notebooks show.

        Raises:
            ValueError: `height` is not a positive number.
        """
        return _drawings().framed(self, other, height)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the drawing as SVG and text for notebooks.

        JupyterLab would draw Mermaid text rather than show an SVG.
        """
        return {"image/svg+xml": self.to_svg(), "text/plain": _drawings().to_text(self.definition, self)}


def explainer_of(run: Run[Any], rows: Timeline | None = None) -> Explainer:
    """Make the explainer of a run.

    Args:
        run: the run.
        rows: its timeline; None: made from the run's records, which are read from its store; blocks meanwhile.
    """
    from orchestrator.views.explainer import Explainer  # driving a run does not need it
    from orchestrator.views.timeline import timeline

    found = timeline(run.plan, run.records()) if rows is None else rows
    return Explainer(found, status=run.status, queued=run.queued, standby=run.standby)
