"""Two to six runs side by side: their figures, aligned rows of steps, and the texts of one step as a diff of lines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import quote, urlencode

from pydantic import Field
from starlette.responses import Response

from orchestrator.web import comparisons
from orchestrator.web.comparisons import STEP, AlignedQuery, RunsToCompare, TextsQuery
from orchestrator.web.endpoint import Call, Endpoint
from orchestrator.web.questions import open_questions
from orchestrator.web.screens.choose import choose
from orchestrator.web.screens.shell import key_of, lasting, page, root_of

if TYPE_CHECKING:
    from orchestrator.web.comparisons import (
        AlignedRuns,
        ComparedFigures,
        ComparedRow,
        ComparedStep,
        DifferenceNote,
        RowTexts,
    )


Part: TypeAlias = tuple[str, bool]
"""Part of a line, and whether it differs."""
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_MOST = 250_000
"""Pairs of words that are compared; in longer texts, whole lines are marked."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a diff."""

    kind: Literal["cut", "added", "alike", "note"]
    """A line of only the first run, of only the other one, of both, or about the diff."""
    parts: Sequence[Part]


def lines_of(diff: Sequence[str]) -> list[Line]:
    """Return the lines of a unified diff: `-` for the first text, `+` for the second."""
    found: list[Line] = []
    cut: list[str] = []
    added: list[str] = []

    def close() -> None:
        found.extend(_changed(cut, added))
        cut.clear()
        added.clear()

    for line in diff:
        if line.startswith("-") and not added:
            cut.append(line[1:])
        elif line.startswith("+"):
            added.append(line[1:])
        else:
            close()
            if line.startswith("-"):
                cut.append(line[1:])
            elif line.startswith(" "):
                found.append(Line("alike", [(line[1:], False)]))
            elif not line.startswith("@@"):
                found.append(Line("note", [(line, False)]))
            elif found and found[-1].kind != "note":  # before this marker, it is more of the same text
                found.append(Line("note", [("⋯", False)]))
    close()
    return found


def _changed(cut: Sequence[str], added: Sequence[str]) -> list[Line]:
    """Return lines that replace others. Long text is wrapped, so words are compared across lines."""
    before, after = _words(cut), _words(added)
    if not before or not after or len(before) * len(after) > _MOST:
        return [Line("cut", [(line, False)]) for line in cut] + [Line("added", [(line, False)]) for line in added]
    same = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    kept = [set[int](), set[int]()]
    for a, b, size in same:
        kept[0].update(range(a, a + size))
        kept[1].update(range(b, b + size))
    return [
        *(Line("cut", parts) for parts in _marked(before, kept[0])),
        *(Line("added", parts) for parts in _marked(after, kept[1])),
    ]


def _words(lines: Sequence[str]) -> list[str]:
    return [word for number, line in enumerate(lines) for word in (*(["\n"] if number else []), *_WORD.findall(line))]


def _marked(words: Sequence[str], kept: set[int]) -> list[list[Part]]:
    lines: list[list[Part]] = [[]]
    for at, word in enumerate(words):
        if word == "\n":
            lines.append([])
            continue
        line, changed = lines[-1], at not in kept
        if line and line[-1][1] == changed:
            line[-1] = (line[-1][0] + word, changed)
        else:
            line.append((word, changed))
    return lines


_LETTERS = "ABCDEF"
_NOT_HERE = "did not reach this step"


