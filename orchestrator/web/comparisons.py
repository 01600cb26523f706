"""Two to six runs compared: differences, rows of steps side by side, the texts of one row, and a stream of changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import anyio
from pydantic import Field, StringConstraints

from orchestrator.kernel.status import RunStatus
from orchestrator.tasks import away
from orchestrator.views.diff import Place, fields_diff, flat
from orchestrator.views.run import Run
from orchestrator.views.run_diff import Difference, DifferenceKind
from orchestrator.views.timeline import TimelineRowStatus
from orchestrator.web import documents, problems, requests, streams
from orchestrator.web.alignments import AlignedRow, Alignment, RowKind, version_of
from orchestrator.web.endpoint import Call

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from orchestrator.kernel.status import RunStatus
    from orchestrator.stores.base import RunInfo
    from orchestrator.views.diff import Place
    from orchestrator.views.run import Run


RunsToCompare = Annotated[
    list[Annotated[str, StringConstraints(max_length=2000)]],
    Field(
        min_length=1,
        description="Two to six ids, with commas between them or each in a parameter of its own; all are compared with "
        "the first.",
    ),
]
STEP = Annotated[str, StringConstraints(pattern=r"^(start|end|[0-9]{1,15}:.+)$", max_length=2000)]
"""A row as text, see `ComparedRow.key`."""


class AlignedQuery(requests.Query):
    """The runs to put side by side, and the rows to return."""

    runs: RunsToCompare
    after: int = Field(0, ge=0, le=2**53, description="Number of rows to skip.")
    limit: int = Field(100, ge=1, le=500, description="Maximum number of rows in an answer.")
    different: bool = Field(False, description="Only rows in which a run differs from the first.")


class TextsQuery(requests.Query):
    """A row of the runs that are put side by side."""

    runs: RunsToCompare
    step: STEP = Field(description="The `key` of a row.")


class ComparedFigures(documents.Document):
    """A compared run in figures, with what a fork inherited and a replay did not spend."""

    run_id: str
    graph: str
    content: Annotated[str, Field(description="The digest of its graph.")]
    status: RunStatus
    input: Annotated[str, Field(description="The first line of the input.")]
    output: Annotated[str, Field(description="The first line of the output.")]
    steps: int
    calls: int
    tokens: int
    cost: float
    seconds: float


class ComparedStep(documents.Document):
    """A step of one of the runs."""

    number: Annotated[int, Field(description="From 1, in the order in which the run's steps began.")]
    seq: Annotated[int | None, Field(description="The record that ended it; null: it has not ended.")]
    status: TimelineRowStatus
    outcome: str
    tokens: int
    cost: float
    seconds: Annotated[float, Field(description="Without waits.")]


class DifferenceNote(documents.Document):
    """A difference from the first run."""

    kind: DifferenceKind
    what: str
    seqs: Annotated[list[int | None], Field(description="The records of both runs that show it.")]
    lines: Annotated[list[str], Field(description="Both texts as a diff; empty where many rows are listed.")]


class ComparedRow(documents.Document):
    """A step of all runs; or their inputs, or their ends."""

    key: Annotated[str, Field(description="`start`, `end`, or a step as `VISIT:BRANCH/NODE`.")]
    number: int
    kind: RowKind
    path: str
    node: str
    visit: int
    name: str
    steps: Annotated[list[ComparedStep | None], Field(description="One for each run; empty for a start and an end.")]
    differences: Annotated[list[list[DifferenceNote]], Field(description="One list for each run but the first.")]


class AlignedRuns(documents.Document):
    """Runs side by side."""

    runs: list[ComparedFigures]
    rows: list[ComparedRow]
    total: Annotated[int, Field(description="Number of rows.")]
    differing: Annotated[int, Field(description="Number of rows that differ.")]
    first: Annotated[ComparedRow | None, Field(description="The first row that differs.")]
    cursor: Annotated[int | None, Field(description="`after` of the next part; null: this is the last.")]


class StateLines(documents.Document):
    """Differences of a run's state after a step from that of the first run."""

    run_id: str
    same: bool
    lines: Annotated[list[str], Field(description="Fields with both values as a diff.")]


