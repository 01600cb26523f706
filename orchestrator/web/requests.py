"""Requests: models that validate queries and bodies and describe them in OpenAPI, and the reading of both.

A day in a query is in UTC and counts as a whole. A body is read up to a size, within a time.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar, get_origin

import anyio
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import from_json

from orchestrator.graph.limits import Limits
from orchestrator.graph.model import GraphDefinition
from orchestrator.kernel.question import Answer, Approve, Deny, QuestionKind, Value
from orchestrator.kernel.status import Relation, RunStatus
from orchestrator.stores.requests import Sort
from orchestrator.tasks import away
from orchestrator.values import MAX_LABEL, MAX_LABELS, MAX_NAME
from orchestrator.web.documents import labels_of
from orchestrator.web.guard import check_json
from orchestrator.web.problems import HttpProblem, fields_problem, invalid
from orchestrator.web.settings import Risk

if TYPE_CHECKING:
    from starlette.datastructures import Headers
    from starlette.requests import Request


DAY = 86400.0
"""Seconds."""
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_OR_DAY = WithJsonSchema(
    {
        "anyOf": [
            {"type": "number"},
            {"type": "string", "format": "date-time"},
            {"type": "string", "format": "date"},
        ]
    }
)


def _beginning(given: object) -> object:
    """Return the start of a day; other values unchanged."""
    if isinstance(given, str) and _DATE.fullmatch(given):
        try:
            return datetime.fromisoformat(given).replace(tzinfo=UTC).timestamp()
        except ValueError:
            raise ValueError("give a day that exists, such as 2026-11-29") from None
    return given


def _end(given: object) -> object:
    """Return the end of a day, exclusive."""
    found = _beginning(given)
    return found + DAY if found is not given and isinstance(found, float) else found


Moment: TypeAlias = Annotated[
    Annotated[float, Field(allow_inf_nan=False)] | AwareDatetime,
    Field(description="Unix seconds, or ISO 8601 with a time zone."),
]
Since: TypeAlias = Annotated[Moment, BeforeValidator(_beginning), _OR_DAY]
"""A time, or the start of a day."""
Until: TypeAlias = Annotated[Moment, BeforeValidator(_end), _OR_DAY]
"""A time (exclusive), or the end of a day."""


def unix(moment: float | datetime | None) -> float | None:
    """Return a time of a query, if given, in Unix seconds."""
    return moment.timestamp() if isinstance(moment, datetime) else moment


Seq = Annotated[int, Field(ge=1, le=2**53, description="The number of a record.")]
After = Annotated[int, Field(ge=0, le=2**53, description="The number of the last record to leave out; 0: none.")]
Name = Annotated[str, StringConstraints(max_length=200)]
NewRunId = Annotated[
    str,
    StringConstraints(min_length=1, max_length=200),
    Field(json_schema_extra={"pattern": r"^[^\s@/\\]+$"}),  # `check_run_id` checks it, in its own words
]
"""The id of a run that is to be made."""
Labels = Annotated[
    dict[
        Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME)],
        Annotated[str, StringConstraints(max_length=MAX_LABEL)],
    ],
    Field(max_length=MAX_LABELS),
]
"""Labels of a run; see `orchestrator.values.new_labels`."""


def _label(given: str) -> str:
    if given.find(":") < 1:
        raise ValueError("use the form name:value")
    return given


Label = Annotated[
    str,
    StringConstraints(max_length=1000),
    AfterValidator(_label),
    Field(json_schema_extra={"pattern": r"^[^:]+:"}),
]
RunIds = Annotated[str, StringConstraints(max_length=2000)]


class Query(BaseModel):
    """Base class of query parameters. Unknown parameters are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Body(BaseModel):
    """Base class of request bodies. Unknown fields and values of other types are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


# -- queries --------------------------------------------------------------------------------------------------------


class NoQuery(Query):
    """The query of an endpoint that takes no parameters."""


class RunsQuery(Query):
    """Filters of the list of runs. A run must match all of them."""

    status: Annotated[list[RunStatus], Field(default_factory=list, description="One status, or several.")]
    graph: Name | None = Field(None, description="The name of a graph.")
    label: Annotated[
        list[Label], Field(default_factory=list, description="A label as `name:value`; repeated: all of them.")
    ]
    parent: Name | None = Field(None, description="The id of the run from which a run began.")
    relation: Relation | None = Field(None, description="How a run began from another.")
    waiting: bool | None = Field(None, description="Whether questions are open.")
    failed_tool: Name | None = Field(None, description="The name of a tool of which a call failed; `*` is any tool.")
    model: Name | None = Field(None, description="The name of a model that the run called.")
    tool: Name | None = Field(None, description="The name of a tool that the run called.")
    node: Name | None = Field(None, description="The name of a node of which a step ran; in subgraphs `OUTER/INNER`.")
    diverged: bool | None = Field(
        None, description="Whether it is a replay that made a request that the replayed run did not make."
    )
    replays: bool | None = Field(None, description="False leaves replays out.")
    since: Moment | None = Field(None, description="Runs created or written to since.")
    begun_since: Since | None = Field(None, description="Runs created since: a moment, or a day in UTC.")
    begun_until: Until | None = Field(
        None, description="Runs created before a moment, or up to the end of a day in UTC."
    )
    q: Annotated[str, StringConstraints(max_length=1000)] | None = Field(
        None,
        description="Words that must all occur in a run's labels, input or output; or, as far as a bounded search "
        "through journals comes, in its prompts, data of tools, questions, answers, events and states.",
    )
    sort: Sort = Field(
        "started",
        description="What the list is sorted by, the largest first; among equals the newest run. With another key than "
        "`started`, or `ascending`, `q` does not search journals.",
    )
    ascending: bool = Field(False, description="The smallest, or the oldest run, comes first.")
    after: Annotated[str, StringConstraints(max_length=2500)] | None = Field(
        None, description="The `cursor` of the page before."
    )
    limit: int = Field(50, ge=1, le=200, description="Maximum number of runs on a page.")

    def filters(self) -> dict[str, Any]:
        """Return the filters as arguments of `Executor.runs`, converted where the form differs."""
        apart = {"status", "label", "since", "begun_since", "begun_until", "replays", "q", "after", "limit"}
        journals = self.sort == "started" and not self.ascending
        return self.model_dump(exclude=apart) | {
            "q" if journals else "search": self.q,
            "replays": self.replays is not False,
            "status": self.status or None,
            "labels": labels_of(self.label),
            "since": unix(self.since),
            "begun_since": unix(self.begun_since),
            "begun_before": unix(self.begun_until),
        }


class AtQuery(Query):
    """The record after which a run is shown."""

    at: Seq | None = Field(None, description="The record after which the run is shown; default: the last one.")


class PageQuery(Query):
    """The query for a part of the records or steps of a run."""

    after: After = 0
    limit: int = Field(500, ge=1, le=5000, description="Maximum number of records or steps in an answer.")


class TranscriptQuery(Query):
    """The query for a part of the transcript of a run."""

    after: int = Field(0, ge=0, le=2**53, description="The number of the last entry to leave out; 0: none.")
    limit: int = Field(200, ge=1, le=1000, description="Maximum number of entries in an answer.")


class EventsQuery(Query):
    """The record after which a stream of events starts."""

    after: After = 0


class WhyQuery(Query):
    """The step to explain; without it, the run."""

    seq: Seq | None = Field(None, description="The record of a step; default: the run as a whole.")


class ExportQuery(Query):
    """Options of an export."""

    redact: bool = Field(
        True, description="Redact text that looks like a secret. A redacted export can be read, but not imported."
    )
    children: bool = Field(True, description="Include the runs that graph tools started.")


class StatsQuery(Query):
    """Grouping, and the runs that count."""

    by: Annotated[str, StringConstraints(max_length=500)] = Field(
        "day,graph", description="`day`, `graph`, `model`, `tool`, `node`, `label:KEY`, with commas between them."
    )
    since: Since | None = Field(None, description="Runs started since: a moment, or a day in UTC.")
    until: Until | None = Field(None, description="Runs started before a moment, or up to the end of a day in UTC.")
    graph: Name | None = Field(None, description="The name of a graph.")
    label: Annotated[
        list[Label], Field(default_factory=list, description="A label as `name:value`; repeated: all of them.")
    ]


class QuestionsQuery(Query):
    """Filters of the list of open questions. A stream without `limit` has the first 1,000 after `after`."""

    graph: Name | None = Field(None, description="The name of a graph.")
    label: Annotated[
        list[Label], Field(default_factory=list, description="A label as `name:value`; repeated: all of them.")
    ]
    kind: Annotated[list[QuestionKind], Field(default_factory=list, description="One kind, or several.")]
    after: Annotated[str, StringConstraints(max_length=500)] | None = Field(
        None, description="The `cursor` of the page before."
    )
    limit: int = Field(50, ge=1, le=200, description="Maximum number of questions on a page.")


class WorkersQuery(Query):
    """Maximum length of the list of workers."""

    limit: int = Field(100, ge=1, le=500, description="Maximum number of workers, and the most parked runs.")


class DiffQuery(Query):
    """The runs to compare."""

    runs: RunIds = Field(description="Two to six ids, with commas between them; all are compared with the first.")


class DeleteQuery(Query):
    """Options of a deletion."""

    children: bool = Field(True, description="Also the runs that its graph tools started.")


# -- bodies ---------------------------------------------------------------------------------------------------------


class LimitChanges(Body):
    """Limits to set. Limits that are left out are unchanged; null means no limit."""

    steps: int | None = Field(None, ge=1)
    seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    tokens: int | None = Field(None, ge=1)
    cost: float | None = Field(None, gt=0, allow_inf_nan=False)
    calls: int | None = Field(None, ge=1)
    visits: dict[str, Annotated[int, Field(ge=1)]] = {}
    concurrency: int | None = Field(None, ge=1)

    def limits(self) -> Limits:
        """Return the limits in the form that the executor expects."""
        return Limits(**self.model_dump(exclude_unset=True))


class StartBody(Body):
    """A run to start."""

    graph: Name = Field(description="The name of a graph of this server.")
    input: object = Field(
        None, description="The value of the graph's input field, or an object of the fields of its input."
    )
    labels: Labels = {}
    run_id: NewRunId | None = Field(None, description="Your own id: the same id and input mean the same run.")
    approve: Risk | None = Field(
        None, description="Approve calls of tools up to this risk without asking; the server caps it."
    )
    limits: LimitChanges | None = None
    model: Name | None = Field(
        None, description="A model of this server, by its name, for nodes that name none; null: the default one."
    )
    wait: bool = Field(False, description="Answer when the run ends or pauses, or after a minute.")


def _itself(value: object) -> object:
    if value is not True:
        raise ValueError("give true")
    return value


Yes = Annotated[Literal[True], BeforeValidator(_itself)]
"""True itself: a literal also accepts equal values, such as 1."""


class Denial(Body):
    """A denial with its reason."""

    reason: str = ""


class Approval(Body):
    """An approval with other arguments."""

    args: dict[str, object] | None = Field(None, description="All arguments of the call, in place of those shown.")


_CHOICES = ("approve", "deny", "value")
_ONE_CHOICE: JsonDict = {  # by `not`, and not by `oneOf`: generators of code make one type for each part of a `oneOf`
    "not": {
        "anyOf": [
            {"required": ["approve", "deny"]},
            {"required": ["approve", "value"]},
            {"required": ["deny", "value"]},
            {"not": {"anyOf": [{"required": [name]} for name in _CHOICES]}},
        ]
    }
}


class AnswerChoice(Body):
    """An answer: exactly one of `approve`, `deny` and `value`."""

    model_config = ConfigDict(json_schema_extra=_ONE_CHOICE)

    approve: Yes | Approval | SkipJsonSchema[None] = None
    deny: Yes | Denial | SkipJsonSchema[None] = None
    value: object = Field(
        default_factory=lambda: None,  # a default in the schema would be sent along by generated clients
        description="The answer to a question for a value: any JSON. What became of a call: `failed`, `retry`, or "
        '`{"choice": "happened", "result": ...}`.',
    )

    @model_validator(mode="after")
    def _one(self) -> AnswerChoice:
        given = [name for name in _CHOICES if name in self.model_fields_set]
        if len(given) != 1 or (given[0] != "value" and getattr(self, given[0]) is None):
            raise ValueError("give exactly one of approve, deny and value")
        return self

    def answer(self) -> Answer:
        """Return the answer in the form that the executor expects."""
        if self.approve is not None:
            return Approve(args=self.approve.args if isinstance(self.approve, Approval) else None)
        if self.deny is not None:
            return Deny(reason=self.deny.reason if isinstance(self.deny, Denial) else "")
        return Value(value=self.value)


class AnswerBody(AnswerChoice):
    """An answer to an open question."""

    question: Name = Field(description="The question's id.")
    digest: Name = Field(description="The digest of the question that was shown; another one makes the answer stale.")
    by: Name = Field("", description="Who answers. With a login of the application, its name or nothing.")


class ResumeBody(Body):
    """Options of a resumed run."""

    retry: bool = Field(False, description="Also a run that failed, was cancelled or spent a limit.")
    limits: LimitChanges | None = None
    approve: Risk | None = None
    accept_changes: bool = Field(False, description="Although its graph or tools changed ahead of the run.")


class StopBody(Body):
    """Name of the person who stops a run, and the reason."""

    by: Name = ""
    reason: Annotated[str, StringConstraints(max_length=2000)] = ""


class ChangedAnswer(AnswerChoice):
    """An answer that is given with a fork or a replay."""

    digest: Name = Field(description="The digest of the question that was shown; another one makes the answer stale.")


class ChangedRequestBody(Body):
    """Another request to a model. What is left out stays."""

    messages: list[dict[str, object]] | None = Field(
        None,
        min_length=1,
        max_length=10_000,
        description='The messages. `{"ref": digest}` is one of the request that was made.',
    )
    options: dict[str, object] | None = Field(None, description="Parameters for the provider, such as `temperature`.")
    digest: Name = Field(description="The digest of the request that was shown.")

    def changes(self) -> dict[str, Any]:
        """Return the argument `request` of `Executor.fork`."""
        found = {"messages": self.messages, "options": self.options}
        return {name: value for name, value in found.items() if value is not None}


class ForkBody(Body):
    """A fork of a run."""

    at: Seq | None = Field(None, description="The last record that the fork contains.")
    update: dict[str, object] | None = Field(None, description="Fields of the state to set.")
    branch: Name | None = Field(None, description="The path of the branch that `update` is for.")
    answer: ChangedAnswer | None = Field(None, description="Another answer in place of that in record `at`.")
    answers: dict[str, ChangedAnswer] | None = Field(None, description="Answers to questions open at record `at`.")
    result: object = Field(None, description="Another result in place of that of the call in record `at`.")
    request: ChangedRequestBody | None = Field(None, description="Another request for the model call in record `at`.")
    pause: bool | None = Field(
        None, description="Pause when the steps that were running at `at` have ended; null: if a request is given."
    )
    graph: Name | None = Field(None, description="Another version of the graph, a graph of this server.")
    model: Name | None = Field(
        None,
        description="A model of this server, by its name, for nodes that name none; the fork then goes on in this "
        "server's version of the graph. null: the model that the run has, or else the default one.",
    )
    run_id: NewRunId | None = Field(None, description="An id for the fork.")
    labels: Labels = {}
    by: Name = Field("", description="Who forks and answers. With a login of the application, its name or nothing.")
    start: bool = Field(True, description="Continue the fork at once, in the background.")

    def changes(self, graph: GraphDefinition | None) -> dict[str, Any]:
        """Return the arguments of `Executor.fork`, except `start`.

        Args:
            graph: the graph that it names.
        """
        return {
            "at": self.at,
            "update": self.update,
            "branch": self.branch,
            "result": self.result,
            "answer": None if self.answer is None else self.answer.answer(),
            "answers": None if self.answers is None else {name: one.answer() for name, one in self.answers.items()},
            "request": None if self.request is None else self.request.changes(),
            "pause": self.pause,
            "digests": [
                one.digest for one in (self.answer, self.request, *(self.answers or {}).values()) if one is not None
            ],
            "graph": graph,
            "run_id": self.run_id,
            "labels": self.labels,
        }


class ReplayBody(Body):
    """A replay of a run."""

    at: Annotated[int, Field(ge=0, le=2**53)] | None = Field(None, description="The record to replay from.")
    graph: Name | None = Field(None, description="Another graph of this server.")
    update: dict[str, object] | None = None
    answer: ChangedAnswer | None = None
    result: object = None
    approve: Risk | None = None
    live: Literal["never", "ask", "always"] = Field("never", description="What to do where the replay is live.")
    run_id: NewRunId | None = Field(None, description="An id for the replay.")
    by: Name = Field("", description="Who replays and answers. With a login of the application, its name or nothing.")


class SendBody(Body):
    """An event for a run."""

    event: Name = Field(min_length=1, description="The name of the event.")
    data: object = Field(
        None, description="Plain JSON of at most 1 MiB and 100 levels, for the step that takes the event."
    )
    id: Name | None = Field(None, description="Names the event: sent again, it counts once.")
    by: Name = ""


QueryT = TypeVar("QueryT", bound=Query)
BodyT = TypeVar("BodyT", bound=Body)
ModelT = TypeVar("ModelT", bound=BaseModel)
LONGEST = 1 << 20
"""Bytes of a body."""
_DROPPED = 8
"""A body that is this many times too long is not read to its end."""
PARAMETERS = 100
"""Maximum number of parameters of a query."""


_TRACE_BYTES = {"traceparent": 64, "tracestate": 512}
"""Header of a trace -> the longest value that is read, in characters."""


def trace_context(headers: Headers) -> dict[str, str]:
    """Return the headers that name the trace of a request (https://www.w3.org/TR/trace-context/), as far as usable."""
    found = {name: ",".join(headers.getlist(name)) for name in _TRACE_BYTES}
    usable = {name: value for name, value in found.items() if 0 < len(value) <= _TRACE_BYTES[name]}
    return usable if "traceparent" in usable and "," not in usable["traceparent"] else {}


def query_of(request: Request, model: type[QueryT]) -> QueryT:
    """Return the query of a request.

    Raises:
        HttpProblem: the query is not valid.
    """
    pairs = request.query_params.multi_items()
    if len(pairs) > PARAMETERS:
        raise fields_problem([{"field": "", "message": f"it has more than {PARAMETERS} parameters"}], "query")
    every: dict[str, list[str]] = {}
    for name, value in pairs:
        every.setdefault(name, []).append(value)
    given: dict[str, object] = {}
    for name, values in every.items():
        if name in model.model_fields and get_origin(model.model_fields[name].annotation) is list:
            given[name] = values
        elif len(values) > 1:
            raise fields_problem([{"field": name, "message": "it is given more than once"}], "query")
        else:
            given[name] = values[0]
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise invalid(error, "query", model, given) from None


async def body_of(request: Request, model: type[BodyT], *, patience: float) -> BodyT:
    """Return the body of a request.

    Args:
        request: the request.
        model: the model of the body.
        patience: seconds within which it must arrive.

    Raises:
        HttpProblem: it is not JSON, too long, too slow, or not valid.
    """
    return await parsed_body(request, model, patience=patience, longest=LONGEST)


async def parsed_body(request: Request, model: type[ModelT], *, patience: float, longest: int) -> ModelT:
    """Return the body of a request that has a bound of its own.

    Args:
        request: the request.
        model: the model of the body.
        patience: seconds within which it must arrive.
        longest: its maximum number of bytes.

    Raises:
        HttpProblem: it is not JSON, too long, too slow, or not valid.
    """
    check_json(request.headers)
    data: bytes | None = None
    with anyio.move_on_after(patience):
        data = await _read(request, longest)
    if data is None:
        detail = f"the body was not received within {patience:g} seconds"
        raise HttpProblem(408, "body-too-slow", detail, headers={"Connection": "close"})
    text = data or b"{}"
    return await away(lambda: _fitting(text, model), text)


def _fitting(data: bytes, model: type[ModelT]) -> ModelT:
    try:
        found = from_json(data, allow_inf_nan=False, cache_strings=False)
        json.loads(data, object_pairs_hook=_once)
    except ValueError as error:
        raise HttpProblem(422, "invalid-json", f"the body is not JSON: {error}") from None
    try:
        return model.model_validate(found)
    except ValidationError as error:
        raise invalid(error, "body", model, found) from None


def _once(pairs: list[tuple[str, object]]) -> None:
    """Refuse a name that occurs twice in an object: one reader could use the first value, another one the last.

    Raises:
        ValueError: a name occurs twice.
    """
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise ValueError(f"{name[:100]!r} occurs twice in an object")
        seen.add(name)


async def _read(request: Request, longest: int) -> bytes:
    """Return the bytes of a body. They are counted: Content-Length may be wrong.

    A body that is too long is read and dropped, because many clients read no response before. One that is far too long
    is not read to its end.
    """
    said = request.headers.get("content-length", "0")
    if not said.isdecimal() or len(said) > 18 or int(said) > _DROPPED * longest:
        raise _too_long(longest, hangs_up=True)
    found, length = bytearray(), 0
    async for chunk in request.stream():
        length += len(chunk)
        if length > _DROPPED * longest:
            raise _too_long(longest, hangs_up=True)
        if length <= longest:
            found += chunk
    if length > longest:
        raise _too_long(longest, hangs_up=False)
    return bytes(found)


def _too_long(longest: int, *, hangs_up: bool) -> HttpProblem:
    headers = {"Connection": "close"} if hangs_up else None
    return HttpProblem(413, "body-too-long", f"the body has more than {longest:,} bytes, the limit", headers=headers)
