"""The frozen data that a store returns: rows of runs, leases, messages, schedules, and findings of its check."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from orchestrator.errors import Archived
from orchestrator.json import JsonObject
from orchestrator.kernel.status import Parent
from orchestrator.values import MAX_NAME, cut, shown_labels

if TYPE_CHECKING:
    from orchestrator.graph.limits import Usage
    from orchestrator.kernel.records import Record

MAX_TEXT = 2000
"""Maximum number of characters of a text in `RunSummary`."""

NOTICE = "notice"
"""The `type` of a message that is not for an executor: it notes something about a run, and stays when the run ends."""

MARK = "$encrypted"
"""Prefix of an encoded value, or the only key of an encoded object; see `orchestrator.stores.codec`."""

MAX_DEATHS = 5
"""A run whose drives failed or died so many times in a row is no longer given out by `Store.claim`."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The executor that drives a run, and the time until its lease expires if it is not renewed.

    Only the first four fields identify a lease; the others are the state when the store was queried.
    """

    run_id: str
    token: str
    """Unique to this lease; every append to the run carries it."""
    holder: str = ""
    """The id of the executor that holds the lease. All leases of a holder expire at the same time."""
    owner: JsonObject = field(default_factory=dict)
    """The holder's machine and process, see `orchestrator.stores.owner.Owner`."""
    left: float = field(default=0.0, compare=False)
    """Seconds until it expires without a beat of the holder, by the store's clock; 0 or less: it has expired."""
    ttl: float = field(default=0.0, compare=False)
    """Seconds that it lasts after each beat."""
    beat: float = field(default=0.0, compare=False)
    """Changes with every beat of the holder."""


@dataclass(frozen=True, slots=True)
class ReplayFacts:
    """What lists of runs show of a replay."""

    diverged: bool = False
    """True if it made a request that the replayed run did not make. It may have ended there, or gone on."""
    calls: int = 0
    """Calls of models and tools whose results came from the replayed run; the next two are what they had used."""
    tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The summary of a run in lists: short texts, and its usage. Texts have at most 2,000 characters.

    They are stored unchanged; views redact them.
    """

    error: str = ""
    """The error of a failed run; of a replay that ended where it diverged, the reason."""
    input: str = ""
    """The value of the graph's input field, as text."""
    output: str = ""
    question: str = ""
    """The prompt of the first open question."""
    usage: Usage | None = None
    """A fork counts only its own usage; None if unknown: the run was last written by an earlier version."""
    steps: int = 0
    """Steps that completed; a fork counts only its own."""
    replay: ReplayFacts | None = None
    """None: it is no replay, or was last written by an earlier version."""

    def facts(self) -> dict[str, Any]:
        """Return the fields of a row, by name."""
        return {
            "error": self.error,
            "input": self.input,
            "output": self.output,
            "question": self.question,
            "usage": self.usage,
            "steps": self.steps,
            "replay": self.replay,
        }


