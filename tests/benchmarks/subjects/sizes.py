"""How large the workloads are, the same for all."""

from __future__ import annotations

LOOP = 1000
"""Steps of a loop that stores nothing."""
DURABLE = 300
"""Steps of a loop that commits each of them."""
SINGLE = 200
"""Runs of one step, one after the other."""
HISTORIES = (50, 200, 800, 5000)
"""Steps that each add a kibibyte to the state."""
LONGEST_WHOLE = 800
"""The longest history for peers that store the whole state at each step: 5,000 steps would write 13 GB."""
MESSAGES = (0, 5000)
"""Messages in the state beside a counter."""
BESIDE, TOUCHED = 200, 40
"""Steps that do not read the messages, and steps that do."""
FANS = (100, 1000, 50_000)
"""Branches that run at the same time and are joined; peers without the last: LangGraph needs a minute for it."""
MAPS = (100, 2000)
"""Branches, each with an item that is a dict."""
RUNS, RUN_STEPS = 200, 10
"""Runs at the same time, and the durable steps of each."""
RESUMED = 10_000
"""Steps of a run that is taken up by another process."""
LISTED = (100, 100_000)
"""Runs in a store in which one is opened and a page is listed."""
PAGE = 50
"""Runs of a page."""
WAITING = (1000, 10_000)
"""Runs that wait for an approval in one process; peers only with the first."""
LIVE = (1000, 4000)
"""Runs that are inside of a node at the same time, in one process."""
FEW = 100
"""Runs like these before them."""
DEPTHS = (1, 48)
"""Graphs around each other; the innermost one has the steps."""
DEEP = 400
"""Its steps."""
CALLS = 100
"""Tool calls of an agent that talks to a model over HTTP."""
TALKS = (30, 300)
"""The same of a short and of a long conversation, of this library and of the bare client."""
TALK_LENGTHS = (30, 120)
"""Model calls of an agent whose journal is measured."""
TOOLS = 20
"""Tools of that agent."""
NODES = (10, 100, 2000)
"""Nodes of graphs that are built and checked."""
DRAWN = 300
"""Nodes of a graph that is drawn."""


def line(number: int) -> str:
    """A kibibyte."""
    return f"{number:1024d}"


def record(number: int) -> dict[str, object]:
    """An item of a map: a document with what belongs to it."""
    return {"id": number, "title": f"document {number}", "tags": ["a", "b"], "author": {"name": "x", "age": number}}
