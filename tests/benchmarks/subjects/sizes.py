"""How large the workloads are, the same for all."""

from __future__ import annotations

LOOP = 1000
"""Steps of a loop that stores nothing."""
DURABLE = 300
"""Steps of a loop that commits each of them."""
HISTORIES = (50, 200, 800, 5000)
"""Steps that each add a kibibyte to the state."""
PEERS_HISTORY = 800
"""The longest history that peers are put through: some need minutes, and hundreds of megabytes, for more."""
FANS = (100, 1000)
"""Branches that run at the same time and are joined."""
RUNS, RUN_STEPS = 200, 10
"""Runs at the same time, and the durable steps of each."""
RESUMED = 10_000
"""Steps of a run that is taken up by another process."""
LISTED = (100, 100_000)
"""Runs in a store in which one is opened and a page is listed."""
WAITING = 10_000
"""Runs that wait for an approval in one process."""
CALLS = 100
"""Tool calls of an agent that talks to a model over HTTP."""
NODES = (10, 100, 2000)
"""Nodes of graphs that are built and checked."""
DRAWN = 300
"""Nodes of a graph that is drawn."""


def line(number: int) -> str:
    """A kibibyte."""
    return f"{number:1024d}"
