"""What the journal decides about an effect, and which failures are tried again: plain function calls, no event loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import EffectFailed, ModelUnavailable, StepTimeout
from orchestrator.executor.calls.effect import Effect
from orchestrator.executor.calls.reuse import (
    NOT_MADE,
    SUSPENDED,
    Again,
    AskOutcome,
    Begin,
    Decision,
    LeftBehind,
    Reconcile,
    RetryLater,
    Reuse,
    decide,
    failed_span,
    find,
    left_behind,
)
from orchestrator.executor.retries import PATIENCE, GiveUp, TryAgain
from orchestrator.executor.retries import decide as retried
from orchestrator.graph.limits import Retry
from orchestrator.kernel.ledger import IRREVERSIBLE, EffectEntry
from orchestrator.kernel.records import EffectIntended, EffectSettled, Failure

EffectClass = Literal["pure", "read", "idempotent", "irreversible"]
CLASSES: tuple[EffectClass, ...] = ("pure", "read", "idempotent", "irreversible")


def effect(kind: EffectClass, *, reconciles: bool = False) -> Effect[Any]:
    """An effect that must not be made: a decision calls nothing."""

    def never(*_: object) -> Any:
        raise AssertionError("a decision called something")

    return Effect[Any](
        kind="tool", name="pay", effect=kind, request={}, run=never, encode=never, decode=never,
        reconcile=never if reconciles else None,
    )  # fmt: skip


def intent(kind: EffectClass = "irreversible", seq: int = 1, **fields: Any) -> EffectIntended:
    wanted = {"activation": "a", "node": "n", "key": f"k{seq}", "kind": "tool", "name": "pay", "digest": "d", **fields}
    return EffectIntended(seq=seq, ts=0, effect=kind, **wanted)


def end(seq: int = 2, *, error: str = "", **fields: Any) -> EffectSettled:
    failure = Failure(type=error, message="it broke") if error else None
    return EffectSettled(
        seq=seq, ts=0, activation="a", node="n", key="k1", ok=not error, error=failure, ended=10.0, **fields
    )


def decided(kind: EffectClass, entry: EffectEntry | None, attempt: int = 1, **options: Any) -> Decision:
    return decide(entry, effect(kind), attempt=attempt, **options)


# -- each row of the table ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CLASSES)
def test_what_the_journal_does_not_know_is_called(kind: EffectClass) -> None:
    assert decided(kind, None) == Begin()


@pytest.mark.parametrize("kind", CLASSES)
def test_only_an_irreversible_call_is_refused_for_one_that_is_left_behind(kind: EffectClass) -> None:
    other = EffectEntry(intent(), end())
    wanted = LeftBehind(other) if kind == "irreversible" else Begin()
    assert decided(kind, None, left_behind=other) == wanted


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("error", ["", "ValueError"])
def test_what_is_settled_is_given_back(kind: EffectClass, error: str) -> None:
    settled = end(error=error)
    assert decided(kind, EffectEntry(intent(kind), settled)) == Reuse(settled)


@pytest.mark.parametrize("kind", CLASSES)
def test_a_failed_try_with_another_one_to_come_is_waited_for(kind: EffectClass) -> None:
    entry = EffectEntry(intent(kind), end(error="ModelUnavailable", tries=2, next_at=13.0))
    assert decided(kind, entry) == RetryLater("k1", until=13.0, meant=3.0, tries=3)


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("error", [SUSPENDED, NOT_MADE])
def test_what_asked_something_first_or_was_not_made_is_begun_anew(kind: EffectClass, error: str) -> None:
    assert decided(kind, EffectEntry(intent(kind), end(error=error))) == Again("k1", 1)


@pytest.mark.parametrize("kind", ["pure", "read", "idempotent"])
def test_what_may_run_again_is_called_under_its_key_when_its_outcome_is_unknown(kind: EffectClass) -> None:
    assert decided(kind, EffectEntry(intent(kind))) == Again("k1", 1)


def test_an_irreversible_effect_of_unknown_outcome_is_looked_up_else_asked_about() -> None:
    entry = EffectEntry(intent())
    assert decided("irreversible", entry) == AskOutcome(entry)
    assert decide(entry, effect("irreversible", reconciles=True), attempt=1) == Reconcile(entry)


def test_an_answer_that_was_given_counts_whatever_could_be_looked_up_by_now() -> None:
    entry = EffectEntry(intent())
    assert decide(entry, effect("irreversible", reconciles=True), attempt=1, answered=True) == AskOutcome(entry)


def test_an_attempt_that_saw_an_open_outcome_sees_it_again_and_the_next_one_asks() -> None:
    settled = end(error="TimeoutError", unknown=True)
    entry = EffectEntry(intent(attempt=1), settled)
    assert decided("irreversible", entry, attempt=1) == Reuse(settled)
    assert decided("irreversible", entry, attempt=2) == AskOutcome(entry)


def test_an_end_from_before_the_last_intent_says_nothing() -> None:
    entry = EffectEntry(intent("idempotent", seq=3), end(seq=2, error="ModelUnavailable", tries=2, next_at=13.0))
    assert decided("idempotent", entry) == Again("k3", 3)


# -- which entry is the effect's ---------------------------------------------------------------------------------------


def test_the_entry_of_this_attempt_comes_before_one_of_an_earlier_attempt() -> None:
    before, now = EffectEntry(intent(attempt=1)), EffectEntry(intent(seq=5, attempt=2))
    assert find([before, now], "pay", "d", 0, attempt=2) is now
    assert find([before, now], "pay", "d", 1, attempt=2) is None
    assert find([before, now], "pay", "other", 0, attempt=2) is None


@pytest.mark.parametrize("kind", CLASSES)
def test_of_earlier_attempts_only_irreversible_effects_count(kind: EffectClass) -> None:
    entry = EffectEntry(intent(kind, attempt=1), end())
    assert find([entry], "pay", "d", 0, attempt=2) is (entry if kind == "irreversible" else None)


def test_a_graph_in_which_something_irreversible_happened_counts_in_all_attempts() -> None:
    result = {"output": "paid", "metadata": {IRREVERSIBLE: True}}
    entry = EffectEntry(intent("idempotent", attempt=1), end(result=result))
    assert find([entry], "pay", "d", 0, attempt=2) is entry


def test_only_what_happened_in_this_attempt_and_is_not_asked_for_is_left_behind() -> None:
    happened = EffectEntry(intent(), end())
    options: dict[str, Any] = {"asked_for": (), "reused": (), "attempt": 1}
    assert left_behind([happened], **options) is happened
    assert left_behind([happened], **{**options, "asked_for": {"k1"}}) is None
    assert left_behind([happened], **{**options, "attempt": 2}) is None
    assert left_behind([EffectEntry(intent(), end(error="ValueError"))], **options) is None
    assert left_behind([EffectEntry(intent())], **options) is None
    assert left_behind([EffectEntry(intent("idempotent"), end())], **options) is None


def test_what_was_done_inside_a_reused_effect_is_not_left_behind() -> None:
    outer = EffectEntry(intent("idempotent", key="outer"), end())
    inner = EffectEntry(intent("idempotent", key="inner", inside="outer"), end())
    deepest = EffectEntry(intent(key="deepest", inside="inner"), end())
    entries = [outer, inner, deepest]
    assert left_behind(entries, asked_for={"outer"}, reused={"outer"}, attempt=1) is None
    assert left_behind(entries, asked_for={"outer"}, reused=(), attempt=1) is deepest


def test_only_calls_that_failed_for_good_and_may_be_made_again_are_reopened() -> None:
    assert failed_span(EffectEntry(intent("idempotent"), end(error="ModelUnavailable"))) == (1, 2)
    assert failed_span(EffectEntry(intent("idempotent"), end(error="ModelUnavailable", next_at=3.0))) is None
    assert failed_span(EffectEntry(intent("idempotent"), end())) is None
    assert failed_span(EffectEntry(intent("irreversible"), end(error="ModelUnavailable"))) is None
    assert failed_span(EffectEntry(intent("idempotent"))) is None
    assert failed_span(None) is None


# -- laws --------------------------------------------------------------------------------------------------------------

ends = st.builds(
    lambda seq, error, unknown, next_at, tries: end(seq, error=error, unknown=unknown, next_at=next_at, tries=tries),
    st.integers(1, 9), st.sampled_from(["", "ValueError", "TimeoutError", SUSPENDED, NOT_MADE]), st.booleans(),
    st.none() | st.floats(0, 100), st.integers(0, 5),
)  # fmt: skip
entries_of_any_kind = st.builds(
    lambda kind, seq, attempt, settled: EffectEntry(intent(kind, seq, attempt=attempt), settled),
    st.sampled_from(CLASSES), st.integers(1, 9), st.integers(1, 3), st.none() | ends,
)  # fmt: skip
asked = st.builds(lambda kind, reconciles: effect(kind, reconciles=reconciles), st.sampled_from(CLASSES), st.booleans())


@given(st.none() | entries_of_any_kind, asked, st.integers(1, 3), st.booleans(), st.none() | entries_of_any_kind)
def test_a_decision_is_total_and_the_same_each_time(
    entry: EffectEntry | None, wanted: Effect[Any], attempt: int, answered: bool, other: EffectEntry | None
) -> None:
    decisions = [decide(entry, wanted, attempt=attempt, answered=answered, left_behind=other) for _ in range(2)]
    assert decisions[0] == decisions[1]
    assert isinstance(decisions[0], Decision)


@given(entries_of_any_kind, asked, st.integers(1, 3), st.booleans())
def test_an_irreversible_effect_whose_outcome_is_open_is_never_called_again_without_asking(
    entry: EffectEntry, wanted: Effect[Any], attempt: int, answered: bool
) -> None:
    decision = decide(entry, wanted, attempt=attempt, answered=answered)
    settled = entry.settled if entry.settled is not None and entry.settled.seq > entry.intended.seq else None
    not_made = settled is not None and settled.error is not None and settled.error.type in (SUSPENDED, NOT_MADE)
    to_be_tried = settled is not None and settled.next_at is not None and not settled.unknown
    if entry.intended.effect == "irreversible" and not (not_made or to_be_tried):
        assert isinstance(decision, Reuse | Reconcile | AskOutcome)
        assert settled is not None or not isinstance(decision, Reuse)


@given(entries_of_any_kind, asked, st.integers(1, 3))
def test_what_is_settled_for_certain_is_never_called_again(
    entry: EffectEntry, wanted: Effect[Any], attempt: int
) -> None:
    settled = entry.settled
    if settled is not None and settled.seq > entry.intended.seq and settled.ok and settled.next_at is None:
        open_ = settled.unknown and entry.intended.attempt != attempt
        assert open_ or decide(entry, wanted, attempt=attempt) == Reuse(settled)


@given(st.lists(entries_of_any_kind, max_size=6), st.integers(1, 3))
def test_a_new_attempt_finds_an_earlier_effect_only_if_it_is_irreversible(
    entries: Sequence[EffectEntry], attempt: int
) -> None:
    found = find(entries, "pay", "d", 0, attempt)
    if found is not None and found.intended.attempt != attempt:
        assert found.intended.effect == "irreversible"
        assert not any(entry.intended.attempt == attempt for entry in entries)


# -- tries -------------------------------------------------------------------------------------------------------------

RETRY = Retry(attempts=3, wait=1, factor=2, jitter=0)


@pytest.mark.parametrize("error", [
    ModelUnavailable("down"), Failure(type="ModelUnavailable", message="down"),
    EffectFailed("down", type="ModelUnavailable"), ConnectionError("down"), StepTimeout("late"),
])  # fmt: skip
def test_an_error_and_what_is_known_of_it_are_tried_again_alike(error: Exception | Failure) -> None:
    assert retried(RETRY, error, 1, 0.5) == TryAgain(1.0)
    assert retried(RETRY, error, 2, 0.5) == TryAgain(2.0)
    assert retried(RETRY, error, 3, 0.5) == GiveUp("attempts")


def test_an_error_that_another_try_does_not_help_is_given_up() -> None:
    assert retried(RETRY, ValueError("no"), 1, 0.5) == GiveUp("error")
    assert retried(RETRY, Failure(type="ValueError", message="no"), 1, 0.5) == GiveUp("error")
    assert retried(Retry(on=("ValueError",), wait=0), ValueError("no"), 1, 0.5) == TryAgain(0.0)


def test_a_server_is_left_alone_for_as_long_as_it_asks_and_not_for_longer_than_the_patience() -> None:
    assert retried(RETRY, ModelUnavailable("busy", retry_after=20), 1, 0.5) == TryAgain(20.0)
    assert retried(RETRY, ModelUnavailable("busy", retry_after=PATIENCE + 1), 1, 0.5) == GiveUp("patience")
    failure = Failure(type="ModelUnavailable", message="busy", retry_after=20)
    assert retried(RETRY, failure, 1, 0.5) == TryAgain(20.0)
    assert retried(RETRY, failure.model_copy(update={"retry_after": PATIENCE + 1}), 1, 0.5) == GiveUp("patience")


def test_an_error_with_an_odd_wait_is_tried_again_after_the_usual_one() -> None:
    for odd in ("soon", float("nan"), None):
        error = ConnectionError("busy")
        error.retry_after = odd  # type: ignore[attr-defined]
        assert retried(RETRY, error, 1, 0.5) == TryAgain(1.0)


def test_what_cannot_be_undone_is_not_done_again_by_a_retry() -> None:
    assert retried(RETRY, ConnectionError("broke"), 1, 0.5, irreversible=True) == GiveUp("irreversible")
    assert retried(RETRY, ValueError("no"), 1, 0.5, irreversible=True) == GiveUp("error")