class CompareQuery(AlignedQuery):
    """The runs, which rows, and the row whose texts are shown."""

    runs: RunsToCompare = Field(default_factory=list)
    step: STEP | None = Field(None, description="The `key` of a row.")


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of a run, and its difference from the first."""

    text: str
    change: str
    """Such as `+12`; empty: no difference, or the first run."""


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A compared run."""

    letter: str
    id: str
    graph: str
    other_version: bool
    """True if it has another version of the first run's graph."""
    status: str
    input: str
    output: str
    figures: Sequence[tuple[str, Figure]]
    """Name and number: steps, tokens, cost, time."""
    without: str
    """The URL without this run; empty: two are needed."""
    first: str
    """The URL that compares the others with this run; empty if it does already."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A step of one run."""

    letter: str
    run_id: str
    address: str
    """URL of the step on the page of its run; empty if the run has no such step."""
    status: str
    said: str
    figures: Sequence[tuple[str, Figure]]
    kinds: Sequence[str]
    """Kinds of differences from the first run."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table."""

    key: str
    element: str
    version: str
    number: int
    name: str
    place: str
    differs: bool
    first: bool
    """True if it is the first row that differs."""
    cells: Sequence[Cell]
    address: str
    """The page with the texts of this row."""


@dataclass(frozen=True, slots=True)
class Side:
    """Differences of a run from the first in one row."""

    letter: str
    notes: Sequence[tuple[str, str, Sequence[Line]]]
    """Kind, sentence and lines of each difference."""
    state: Sequence[Line]
    state_said: str
    """Note on the state; empty: it is not compared."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of one row."""

    key: str
    title: str
    sides: Sequence[Side]


@dataclass(frozen=True, slots=True)
class Address:
    """Builds URLs of a comparison, with some parameters changed."""

    root: str
    ids: Sequence[str]
    query: Mapping[str, str]

    def __call__(self, ids: Sequence[str] | None = None, **changes: str | None) -> str:
        """Return the URL with other runs or parameters; None removes one."""
        return f"{self.root}/compare?{self.parameters(ids, **changes)}"

    def parameters(self, ids: Sequence[str] | None = None, **changes: str | None) -> str:
        """Return the query of this URL."""
        given = self.ids if ids is None else ids
        kept = {**self.query, **changes}
        return urlencode([*runs_query(given), *((name, value) for name, value in kept.items() if value is not None)])


def runs_query(ids: Sequence[str]) -> list[tuple[str, str]]:
    """Return the parameters that name some runs. An id may contain commas."""
    plain = len(ids) > 1 and not any("," in name for name in ids)
    return [("runs", ",".join(ids))] if plain else [("runs", name) for name in ids]


async def compare(call: Call[CompareQuery]) -> Response:
    """Show runs side by side."""
    query, root = call.query, root_of(call)
    if len(named := comparisons.listed(query.runs)) < comparisons.FEWEST:
        return await choose(call, "Compare runs", "compare", comparisons.MOST, named)
    found = await comparisons.rows_of(call, query)
    ids = [run.run_id for run in found.runs]
    kept = {"different": "true"} if query.different else {}
    given = kept | {name: str(getattr(query, name)) for name in ("after", "limit", "step") if _is_given(query, name)}
    address = Address(root, ids, given)
    rows = [_row(row, found, address) for row in found.rows]
    texts = None if query.step is None else await comparisons.texts_of(call, query.runs, query.step)
    waiting = await open_questions(call)
    first = found.first
    return await page(
        call,
        "compare",
        {
            "title": f"Compare {len(ids)} runs",
            "runs": _runs(found, address),
            "rows": rows,
            "address": address,
            "total": len(found.rows),
            "summary": _summary(found),
            "differing": found.differing,
            "first": None if first is None else _row(first, found, address),
            "first_said": _first_said(first),
            "first_address": "" if first is None else _leading_to(first, found, query, address),
            "different": query.different,
            "texts": None if texts is None else _texts(texts, found.runs),
            "after": query.after,
            "shown": _shown(found, query),
            "earlier": address(
                after=str(max(0, query.after - query.limit)) if query.after > query.limit else None, step=None
            )
            if query.after
            else "",
            "later": "" if found.cursor is None else address(after=str(found.cursor), step=None),
            "open_questions": waiting,
            "changes": f"/diff/steps?{urlencode(runs_query(ids))}",
            "letters": _LETTERS,
        },
        root=root,
        version=["compare", given, waiting, found.model_dump(mode="json"), texts and texts.model_dump(mode="json")],
    )


