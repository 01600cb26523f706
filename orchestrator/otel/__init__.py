"""Traces and metrics of runs, by OpenTelemetry: `Executor(tracing=OpenTelemetry())`. See docs/traces.md.

It needs the extra `otel`, which is the API of OpenTelemetry. The program chooses the SDK and what it exports to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator._lazy import lazy_names

if TYPE_CHECKING:
    from orchestrator.otel.tracing import OpenTelemetry

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, {"orchestrator.otel.tracing": ("OpenTelemetry",)})

__all__ = ["OpenTelemetry"]
