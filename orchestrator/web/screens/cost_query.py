"""What the address of the costs says: groups, range, filters, and the column that the bars show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlencode

from pydantic import BeforeValidator, Field, model_validator

from orchestrator.values import utc
from orchestrator.web.moments import DAY, Since, Until, unix
from orchestrator.web.requests import Label, Name, Query

GROUPS = ("day", "graph", "model", "node", "tool")
"""What groups are made of, beside labels."""
WITHIN = ("model", "node", "tool")
"""Those of them that lie within runs: a run counts in several, and lists of runs have no such filter."""
LABEL = "label:"
"""What stands before the name of a label that makes groups."""
RANGES = ((1, "Today"), (7, "7 days"), (30, "30 days"))
"""Days, and what their range is called."""

Measure: TypeAlias = Literal["cost", "tokens", "runs", "p50", "p95", "failed", "tools"]


def _given(value: object) -> object:
    """A field of a form that was left empty was not given."""
    return None if value == "" else value


class CostsQuery(Query):
    """What makes a group, which runs count, and which column leads."""

    by: Annotated[str, Field(max_length=210)] = Field(
        "day", description="`day`, `graph`, `model`, `node`, `tool`, or `label:KEY`."
    )
    days: int | None = Field(None, ge=1, le=3660, description="Today and the days before it, so many in all; in UTC.")
    since: Annotated[Since | None, BeforeValidator(_given)] = Field(
        None, description="Runs begun since: a moment, or a day in UTC."
    )
    until: Annotated[Until | None, BeforeValidator(_given)] = Field(
        None, description="Runs begun before a moment, or up to the end of a day in UTC."
    )
    graph: Name | None = Field(None, description="The name of a graph.")
    label: Annotated[
        list[Label], Field(default_factory=list, description="A label as `name:value`; repeated: all of them.")
    ]
    show: Measure = Field("cost", description="The column that the bars show, and by which groups are sorted.")

    @model_validator(mode="after")
    def _one_range(self) -> CostsQuery:
        if self.days is not None and (self.since is not None or self.until is not None):
            raise ValueError("give days, or since and until")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """What groups are by, for the store. Nodes of two graphs that have one name are two groups."""
        return ("graph", "node") if self.by == "node" else (self.by,)

    @property
    def label_name(self) -> str:
        """The name of the label that makes groups; empty: something else does."""
        return self.by.removeprefix(LABEL) if self.by.startswith(LABEL) else ""

    def span(self, now: float) -> tuple[float | None, float | None]:
        """The first moment that counts and the one after the last, Unix seconds; None: no bound."""
        if self.days is not None:
            return now - now % DAY - (self.days - 1) * DAY, None
        return unix(self.since), unix(self.until)


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter that is set, and the address without it."""

    label: str
    without: str


@dataclass(frozen=True, slots=True)
class CostsAddress:
    """The address of the screen: its query, with something else in it."""

    root: str
    query: Sequence[tuple[str, str]]

    def __call__(self, changes: Mapping[str, str | None]) -> str:
        """The address with these parameters; None takes one away."""
        kept = [(name, value) for name, value in self.query if name not in changes]
        return self._with(kept + [(name, value) for name, value in changes.items() if value is not None])

    def filters(self) -> list[Filter]:
        """The graph and the labels that runs must have."""
        return [
            Filter(f"{pair[0]}: {pair[1]}", self._with([one for one in self.query if one != pair]))
            for pair in self.query
            if pair[0] in ("graph", "label")
        ]

    def beside_range(self) -> list[tuple[str, str]]:
        """What a form sends along that chooses another range."""
        return [pair for pair in self.query if pair[0] not in ("days", "since", "until")]

    def _with(self, pairs: Sequence[tuple[str, str]]) -> str:
        return f"{self.root}/costs{'?' if pairs else ''}{urlencode(pairs, errors='replace')}"


def day_of(moment: float | None, *, last: bool = False) -> str:
    """A moment as a day in UTC, as a form shows it; empty: there is none.

    Args:
        moment: Unix seconds.
        last: whether it is the moment after the last that counts.
    """
    return "" if moment is None else utc(moment - last * 0.001).date().isoformat()


def text_of(moment: float) -> str:
    """A moment for an address: a day where one begins, else Unix seconds."""
    return day_of(moment) if moment % DAY == 0 and day_of(moment) else repr(moment)
