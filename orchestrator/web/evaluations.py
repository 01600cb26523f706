"""Evaluations: lists, and each with its figures and the cases that are wrong or changed, as answers and as screens.

A case is shown to those who may see its runs. Results are values in memory, which programs may write: what is no result
is left out.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat
from starlette.responses import Response

from orchestrator.errors import RunUnknown
from orchestrator.evaluation.kept import NAMESPACE
from orchestrator.evaluation.recorded import Counterfactual
from orchestrator.evaluation.reports import to_svg
from orchestrator.evaluation.results import COLUMNS, Evaluation
from orchestrator.evaluation.scorers import LABEL
from orchestrator.memory import MemoryItem
from orchestrator.tasks import away
from orchestrator.web.documents import Document, blank
from orchestrator.web.endpoint import Call, Endpoint
from orchestrator.web.problems import HttpProblem
from orchestrator.web.questions import open_questions
from orchestrator.web.requests import Name, Query
from orchestrator.web.screens import shell

_PAGE = 25
"""Evaluations of a page: a result has at most 1 MiB, and all of it is read."""
_CASES = 100
"""Cases of a page, and the most in an answer."""
Kind = Literal["evaluation", "counterfactual"]


class EvaluationsQuery(Query):
    """Which page of the evaluations."""

    after: Annotated[Name, Field(pattern=r"^[^\x00]*$")] = Field(
        "", description="The `cursor` of the page before: evaluations whose names come after it."
    )
    limit: int = Field(_PAGE, ge=1, le=_PAGE, description="Maximum number of evaluations in an answer.")


class EvaluationQuery(Query):
    """Which part of the cases of an evaluation."""

    variant: str = Field("", max_length=400, description="Only wrong rows of this variant; empty: all.")
    skip: int = Field(0, ge=0, le=10_000, description="Number of cases to leave out.")


class EvaluationRow(Document):
    """An evaluation in a list."""

    name: str
    kind: Annotated[Kind, Field(description="`counterfactual`: recorded runs, replayed with another graph.")]
    data: Annotated[str, Field(description="The name of its data.")]
    cases: Annotated[int, Field(description="Rows, times variants, times repeats; or replayed runs.")]
    done: Annotated[int, Field(description="Cases with a result.")]
    best: Annotated[str, Field(description="The variant with the highest accuracy, or the graph of replays.")]
    accuracy: Annotated[
        FiniteFloat | None, Field(description="Its accuracy, or the share of answers to be kept that stayed.")
    ]
    cost: Annotated[FiniteFloat, Field(description="What was paid until now, judges included.")]
    stopped: Annotated[str, Field(description="Why it stopped before its end; empty if it did not.")]
    simulated: Annotated[bool, Field(description="Whether a model was simulated.")]
    updated: Annotated[FiniteFloat, Field(description="Unix seconds.")]


class EvaluationPage(Document):
    """A page of the list of evaluations."""

    evaluations: list[EvaluationRow]
    cursor: Annotated[str | None, Field(description="The `after` of the next page; null: there is none.")]


class VariantFigures(Document):
    """The figures of one graph with one model."""

    name: str
    graph: str
    model: str
    rows: Annotated[int, Field(description="Rows with a result.")]
    runs: int
    accuracy: FiniteFloat
    low: Annotated[FiniteFloat, Field(description="Lower end of the 95 % interval of the accuracy.")]
    high: FiniteFloat
    scores: Annotated[dict[str, FiniteFloat], Field(description="Scorer -> mean score.")]
    statuses: Annotated[dict[str, int], Field(description="Status -> number of runs.")]
    model_calls: int
    tool_calls: int
    tokens: int
    cost: FiniteFloat
    priced: Annotated[bool, Field(description="False if the price of its model is unknown: `cost` lacks its calls.")]
    rounds: Annotated[FiniteFloat, Field(description="Mean number of model calls one after the other in a run.")]
    median_seconds: FiniteFloat
    p95_seconds: FiniteFloat


class PairedDifference(Document):
    """The paired difference of two variants, over the rows that both have."""

    first: str
    second: str
    rows: int
    only_first: Annotated[int, Field(description="Rows that only the first variant has right.")]
    only_second: int
    p: Annotated[FiniteFloat, Field(description="Two-sided p-value of McNemar's exact test.")]
    difference: Annotated[FiniteFloat, Field(description="Mean score of the first minus that of the second.")]
    low: Annotated[FiniteFloat, Field(description="Lower end of its 95 % interval.")]
    high: FiniteFloat


class ScorerAgreement(Document):
    """How far the first scorer agrees with the scores of people on the same runs."""

    cases: int
    agreed: int
    kappa: FiniteFloat | None


class WrongRow(Document):
    """A case that is wrong. Texts are cut."""

    row: str
    line: int
    variant: str
    repeat: int
    run_id: str
    status: str
    answer: str
    expected: str
    why: str


class Figures(Document):
    """The figures of an evaluation of rows, and a part of its wrong cases."""

    scorers: Annotated[list[str], Field(description="The first one decides whether a row is right.")]
    rows: int
    taken: Annotated[int, Field(description="Cases that an earlier part of the evaluation had settled.")]
    variants: list[VariantFigures]
    differences: list[PairedDifference]
    agreement: ScorerAgreement | None
    changed: Annotated[list[str], Field(description="Rows that differ from an earlier part of the evaluation.")]
    remarks: list[str]
    wrong_count: int
    wrong: list[WrongRow]


class Spent(Document):
    """What calls spent."""

    calls: int
    input_tokens: int
    output_tokens: int
    cost: FiniteFloat


class ReplayedRow(Document):
    """A recorded run and its replay. Texts are cut."""

    run_id: str
    replay_id: str
    people: Annotated[str, Field(description="`kept` or `rejected`: what people said of its answer; empty: nothing.")]
    status: Annotated[str, Field(description="Status of the replay.")]
    before: str
    after: str
    why: str


class Replayed(Document):
    """What recorded runs answer after a change, and a part of those with another answer, or with none."""

    graph: str
    same: Annotated[int, Field(description="Runs whose answer stayed.")]
    changed_count: int
    failed_count: Annotated[int, Field(description="Runs without another answer: the replay failed or waits.")]
    kept: Annotated[int, Field(description="Runs whose answers people kept.")]
    kept_same: int
    rejected: int
    rejected_changed: int
    paid: Annotated[Spent, Field(description="By live calls.")]
    saved: Annotated[Spent, Field(description="By calls whose results came from journals.")]
    runs: Annotated[list[ReplayedRow], Field(description="First those with another answer.")]


class EvaluationDocument(EvaluationRow):
    """An evaluation."""

    figures: Annotated[Figures | None, Field(description="Null for a counterfactual.")]
    replayed: Annotated[Replayed | None, Field(description="Null for an evaluation of rows.")]
    more: Annotated[bool, Field(description="Whether more cases are kept: `skip` leads to them.")]


class _Result:
    """A stored result, checked, without what looks like a secret.

    Raises:
        ValueError, TypeError, KeyError, AttributeError, ArithmeticError: a program stored something else.
    """

    def __init__(self, item: MemoryItem) -> None:
        value: Any = blank(item.value)
        self.evaluation = Evaluation.from_json(value) if "variants" in value else None
        self.counterfactual = Counterfactual.from_json(value) if self.evaluation is None else None
        self._value = value
        self.name = item.key
        self.cases = _with_ids(value, item.value, ("wrong",) if self.evaluation else ("changed", "failed"))
        self.row = EvaluationRow.model_validate(self._shared())
        self.of([], more=False)
        self.picture = "" if self.evaluation is None else to_svg(self.evaluation.variants)
        self.notes = self._notes()

    def of(self, cases: Sequence[Mapping[str, Any]], *, more: bool) -> EvaluationDocument:
        """Return the result as a document with some of its cases."""
        whole = {**self._value, "changed_count": getattr(self.counterfactual, "changed_count", 0)}
        part: dict[str, object] = {"figures": None, "replayed": None}
        if self.evaluation is None:
            part["replayed"] = {**whole, "runs": cases}
        else:
            part["figures"] = {**whole, "wrong": cases}
        return EvaluationDocument.model_validate({**self._shared(), **part, "more": more})

    def _shared(self) -> dict[str, object]:
        found = self.evaluation or self.counterfactual
        assert found is not None
        shared: dict[str, object] = {
            "name": self.name, "data": found.data, "stopped": found.stopped, "simulated": found.simulated,
            "updated": found.updated,
        }  # fmt: skip
        if isinstance(found, Counterfactual):
            share = found.share_kept
            return {
                **shared, "kind": "counterfactual", "cases": found.runs, "done": found.runs - found.failed_count,
                "best": found.graph, "accuracy": share, "cost": found.paid.cost,
            }  # fmt: skip
        best = max(found.variants, key=lambda one: one.accuracy, default=None)
        return {
            **shared, "kind": "evaluation", "cases": found.cases, "done": found.done, "cost": found.cost,
            "best": "" if best is None else best.name, "accuracy": None if best is None else best.accuracy,
        }  # fmt: skip

    def _notes(self) -> list[str]:
        """Return what a reader should know, without the differences, which have a table."""
        if self.evaluation is None:
            return [] if self.counterfactual is None else self.counterfactual.notes()
        self.evaluation.to_text()  # raises if its figures are not numbers
        said = {*map(str, self.evaluation.differences)}
        return [one for one in self.evaluation.notes() if one not in said]


def _with_ids(shown: Mapping[str, Any], stored: Mapping[str, Any], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return cases without secrets, and with their ids unchanged, as they lead to runs."""
    return [
        {**case, **{key: as_is[key] for key in ("run_id", "replay_id") if key in as_is}}
        for name in names
        for case, as_is in zip(shown[name], stored[name], strict=True)
    ]


