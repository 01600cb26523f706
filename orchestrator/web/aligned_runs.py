"""Two to six runs side by side: rows of steps, the texts of one row, and a stream that says when they change."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import anyio

from orchestrator.tasks import away
from orchestrator.views.alignment import AlignedRow, Alignment
from orchestrator.views.diff import fields_diff, flat
from orchestrator.views.run_diff import Difference
from orchestrator.web.alignments import version_of
from orchestrator.web.comparison_documents import (
    AlignedEvent,
    AlignedQuery,
    AlignedRuns,
    ComparedFigures,
    ComparedRow,
    ComparedStep,
    DifferenceNote,
    RowTexts,
    StateLines,
    TextsQuery,
)
from orchestrator.web.documents import blank, first_line
from orchestrator.web.endpoint import Call
from orchestrator.web.problems import HttpProblem, fields_problem
from orchestrator.web.streams import MEDIA

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from orchestrator.kernel.status import RunStatus
    from orchestrator.stores.base import RunInfo
    from orchestrator.views.alignment import RowKind
    from orchestrator.views.diff import Place
    from orchestrator.views.run import Run

FEWEST, MOST = 2, 6


async def listing(call: Call[AlignedQuery]) -> AlignedRuns | ASGIApp:
    """The rows; or, if the client wants a stream, when the runs have changed."""
    if MEDIA in call.request.headers.get("accept", ""):
        infos = await _seen(call, call.query.runs)
        return call.stream(_changes(call, infos), [info.run_id for info in infos])
    return await rows_of(call, call.query)


async def rows_of(call: Call[Any], query: AlignedQuery) -> AlignedRuns:
    """Rows of the runs, whatever media type the client accepts."""
    infos = await _seen(call, query.runs)
    found = await call.service.alignments.of(call.executor, infos)
    rows = [row for row in found.rows if row.differs] if query.different else found.rows
    part = rows[query.after : query.after + query.limit]
    first, behind = found.first, query.after + len(part)
    return await away(
        lambda: AlignedRuns(
            runs=[_figures(run, info) for run, info in zip(found.runs, infos, strict=True)],
            rows=[_row(row) for row in part], total=len(found.rows), differing=found.differing,
            first=None if first is None else _row(first), cursor=behind if behind < len(rows) else None,
        )
    )  # fmt: skip


async def texts(call: Call[TextsQuery]) -> RowTexts:
    """The texts of one row."""
    return await texts_of(call, call.query.runs, call.query.step)


async def texts_of(call: Call[Any], runs: Sequence[str], key: str) -> RowTexts:
    """The texts of the row with this key.

    Raises:
        HttpProblem: there is none.
    """
    found = await call.service.alignments.of(call.executor, await _seen(call, runs))
    row = found.row(*_place(key))
    if row is None:
        raise HttpProblem(404, "step-unknown", f"none of these runs has a step {key!r}")
    states = await _states(call, found, row)
    return await away(lambda: RowTexts(row=_row(row, found.texts(row)), states=states))


def names_of(given: Sequence[str]) -> list[str]:
    """The ids that a query names.

    Raises:
        HttpProblem: they are too few, too many, or one stands there twice.
    """
    names = [name for name in (given[0].split(",") if len(given) == 1 else given) if name]
    if not FEWEST <= len(names) <= MOST:
        raise fields_problem(
            [{"field": "runs", "message": f"name {FEWEST} to {MOST} runs, and not {len(names)}"}], "query"
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        message = f"run {twice!r} stands there twice: a run is compared with others"
        raise fields_problem([{"field": "runs", "message": message}], "query")
    return names


def key_of(kind: RowKind, place: Place) -> str:
    """The key of a row."""
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
    yield _text(AlignedEvent(type="ready"))
    while True:
        await anyio.sleep(max(call.settings.poll, call.service.alignments.rest(ids)))
        now = version_of([await store.info(name) for name in ids])
        if now != known:
            known = now
            yield _text(AlignedEvent(type="changed"))


def _text(event: AlignedEvent) -> str:
    return f"data: {json.dumps(event.model_dump(mode='json'))}\n\n"


def _figures(run: Run, info: RunInfo) -> ComparedFigures:
    usage, graph = run.machine.usage, run.definition
    return ComparedFigures(
        run_id=run.run_id, graph=graph.name, content=graph.content, status=cast("RunStatus", run.status),
        input=first_line(info.input), output=first_line(info.output or info.error or info.question),
        steps=usage.steps, calls=usage.calls, tokens=usage.tokens, cost=usage.cost, seconds=usage.seconds,
    )  # fmt: skip


def _row(row: AlignedRow, differences: Sequence[Sequence[Difference]] | None = None) -> ComparedRow:
    path, node, visit = row.place
    steps = [
        None if one is None else ComparedStep(
            number=one.number, seq=one.seq, status=one.status, outcome=one.outcome, tokens=one.tokens, cost=one.cost,
            seconds=one.seconds,
        )
        for one in row.steps
    ]  # fmt: skip
    shown = row.differences if differences is None else differences
    return ComparedRow(
        key=key_of(row.kind, row.place), number=row.number, kind=row.kind, path=path, node=node, visit=visit,
        name=row.name, steps=steps, differences=[[_note(one) for one in found] for found in shown],
    )  # fmt: skip


def _note(one: Difference) -> DifferenceNote:
    return DifferenceNote(kind=one.kind, what=blank(one.what), seqs=[*one.seqs], lines=blank([*one.lines]))


async def _states(call: Call[Any], found: Alignment, row: AlignedRow) -> list[StateLines]:
    """How the states after a step, or at the end, differ from that of the first run."""
    if row.kind == "start":  # its differences say it
        return []
    moments = [(run, None) for run in found.runs] if row.kind == "end" else [
        (run, step.seq or run.seq) for run, step in zip(found.runs, row.steps, strict=True) if step is not None
    ]  # fmt: skip
    if len(moments) < 2 or moments[0][0] is not found.runs[0]:
        return []
    loaded = [run if at is None else await call.executor.load(run.run_id, at=at) for run, at in moments]

    def made() -> list[StateLines]:
        first, *others = [(run.run_id, _values(run, row.place[0])) for run in loaded]
        lines = [(run_id, flat(fields_diff(first[1], values))) for run_id, values in others]
        return [StateLines(run_id=run_id, same=not said, lines=blank([*said])) for run_id, said in lines]

    return await away(made)


def _values(run: Run, path: str) -> dict[str, Any]:
    """The state that the steps of a branch see."""
    return next((dict(one.values) for one in run.branches if path and one.path == path), run.values)