class Total(Struct, frozen=True):
    """The usage of a run in one node: its steps, or calls of one model or tool."""

    node: str
    """The node's name, in subgraphs `OUTER/INNER`, as it was at the time."""
    kind: str
    """`step`, `model`, `tool`, or `effect` for other effects of the node."""
    name: str
    """Name of the model, tool or effect; empty for steps."""
    calls: int = 0
    """Steps that ended, or calls that started."""
    failed: int = 0
    """Steps or calls that failed, after their last try. A tool's result that is an error is a failure."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    """Duration of the calls, or of the steps without waiting for answers."""


class RunTotals(Struct, frozen=True):
    """The usage of a run, by node and by the models and tools that its nodes called. A fork counts only its own.

    The usage of runs of graphs that it called as tools is in their totals, not in its own.
    """

    rows: tuple[Total, ...] = ()
    """Sorted by node, kind and name."""
    seconds: float = 0.0
    """Seconds that the run was active."""

    def calls(self, kind: str) -> int:
        """Return the number of calls of a kind, or of steps that ended."""
        return sum(row.calls for row in self.rows if row.kind == kind)


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """An open question in a run's row."""

    id: str
    asked: float
    """When it was asked, in Unix seconds."""
    kind: str
    data: JsonObject = field(default_factory=dict)
    """The question as plain JSON."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The facts about a run that a list of runs shows, stored next to its journal."""

    REDACTED: ClassVar = ("labels", "input", "output", "question", "error", "fault")
    """Fields of `to_json` that people, models and tools wrote: views redact the secrets in them."""

    run_id: str
    graph: str
    """The graph's name."""
    status: str
    """The status in the journal: never `interrupted`, which depends on the lease."""
    labels: Mapping[str, str] = field(default_factory=dict)
    created: float = 0.0
    """Unix seconds."""
    updated: float = 0.0
    """`ts` of the last record, Unix seconds."""
    head: int = 0
    """`seq` of the last record."""
    structure: str = ""
    content: str = ""
    due: float | None = None
    """Unix seconds when the next timer or deadline is due."""
    waiting: int = 0
    """Number of open questions."""
    error: str = ""
    """This and the next five: see `RunSummary`. Exact at every change of status, else at most about a second old."""
    input: str = ""
    output: str = ""
    question: str = ""
    usage: Usage | None = None
    steps: int = 0
    parent: Parent | None = None
    """The run from which this one was made; None if there is none."""
    deaths: int = 0
    """Number of drives in a row, since a step completed, that failed or ended without releasing their lease."""
    retry_at: float | None = None
    """Unix seconds before which `Store.claim` does not give out the run."""
    fault: str = ""
    """The error that stopped the last drive."""
    lease: Lease | None = field(default=None, compare=False)
    """The run's lease when the row was read; None: no executor holds one."""
    indexed: bool = field(default=True, compare=False, repr=False)
    """True if searches of the store read `input` and `output`: those of encrypted runs are in no index."""
    totals: RunTotals | None = field(default=None, compare=False, repr=False)
    """Passed to `Store.create`. Rows that are read do not have them, see `Store.totals`; None: unknown."""
    questions: tuple[OpenQuestion, ...] | None = field(default=None, compare=False, repr=False)
    """Passed to `Store.create`. Rows that are read do not have them, see `Store.questions`; None: unknown."""
    archived: Archived | None = field(default=None, compare=False, repr=False)
    """The object that contains the records, if they are not in the store."""
    replay: ReplayFacts | None = None
    """See `RunSummary`."""

    @property
    def diverged(self) -> bool:
        """Return True if the run is a replay that made a request that the replayed run did not make."""
        return self.replay is not None and self.replay.diverged

    @property
    def ended_diverged(self) -> bool:
        """Return True if it ended there by itself: its status is `cancelled`, but nobody cancelled it."""
        return self.diverged and self.status == "cancelled" and bool(self.error)

    @property
    def driver(self) -> str:
        """Return the process that drives the run, as `host pid`; empty if there is none."""
        lease = self.lease
        if lease is None or lease.left <= 0:
            return ""
        return cut(f"{lease.owner.get('host', '')} {lease.owner.get('pid', '')}".strip(), MAX_NAME)

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain JSON, as commands and the web API list it. Views redact the fields in `REDACTED`."""
        usage = self.usage
        return {
            "run_id": cut(self.run_id, MAX_NAME),
            "graph": cut(self.graph, MAX_NAME),
            "status": self.status,
            "labels": shown_labels(self.labels),
            "created": self.created,
            "updated": self.updated,
            "head": self.head,
            "waiting": self.waiting,
            "due": self.due,
            "input": self.input,
            "output": self.output,
            "question": self.question,
            "error": self.error,
            "steps": self.steps,
            "tokens": None if usage is None else usage.tokens,
            "cost": None if usage is None else usage.cost,
            "seconds": None if usage is None else usage.seconds,
            "usage": None if usage is None else usage.model_dump(mode="json"),
            "parent": None if self.parent is None else asdict(self.parent),
            "diverged": self.diverged,
            "deaths": self.deaths,
            "retry_at": self.retry_at,
            "fault": self.fault,
            "driver": self.driver,
            "archived": None if self.archived is None else self.archived.to_json(),
        }

    @property
    def summary(self) -> RunSummary:
        """The summary, which the executor keeps up to date."""
        return RunSummary(self.error, self.input, self.output, self.question, self.usage, self.steps, self.replay)

    def changed(self, **changes: Any) -> RunInfo:
        """Return a copy with changed facts: `dataclasses.replace`, for rows that are written with each commit."""
        return RunInfo(**{**dict(zip(_INFO_FIELDS, _info_values(self), strict=True)), **changes})


class StoredRun(Struct, frozen=True):
    """What the state of a run is made from, as it was stored at one moment."""

    info: RunInfo
    snapshot: tuple[int, bytes] | None
    """The number of the last record in the latest snapshot, and its data; None: there is none, or it was not read."""
    records: list[Record]
    """The records after it."""


class _UsageWhenAsked:
    """Descriptor of a run's usage, which may be stored as JSON until it is read.

    Most lists of runs do not read it, and parsing it loads pydantic.
    """

    def __init__(self, place: Any) -> None:
        self._place = place

    def __get__(self, info: RunInfo | None, kind: type) -> Any:
        if info is None:
            return self
        value = self._place.__get__(info, kind)
        if isinstance(value, str):
            value = _usage_of(value)
            self._place.__set__(info, value)
        return value

    def __set__(self, info: RunInfo, value: object) -> None:
        self._place.__set__(info, value)


def _usage_of(text: str) -> Usage | None:
    from orchestrator.graph.limits import Usage

    if text.startswith('{"replay":') and '"steps":' not in text:
        return None  # a replay whose usage is unknown
    try:
        return Usage.model_validate_json(text)
    except ValueError:
        return None


type.__setattr__(RunInfo, "usage", _UsageWhenAsked(vars(RunInfo)["usage"]))
_INFO_FIELDS = tuple(one.name for one in fields(RunInfo))
_info_values = attrgetter(*_INFO_FIELDS)


def encrypted_with(key_id: str) -> str:
    """Return the text that lists show in place of one that cannot be decrypted."""
    return f"(encrypted with key {key_id!r})"


@dataclass(frozen=True, slots=True)
class Scanned:
    """Extent of the search through journals for one page."""

    runs: int = 0
    """Number of runs that were searched, newest first."""
    records: int = 0
    characters: int = 0
    """Number of characters of text in their records."""
    back_to: float | None = None
    """Unix seconds when the last of these runs was created; None if there was none."""
    stopped: bool = False
    """True if the search reached its limit, so that older runs remain. The page's cursor leads to them."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of the list of runs, newest first. `cursor` leads to the next part; None: this is the last."""

    runs: tuple[RunInfo, ...] = ()
    cursor: str | None = None
    scanned: Scanned | None = None
    """Extent of the search for these runs outside of rows and indexes; None if there was none."""


