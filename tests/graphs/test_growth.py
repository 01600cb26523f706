"""How the cost of ReAct and ReWOO grows with the steps of a task: what docs/strategies/rewoo_and_react.md says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.strategies import TASKS, Task, bend, measure

SUMS, PAGES = TASKS
STEPS = (2, 4, 6, 8)


@pytest.mark.full
def test_prompt_tokens_of_react_grow_with_the_square_of_the_steps_and_those_of_rewoo_do_not() -> None:
    plain = [measure(PAGES, steps, examples=False) for steps in STEPS]
    told = [measure(PAGES, steps, examples=True) for steps in STEPS]
    react, rewoo = ([pair[which].tokens for pair in plain] for which in (0, 1))
    assert react[3] / react[1] > 2.5
    assert rewoo[3] / rewoo[1] < 2.2

    # Each further step costs more than the one before, by about what a step tells; with examples by just as much.
    assert bend(react) > 0.5 * (rewoo[1] - rewoo[0])
    assert abs(bend(rewoo)) < 0.02 * bend(react)
    assert bend([pair[0].tokens for pair in told]) == pytest.approx(bend(react), rel=0.02)

    # Examples are told in every round of ReAct, and once in ReWOO.
    extra = [
        [more[which].tokens - less[which].tokens for which in (0, 1)] for less, more in zip(plain, told, strict=True)
    ]
    for steps, (of_react, of_rewoo) in zip(STEPS, extra, strict=True):
        assert of_react / extra[0][0] == pytest.approx((steps + 1) / (STEPS[0] + 1), rel=0.02)
        assert of_rewoo == pytest.approx(extra[0][1], rel=0.02)


@pytest.mark.full
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_react_takes_a_round_for_each_step_and_one_to_answer_rewoo_takes_two(task: Task) -> None:
    for steps in (1, 5):
        react, rewoo = measure(task, steps, examples=False)
        assert (react.rounds, rewoo.rounds) == (steps + 1, 2)
        assert react.answer == rewoo.answer
        assert react.tokens > rewoo.tokens


@pytest.mark.full
def test_the_tables_of_the_page_are_about_what_is_measured() -> None:
    """About: a reworded prompt is no reason to measure anew, another growth is."""
    page = (Path(__file__).parents[2] / "docs" / "strategies" / "rewoo_and_react.md").read_text(encoding="utf-8")
    for task in TASKS:
        table = page.partition(f"| {task.name}: steps |")[2].partition("\n\n")[0]
        row = [float(cell) for cell in table.split("\n| 8 |")[1].split("\n")[0].strip("| ").split("|")]
        plain, told = (measure(task, 8, examples=examples) for examples in (False, True))
        rounds, tokens = row[:2], [*row[2:4], *row[5:7]]
        assert rounds == [cost.rounds for cost in plain]
        assert tokens == pytest.approx([cost.tokens for cost in (*plain, *told)], rel=0.15)
