"""Who is measured. Each module has `WORKLOADS`: name of a workload -> a function of an empty folder.

A workload gives figures by name: `us` (microseconds for one step, branch or the like), `bytes` (stored for one step),
`ms`, `s` or `kib`. Peers need the extra `bench`; a peer that is not installed is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

Figures: TypeAlias = Mapping[str, float]
Workload: TypeAlias = Callable[[Path], Figures]

SUBJECTS = ("floor", "ours", "langgraph", "langgraph_delta", "burr", "pydantic_graph", "llama_index", "dbos")
"""In the order in which they take their turns."""
