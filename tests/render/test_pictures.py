"""The pictures in the documentation are those that are drawn; `tests/graphs/test_docs.py` looks at each strategy's."""

from __future__ import annotations

import anyio

from orchestrator.render import to_svg
from tests.graphs.pictures import PLACE, RUNS, plan_of, run_of, states
from tests.render.pictures import shape, untimed


def test_the_picture_of_all_states_is_what_is_drawn() -> None:
    kept = (PLACE / "states.svg").read_text(encoding="utf-8")
    assert shape(kept) == shape(states()), "draw anew: python -m tests.graphs.pictures"


def test_there_is_a_picture_of_everything_and_no_other() -> None:
    others = {
        "react_closed",
        "rewoo_plan",
        "states",
        "witness",
        "architecture",
        "executor",
        "terminal",
        "terminal_still",
    }
    charts = {f"performance_{name}" for name in ("bytes", "load", "loop", "steps")}
    assert {path.stem for path in PLACE.glob("*.svg")} == {*RUNS, *others, *charts}


def test_the_pictures_in_the_readme_are_what_is_drawn() -> None:
    """A run of ReAct with its subgraph closed, and the plan of a run of ReWOO."""
    react, rewoo = anyio.run(run_of, "react"), anyio.run(run_of, "rewoo")
    drawn = {"react_closed": untimed(to_svg(react.definition, react, closed=True)), "rewoo_plan": plan_of(rewoo)}
    for name, svg in drawn.items():
        kept = (PLACE / f"{name}.svg").read_text(encoding="utf-8")
        assert shape(kept) == shape(svg), f"{name}: draw anew: python -m tests.graphs.pictures"
