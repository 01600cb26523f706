"""The page about several machines holds what was measured, and its simulation keeps the laws of queues."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.benchmarks import simulation
from tests.benchmarks.pages import with_parts
from tests.benchmarks.simulation import LOADS, PAGE, Costs, Load, Simulation, at

COSTS = Costs(commit=0.0004, append=0.00006, flush=0.0015, claim=0.001, beat=0.0002)
SMALL = Load("small", 100_000, workers=4, slots=200, seconds=50)


def test_the_simulated_rows_of_the_page_come_from_the_kept_costs() -> None:
    costs, text = simulation.kept_costs(), PAGE.read_text(encoding="utf-8")
    assert simulation.row(LOADS[0], Simulation(LOADS[0], costs).run()) in text
    for load in LOADS:
        assert text.count(f"| {load.name} |") == 1


def test_no_run_is_lost_or_comes_from_nowhere() -> None:
    seen = Simulation(SMALL, COSTS).run()
    assert seen.ended > 30
    assert seen.alive_at_start + seen.arrived == seen.ended + seen.alive_at_end
    assert len(seen.start_waits) <= seen.arrived


def test_the_same_seed_gives_the_same_outcome_and_another_one_does_not() -> None:
    first, again, other = (Simulation(SMALL, COSTS, seed).run() for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_the_server_is_as_busy_as_its_commits_claims_and_beats_cost() -> None:
    quiet = replace(COSTS, claim=0.0, beat=0.0)
    seen = Simulation(replace(SMALL, kill_at=None), quiet).run()
    further = seen.appended - seen.commits
    assert seen.busy == pytest.approx(seen.commits * quiet.commit + further * quiet.append, rel=0.01)
    assert seen.appended == pytest.approx(100_000 / 86_400 * 52 * 50, rel=0.15)  # as many as arrive, in the long run


def test_runs_of_a_killed_worker_stand_still_for_its_lease_and_no_longer() -> None:
    seen = Simulation(SMALL, COSTS).run()
    assert len(seen.stalls) > 20
    assert SMALL.ttl * 2 / 3 <= min(seen.stalls) <= max(seen.stalls) <= SMALL.ttl + SMALL.poll + 0.1


def test_appends_wait_when_the_server_has_too_much_to_do() -> None:
    slow = replace(COSTS, commit=0.1, append=0.1)
    waits = [at(0.5, Simulation(replace(SMALL, processors=2), costs).run().append_waits) for costs in (COSTS, slow)]
    assert waits[0] < 0.01 < 1 < waits[1]


def test_a_part_of_a_page_is_replaced_once() -> None:
    page = "a\n<!-- figures: x -->\nold\n<!-- end of figures -->\nb"
    new = with_parts(page, {"x": "new"})
    assert new == "a\n<!-- figures: x -->\n\nnew\n\n<!-- end of figures -->\nb"
    assert with_parts(new, {"x": "new"}) == new
    with pytest.raises(ValueError, match="0 parts 'y'"):
        with_parts(page, {"y": "new"})
