"""A run's state as plain JSON, and back: a cache of a fold, never its replacement.

Versions are written as what made them (an update, a merge), not as states, so a snapshot grows with what is live and
not with the product of branches and state. `load(plan, dump(run))` continues exactly as `run` would.
"""

from __future__ import annotations

from orchestrator.kernel.snapshot.reader import lineage_of, load, load_frames
from orchestrator.kernel.snapshot.writer import dump, dump_frame

__all__ = ["dump", "dump_frame", "lineage_of", "load", "load_frames"]
