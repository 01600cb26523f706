"""The store for tests, notebooks and runs that need not outlive the process.

It keeps records as the bytes that a file would hold and parses them again on each read, so that nothing works in memory
that would not work on disk, and no caller can reach into the journal of another.
"""

from __future__ import annotations

from orchestrator.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
