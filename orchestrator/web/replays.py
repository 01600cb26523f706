"""Replays of many runs: started at once, replayed a few at a time in the background, and listed with their results.

The screen has the form that starts them, and the table of results.

The ids of the replays follow from the name of the batch and the ids of the runs, so nothing but the runs is stored.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias
from urllib.parse import urlencode

import anyio
from pydantic import Field, StringConstraints
from starlette.responses import Response

from orchestrator.errors import OrchestratorError, RunUnknown
from orchestrator.executor.run_status import with_status
from orchestrator.kernel.status import RunStatus
from orchestrator.redaction import redact
from orchestrator.tasks import away
from orchestrator.views.replay_result import Replay, answer_of, replay_of
from orchestrator.views.run_diff import short
from orchestrator.web import documents, problems, requests, streams
from orchestrator.web.comparisons import row_key
from orchestrator.web.endpoint import Call, Endpoint
from orchestrator.web.questions import open_questions
from orchestrator.web.screens.choose import choose
from orchestrator.web.screens.compare import runs_query
from orchestrator.web.screens.shell import key_of, page, root_of
from orchestrator.web.settings import Risk

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from orchestrator.executor import Run
    from orchestrator.executor.replay.start_replay import ReplayProgress
    from orchestrator.stores.base import RunInfo
    from orchestrator.views.replay_result import Replay


MOST = 100
"""Maximum number of runs in a batch."""
BatchName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9]{1,40}$"),
    Field(description="What the ids of the replays begin with: 1 to 40 letters and digits."),
]
RunsToReplay = Annotated[
    list[Annotated[str, StringConstraints(max_length=2000)]],  # servers cut off longer URLs
    Field(
        min_length=1,
        description=f"Up to {MOST} ids, with commas between them or each in a parameter of its own.",
    ),
]
Outcome: TypeAlias = Literal[
    "absent", "waiting", "running", "same", "different", "asks", "failed", "stopped", "interrupted"
]
"""Outcome of the replay of one run.

