"""Restate (https://restate.dev) as the engine: a virtual object keyed by run id, served over HTTP/2.

    app = restate.app([service(executor)])  # in a separate process; `orchestrator worker --engine` does this, too

Needs the extra `restate`, except for submitting, cancelling and asking for the status of runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator._lazy import lazy_names

if TYPE_CHECKING:
    from orchestrator.engines.restate.engine import RestateEngine
    from orchestrator.engines.restate.worker import service

_HOMES = {
    "orchestrator.engines.restate.engine": ("RestateEngine",),
    "orchestrator.engines.restate.worker": ("service",),
}

__all__ = ["RestateEngine", "service"]

if not TYPE_CHECKING:  # type checkers use the imports above, and report other names
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