async def step(call: Call[TextsQuery]) -> Response:
    """Return the texts of one row, which the page puts below it."""
    found = await comparisons.texts(call)
    names = comparisons.names_of(call.query.runs)
    texts = _texts(found, names)
    return await page(
        call,
        "compare_step",
        {"texts": texts},
        root=root_of(call),
        version=["step", names, found.model_dump(mode="json")],
    )


def _is_given(query: CompareQuery, name: str) -> bool:
    return name in query.model_fields_set and getattr(query, name) != CompareQuery.model_fields[name].default


def _runs(found: AlignedRuns, address: Address) -> list[ComparedRun]:
    base = found.runs[0]
    ids = [run.run_id for run in found.runs]
    shown = []
    for at, run in enumerate(found.runs):
        others = [name for name in ids if name != run.run_id]
        shown.append(
            ComparedRun(
                letter=_LETTERS[at],
                id=run.run_id,
                graph=run.graph,
                status=run.status,
                input=run.input,
                output=run.output,
                other_version=run.graph == base.graph and run.content != base.content,
                figures=_figures(run, base if at else None),
                without=address(others, after=None, step=None) if len(ids) > comparisons.FEWEST else "",
                first=address([run.run_id, *others], after=None, step=None) if at else "",
            )
        )
    return shown


def _figures(
    run: ComparedFigures | ComparedStep, base: ComparedFigures | ComparedStep | None
) -> list[tuple[str, Figure]]:
    """Return the numbers of a run or a step. In a step, zeros in both runs are left out."""
    found = []
    steps, before = getattr(run, "steps", None), getattr(base, "steps", None)
    if steps is not None:
        found.append(("steps", Figure(f"{steps:,}", _change(steps, before, "{:,}"))))
    tokens, cost = (None, None) if base is None else (base.tokens, base.cost)
    if steps is not None or run.tokens or tokens:
        found.append(("tokens", Figure(f"{run.tokens:,}", _change(run.tokens, tokens, "{:,}"))))
    if steps is not None or run.cost or cost:
        known = f"{run.cost:.4f}" if run.cost or not run.tokens else "no price known"
        found.append(("cost", Figure(known, _change(run.cost, cost, "{:.4f}"))))
    more = 0.0 if base is None else run.seconds - base.seconds
    small = base is None or abs(more) < max(0.05 * base.seconds, 0.01)
    change = "" if small else f"{'+' if more > 0 else '−'}{lasting(abs(more))}"
    return [*found, ("time", Figure(lasting(run.seconds), change))]


def _change(now: float, before: float | None, form: str) -> str:
    """Describe the difference of a number; empty if it is not visible."""
    if before is None:
        return ""
    text = form.format(abs(now - before))
    return "" if not text.strip("0.,") else f"{'+' if now > before else '−'}{text}"


def _row(row: ComparedRow, found: AlignedRuns, address: Address) -> Row:
    first = found.first is not None and found.first.key == row.key
    make = _cell if row.kind == "step" else _whole
    return Row(
        key=row.key,
        element=key_of(row.key),
        version=key_of(row.model_dump_json() + str(first)),
        number=row.number,
        name=_name(row),
        place=_place(row),
        differs=any(row.differences),
        first=first,
        cells=[make(row, at, found, address) for at in range(len(found.runs))],
        address=address(step=row.key),
    )


def _name(row: ComparedRow) -> str:
    return {"start": "Start", "end": "End"}.get(row.kind, row.name)


def _place(row: ComparedRow) -> str:
    """Return the place of a row, if its name does not contain it."""
    if row.kind != "step":
        return "what the runs began with" if row.kind == "start" else "how they ended"
    visit = f" (visit {row.visit})" if row.visit > 1 else ""
    if row.path:
        return f"{row.path}/{row.node}{visit}"
    return f"{row.node}{visit}" if visit or row.node != row.name else ""