absent        it was not started, or is deleted
waiting       it starts when others have ended
running       it runs
same          it made the same calls and ended the same way
different     it made other calls, or ended differently
asks          it waits for an answer of a person
failed        the run cannot be replayed
stopped       the batch was stopped first
interrupted   no process drives it
"""


class ReplaysBody(requests.Body):
    """Runs to replay, and how."""

    runs: Annotated[list[requests.Name], Field(min_length=1, max_length=MOST, description="The ids of the runs.")]
    batch: BatchName | None = Field(
        None, description="Your own name: the same name and replays mean the same runs. Default: a new one."
    )
    at: Annotated[int, Field(ge=0, le=2**53)] | None = Field(
        None, description="The record to replay from; 0: the start."
    )
    graph: requests.Name | None = Field(None, description="Another graph of this server.")
    approve: Risk | None = None
    live: Literal["never", "ask", "always"] = Field("never", description="What to do where a replay is live.")


class StopReplaysBody(requests.Body):
    """A batch to stop."""

    batch: BatchName


class ReplaysQuery(requests.Query):
    """The replays of some runs."""

    runs: RunsToReplay
    batch: BatchName


class ReplayRow(documents.Document):
    """The replay of one run."""

    run_id: str
    replay_id: str
    input: Annotated[str, Field(description="The first line of the input of the run.")]
    graph: Annotated[str, Field(description="The graph of the replay.")]
    outcome: Outcome
    status: Annotated[
        RunStatus | Literal["diverged", ""], Field(description="The status of the replay; empty: there is no replay.")
    ]
    error: Annotated[str, Field(description="Why the run cannot be replayed.")]
    first: Annotated[str, Field(description="The first difference.")]
    step: Annotated[str, Field(description="The `key` of its row in a comparison.")]
    before: Annotated[str, Field(description="The first line of what the run answered.")]
    after: Annotated[str, Field(description="The first line of what the replay answered.")]
    made: Annotated[int, Field(description="Number of calls that were made.")]
    saved_calls: int
    saved_cost: float
    cost: Annotated[float, Field(description="What the replay spent.")]


class ReplaysDocument(documents.Document):
    """Replays of many runs."""

    batch: str
    going: Annotated[bool, Field(description="Whether this server is working on it.")]
    done: Annotated[int, Field(description="Number of replays that have ended.")]
    same: int
    different: int
    replays: list[ReplayRow]


class ReplaysEvent(documents.Document):
    """The data of an event about replays: `ready` at the start of the stream, then `changed` at each change."""

    type: Literal["ready", "changed"]


_AT_ONCE = 2
"""Replays of a batch that run at the same time."""
_ANSWER = 200
"""Characters of an answer in a row."""


async def start(call: Call[requests.NoQuery, ReplaysBody]) -> ReplaysDocument:
    """Start to replay runs. Those that cannot be replayed are listed with the reason; the others start."""
    body, batches = call.body, call.service.replays
    runs = _once(body.runs)
    graph = None if body.graph is None else await call.graph(body.graph)
    name = os.urandom(6).hex() if body.batch is None else body.batch
    approve = call.risk(body.approve)
    order: dict[str, str] = {}
    for run_id in runs:
        info = await _seen(call, run_id)
        if info is None:
            continue  # its row has the reason
        labels = (await call.labelled(info)).labels
        await call.check_new(None, info.graph if graph is None else graph.name, labels)
        order[run_id] = id_of(name, run_id)
    batches.check()
    if order:
        begin = call.executor.replays.submit
        batches.add(name, begin(order, graph, at=body.at, approve=approve, live=body.live, concurrency=_AT_ONCE))
    return await _document(call, name, runs)


async def stop(call: Call[requests.NoQuery, StopReplaysBody]) -> ReplaysDocument:
    """Stop a batch: no further replay starts, and those that run are interrupted."""
    name = call.body.batch
    runs = [one.run_id for one in call.service.replays.runs(name).values()]
    there = [info for run_id in runs if (info := await _info(call, run_id)) is not None]
    if not runs or not all([await call.may_see(info) for info in there]):
        raise problems.HttpProblem(404, "batch-unknown", f"this server has no batch in progress with the name {name!r}")
    call.service.replays.stop(name)
    return await _document(call, name, runs)


async def listing(call: Call[ReplaysQuery]) -> ReplaysDocument | ASGIApp:
    """Return the results of the replays; or, if the client accepts a stream, an event whenever they change."""
    runs = names_of(call.query.runs)
    if streams.MEDIA in call.request.headers.get("accept", ""):
        seen = [run_id for run_id in runs if await _seen(call, run_id) is not None]
        return call.stream(_changes(call, seen), seen)
    return await list_of(call, runs, call.query.batch)


async def list_of(call: Call[Any], runs: Sequence[str], name: str) -> ReplaysDocument:
    """Return the results of the replays, whatever media type the client accepts."""
    return await _document(call, name, runs)


def names_of(given: Sequence[str]) -> list[str]:
    """Return the ids in a query.

    Raises:
        HttpProblem: there are too many, or none.
    """
    names = _once([name for name in (given[0].split(",") if len(given) == 1 else given) if name])
    if not 1 <= len(names) <= MOST:
        raise problems.fields_problem(
            [{"field": "runs", "message": f"name 1 to {MOST} runs, and not {len(names)}"}], "query"
        )
    return names


def id_of(batch: str, run_id: str) -> str:
    """Return the id of the replay of a run."""
    return f"{batch}-{sha256(run_id.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def _once(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))


async def _seen(call: Call[Any, Any], run_id: str) -> RunInfo | None:
    """Return the row of a run; None if there is none, or the principal may not see it."""
    try:
        return await call.seen(run_id)
    except RunUnknown:
        return None


async def _document(call: Call[Any, Any], name: str, runs: Sequence[str]) -> ReplaysDocument:
    going, known = call.service.replays.going(name), call.service.replays.runs(name)
    rows = [await _row(call, run_id, id_of(name, run_id), known) for run_id in runs]
    outcomes = [row.outcome for row in rows]
    return ReplaysDocument(
        batch=name,
        going=going,
        replays=rows,
        done=sum(one not in ("absent", "waiting", "running", "stopped", "interrupted") for one in outcomes),
        same=outcomes.count("same"),
        different=outcomes.count("different"),
    )


async def _row(call: Call[Any, Any], run_id: str, replay_id: str, known: dict[str, ReplayProgress]) -> ReplayRow:
    progress = known.get(replay_id)
    parent = await _seen(call, run_id)
    info = await _info(call, replay_id)
    given = documents.first_line(parent.input) if parent is not None else ""
    error = _error(parent, run_id, progress)
    if parent is not None and info is not None and not error and not await call.may_see(info):
        error = "you may not see this replay here"
    if parent is None or info is None or info.parent is None or info.parent.run_id != run_id or error:
        outcome: Outcome = (
            "failed"
            if error
            else "absent"
            if progress is None or progress.state == "over"
            else (
                progress.state  # one of waiting, running, stopped
            )
        )
        graph = "" if parent is None else parent.graph
        return ReplayRow(
            run_id=run_id,
            replay_id=replay_id,
            input=given,
            graph=graph,
            outcome=outcome,
            status="",
            error=error,
            first="",
            step="",
            before="",
            after="",
            made=0,
            saved_calls=0,
            saved_cost=0.0,
            cost=0.0,
        )
    found = await _result(call, parent, info)
    ends = [(run.machine.ended, run.error) for run in (found.parent, found.run)]
    return await away(partial(_compared, given, found, progress), ends, found.diff.first)


def _compared(given: str, found: Replay, progress: ReplayProgress | None) -> ReplayRow:
    first = found.diff.first
    step = (
        ""
        if first is None
        else row_key("step", (first.path, first.node, first.visit))
        if first.node
        else ("end" if first.kind in ("status", "output", "error") else "start")
    )
    said = str(found.diverged_at) if found.diverged_at is not None and first is None else first.line if first else ""
    ended = found.run.machine.ended is not None and found.status != "diverged"
    return ReplayRow(
        run_id=found.parent.run_id,
        replay_id=found.run.run_id,
        input=given,
        graph=found.run.graph,
        outcome=_outcome(found, progress),
        status=found.status,
        error="",
        first=documents.blank(said),
        step=step,
        before=_answer(found.parent),
        after=_answer(found.run) if ended else "",
        made=found.made,
        saved_calls=found.saved.calls,
        saved_cost=found.saved.cost,
        cost=found.run.usage.cost,
    )


def _outcome(found: Replay, progress: ReplayProgress | None) -> Outcome:
    status = found.run.status
    if status == "running":
        return "running"
    if status == "interrupted":
        if progress is not None and progress.state == "running":
            return "running"  # it is about to start
        return "stopped" if progress is not None and progress.state == "stopped" else "interrupted"
    if status == "paused" and found.run.waiting and not found.same:
        return "asks"
    return "same" if found.same else "different"


def _error(parent: RunInfo | None, run_id: str, progress: ReplayProgress | None) -> str:
    """Return the reason why a run cannot be replayed; empty if none is known."""
    if parent is None:
        return f"there is no run {run_id!r}"
    return "" if progress is None or progress.error is None else redact(str(progress.error))


def _answer(run: Run) -> str:
    return short(answer_of(run), _ANSWER)


async def _info(call: Call[Any, Any], run_id: str) -> RunInfo | None:
    try:
        return with_status(await call.executor.store.info(run_id))
    except OrchestratorError as error:
        if isinstance(error, RunUnknown):
            return None
        raise


async def _result(call: Call[Any, Any], parent: RunInfo, info: RunInfo) -> Replay:
    """Return the current result of a replay."""
    version = [(one.created, one.head, one.status) for one in (parent, info)]
    kept = call.service.replays.results.get(info.run_id)
    if kept is not None and kept[0] == version:
        return kept[1]
    executor, read = call.executor, call.executor.store.read
    before, run = await executor.load(parent.run_id), await executor.load(info.run_id)
    old, new = await read(before.run_id, upto=before.seq), await read(run.run_id, upto=run.seq)
    found = await away(lambda: replay_of(before, old, run, new))
    call.service.replays.keep(info.run_id, version, found)
    return found


async def _changes(call: Call[ReplaysQuery], runs: Sequence[str]) -> AsyncIterator[str]:
    name, batches = call.query.batch, call.service.replays
    watch = streams.StoreWatch(call.executor.store, call.settings)
    known: object = None
    while True:
        infos = [await _info(call, id_of(name, run_id)) for run_id in runs]
        heads = [None if info is None else (info.head, info.status) for info in infos]
        now = {one: progress.state for one, progress in batches.runs(name).items()}, heads
        if known is None:
            yield streams.event_text(ReplaysEvent(type="ready"))
        elif now != known:
            yield streams.event_text(ReplaysEvent(type="changed"))
        known = now
        await anyio.sleep(call.settings.poll)
        if not batches.going(name):
            await watch.wait()


_LIVE = (
    ("never", "end the replay there: nothing is called"),
    ("ask", "ask a person before each call"),
    ("always", "make the calls; a person is asked about those that cannot be undone"),
)
_SAYS = {
    "absent": "not begun",
    "waiting": "waiting",
    "running": "running",
    "same": "same",
    "different": "different",
    "asks": "asks",
    "failed": "cannot be replayed",
    "stopped": "stopped",
    "interrupted": "interrupted",
}


class ReplayQuery(requests.Query):
    """The runs, options of their replays, and the name of the batch once it is started."""

    runs: RunsToReplay = Field(default_factory=list)
    batch: BatchName | None = None
    graph: requests.Name | None = Field(None, description="Another graph of this server.")
    at: int | None = Field(None, ge=0, le=2**53, description="The record to replay from.")
    live: Literal["never", "ask", "always"] = "never"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A run that is to be replayed."""

    id: str
    input: str
    status: str
    graph: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """The replay of one run in the table."""

    key: str
    version: str
    row: ReplayRow
    says: str
    """The outcome in words."""
    compare: str
    """The URL of the comparison of the run with its replay; empty without a replay."""


