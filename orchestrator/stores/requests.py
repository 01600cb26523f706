"""Requests to a store: the arguments of the methods of `Store` that take many of them.

    await store.append(Append(run_id, records, after=3, status="paused"))
    page = await store.runs(RunQuery(graph="triage", limit=10))

A store wrapper passes a request on, or a copy with other values (`dataclasses.replace`). `words`
gives the words of a text, as `RunQuery.search` compares them: the same in every store.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from difflib import get_close_matches
from operator import eq, ge, lt
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

if TYPE_CHECKING:
    from orchestrator.json import JsonObject
    from orchestrator.kernel.records import Record
    from orchestrator.kernel.status import Relation
    from orchestrator.stores.fair_claims import Turns
    from orchestrator.stores.owner import Owner
    from orchestrator.stores.rows import Lease, Note, OpenQuestion, RunInfo, RunSummary, RunTotals


_ASCII_WORD = re.compile("[a-z0-9]+")


class _Signs(dict[int, int | str]):
    """Maps each character of a text: it is kept, removed, or separates words. Filled on demand."""

    def __missing__(self, code: int) -> int | str:
        sign = chr(code)
        kept = "" if unicodedata.combining(sign) else code if unicodedata.category(sign)[0] in "LN" else " "
        self[code] = kept
        return kept


_SIGNS = _Signs()


def words(text: str) -> list[str]:
    """Return the words of a text: sequences of letters and digits, without regard to case and diacritics."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return plain.translate(_SIGNS).split()


def contains(wanted: Sequence[str], *texts: str) -> bool:
    """Return True if all of these words occur in these texts; False if there are no words."""
    missing = set(wanted)
    for text in texts:
        missing -= found_in(missing, text)
    return bool(wanted) and not missing


def found_in(wanted: set[str], text: str) -> set[str]:
    """Return those of these words that occur in a text."""
    if not wanted:
        return set()
    if text.isascii():  # most texts are: search for the letters first, which is much faster
        lowered = text.lower()
        if not any(word in lowered for word in wanted):
            return set()
    return wanted.intersection(words(text))


__all__ = ["Append", "ClaimRequest", "NewRun", "QuestionQuery", "RunQuery", "StatsQuery"]


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be added; see `Store.create`."""

    info: RunInfo
    """The run's row. Its `head` must equal the number of records; its `totals` and `questions` are stored as well."""
    records: Sequence[Record]
    """The run's first records, numbered from 1."""
    _: KW_ONLY
    graph: JsonObject | None = None
    """The data of the run's graph, which is stored under `info.content`; None: it is stored already. An object that is
    passed again must be unchanged, because a store may cache its text."""
    lease: Lease | None = None
    """The lease that the run starts with."""
    ttl: float = 30.0
    """Seconds that the lease lasts without a heartbeat of its holder."""
    notes: Sequence[Note] = ()
    """The run's notes, of a run that comes from another store."""


@dataclass(slots=True)  # one is created for each write, and a frozen one takes three times as long
class Append:
    """Records to be added to a run, and changes to its row; see `Store.append`."""

    run_id: str
    records: Sequence[Record]
    """The records, numbered from `after + 1`."""
    _: KW_ONLY
    after: int
    """The head that the run must have, which is the number of its last record."""
    status: str | None = None
    """The run's new status; None leaves it. If it is final, all messages of the run except notices are deleted as well,
    because no executor will handle them."""
    due: float | None = None
    """When the run must be continued, in Unix seconds. It belongs to `status`: with a status it is stored as given
    (None clears it), without a status None leaves it."""
    waiting: int | None = None
    """The new number of open questions; None leaves it."""
    summary: RunSummary | None = None
    """The run's new summary in lists; None leaves it."""
    totals: RunTotals | None = None
    """The run's usage, replacing the stored one; None leaves it."""
    questions: Sequence[OpenQuestion] | None = None
    """All open questions of the run, replacing the stored ones; None leaves them."""
    consumed: Sequence[int] = ()
    """Ids of messages to delete. Only those of this run are deleted."""
    lease: str | None = None
    """The token of the lease to check; None: no check."""
    release: bool = False
    """Release the lease in the same transaction, as `drop_lease` does."""
    snapshot: bytes | None = None
    """The folded records of the run up to the new head, stored in the same transaction as by `put_snapshot`."""

    @property
    def head(self) -> int:
        """The head of the run after the append."""
        return self.after + len(self.records)


class Comparison(NamedTuple):
    """A filter of runs that compares one value of a run's row; see `RunQuery.comparisons`."""

    name: str
    """The filter's name."""
    sql: str
    """SQL for the value and the operator, for both databases."""
    value_of: Callable[[RunInfo], Any]
    """Returns the same value from a row in memory; None if it has none, and does not match."""
    value: Any
    """The value to compare with, on the right of the operator."""

    def fits(self, info: RunInfo) -> bool:
        """Return True if a row in memory matches."""
        found = self.value_of(info)
        return found is not None and _OPERATORS[self.sql.rpartition(" ")[2]](found, self.value)


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {"=": eq, ">=": ge, "<": lt}


_COMPARED: dict[str, tuple[str, Callable[[RunInfo], Any]]] = {
    "graph": ("runs.graph =", lambda info: info.graph),
    "parent": ("runs.parent =", lambda info: info.parent and info.parent.run_id),
    "relation": ("runs.relation =", lambda info: info.parent and info.parent.relation),
    "since": ("runs.updated >=", lambda info: info.updated),
    "begun_since": ("runs.created >=", lambda info: info.created),
    "begun_before": ("runs.created <", lambda info: info.created),
}
"""Name of a filter -> the value of a row that it compares, in SQL and in memory. All stores use these filters from this
table. A column of the summary is `(SELECT steps FROM summaries WHERE run = runs.id) >=`."""


