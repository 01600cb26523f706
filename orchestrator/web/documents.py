"""Responses as models that describe them in OpenAPI, and the functions that make and send them.

Values that look like secrets are redacted. An exception is an open question: the call to approve is shown unchanged,
because exactly that will run. A read-only server accepts no answers, and redacts questions, too.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import to_jsonable_python
from starlette.responses import Response, StreamingResponse

from orchestrator.graph.limits import Usage
from orchestrator.json import PIECE, JsonObject, in_pieces, is_small
from orchestrator.kernel.question import Question
from orchestrator.kernel.status import RunStatus
from orchestrator.redaction import redacted
from orchestrator.stores.base import RunInfo
from orchestrator.tasks import away
from orchestrator.views.call_questions import OutcomeChoice, outcome_choices
from orchestrator.views.run import Run
from orchestrator.views.worker_info import WorkerInfo, WorkerState
from orchestrator.visible import exact

_FIRST = 300
"""Characters of the first line of a text in a row."""
_GRAPHS = 50
"""Maximum number of graphs listed for a worker."""


class Document(BaseModel):
    """Base class of the documents in responses."""

    model_config = ConfigDict(frozen=True)


class FieldFault(Document):
    """An invalid field of a query or body."""

    field: Annotated[str, Field(max_length=200, description="Its path, such as `limits.steps`; empty: all of it.")]
    message: Annotated[str, Field(description="What is wrong with it, and the fix.")]


class ProblemDocument(Document):
    """A problem (RFC 9457). Problems have further members by their type."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: Annotated[str, Field(description="`urn:agent-graph-orchestrator:problem:NAME`: `run-unknown`, and so on.")]
    title: Annotated[str, Field(description="What the status means.")]
    status: Annotated[int, Field(ge=400, le=599)]
    detail: Annotated[str, Field(description="What is wrong, and the fix.")]
    errors: Annotated[
        list[FieldFault] | SkipJsonSchema[None], Field(description="Of `invalid-query` and `invalid-body`: the fields.")
    ] = None
    run_id: Annotated[str | SkipJsonSchema[None], Field(description="The run that it is about.")] = None
    question: Annotated[str | SkipJsonSchema[None], Field(description="The question that it is about.")] = None
    run_status: Annotated[str | SkipJsonSchema[None], Field(description="The status of that run.")] = None
    where: Annotated[str | SkipJsonSchema[None], Field(description="The invalid part of a value.")] = None
    became: Annotated[
        dict[str, object] | SkipJsonSchema[None],
        Field(description="Of `stale-answer`: what became of the question, by whom and when."),
    ] = None


class ParentRun(Document):
    """The run, and the record of it, from which another run began."""

    run_id: str
    seq: int
    relation: str


class ArchivedRun(Document):
    """The object of an archive that has the records of a run."""

    archive: Annotated[str, Field(description="The URL of the archive, without a password.")]
    name: Annotated[str, Field(description="The object's name in it.")]
    sha256: str
    size: Annotated[int, Field(description="Bytes of the object.")]
    at: Annotated[float, Field(description="When it was written, Unix seconds.")]


class ArchivedResult(Document):
    """The result of archiving a run."""

    archived: Annotated[ArchivedRun | None, Field(description="Where its records are; null: in the store again.")]


class RunRow(Document):
    """A run in a list."""

    run_id: str
    graph: str
    status: RunStatus
    labels: dict[str, str]
    parent: ParentRun | None
    diverged: Annotated[
        bool, Field(description="Whether it is a replay that made a request that the replayed run did not make.")
    ]
    input: Annotated[str, Field(description="The first line of the input.")]
    output: Annotated[str, Field(description="The first line of the output.")]
    question: Annotated[str, Field(description="The prompt of the first open question.")]
    waiting: Annotated[int, Field(description="Number of open questions.")]
    error: str
    steps: int
    tokens: int | None
    cost: float | None
    seconds: float | None
    usage: Usage | None
    created: float
    updated: float
    head: Annotated[int, Field(description="The number of the last record.")]
    due: float | None
    deaths: int
    retry_at: float | None
    fault: str
    driver: Annotated[str, Field(description="The process that drives it, as `host pid`; empty: none.")]
    archived: Annotated[ArchivedRun | None, Field(description="Where its records are; null: in the store.")]


