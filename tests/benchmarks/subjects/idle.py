"""What runs cost that wait: memory, and processor time while nothing happens."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Awaitable, Callable

from tests.benchmarks.subjects import Figures

SETTLED, SECONDS = 1, 2
"""What is not measured, so that work behind the last start is done, and what is."""


async def idle(start: Callable[[int, int], Awaitable[object]], runs: int) -> Figures:
    """KiB for each of `runs` runs, and the percentage of a processor that they take together.

    Args:
        start: Starts runs with numbers from a first one to before a last one.
        runs: How many are measured. Up to a thousand are started before, so that what is loaded once is loaded, and
            caches that have a maximum, such as SQLite's pages, are full.
    """
    first = min(runs, 1000)
    await start(0, first)
    gc.collect()
    before = resident()
    await start(first, first + runs)
    gc.collect()
    kib = max(0.0, (resident() - before) / runs / 1024)
    await asyncio.sleep(SETTLED)
    used = time.process_time()
    await asyncio.sleep(SECONDS)
    return {"kib": kib, "cpu_percent": (time.process_time() - used) / SECONDS * 100}


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
