"""Lists of which many versions share their items: each version stays what it was, and none costs what it holds."""

from __future__ import annotations

import copy
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from orchestrator import append, extend
from orchestrator.graph.isolation import SharedList, grown, listed
from orchestrator.graph.state import StateSchema
from tests.support.sizes import sized


class Word(BaseModel):
    text: str = ""


class Log(BaseModel):
    lines: Annotated[list[str], append] = []
    words: Annotated[list[Word], append] = []
    many: Annotated[list[int], extend] = []


schema = StateSchema.of(Log)
loose = StateSchema.from_data(schema.data())
"""The same without its class."""

moves = st.lists(st.tuples(st.integers(0, 10_000), st.lists(st.integers(0, 9), max_size=4)), max_size=30)
"""Which of the lists so far is added to (modulo their number), and what."""


@given(st.none() | st.lists(st.integers(0, 9), max_size=6), moves)
def test_every_list_stays_what_it_was_whichever_lists_are_made_from_it(first: list[int] | None, moves: Any) -> None:
    made: list[object] = [first]
    known: list[list[int]] = [list(first or [])]
    for place, fresh in moves:
        at = place % len(made)
        made.append(grown(made[at], fresh))
        known.append(known[at] + fresh)
    for shared, plain in zip(made[1:], known[1:], strict=True):
        assert isinstance(shared, SharedList)
        assert shared.items() == plain
        assert list(shared) == plain == shared
        assert len(shared) == len(plain)
        assert copy.deepcopy(shared) is shared
    for one, plain in zip(made[1:], known[1:], strict=True):
        for other, longer in zip(made[1:], known[1:], strict=True):
            behind = other.since(one)  # type: ignore[attr-defined]
            assert behind is None or plain + behind == longer


def allocated(work: Callable[[], object]) -> int:
    """The most bytes that were held at once, more than before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("count", [2_000, 20_000])
def test_a_list_that_grew_item_by_item_is_added_to_without_a_copy(count: int) -> None:
    """Whoever adds first adds to its store, and whoever adds second begins one of its own above it."""
    found = grown([0], (1,))
    for number in range(count):
        found = found.plus((number,))
    made = [found]
    # Now and then its store needs more room, and is counted as a whole.
    first = min(allocated(lambda: made.append(made[-1].plus((1,)))) for _ in range(3))
    second = allocated(lambda: made.append(found.plus((2,))))
    assert [len(one) for one in made] == [count + 2, count + 3, count + 4, count + 5, count + 3]
    assert made[1].items()[:-1] == made[-1].items()[:-1]
    assert (first < 1000, second < 1000) == (True, True)


@pytest.mark.parametrize("of", [schema, loose], ids=["class", "data"])
@given(moves=moves)
def test_states_that_branch_and_grow_hold_what_plain_lists_would(of: StateSchema, moves: Any) -> None:
    states: list[Any] = [of.decode(of.initial({"lines": ["first"]}))]
    plain: list[dict[str, Any]] = [{"lines": ["first"], "words": [], "many": []}]
    for place, numbers in moves:
        at = place % len(states)
        update = {"lines": str(place), "words": {"text": str(place)}, "many": numbers}
        encoded, ops = schema.encode_update(update)
        states.append(of.apply(states[at], encoded, ops))
        old = plain[at]
        plain.append(
            {
                "lines": [*old["lines"], str(place)],
                "words": [*old["words"], {"text": str(place)}],
                "many": old["many"] + numbers,
            }
        )
    assert [of.dump(state) for state in states] == plain
    for state, expected in zip(states, plain, strict=True):
        view = of.view(state)
        assert view.lines == expected["lines"]
        assert type(view.lines) is type(view.words) is type(view.many) is list
        view.lines.append("spoilt")
        view.words.append("spoilt")
        view.many.clear()
    assert [of.dump(state) for state in states] == plain


def test_threads_that_add_to_one_list_each_get_their_own() -> None:
    with ThreadPoolExecutor(8) as threads:
        for _ in range(sized(20, 200)):
            first = grown(None, [0])
            found = list(threads.map(lambda number, first=first: first.plus([number, number]), range(8)))
            assert [one.items() for one in found] == [[0, number, number] for number in range(8)]
            assert first.items() == [0]


@pytest.mark.parametrize("of", [schema, loose], ids=["class", "data"])
def test_to_append_costs_the_same_to_a_list_ten_times_as_long(of: StateSchema) -> None:
    encoded, ops = schema.encode_update({"lines": "one more"})

    def appending(length: int) -> Callable[[], object]:
        state = of.decode(of.initial({"lines": ["line"] * length}))

        def work() -> object:
            found = [of.apply(state, encoded, ops)]
            for _ in range(200):
                found.append(of.apply(found[-1], encoded, ops))  # a lone token, of which a view may keep the versions
            return found

        return work

    costs = []
    for work in (appending(1_000), appending(10_000)):
        work()
        costs.append(allocated(work))
    assert costs[1] < 1.1 * costs[0]


@pytest.mark.parametrize("of", [schema, loose], ids=["class", "data"])
def test_branches_that_append_to_one_list_hold_their_own_items_only(of: StateSchema) -> None:
    encoded, ops = schema.encode_update({"lines": "of a branch"})

    def branching(length: int) -> Callable[[], object]:
        state = of.decode(of.initial({"lines": ["line"] * length}))
        return lambda: [of.apply(state, encoded, ops) for _ in range(200)]

    few, many = allocated(branching(1_000)), allocated(branching(10_000))
    assert many < 1.1 * few


def test_rounds_of_branches_leave_few_stores_on_top_of_each_other() -> None:
    state: Any = grown(["first"] * 1000, ["x"])
    for number in range(500):
        branches = [grown(state, [number]), grown(state, [-number])]
        assert [len(one) for one in branches] == [len(state) + 1] * 2
        state = grown(grown(state, [number]), [-number])
    depth, below = 0, state
    while below is not None:
        depth, below = depth + 1, below._below
    assert depth <= 17
    assert listed(state)[1001:] == [signed for number in range(500) for signed in (number, -number)]
