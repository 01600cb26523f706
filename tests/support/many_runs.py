"""Stores with many runs: copies of a few real ones, under ids, times and labels of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import anyio
from msgspec import structs

from orchestrator.stores.base import Store
from orchestrator.stores.requests import NewRun

TEAMS = 7
"""Values of the label `team`."""
_AT_ONCE = 100


async def copied(store: Store, samples: Sequence[str], count: int, *, first: int = 0, apart: float = 1.0) -> None:
    """Add copies of runs, each with its records, totals and open questions, some seconds after the one before.

    Copy number N has the id `run-N`, its number as a word of its input, and the labels `team` (`t0` to `t6`) and, every
    thousandth, `rare` (`yes`).

    Args:
        store: the store that has the samples.
        samples: ids of the runs that are copied in turn.
        count: how many copies are added.
        first: the number of the first copy.
        apart: seconds between two copies.
    """
    found = []
    for run_id in samples:
        info = await store.info(run_id)
        totals, asked = await store.totals(run_id), await store.open_questions(run_id)
        found.append((replace(info, totals=totals, questions=asked, lease=None), await store.read(run_id)))

    async def add(number: int) -> None:
        info, records = found[number % len(found)]
        run_id = f"run-{number}"
        labels = {"team": f"t{number % TEAMS}"} | ({"rare": "yes"} if number % 1000 == 0 else {})
        moved = replace(
            info, run_id=run_id, labels=labels, created=info.created + apart * number,
            updated=info.updated + apart * number,
            input=f"{info.input} {number}",
            questions=tuple(replace(one, asked=one.asked + apart * number) for one in info.questions or ()),
        )  # fmt: skip
        own = {"run_id": run_id, "labels": labels}
        await store.create(NewRun(moved, [structs.replace(one, **(own if one.seq == 1 else {})) for one in records]))

    for start in range(first, first + count, _AT_ONCE):
        async with anyio.create_task_group() as tasks:
            for number in range(start, min(first + count, start + _AT_ONCE)):
                tasks.start_soon(add, number)
