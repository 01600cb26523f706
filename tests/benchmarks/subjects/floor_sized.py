"""The floor with a log that has its size from the beginning: a bare commit that overwrites."""

from __future__ import annotations

from functools import partial

from tests.benchmarks.subjects import Workload, floor, sizes

WORKLOADS: dict[str, Workload] = {
    "durable": partial(floor.durable, sized=True),
    "durable_pure": partial(floor.durable, sized=True),
    **{f"history_{steps}": partial(floor.history, steps, sized=True) for steps in sizes.HISTORIES},
    "concurrent": partial(floor.concurrent, sized=True),
}