async def replay(call: Call[ReplayQuery]) -> Response:
    """Show the form that starts replays; or, once they are started, their results."""
    query, root = call.query, root_of(call)
    if not any(query.runs):
        return await choose(call, "Replay runs", "replay", MOST, ())
    runs = names_of(query.runs)
    waiting = await open_questions(call)
    given = _parameters(query)
    data: dict[str, object] = {
        "runs": runs,
        "graphs": sorted(await call.graphs()),
        "graph": query.graph or "",
        "at": query.at,
        "live": query.live,
        "ways": _LIVE,
        "open_questions": waiting,
        "given": {"runs": runs} | given,
        "again": f"{root}/replay?{urlencode([*runs_query(runs), *given.items()])}",
        "many": f"{len(runs)} run{'' if len(runs) == 1 else 's'}",
    }
    if query.batch is None:
        chosen = [await _chosen(call, run_id) for run_id in runs]
        data |= {"title": f"Replay {data['many']}", "chosen": chosen, "batch": ""}
        return await page(call, "replay", data, root=root, version=["replay", given, waiting, repr(chosen)])
    found = await list_of(call, runs, query.batch)
    rows = [_replayed(row, root) for row in found.replays]
    data |= {
        "title": f"Replay of {data['many']}",
        "batch": query.batch,
        "rows": rows,
        "going": found.going,
        "summary": _summary(found),
        "left": sum(row.outcome in _LEFT for row in found.replays),
        "done": found.done,
        "total": len(rows),
        "changes": f"/replays?{urlencode([*runs_query(runs), ('batch', query.batch)])}",
    }
    return await page(
        call, "replay", data, root=root, version=["replay", given, waiting, found.model_dump(mode="json")]
    )