Sort: TypeAlias = Literal["started", "updated", "duration", "cost", "status", "graph"]
"""What the list of runs is sorted by; see `RunQuery.sort`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Filters of the list of runs, its order, and the page of it; see `Store.runs`. None: any."""

    status: Collection[str] | str | None = None
    """A status or several. `interrupted` matches the runs that are `running` in the journal and whose lease no living
    executor holds; `running` matches those as well. Stores read it by `statuses`."""
    graph: str | None = None
    """The name of a graph."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that a run must have, with their values."""
    parent: str | None = None
    """The id of the run from which a run was started."""
    relation: Relation | None = None
    """How a run was started from another."""
    search: str | None = None
    """Words that must all occur in a run's labels, input or output (in names and values of labels, and in the texts of
    `RunSummary`), in any order; case and diacritics do not count. A word is a sequence of letters and digits,
    everything else separates words. A string without a word finds nothing. Stores read it by `words`."""
    since: float | None = None
    """Unix seconds: the run was created or written to (`updated`) at this time or later."""
    begun_since: float | None = None
    """Unix seconds: the run was created at this time or later."""
    begun_before: float | None = None
    """Unix seconds: the run was created before this time."""
    waiting: bool | None = None
    """True: the run has open questions; False: it has none."""
    failed_tool: str | None = None
    """The name of a tool of which a call failed, by the run's totals; "" and `*` match any tool."""
    model: str | None = None
    """The name of a model that the run called, by its totals."""
    tool: str | None = None
    """The name of a tool that the run called, by its totals."""
    node: str | None = None
    """The name of a node of which a step ran, by the run's totals; in subgraphs `OUTER/INNER`."""
    diverged: bool | None = None
    """True: the run is a replay that diverged (`RunInfo.diverged`); False: it is no such run."""
    replays: bool = True
    """False: replays are left out."""
    sort: Sort = "started"
    """What the list is sorted by: `started` and `updated` are the times, `duration` and `cost` those of the run's usage
    (0 if it is unknown), `status` (that of the journal) and `graph` are compared as text. Among equals the newest run
    comes first. Only `started` is in the order of an index: the others read a few columns of every run that matches."""
    ascending: bool = False
    """True: the smallest comes first; with `started`, the oldest run."""
    after: str | None = None
    """The cursor of the previous page; None: the first page."""
    limit: int = 50
    """Maximum number of runs on a page."""

    @property
    def statuses(self) -> frozenset[str] | None:
        """Return `status` as a set.

        Raises:
            ValueError: a status is unknown.
        """
        status = self.status
        if status is None:
            return None
        wanted = frozenset({status} if isinstance(status, str) else status)
        _check_statuses(wanted)
        return wanted

    def comparisons(self, *without: str) -> list[Comparison]:
        """Return the filters that are set and compare one value of a run's row.

        Args:
            without: names of filters to leave out.
        """
        return [
            Comparison(name, sql, value_of, value)
            for name, (sql, value_of) in _COMPARED.items()
            if (value := getattr(self, name)) is not None and name not in without
        ]

    @property
    def parts(self) -> list[tuple[str, str]]:
        """Return the parts that the run's totals must have: `model`, `tool` or `node`, and a name."""
        found = (("model", self.model), ("tool", self.tool), ("node", self.node))
        return [(kind, name) for kind, name in found if name is not None]

    def check_sort(self) -> None:
        """Check `sort`.

        Raises:
            ValueError: runs cannot be sorted by it.
        """
        if self.sort not in get_args(Sort):
            raise ValueError(f"{self.sort!r}: runs are sorted by {', '.join(get_args(Sort))}")

    @property
    def words(self) -> list[str] | None:
        """Return the words of `search`."""
        return None if self.search is None else words(self.search)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionQuery:
    """Filters of the list of open questions, and the page of it; see `Store.questions`. None: any."""

    graph: str | None = None
    """The name of a graph."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that the run must have, with their values."""
    kinds: Collection[str] | None = None
    """Kinds of questions."""
    after: str | None = None
    """The cursor of the previous page; None: the first page."""
    limit: int = 50
    """Maximum number of questions on a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsQuery:
    """Groups of runs, and filters; see `Store.stats`. None: any."""

    by: Sequence[str] = ()
    """Names of groups: `day` (UTC, when the run was created), `graph`, `model`, `tool`, `node`, or `label:KEY`, in the
    order in which the rows are sorted. Empty: one group of all runs."""
    since: float | None = None
    """Unix seconds: runs that were created at this time or later."""
    until: float | None = None
    """Unix seconds: runs that were created before this time."""
    graph: str | None = None
    """The name of a graph."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that a run must have, with their values."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Runs that an executor wants to drive; see `Store.claim`."""

    owner: Owner
    """The executor that takes the runs."""
    _: KW_ONLY
    graphs: Collection[str] | None
    """Names of graphs; None: any."""
    limit: int
    """Maximum number of runs to take."""
    ttl: float
    """Seconds that the leases last without a heartbeat; see `Store.take_lease`."""
    most: Mapping[str, int] | None = None
    """Name of a graph -> maximum number of its runs to take; other graphs have no limit of their own."""
    turns: Turns | None = None
    """The values of a label that take turns; it is advanced. None: only the order of `Store.claim` counts."""


def _check_statuses(wanted: Collection[str]) -> None:
    from orchestrator.kernel.status import RunStatus

    known: tuple[str, ...] = get_args(RunStatus)
    for one in sorted({*wanted}.difference(known)):
        close = get_close_matches(one, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(known)}"
        raise ValueError(f"{one!r} is not a status of runs; {hint}")
