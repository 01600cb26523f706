"""Records about the run as a whole."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from orchestrator.graph.limits import Limits, Usage
from orchestrator.kernel.question import Answer
from orchestrator.kernel.records.base import Failure, JsonDict, RecordBase

RULES: Final = 2
"""The version of the execution rules in `docs/kernel.md`."""


class _KnownRules:
    """The words for rules that this version does not know, in the schema: a validator in Python costs every record."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        hint = "update the library if a newer version wrote the run"
        words = f"this version knows rules {RULES} alone ({hint})"
        return core_schema.custom_error_schema(handler(source), "unknown_rules", custom_error_message=words)


class Caller(BaseModel):
    """The call of a graph as a tool, from another run, that began a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    """The calling run."""
    key: str
    """The call's idempotency key."""
    depth: int = 1
    """Number of runs around this one."""
    in_fork: bool = False
    """Whether a run around this one is a fork: then irreversible calls are asked about here, too."""


class RunStarted(RecordBase):
    """A run began. `values` is the whole start state, validated; `refs` describes its input as text."""

    type: Literal["run_started"] = "run_started"
    run_id: str
    graph: str
    structure: str
    content: str
    values: JsonDict
    limits: Limits | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    approve: str | None = None
    """Calls of tools of at most this risk are approved by policy."""
    refs: JsonDict = Field(default_factory=dict)
    tools: dict[str, str] = Field(default_factory=dict)
    """Every tool that the run's nodes may call, with the digest of its schema; `node/name` for a node's own."""
    holder: str = ""
    rules: Annotated[Literal[2], _KnownRules()]
    """The version of the execution rules that the run follows, `RULES`: a journal of other rules is refused."""
    caller: Caller | None = None
    """The call that began it, if its graph was called as a tool."""
    pause_before: tuple[str, ...] = ()
    """Nodes before which the run pauses; inside of subgraphs by their path."""
    pause_after: tuple[str, ...] = ()
    context: bool = False
    """Whether the run was given a context, so that it goes on only with one."""
    by: str = ""
    """Who started it."""


class Paused(RecordBase):
    """A user asked the run to pause: running steps finish, no new ones start."""

    type: Literal["paused"] = "paused"
    by: str = ""
    reason: str = ""
    message: int | None = None


class Resumed(RecordBase):
    """An executor took over the run. `changes` is the content diff, if the graph's content changed."""

    type: Literal["resumed"] = "resumed"
    holder: str = ""
    content: str | None = None
    changes: tuple[str, ...] = ()
    tools: dict[str, str] | None = None
    """As in `RunStarted`, if they have changed."""
    approve: str | None = None
    unpause: bool = False
    pause_before: tuple[str, ...] | None = None
    """The nodes before which the run pauses from now on, if they have changed."""
    pause_after: tuple[str, ...] | None = None
    refs: JsonDict | None = None
    """As in `RunStarted`, if the run continues with other code."""
    by: str = ""
    """Who asked for it; empty: the executor took the run up by itself, or it is not known."""


class Cancelled(RecordBase):
    """A user cancelled the run."""

    type: Literal["cancelled"] = "cancelled"
    by: str = ""
    reason: str = ""
    message: int | None = None


class LimitsChanged(RecordBase):
    """The run's limits were changed."""

    type: Literal["limits_changed"] = "limits_changed"
    limits: Limits
    by: str = ""