def _whole(row: ComparedRow, at: int, found: AlignedRuns, address: Address) -> Cell:
    """Return the cell of a run's start or end."""
    run, end = found.runs[at], row.kind == "end"
    link = f"{address.root}/runs/{quote(run.run_id, safe='')}"
    said = (run.output or run.status) if end else run.input
    return Cell(_LETTERS[at], run.run_id, link, run.status if end else "", said, [], _kinds(row, at))


def _cell(row: ComparedRow, at: int, found: AlignedRuns, address: Address) -> Cell:
    run, one = found.runs[at], row.steps[at]
    kinds = _kinds(row, at)
    if one is None:
        return Cell(_LETTERS[at], run.run_id, "", "", _NOT_HERE, [], kinds)
    base = row.steps[0] if at else None
    said = one.outcome if one.status == "done" else one.status
    link = f"{address.root}/runs/{quote(run.run_id, safe='')}#step={one.number}"
    return Cell(_LETTERS[at], run.run_id, link, one.status, said, _figures(one, base), kinds)


def _kinds(row: ComparedRow, at: int) -> list[str]:
    return [] if at == 0 else [*dict.fromkeys(note.kind for note in row.differences[at - 1])]


def _summary(found: AlignedRuns) -> str:
    rows = f"{found.total:,} rows"
    if not found.differing:
        return f"All took the same steps, asked and got the same, and ended the same ({rows})"
    return f"{found.differing:,} of {rows} differ"


def _first_said(first: ComparedRow | None) -> str:
    """Return the first difference as a sentence."""
    if first is None:
        return ""
    at, note = next((at, notes[0]) for at, notes in enumerate(first.differences, 1) if notes)
    return f"{_name(first)}: {_said(note, at)}"


def _said(note: DifferenceNote, at: int) -> str:
    """Return a difference of two runs in the wording for more than two: runs have letters."""
    said = note.what
    for words, letter in (
        ("the first run", "A"),
        ("the second run", _LETTERS[at]),
        ("the second one", _LETTERS[at]),
        ("in the second", f"in {_LETTERS[at]}"),
    ):
        said = said.replace(words, letter)
    return said


def _leading_to(first: ComparedRow, found: AlignedRuns, query: CompareQuery, address: Address) -> str:
    """Return the URL of the page on which the first difference is, with its texts."""
    at = 0 if query.different else first.number // query.limit * query.limit
    return f"{address(after=str(at) if at else None, step=first.key)}#row-{key_of(first.key)}"


def _shown(found: AlignedRuns, query: CompareQuery) -> str:
    """Describe the rows on the page; empty: all."""
    if not query.after and found.cursor is None:
        return ""
    of = found.differing if query.different else found.total
    last = query.after + len(found.rows)
    return f"rows {query.after + 1:,} to {last:,} of {of:,}" if found.rows else f"no rows behind {of:,}"


def _texts(found: RowTexts, runs: Sequence[ComparedFigures] | Sequence[str]) -> Texts:
    ids = [run if isinstance(run, str) else run.run_id for run in runs]
    states = {one.run_id: one for one in found.states}
    sides = []
    for at, notes in enumerate(found.row.differences, 1):
        state = states.get(ids[at])
        said = "" if state is None else "The state behind it is the same." if state.same else "The state behind it:"
        sides.append(
            Side(
                _LETTERS[at],
                [(note.kind, _said(note, at), lines_of(note.lines)) for note in notes],
                [] if state is None else lines_of(state.lines),
                said,
            )
        )
    return Texts(found.row.key, _name(found.row), sides)


_HTML = "text/html"
SCREENS = (
    Endpoint("GET", "/compare", "view_comparison", compare, "Runs compared.", None, query=CompareQuery, media=_HTML),
    Endpoint(
        "GET",
        "/compare/step",
        "view_compared_step",
        step,
        "The texts of one of its rows.",
        None,
        query=TextsQuery,
        media=_HTML,
    ),
)
"""The comparison, and a part of it."""