_LEFT = ("absent", "stopped", "interrupted")
"""Outcomes of replays that can be started or continued."""


def _parameters(query: ReplayQuery) -> dict[str, Any]:
    """Return the options of the replays, as parameters of a URL."""
    given = {"graph": query.graph or None, "at": query.at, "live": query.live}
    return {name: value for name, value in given.items() if value is not None}


async def _chosen(call: Call[ReplayQuery], run_id: str) -> Chosen:
    info = await call.seen(run_id)
    return Chosen(run_id, documents.first_line(info.input), info.status, info.graph)


def _replayed(row: ReplayRow, root: str) -> Replayed:
    shown = bool(row.status)
    step = {"step": row.step} if row.step else {}
    query = urlencode([*runs_query([row.run_id, row.replay_id]), *step.items()])
    return Replayed(
        key_of(row.replay_id),
        key_of(row.model_dump_json()),
        row,
        _SAYS[row.outcome],
        f"{root}/compare?{query}" if shown else "",
    )


def _summary(found: ReplaysDocument) -> str:
    """Describe the progress of the replays, and their results."""
    rows: Sequence[ReplayRow] = found.replays
    counts = {name: sum(row.outcome == name for row in rows) for name in _SAYS}
    parts = [f"{count:,} {_SAYS[name]}" for name, count in counts.items() if count]
    return f"{found.done:,} of {len(rows):,} are over: {', '.join(parts)}"


SCREENS = (
    Endpoint("GET", "/replay", "view_replays", replay, "Runs replayed.", None, query=ReplayQuery, media="text/html"),
)
"""The replays of many runs."""
