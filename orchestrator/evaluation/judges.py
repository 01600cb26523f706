"""Judges: graphs that score answers. Each verdict is a run of its own, labelled, inside the budget, and seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.errors import GraphUnknown, InvalidValue, RunUnknown
from orchestrator.evaluation.scorers import Case, ScoreFunction, Scorer, Verdict, read_verdict, scorer_of, text_of
from orchestrator.json import digest

if TYPE_CHECKING:
    from orchestrator.executor import Executor
    from orchestrator.graph_class import Graph

_FIELDS: Mapping[str, Callable[[Case], str]] = {
    "question": lambda case: text_of(case.row.input),
    "input": lambda case: text_of(case.row.input),
    "answer": lambda case: case.text,
    "expected": lambda case: text_of(case.row.expected),
}
"""Input field of a judge -> its value."""


class GraphJudge:
    """A scorer that asks a graph.

    The graph's input is one text, or the fields `question` (or `input`), `answer` and `expected`, if it has them. For
    the forms of its output see `read_verdict`.

    Args:
        graph: the graph.
        name: the name in tables. Default: `judge:` and the graph's name.

    Raises:
        GraphUnknown: the graph has another input.
    """

    def __init__(self, graph: Graph, name: str = "") -> None:
        self.graph, self.name = graph, name or f"judge:{graph.name}"
        fields = graph.input_fields
        self._fields = [one for one in fields if one in _FIELDS]
        self._executor: Executor | None = None
        self._evaluation, self._identity, self._retry = "", "", False
        if not isinstance(graph.input, str) and ("answer" not in self._fields or len(self._fields) != len(fields)):
            raise GraphUnknown(
                f"judge {graph.name!r} takes {', '.join(fields) or 'nothing'}: its input is one text, or `answer` and "
                "some of `question`, `input` and `expected`"
            )

    def open(self, executor: Executor, evaluation: str, *, identity: str, retry_failed: bool = False) -> None:
        """Set what its runs need.

        Args:
            executor: starts them.
            evaluation: the name of the evaluation that they belong to.
            identity: the digest of its graph, models and tools.
            retry_failed: whether runs that failed in an earlier part get another attempt.
        """
        self._executor, self._evaluation = executor, evaluation
        self._identity, self._retry = identity, retry_failed

    async def score(self, case: Case) -> Verdict:
        """Return the verdict on a case. Without a verdict it is wrong.

        Another answer, another expected answer, another graph or another model of the judge is another run.
        """
        assert self._executor is not None
        given = self._input(case)
        asked = digest([self._identity, given])
        run_id = f"{case.run.run_id}-judge-{asked[:12]}"
        if self._retry and await self._failed(run_id):
            run = await self._executor.resume(run_id, retry=True)
        else:
            labels = {"evaluation": self._evaluation, "judged": case.run.run_id}
            run = await self._executor.start(self.graph, given, run_id=run_id, labels=labels)
        verdict = read_verdict(run.output) if run.status == "completed" else None
        return verdict or Verdict(0.0, f"the judge gave no verdict: its run {run_id} is {run.status}")

    async def _failed(self, run_id: str) -> bool:
        assert self._executor is not None
        try:
            return (await self._executor.store.info(run_id)).status == "failed"
        except RunUnknown:
            return False

    def _input(self, case: Case) -> Any:
        if not isinstance(self.graph.input, str):
            return {name: _FIELDS[name](case) for name in self._fields}
        parts = [("Question", "question"), ("Expected answer", "expected"), ("Answer", "answer")]
        return "\n\n".join(f"{title}:\n{_FIELDS[name](case)}" for title, name in parts if _FIELDS[name](case))


ScorerLike: TypeAlias = str | ScoreFunction | Scorer | GraphJudge
"""A scorer, by its name or as an object."""


def scorers_of(given: ScorerLike | Sequence[ScorerLike]) -> list[Scorer | GraphJudge]:
    """Return the scorers of an evaluation.

    Raises:
        InvalidValue: there is none, or two have one name.
    """
    listed = [given] if isinstance(given, str | Scorer | GraphJudge) or callable(given) else given
    found = [one if isinstance(one, Scorer | GraphJudge) else scorer_of(one) for one in listed]
    names = [one.name for one in found]
    if not names or len(set(names)) < len(names):
        raise InvalidValue(f"scorers {', '.join(names) or 'are missing'}: give one or more, each with its own name")
    return found