def _result_of(item: MemoryItem) -> _Result | None:
    """Return a stored result; None if a program stored something else under this name."""
    try:
        return _Result(item)
    except (TypeError, KeyError, ValueError, AttributeError, ArithmeticError):
        return None


async def _page_of(call: Call[EvaluationsQuery]) -> tuple[list[_Result], str | None]:
    """Return a page of the results in the order of their names, and where the next one begins."""
    if call.settings.scratch:  # what a tried graph stores is no evaluation
        return [], None
    query = call.query
    after = MemoryItem(NAMESPACE, query.after, None, 0, 0) if query.after else None
    items = await call.executor.memory.list(NAMESPACE, after=after, limit=query.limit + 1)
    own = [item for item in items if item.namespace == NAMESPACE]
    shown = own[: query.limit]
    found = await away(lambda: [one for one in map(_result_of, shown) if one is not None], shown)
    return found, shown[-1].key if len(own) > query.limit else None


async def _found(call: Call[EvaluationQuery]) -> _Result:
    """Return the evaluation in the URL.

    Raises:
        HttpProblem: the store has no such evaluation.
    """
    name = str(call.request.path_params["name"])
    item = None if call.settings.scratch else await call.executor.memory.get(NAMESPACE, name)
    found = None if item is None else await away(lambda: _result_of(item), item.value)
    if found is None:
        raise HttpProblem(404, "evaluation-unknown", f"the store has no evaluation {name!r}")
    return found


