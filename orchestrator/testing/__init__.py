"""Helpers for tests of graphs, nodes and stores. Names are loaded when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.testing.crash import (
        CrashReport,
        CrashUnsafe,
        assert_crash_safe,
        assert_disk_safe,
        assert_kill_safe,
    )
    from orchestrator.testing.mock_clock import MockClock
    from orchestrator.testing.replays import assert_replays, assert_replays_sync
    from orchestrator.testing.scripted import ScriptedModel
    from orchestrator.testing.store_conformance import STORE_CHECKS, check_store

_HOME = {
    "CrashReport": "orchestrator.testing.crash",
    "CrashUnsafe": "orchestrator.testing.crash",
    "STORE_CHECKS": "orchestrator.testing.store_conformance",
    "MockClock": "orchestrator.testing.mock_clock",
    "ScriptedModel": "orchestrator.testing.scripted",
    "assert_crash_safe": "orchestrator.testing.crash",
    "assert_disk_safe": "orchestrator.testing.crash",
    "assert_kill_safe": "orchestrator.testing.crash",
    "assert_replays": "orchestrator.testing.replays",
    "assert_replays_sync": "orchestrator.testing.replays",
    "check_store": "orchestrator.testing.store_conformance",
}

__all__ = [
    "STORE_CHECKS",
    "CrashReport",
    "CrashUnsafe",
    "MockClock",
    "ScriptedModel",
    "assert_crash_safe",
    "assert_disk_safe",
    "assert_kill_safe",
    "assert_replays",
    "assert_replays_sync",
    "check_store",
]


if not TYPE_CHECKING:  # a type checker knows the names from the imports above, and reports all others

    def __getattr__(name: str) -> object:
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module 'orchestrator.testing' has no attribute {name!r}")
        value: object = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