@dataclass(frozen=True, slots=True)
class WaitingQuestion:
    """An open question of one of the runs of a store."""

    run_id: str
    graph: str
    labels: Mapping[str, str]
    question: OpenQuestion


@dataclass(frozen=True, slots=True)
class QuestionPage:
    """A part of the list of open questions, oldest first. `cursor` leads to the next part; None: this is the last."""

    questions: tuple[WaitingQuestion, ...] = ()
    cursor: str | None = None
    unlisted: tuple[str, ...] = ()
    """Some of the runs whose open questions are not in the store: earlier versions wrote them."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message to a run from outside, waiting for its holder. Ids grow and are never reused."""

    id: int
    run_id: str
    body: JsonObject


@dataclass(frozen=True, slots=True)
class Schedule:
    """When workers start runs of a graph."""

    name: str
    graph: str
    """The graph's name."""
    cron: str
    """Minute, hour, day of month, month and day of week; seconds may come first."""
    next_at: float
    """The next time, in Unix seconds."""
    timezone: str = "UTC"
    catch_up: str = "skip"
    """Which missed times fire when a worker runs again: `skip`, `one` (the latest) or `all`."""
    values: JsonObject = field(default_factory=dict)
    """The start state of its runs."""
    labels: Mapping[str, str] = field(default_factory=dict)
    approve: str | None = None
    """Calls of tools up to this risk are approved by policy."""
    paused: bool = False
    """True if workers ignore it."""