class RowTexts(documents.Document):
    """A row with the lines of its differences."""

    row: ComparedRow
    states: Annotated[list[StateLines], Field(description="Of the runs except the first, those that reached the step.")]


class AlignedEvent(documents.Document):
    """The data of an event about compared runs: `ready` at the start of the stream, then `changed` whenever a run
    changes.
    """

    type: Literal["ready", "changed"]


_MOST = 6


async def diff(call: Call[requests.DiffQuery]) -> documents.DiffDocument:
    """Compare runs with the first of them."""
    names = [name for name in call.query.runs.split(",") if name]
    if not 2 <= len(names) <= _MOST:
        raise problems.fields_problem(
            [{"field": "runs", "message": f"name 2 to {_MOST} runs, with commas between them"}], "query"
        )
    for name in names:
        await call.seen(name)
    found = [await call.executor.diff(names[0], name) for name in names[1:]]
    figures = [found[0].figures[0], *(one.figures[1] for one in found)]
    return await away(
        lambda: documents.DiffDocument(
            runs=[documents.blank(one.to_json()) for one in figures],
            diffs=[documents.blank(one.to_json()) for one in found],
        )
    )


FEWEST, MOST = 2, 6


async def listing(call: Call[AlignedQuery]) -> AlignedRuns | ASGIApp:
    """Return the rows of runs side by side; or, if the client accepts a stream, an event whenever a run changes."""
    if streams.MEDIA in call.request.headers.get("accept", ""):
        infos = await _seen(call, call.query.runs)
        return call.stream(_changes(call, infos), [info.run_id for info in infos])
    return await rows_of(call, call.query)


async def rows_of(call: Call[Any], query: AlignedQuery) -> AlignedRuns:
    """Return the rows of runs side by side, whatever media type the client accepts."""
    infos = await _seen(call, query.runs)
    found = await call.service.alignments.of(call.executor, infos)
    rows = [row for row in found.rows if row.differs] if query.different else found.rows
    part = rows[query.after : query.after + query.limit]
    first, behind = found.first, query.after + len(part)
    return await away(
        lambda: AlignedRuns(
            runs=[_figures(run, info) for run, info in zip(found.runs, infos, strict=True)],
            rows=[_row(row) for row in part],
            total=len(found.rows),
            differing=found.differing,
            first=None if first is None else _row(first),
            cursor=behind if behind < len(rows) else None,
        )
    )


async def texts(call: Call[TextsQuery]) -> RowTexts:
    """Return the texts of one row."""
    return await texts_of(call, call.query.runs, call.query.step)


async def texts_of(call: Call[Any], runs: Sequence[str], key: str) -> RowTexts:
    """Return the texts of the row with this key.

    Raises:
        HttpProblem: there is no such row.
    """
    found = await call.service.alignments.of(call.executor, await _seen(call, runs))
    row = found.row(*_place(key))
    if row is None:
        raise problems.HttpProblem(404, "step-unknown", f"none of these runs has a step {key!r}")
    states = await _states(call, found, row)
    return await away(lambda: RowTexts(row=_row(row, found.texts(row)), states=states))