class SetAside(BaseModel):
    """What a replay does not do again, because the replayed run was reopened: attempts that had failed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    attempts: int = 0
    """How many of a step, from its first one."""
    usage: Usage = Usage()
    """What they had spent. It counts against limits."""


class Forked(RecordBase):
    """The run began as a copy of the first `at` records of `parent`; what it does from here on is its own.

    Calls that were not settled count as not made. The other fields are what the fork changes.
    """

    type: Literal["forked"] = "forked"
    run_id: str
    """The fork's own id, from which the keys of its calls come."""
    parent: str
    at: int
    root: str = ""
    """The run of which the first record is: its id gives the keys of activations, in all its forks."""
    relation: Literal["fork", "replay", "call"] = "fork"
    """`call`: a forked run called a graph as a tool, and this is the fork of that call's run."""
    labels: dict[str, str] = Field(default_factory=dict)
    """All labels of the fork."""
    caller: Caller | None = None
    """The call that waits for it, if its relation is `call`."""
    update: JsonDict = Field(default_factory=dict)
    """Field -> the value it is set to."""
    ops: dict[str, str] = Field(default_factory=dict)
    """Field -> `replace`, where the field has a reducer."""
    branch: str | None = None
    """Path of the branch that `update` is for; None: the trunk."""
    key: str = ""
    """The call whose result `result` takes the place of."""
    result: object = None
    question: str = ""
    """The question whose answer `answer` takes the place of."""
    answer: Annotated[Answer, Field(discriminator="type")] | None = None
    live: Literal["", "never", "ask", "always"] = ""
    """Of a replay: whether calls that the parent's journal has no result for are made."""
    models: dict[str, str] = Field(default_factory=dict)
    """Of a replay: name that nodes use (`default` for none) -> the model that it has instead of the parent's."""
    withdrawn: tuple[str, ...] = ()
    """Questions whose answers allowed calls that were not settled: their steps ask again."""
    told: tuple[str, ...] = ()
    """Keys of calls with an unknown outcome that answers given with the fork settle: the records behind it say how."""
    digests: dict[str, str] = Field(default_factory=dict)
    """Open question -> its digest in the fork."""
    set_aside: dict[str, SetAside] = Field(default_factory=dict)
    """Of a replay of a run that was reopened: activation -> what it begins behind; empty: the run's graph."""
    raised: int = 0
    """Of such a replay: how often the run was reopened after a spent limit."""
    limits: Limits | None = None
    """Of a replay that begins behind a record: the limits that the run was given later."""
    held: bool = False
    """Whether nothing runs in it until it is resumed, not even a step that was under way in the parent."""
    over: bool = False
    """Whether it keeps the result that the parent had at `at`, behind a spent limit, and so is not reopened."""
    by: str = ""
    """Who made it, and gave `answer`."""


class Migrated(RecordBase):
    """The run continues in another version of its graph. Names of what is inside a subgraph begin with its path.

    A name that is no key of a mapping stays. The graphs themselves are in the store, by the digests of their content.
    """

    type: Literal["migrated"] = "migrated"
    structure: str
    """Digest of the structure that it continues in."""
    content: str
    """Digest of the content that it continues in."""
    structure_before: str = ""
    content_before: str = ""
    """Of the graph that it was last driven in."""
    nodes: dict[str, str] = Field(default_factory=dict)
    """Old path of a node -> its new path: `{"draft/ask": "draft/confirm"}`."""
    fields: dict[str, str] = Field(default_factory=dict)
    """Old path of a state field -> its new path."""
    forks: dict[str, str] = Field(default_factory=dict)
    """Old path of the node of a fork -> the new path of the node that the fork is at now, if that is another one."""
    values: JsonDict | None = None
    """State fields that the migration added or mapped, with their values, in the run's own graph."""
    inside: dict[str, JsonDict] = Field(default_factory=dict)
    """Activation of a subgraph's node -> the same for the graph inside."""
    joins: dict[str, str | None] = Field(default_factory=dict)
    """Join of an open fork -> the join that takes its place; None: the fork has no such join any more."""
    withdrawn: tuple[str, ...] = ()
    """Activations whose questions and answers are withdrawn: they ask again."""
    grade: Literal["compatible", "decision", "migration"] = "compatible"
    changes: tuple[str, ...] = ()
    """The differences of structure, line by line, each with its grade."""


class Ended(RecordBase):
    """The run ended."""

    type: Literal["ended"] = "ended"
    status: Literal["completed", "failed", "cancelled", "exhausted"]
    output: object = None
    error: Failure | None = None
    reduced: JsonDict | None = None


class Reopened(RecordBase):
    """The ended run goes on where it was: only this record follows `ended`.

    Steps that failed begin a new attempt, steps that were stopped go on, withdrawn questions are asked again.
    """

    type: Literal["reopened"] = "reopened"
    by: str = ""
    reason: str = ""
    status: Literal["failed", "cancelled", "exhausted"]
    """How the run had ended."""
    limits: Limits | None = None
    """The limits of the run's graph from now on, if they were changed."""
