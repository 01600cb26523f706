"""The pictures in the documentation are those that are drawn; `tests/graphs/test_docs.py` looks at each strategy's."""

from __future__ import annotations

from tests.graphs.pictures import PLACE, RUNS, states
from tests.render.pictures import shape


def test_the_picture_of_all_states_is_what_is_drawn() -> None:
    kept = (PLACE / "states.svg").read_text(encoding="utf-8")
    assert shape(kept) == shape(states()), "draw anew: python -m tests.graphs.pictures"


def test_there_is_a_picture_of_everything_and_no_other() -> None:
    others = {"states", "witness", "architecture", "executor", "terminal", "terminal_still"}
    assert {path.stem for path in PLACE.glob("*.svg")} == {*RUNS, *others}
