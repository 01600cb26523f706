"""A queue that nothing can hold back is started at once: that comes to the same as to look at each of its steps.

A fold that is watched looks at each, and `both_paths` compares the two after every record, here and under all laws.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.graph.limits import Limits
from orchestrator.kernel import admission
from orchestrator.kernel import records as r
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import FrameState

from .build import plan
from .harness import Simulation
from .orders import Order
from .reopening import reopened
from .test_straight_path import both_paths, put, step, to_its_end

MAP = "p -> w : each xs; w -> j"


def of_four(text: str = MAP, **options: Any) -> Simulation:
    """A run over four items, at its first record, whose longest running step lands first."""
    stops = options.pop("pauses", ())
    made = plan(text, **options)
    run = Simulation(made, order=Order("first"), values={"xs": [1, 2, 3, 4]}, pause_before=stops)
    run.begin()
    return run


@contextmanager
def started_at_once() -> Iterator[Counter[bool]]:
    """Fold on both paths, and count the queues with several steps: how many were started at once, how many not."""
    met: Counter[bool] = Counter()
    whole = admission._admit_all

    def counted(run: RunState, frame: FrameState) -> bool:
        several = len(frame.queue) > 1
        done = whole(run, frame)
        if several and not run.observers:
            met[done] += 1
        return done

    with pytest.MonkeyPatch.context() as patch, both_paths():
        patch.setattr(admission, "_admit_all", counted)
        yield met


def of_nodes_in_a_pool() -> Simulation:
    graph = replace(plan(MAP), pooled={"w": "printer"}, pools={"printer": 2})
    run = Simulation(graph, order=Order("first"), values={"xs": [1, 2, 3, 4]})
    run.begin()
    return run


def while_an_event_interrupts() -> Simulation:
    run = of_four("p -> w : each xs; w -> j; j -> n")
    run.land(r.EventReceived(**run.head(), name="n", data={}, interrupts=""))
    return run


def behind_a_spent_limit() -> Simulation:
    run = of_four(f"{MAP}; * -> n : exhausted; n -> a, b, c; a, b, c -> k -> a", checked=False)
    run.land(r.LimitSpent(**run.head(), frame="", limit="calls"))
    return run


def while_a_limit_is_spent() -> Simulation:
    run = of_four(f"{MAP}; * -> n : exhausted; n -> END")
    run.land(r.LimitSpent(**run.head(), frame="", limit="calls"))
    return run


def inside_a_graph_whose_limit_is_spent() -> Simulation:
    run = of_four("s -> v -> e; * -> n : exhausted; n -> END", sub={"v": plan("p -> a, b -> j")})
    put(run, "s", "v")
    run.land(r.LimitSpent(**run.head(), frame="", limit="calls"))
    return run


def inside_a_graph_of_two_at_a_time() -> Simulation:
    inner = plan("p -> a, b, c -> j")
    return of_four("s -> v -> e", sub={"v": inner}, limits=Limits(steps=None, concurrency=2))


HELD: dict[str, Callable[[], Simulation]] = {
    "two at a time": lambda: of_four(limits=Limits(concurrency=2)),
    "two at a time, further out": inside_a_graph_of_two_at_a_time,
    "one step too many": lambda: of_four(limits=Limits(steps=4)),
    "a node that runs twice": lambda: of_four(limits=Limits(visits={"w": 2})),
    "a breakpoint": lambda: of_four(pauses=["w"]),
    "a pool": of_nodes_in_a_pool,
    "an event": while_an_event_interrupts,
    "behind a spent limit": behind_a_spent_limit,
    "while a limit is spent": while_a_limit_is_spent,
    "while one further out is spent": inside_a_graph_whose_limit_is_spent,
}


@pytest.mark.parametrize("case", HELD)
def test_a_queue_that_may_be_held_back_is_looked_at_step_by_step(case: str) -> None:
    with started_at_once() as met:
        to_its_end(HELD[case]())
    assert met[False]


@pytest.mark.parametrize(
    "run",
    [
        lambda: of_four(),
        lambda: of_four(limits=Limits(steps=5)),
        lambda: of_four("s -> v -> e", sub={"v": plan("p -> a, b -> j")}, limits=Limits(steps=5)),
    ],
    ids=["without limits", "as many steps as are left", "as many as are left further out"],
)
def test_any_other_queue_is_started_at_once(run: Callable[[], Simulation]) -> None:
    with started_at_once() as met:
        to_its_end(run())
    assert met == {True: 1}


def test_steps_that_were_counted_before_are_not_counted_again() -> None:
    """Those that were stopped when one of them failed go on when the run is reopened."""
    with started_at_once() as met:
        run = of_four()
        put(run, "p")
        run.land(r.StepFailed(**step(run, "w"), error=r.Failure(type="E", message="broken")))
        reopened(to_its_end(run))
    assert met == {True: 2}
    assert run.machine.root is not None
    assert run.machine.root.steps == 1 + 4 + 1
