"""The open questions of runs in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from heapq import nsmallest

from orchestrator.stores.memory.leases import MemoryRun
from orchestrator.stores.rows import OpenQuestion, QuestionPage, WaitingQuestion
from orchestrator.stores.shared import UNLISTED, parse_question_cursor, question_cursor


def in_order(questions: Iterable[OpenQuestion]) -> tuple[OpenQuestion, ...]:
    """Questions of one run, the oldest first."""
    return tuple(sorted(questions, key=lambda one: (one.asked, one.id)))


def page_of(runs: Sequence[MemoryRun], kinds: Collection[str] | None, after: str | None, limit: int) -> QuestionPage:
    """See `Store.questions`."""
    limit = max(limit, 1)
    behind = None if after is None else parse_question_cursor(after)
    places = (
        ((one.asked, run.number, one.id), run, one)
        for run in runs
        for one in run.questions
        if kinds is None or one.kind in kinds
    )
    found = nsmallest(
        limit + 1, (one for one in places if behind is None or one[0] > behind), key=lambda found: found[0]
    )
    unlisted = sorted((run.info.created, run.number, run.info.run_id) for run in runs if not run.questions)
    return QuestionPage(
        tuple(WaitingQuestion(run.info.run_id, run.info.graph, run.info.labels, one) for _, run, one in found[:limit]),
        question_cursor(*found[limit - 1][0]) if len(found) > limit else None,
        tuple(run_id for _, _, run_id in unlisted[:UNLISTED]),
    )
