"""Who is measured. Each module has `WORKLOADS`: name of a workload -> a function of a folder.

A workload gives figures by name. The end of a name is the unit: `us`, `ms`, `s`, `bytes`, `kib` or `percent`; names
that begin with `cpu_` are time of processors, all others are wall time. `PREPARED` names what is done once, in a
process and a folder of its own, before a workload is measured: each round works on a copy of that folder, in a new
process.
Peers need the extra `bench`; a peer that is not installed is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

Figures: TypeAlias = Mapping[str, float]
Workload: TypeAlias = Callable[[Path], Figures]
Preparation: TypeAlias = Callable[[Path], object]

SUBJECTS = (
    "floor", "floor_sized", "ours", "langgraph", "langgraph_delta", "burr", "pydantic_graph", "llama_index", "dbos",
)  # fmt: skip
"""In the order in which they take their turns."""
PEERS = SUBJECTS[3:]