async def _part(call: Call[EvaluationQuery], found: _Result) -> EvaluationDocument:
    """Return an evaluation with the cases of the query whose runs the principal may see."""
    query = call.query
    cases = [one for one in found.cases if query.variant in ("", one.get("variant"))]
    shown = cases[query.skip : query.skip + _CASES]
    seen = [one for one in shown if await _visible(call, one)]
    return found.of(seen, more=len(cases) > query.skip + _CASES)


async def _visible(call: Call[Any], case: Mapping[str, Any]) -> bool:
    """Return True if the principal may see the runs of a case."""
    if call.settings.authorize is None:
        return True
    try:
        if not await call.may_see(await call.executor.store.info(case["run_id"])):
            return False
        return "replay_id" not in case or await call.may_see(await call.executor.store.info(case["replay_id"]))
    except RunUnknown:
        return False


async def listing(call: Call[EvaluationsQuery]) -> EvaluationPage:
    """Return a page of the evaluations of the store."""
    found, cursor = await _page_of(call)
    return EvaluationPage(evaluations=[one.row for one in found], cursor=cursor)


async def show(call: Call[EvaluationQuery]) -> EvaluationDocument:
    """Return an evaluation.

    Raises:
        HttpProblem: the store has no such evaluation.
    """
    return await _part(call, await _found(call))


# -- screens ----------------------------------------------------------------------------------------------------------


async def screen_of_all(call: Call[EvaluationsQuery]) -> Response:
    """Show a page of the evaluations of the store; within it the newest are the first."""
    found, cursor = await _page_of(call)
    newest = sorted((one.row for one in found), key=lambda one: (-one.updated, one.name))
    data = {
        "title": "Evaluations",
        "found": None,
        "listed": [(one, _age(one.updated)) for one in newest],
        "cursor": cursor,
        "query_after": call.query.after,
        "paged": cursor is not None or bool(call.query.after),
    }
    return await _page(call, data, [cursor, call.query.after, *([one.name, one.updated] for one in newest)])


async def screen(call: Call[EvaluationQuery]) -> Response:
    """Show an evaluation: its table, differences, picture and wrong rows; or what replays changed.

    Raises:
        HttpProblem: the store has no such evaluation.
    """
    result = await _found(call)
    found = await _part(call, result)
    data = {
        "title": f"Evaluation {found.name}",
        "found": found,
        "variants": [] if result.evaluation is None else [one.cells() for one in result.evaluation.variants],
        "columns": COLUMNS,
        "notes": result.notes,
        "picture": b64encode(result.picture.encode()).decode(),
        "query": call.query,
        "next": call.query.skip + _CASES,
        "label": f"{LABEL}:{found.name}",
        "age": _age(found.updated),
    }
    return await _page(call, data, [found.name, found.updated, call.query.model_dump()])


async def _page(call: Call[Any], data: Mapping[str, object], version: object) -> Response:
    waiting = await open_questions(call)
    return await shell.page(
        call,
        "evaluations",
        {**data, "open_questions": waiting},
        root=shell.root_of(call),
        version=["evaluations", version, waiting],
    )


def _age(moment: float) -> float:
    return max(0.0, time.time() - moment)


SCREENS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        "/evaluations",
        "view_evaluations",
        screen_of_all,
        "The evaluations of the store.",
        None,
        query=EvaluationsQuery,
        media="text/html",
    ),
    Endpoint(
        "GET",
        "/evaluations/{name}",
        "view_evaluation",
        screen,
        "An evaluation.",
        None,
        query=EvaluationQuery,
        media="text/html",
    ),
)