MAX_NOTES = 500
"""Maximum number of notes of a run."""


@dataclass(frozen=True, slots=True)
class Note:
    """What a person wrote about a run, or about one of its steps: a text, a score, or both. It never changes."""

    run: str
    """The run's id."""
    step: int | None = None
    """Number of the record that ended the step; None: the note is about the whole run."""
    text: str = ""
    score: float | None = None
    name: str = ""
    """What the score measures, such as `correctness`, or what kind of note it is."""
    by: str = ""
    """Who wrote it."""
    at: float = 0.0
    """When it was written, in Unix seconds."""
    id: str = ""
    """Unique among the notes of the run."""

    def data(self) -> JsonObject:
        """Return the note as plain JSON, without the run and without empty fields."""
        found = asdict(self)
        del found["run"]
        return {name: value for name, value in found.items() if value not in (None, "")}


_NOTE_FIELDS: Mapping[str, Any] = {
    "step": int, "text": str, "score": int | float, "name": str, "by": str, "at": int | float, "id": str,
}  # fmt: skip


def finite(number: float) -> float:
    """Return a number as a float.

    Raises:
        ValueError: it is infinite, not a number, or too large for a float.
    """
    try:
        found = float(number)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise ValueError("a finite number is expected")
    return found


def note_of(run_id: str, data: object) -> Note:
    """Return a note from what `Note.data` returned.

    Raises:
        ValueError: it is no note; the argument is the reason.
    """
    if not isinstance(data, dict):
        raise ValueError("a note is a JSON object")
    found: dict[str, Any] = {}
    for name, value in data.items():
        kind = _NOTE_FIELDS.get(name)
        if kind is None:
            raise ValueError(f"this version has no field {name!r}")
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"field {name!r}: its value is of the wrong type")
        found[name] = value if kind in (int, str) else finite(value)
    if not found.get("id") or found.get("at", -1.0) < 0 or not 0 < found.get("step", 1) < 1 << 32:
        raise ValueError("a note needs `id` and `at`, and `step` is the number of a record")
    return Note(run_id, **found)


def in_time(notes: Iterable[Note]) -> list[Note]:
    """Return notes in the order in which they were written."""
    return sorted(notes, key=lambda note: (note.at, note.id))


@dataclass(frozen=True, slots=True)
class Holder:
    """An executor that has a row in a store, because it holds leases or announced itself."""

    holder: str
    """The executor's id."""
    owner: JsonObject
    """Facts about the executor, for `is_dead`; `worker` contains those that a worker gave about itself."""
    left: float
    """Seconds until its leases expire without a heartbeat, by the store's clock; negative after they expired."""
    ttl: float
    """Seconds that its leases last without a heartbeat."""
    held: int = 0
    """Number of its runs."""
    runs: tuple[str, ...] = ()
    """The ids of some of its runs."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of a check of a store."""

    what: str
    run_id: str = ""
    """The run concerned; empty: the store as a whole."""
    repaired: str = ""
    """The repair that was made; empty if none."""
    note: bool = False
    """True if nothing is wrong, and this is for information only."""