def names_of(given: Sequence[str]) -> list[str]:
    """Return the ids in a query.

    Raises:
        HttpProblem: there are too few, too many, or one occurs twice.
    """
    names = listed(given)
    if not FEWEST <= len(names) <= MOST:
        raise problems.fields_problem(
            [{"field": "runs", "message": f"name {FEWEST} to {MOST} runs, and not {len(names)}"}], "query"
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        message = f"run {twice!r} is listed twice: name each run once"
        raise problems.fields_problem([{"field": "runs", "message": message}], "query")
    return names


def listed(given: Sequence[str]) -> list[str]:
    """Return the ids in a query: one parameter with commas, or a parameter for each."""
    return [name for name in (given[0].split(",") if len(given) == 1 else given) if name]


def row_key(kind: RowKind, place: Place) -> str:
    """Return the key of a row."""
    path, node, visit = place
    return f"{visit}:{path}/{node}" if kind == "step" else kind


def _place(key: str) -> tuple[RowKind, Place]:
    if key in ("start", "end"):
        return cast("RowKind", key), ("", "", 0)
    visit, _, place = key.partition(":")
    path, _, node = place.rpartition("/")
    return "step", (path, node, int(visit))


async def _seen(call: Call[Any], given: Sequence[str]) -> list[RunInfo]:
    return [await call.seen(name) for name in names_of(given)]


async def _changes(call: Call[AlignedQuery], infos: Sequence[RunInfo]) -> AsyncIterator[str]:
    store, ids = call.executor.store, [info.run_id for info in infos]
    known = version_of(infos)
    yield streams.event_text(AlignedEvent(type="ready"))
    while True:
        await anyio.sleep(max(call.settings.poll, call.service.alignments.rest(ids)))
        now = version_of([await store.info(name) for name in ids])
        if now != known:
            known = now
            yield streams.event_text(AlignedEvent(type="changed"))


def _figures(run: Run, info: RunInfo) -> ComparedFigures:
    usage, graph = run.machine.usage, run.definition
    return ComparedFigures(
        run_id=run.run_id,
        graph=graph.name,
        content=graph.content,
        status=cast("RunStatus", run.status),
        input=documents.first_line(info.input),
        output=documents.first_line(info.output or info.error or info.question),
        steps=usage.steps,
        calls=usage.calls,
        tokens=usage.tokens,
        cost=usage.cost,
        seconds=usage.seconds,
    )


def _row(row: AlignedRow, differences: Sequence[Sequence[Difference]] | None = None) -> ComparedRow:
    path, node, visit = row.place
    steps = [
        None
        if one is None
        else ComparedStep(
            number=one.number,
            seq=one.seq,
            status=one.status,
            outcome=one.outcome,
            tokens=one.tokens,
            cost=one.cost,
            seconds=one.seconds,
        )
        for one in row.steps
    ]
    shown = row.differences if differences is None else differences
    return ComparedRow(
        key=row_key(row.kind, row.place),
        number=row.number,
        kind=row.kind,
        path=path,
        node=node,
        visit=visit,
        name=row.name,
        steps=steps,
        differences=[[_note(one) for one in found] for found in shown],
    )


def _note(one: Difference) -> DifferenceNote:
    return DifferenceNote(
        kind=one.kind, what=documents.blank(one.what), seqs=[*one.seqs], lines=documents.blank([*one.lines])
    )


async def _states(call: Call[Any], found: Alignment, row: AlignedRow) -> list[StateLines]:
    """Compare the states after a step, or at the end, with that of the first run."""
    if row.kind == "start":  # its differences contain it
        return []
    moments = (
        [(run, None) for run in found.runs]
        if row.kind == "end"
        else [(run, step.seq or run.seq) for run, step in zip(found.runs, row.steps, strict=True) if step is not None]
    )
    if len(moments) < 2 or moments[0][0] is not found.runs[0]:
        return []
    loaded = [run if at is None else await call.executor.load(run.run_id, at=at) for run, at in moments]

    def made() -> list[StateLines]:
        first, *others = [(run.run_id, _values(run, row.place[0])) for run in loaded]
        lines = [(run_id, flat(fields_diff(first[1], values))) for run_id, values in others]
        return [StateLines(run_id=run_id, same=not said, lines=documents.blank([*said])) for run_id, said in lines]

    return await away(made)


def _values(run: Run, path: str) -> dict[str, Any]:
    """Return the values of the state that the steps of a branch read."""
    return next((dict(one.values) for one in run.branches if path and one.path == path), run.values)