class ScannedJournals(Document):
    """Progress of the search through journals for one page."""

    runs: int
    records: int
    characters: int
    back_to: Annotated[float | None, Field(description="When the oldest of these runs was created, Unix seconds.")]
    stopped: Annotated[bool, Field(description="Whether older runs are left; the cursor leads to them.")]


class RunPage(Document):
    """A page of the list of runs."""

    runs: list[RunRow]
    scanned: Annotated[ScannedJournals | None, Field(description="Of a search with `q` that read journals.")]
    cursor: Annotated[str | None, Field(description="`after` of the next page; null: this is the last.")]


class RunsEvent(Document):
    """The data of an event about a page of the list of runs: `ready` at the start, then `changed` at each change."""

    type: Literal["ready", "changed"]
    run_ids: Annotated[
        list[str], Field(description="Runs that are new on the page, have changed, or have left it.")
    ] = []
    questions: Annotated[int, Field(description="Number of questions that wait for people; 100 means more than 99.")]
    version: Annotated[
        str, Field(description="Version of the page: the same as long as what is shown of its runs is the same.")
    ]


class QuestionDocument(Document):
    """An open question, unredacted: what is approved is what is shown."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: str
    kind: str
    node: str
    path: str
    prompt: str
    payload: dict[str, object]
    choices: list[str]
    schema_: Annotated[dict[str, object] | None, Field(serialization_alias="schema")]
    digest: str
    deadline: float | None
    shown: Annotated[str, Field(description="The payload on one line, with every character visible.")]
    outcomes: Annotated[list[OutcomeChoice], Field(description="What became of a call: the choices in words.")]


class Standby(Document):
    """State of a run that no process drives: when it continues, and why its last drive stopped."""

    due: float | None
    deaths: int
    retry_at: float | None
    fault: str
    parked: bool


class RunResult(Document):
    """A run and its result."""

    run_id: str
    graph: str
    status: RunStatus
    seq: Annotated[int, Field(description="The number of the last record.")]
    output: object
    waiting: list[QuestionDocument]
    steps: int
    usage: Usage
    seconds: float
    error: dict[str, object] | None
    labels: dict[str, str]
    parent: ParentRun | None
    diverged: Annotated[
        bool, Field(description="Whether it is a replay that made a request that the replayed run did not make.")
    ]
    inherited: Usage | None
    queued: bool
    standby: Standby | None
    archived: Annotated[ArchivedRun | None, Field(description="Where its records are; null: in the store.")]


class SentResult(RunResult):
    """A run after it received an event."""

    warning: Annotated[
        str | None,
        Field(
            description="That no node of its graph waits for the event, or that its data does not match or was not "
            "checked; null: one does, and the data fits."
        ),
    ]


class BranchDocument(Document):
    """A live token."""

    path: str
    node: str
    phase: str
    values: dict[str, object]


class RunDocument(RunResult):
    """Everything that `show` shows of a run, except its steps."""

    state: dict[str, object]
    branches: list[BranchDocument]
    why: str
    limits: dict[str, object] | None
    driver: str
    created: float
    updated: float


class StateDocument(Document):
    """The state of a run at one moment."""

    run_id: str
    seq: int
    status: RunStatus
    state: dict[str, object]
    branches: list[BranchDocument]
    output: object


class Steps(Document):
    """Steps of a run, in the order in which they ended."""

    steps: list[dict[str, object]]
    cursor: Annotated[int | None, Field(description="`after` of the next part; null: this is the last.")]


class Records(Document):
    """Records of a run, as events."""

    records: list[dict[str, object]]
    cursor: Annotated[int | None, Field(description="`after` of the next part; null: this is the last.")]


class TranscriptEntry(Document):
    """An entry of a transcript. Fields that are empty, or that its kind does not have, are left out."""

    number: Annotated[int, Field(description="From 1. Entries are only added; an open one may still change.")]
    seq: Annotated[int, Field(description="Number of its record.")]
    kind: Literal["message", "turn", "tool", "question", "compaction"]
    node: str
    path: str = ""
    open: Annotated[bool, Field(description="Whether its call has not ended, or its question has no answer.")]
    role: Annotated[str, Field(description="Of a message: `system`, `user`, `assistant` or `tool`.")] = ""
    text: Annotated[str, Field(description="Of a message, or of the reply of a turn.")] = ""
    name: Annotated[str, Field(description="Of a message with a result: the tool.")] = ""
    summary: Annotated[bool, Field(description="Whether a compaction wrote the message.")] = False
    model: str = ""
    thoughts: str = ""
    calls: Annotated[list[dict[str, Any]], Field(description="Calls of tools that a reply makes: `name`, `args`.")] = []
    finish: Annotated[str, Field(description="Why a reply ended, if it was cut off or refused.")] = ""
    tool: str = ""
    args: Any = None
    result: Any = None
    state: Annotated[
        str, Field(description="Of a turn or a tool: `running`, `retrying`, `done`, `failed` or `unknown`.")
    ] = ""
    error: str = ""
    settled: Annotated[int | None, Field(description="The record that ended the call.")] = None
    seconds: float | None = None
    usage: Usage | None = None
    pictures: Annotated[list[str], Field(description="Names of pictures: the address, or type and size.")] = []
    question: Annotated[str, Field(description="Kind of a question: `approval`, `input`, ...")] = ""
    prompt: str = ""
    call: Annotated[dict[str, Any], Field(description="The call that a question is about: `tool`, `args`.")] = {}
    answer: Annotated[dict[str, Any] | None, Field(description="`type` is `approve`, `deny` or `value`.")] = None
    answered: Annotated[int | None, Field(description="The record of the answer.")] = None
    by: str = ""
    policy: Annotated[bool, Field(description="Whether a rule gave the answer.")] = False
    replaced: Annotated[int, Field(description="Messages that a compaction replaced.")] = 0
    at: Annotated[int | None, Field(description="The record at which the conversation is whole.")] = None


class TranscriptDocument(Document):
    """A part of the transcript of a run."""

    run_id: str
    status: RunStatus
    entries: list[TranscriptEntry]
    cursor: Annotated[int | None, Field(description="`after` of the next part; null: this is the last.")]


class UntakenEventDocument(Document):
    """An event that no step took."""

    seq: Annotated[int, Field(description="The number of its record.")]
    name: str
    why: str


class WhyDocument(Document):
    """The reason for the state of a run, or for a step and the edges that it took."""

    run_id: str
    seq: int
    status: str
    why: str
    steps: list[dict[str, object]]
    untaken: Annotated[list[UntakenEventDocument], Field(description="Events of the run that no step took.")]


class AskedDocument(Document):
    """An open question of a run in the list of all of them."""

    run_id: str
    graph: str
    labels: dict[str, str]
    asked: Annotated[float, Field(description="When it was asked, Unix seconds.")]
    question: QuestionDocument


class QuestionPage(Document):
    """A page of the open questions of all runs, the oldest first."""

    questions: list[AskedDocument]
    cursor: Annotated[str | None, Field(description="`after` of the next page; null: this is the last.")]


class WorkerRow(Document):
    """A worker, or another executor that holds runs."""

    id: str
    state: WorkerState
    worker: Annotated[bool, Field(description="Whether it takes runs on its own.")]
    host: str
    pid: int | None
    graphs: Annotated[list[str], Field(description="Graphs whose runs it takes up, 50 at most.")]
    more_graphs: Annotated[int, Field(description="Number of graphs that are left out.")]
    slots: int | None
    started: Annotated[float | None, Field(description="Unix seconds.")]
    version: str
    heartbeat: Annotated[float, Field(description="Seconds since it was last heard from, by the store's clock.")]
    ttl: Annotated[float, Field(description="Seconds without a heartbeat after which it lapses.")]
    held: Annotated[int, Field(description="Number of runs that it holds.")]
    runs: Annotated[list[str], Field(description="The ids of these runs, 5 at most.")]


class WorkerList(Document):
    """The workers of the store, living ones first, and the runs that only `resume` continues."""

    workers: list[WorkerRow]
    more_workers: Annotated[int, Field(description="Number of workers that are left out.")]
    parked: Annotated[list[RunRow], Field(description="The longest parked first.")]
    more_parked: Annotated[bool, Field(description="Whether further runs are parked.")]


class WorkersEvent(Document):
    """The data of an event about workers: `ready` at the start, then `changed` at each change and heartbeat."""

    type: Literal["ready", "changed"]


class StatsGroup(Document):
    """Spending of the runs of one group. The sums do not include what a fork inherited."""

    group: Annotated[dict[str, str | None], Field(description="What the group is by, and its value.")]
    runs: int
    statuses: dict[str, int]
    failed_rate: Annotated[float | None, Field(description="The part of the ended runs that failed.")]
    uncounted: Annotated[int, Field(description="Runs of earlier versions, which are in no number below.")]
    calls: int
    failed_calls: int
    tool_calls: int
    failed_tool_calls: int
    failed_tool_rate: float | None
    tokens: int
    input_tokens: int
    output_tokens: int
    cost: float
    unpriced: Annotated[
        int,
        Field(
            description="Runs, or parts of runs by model, tool or node, that used tokens and have no cost: no price of "
            "their models is known, or they are free."
        ),
    ]
    seconds: float
    p50: Annotated[float | None, Field(description="The seconds that half of the runs did not exceed.")]
    p95: float | None
    cache_savings: Annotated[
        float | None,
        Field(
            description="What providers' caches saved; 0 if no price for cached tokens is known; null by model, "
            "tool or node."
        ),
    ]
    replay_savings: Annotated[
        float | None,
        Field(
            description="What the calls had cost whose results replays took from the replayed runs; null by model, "
            "tool or node."
        ),
    ]
    replayed_calls: Annotated[int | None, Field(description="Number of these calls; null by model, tool or node.")]


class StatsDocument(Document):
    """Spending of runs, in groups."""

    currency: Annotated[str, Field(description="The currency of all costs.")]
    groups: list[StatsGroup]


class GraphRow(Document):
    """A graph of this server."""

    name: str
    description: str
    nodes: int
    structure: str
    content: str
    input: list[str]
    output: list[str]


class GraphList(Document):
    """The graphs of this server."""

    graphs: list[GraphRow]


class SavedText(Document):
    """The file of a graph that the page has saved."""

    text: str
    digest: Annotated[str, Field(description="`replaces` of a save that replaces it.")]


class OfferedTool(Document):
    """A tool that nodes of a graph may call."""

    name: str
    risk: str
    effect: str


class GraphParts(Document):
    """The models and tools of this server that a graph uses, and the models that can be chosen for it."""

    models: Annotated[
        list[str], Field(description="What its nodes ask, as `NAME`, or as `NAME (MODEL)` if it differs.")
    ]
    asks_default: Annotated[bool, Field(description="Whether a node names no model, so that one can be chosen.")]
    choices: Annotated[list[str], Field(description="Names of models that `model` can choose.")]
    tools: Annotated[list[OfferedTool], Field(description="Tools that its nodes may call, 200 at most.")]


class GraphDocument(GraphRow):
    """A graph: its data, its drawing, and the form of its input."""

    data: dict[str, object]
    yaml: Annotated[str | None, Field(description="As a graph file; null if it holds code that no file can name.")]
    form: Annotated[dict[str, object], Field(description="JSON Schema of what a run starts with.")]
    drawing: Annotated[str, Field(description="SVG.")]
    parts: GraphParts
    limits: Annotated[dict[str, object], Field(description="Limits of its runs; null: no limit.")]
    saved: Annotated[SavedText | None, Field(description="null: it was not saved by the page.")]


class DiffDocument(Document):
    """Runs compared with the first of them."""

    runs: list[dict[str, object]]
    diffs: Annotated[list[dict[str, object]], Field(description="One for each run but the first.")]


class Deleted(Document):
    """The runs that were deleted."""

    deleted: list[str]


class LoggedOut(Document):
    """The end of a browser's session."""

    ended: int = Field(description="Number of sessions that ended: 1, or 0 if the request came without one.")


