"""The books of the kernel, counted again after every record of generated runs (see `audit`)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from orchestrator.errors import InvalidGraph
from tests.support.sizes import sized

from .audit import Audit
from .behave import Seeded
from .harness import Simulation, TooLongError
from .orders import orders
from .sketches import Sketch, mutated, settle, structured, unstructured, values_for

KINDS: dict[str, Callable[[int], Sketch]] = {
    "structured": structured,
    "unstructured": unstructured,
    "mutated": mutated,
}
MOST = 150
"""Records of a run. Longer ones say no more and take their time."""


def audited(make: Callable[[int], Sketch], seed: int, count: int) -> Counter[str]:
    """Audit a drawn graph under so many orders; what was seen."""
    seen: Counter[str] = Counter()
    sketch = settle(make(seed))
    try:
        plan = sketch.plan()
    except InvalidGraph:
        return Counter(refused=1)
    dice = random.Random(seed)
    behaviour = Seeded(
        seed, asks=dice.choice((0.0, 0.1)), retries=dice.choice((0.0, 0.1)), silent=dice.choice((0.0, 0.2))
    )
    values = values_for(dice)
    for number, order in enumerate(orders(plan, count, seed)):
        audit = Audit()
        run = Simulation(
            plan, behaviour, order=order, seed=seed + number, values=values, most_steps=MOST, observers=[audit]
        )
        try:
            run.run()
            seen["runs"] += 1
        except TooLongError:
            seen["long"] += 1
        except AssertionError as error:
            raise AssertionError(f"{error}\nin {sketch.text}\nvalues {values}, order {order.name}") from error
        seen += audit.count
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_no_token_is_lost_or_made_and_joins_fire_once(kind: str) -> None:
    seen: Counter[str] = Counter()
    for seed in sized((3, 4, 7), range(12)):
        seen += audited(KINDS[kind], seed, 4)
    assert seen["runs"] > sized(6, 20), seen
    assert seen["fires"] > sized(6, 35), seen


@pytest.mark.storm
@pytest.mark.parametrize("kind", KINDS)
def test_a_storm_of_books(kind: str, scale: int) -> None:
    """`--storm-scale N`: N times 80 graphs of each kind, six interleavings each."""
    seen: Counter[str] = Counter()
    for seed in range(10_000, 10_000 + 80 * scale):
        seen += audited(KINDS[kind], seed, 6)
    print(f"\n{kind}: {dict(seen)}")
    assert seen["fires"] > 60 * scale, seen