class ReplayDocument(Document):
    """Result of a replay."""

    model_config = ConfigDict(frozen=True, extra="allow")

    run_id: str
    parent: str
    graph: str
    status: str
    same: bool
    answer_changed: bool
    before: object
    after: object
    diverged_at: dict[str, object] | None
    made: int
    saved: dict[str, object]
    diff: dict[str, object]


class Event(Document):
    """The data of an event of a run. `seq` is the number of the event's record; null for a live event."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str
    seq: int | None
    ts: float
    run_id: str


class QuestionEvent(Document):
    """The data of an event about questions: `opened`, `closed`, or `ready` after those that were open before."""

    type: Literal["opened", "closed", "ready"]
    run_id: str = ""
    question: str = ""
    opened: AskedDocument | None = None


# -- as JSON ----------------------------------------------------------------------------------------------------------

# ASCII: half a surrogate pair, which UTF-8 cannot encode, is written as an escape.
JSON = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=to_jsonable_python)


def json_of(document: Document) -> Iterator[str]:
    """Return a document as JSON, in pieces."""
    return in_pieces(_plain(document), JSON)


def _plain(value: object) -> object:
    """Return documents as plain JSON. Large parts are not copied."""
    if isinstance(value, BaseModel):
        if is_small(value, PIECE):
            return value.model_dump(mode="json", by_alias=True)
        aliases = {name: one.serialization_alias or name for name, one in type(value).model_fields.items()}
        named = {said: getattr(value, name) for name, said in aliases.items()} | (value.model_extra or {})
        return {name: _plain(part) for name, part in named.items()}
    if isinstance(value, list) and value and isinstance(value[0], BaseModel):
        return [_plain(one) for one in value]
    return value


# -- from runs --------------------------------------------------------------------------------------------------------


def blank(value: object) -> Any:
    """Return plain JSON with values that look like secrets redacted."""
    return redacted(value)


def first_line(text: str) -> str:
    """Return the first non-empty line of a text, redacted and cut."""
    line = next((line.strip() for line in str(redacted(text)).splitlines() if line.strip()), "")
    return line if len(line) <= _FIRST else f"{line[: _FIRST - 1]}…"


def row_of(info: RunInfo) -> RunRow:
    """Return the row of a run; its status is that of a reader (see `with_status`)."""
    made = info.to_json()
    shown = {name: first_line(made[name]) for name in info.REDACTED if name != "labels"}
    return RunRow(**{**made, **shown, "labels": blank(made["labels"])})


async def rows_of(infos: Sequence[RunInfo]) -> list[RunRow]:
    """Return the rows of runs."""
    texts = [(one.labels, one.input, one.output, one.question, one.error, one.fault) for one in infos]
    return await away(lambda: [row_of(info) for info in infos], texts)


def worker_of(info: WorkerInfo, runs: Iterable[str]) -> WorkerRow:
    """Return the row of a worker.

    Args:
        info: the worker.
        runs: the ids of its runs that are listed.
    """
    return WorkerRow(
        id=info.id,
        state=info.state,
        worker=info.worker,
        host=first_line(info.host),
        pid=info.pid,
        graphs=[first_line(name) for name in info.graphs[:_GRAPHS]],
        more_graphs=max(0, len(info.graphs) - _GRAPHS),
        slots=info.slots,
        started=info.started,
        version=first_line(info.version),
        heartbeat=info.heartbeat,
        ttl=info.ttl,
        held=info.held,
        runs=list(runs),
    )


def question_of(question: Question, made: JsonObject | None = None, *, answerable: bool) -> QuestionDocument:
    """Return a question for display.

    Args:
        question: the question.
        made: the question as plain JSON, if already available.
        answerable: whether the reader can answer it, and so must see it unredacted.
    """
    data: dict[str, Any] = {**(question.model_dump(mode="json") if made is None else made)}
    if not answerable:
        data |= blank({name: data[name] for name in ("prompt", "payload")})
    schema = data.pop("schema", None)
    shown = exact(data["payload"])
    return QuestionDocument(**data, schema_=schema, shown=shown, outcomes=list(outcome_choices(question)))


def result_fields(run: Run, *, answerable: bool = True) -> dict[str, Any]:
    """Return the fields of a `RunResult`. `answerable`: see `question_of`."""
    made = run.to_json()
    asked = zip(run.waiting, made["waiting"], strict=True)
    waiting = [question_of(question, data, answerable=answerable) for question, data in asked]
    return made | {name: blank(made[name]) for name in run.REDACTED} | {"waiting": waiting}


async def result_of(run: Run) -> RunResult:
    """Return a run and its result."""
    machine = run.machine
    shown = machine.ended, [*machine.questions.values()], run.error, run.labels
    return await away(lambda: RunResult(**result_fields(run)), *shown)


def branches_of(run: Run) -> list[BranchDocument]:
    """Return the live tokens of a run."""
    return [
        BranchDocument(path=one.path, node=one.node, phase=one.phase, values=blank(dict(one.values)))
        for one in run.branches
    ]


def labels_of(given: Iterable[str]) -> Mapping[str, str]:
    """Return labels of a query, `name:value`."""
    pairs = (one.partition(":") for one in given)
    return {name: value for name, _, value in pairs}


def response_of(
    parts: Sequence[bytes], media: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response.

    Args:
        parts: its body.
        media: its media type.
        status: its status.
        headers: further headers.
    """
    if len(parts) == 1:
        return Response(parts[0], status, headers, media)

    async def body() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    return StreamingResponse(body(), status, {**(headers or {}), "Content-Length": str(sum(map(len, parts)))}, media)
