"""Traces of the runs of a command, as the standard environment variables of OpenTelemetry say.

`OTEL_EXPORTER_OTLP_ENDPOINT` (or `..._TRACES_ENDPOINT`, or `OTEL_TRACES_EXPORTER`) turns them on, and
`OTEL_SDK_DISABLED=true` off. The SDK reads all others. A program that `opentelemetry-instrument` started is traced with
what that has set up.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any

from orchestrator.cli.output import warn
from orchestrator.errors import install_command
from orchestrator.executor.tracing import Tracing

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""Variable that asks instrumentations of models to record messages."""
_PATIENCE = 5.0
"""Seconds that a collector has to take the last spans when a command ends."""
_PACKAGES = "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"


@contextmanager
def of_environment() -> Iterator[Tracing | None]:
    """Yield what traces the runs of a command; None if the environment does not ask for traces.

    At the end of the block the last spans are exported: a command ends without the handlers of `atexit`.
    """
    tracing = _tracing()
    try:
        yield tracing
    finally:
        if tracing is not None:
            _flush()


def _tracing() -> Tracing | None:
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    exporter = os.environ.get("OTEL_TRACES_EXPORTER")
    wanted = exporter != "none" if exporter else any(map(os.environ.get, _ENDPOINTS))
    if not wanted and not _has_provider():
        return None
    try:
        from orchestrator.otel import OpenTelemetry

        if not _has_provider():
            _configure()
        content = os.environ.get(_CONTENT, "").lower() in ("true", "span_only", "span_and_event")
        return OpenTelemetry(content=content)
    except Exception as error:  # a fault of traces must not keep runs from running
        warn(
            f"runs are not traced, as OpenTelemetry cannot be set up ({error}): {install_command('otel')} "
            f"{_PACKAGES}, or set OTEL_SDK_DISABLED=true"
        )
        return None


def _has_provider() -> bool:
    """Return True if the program has set up the SDK, as `opentelemetry-instrument` does."""
    if "opentelemetry.trace" not in sys.modules:
        return False
    from opentelemetry import trace

    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _configure() -> None:
    """Set up the SDK from the environment.

    Its own handlers at exit are not used: `_flush` waits for a bounded time.

    Raises:
        ImportError: the SDK is not installed.
        LookupError: an exporter is not installed.
    """
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({SERVICE_NAME: "orchestrator"}).merge(OTELResourceDetector().detect())
    traces = TracerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in _exporters("traces", "otlp"):
        traces.add_span_processor(BatchSpanProcessor(exporter()))
    readers = [
        PeriodicExportingMetricReader(exporter())
        for exporter in _exporters("metrics", "otlp" if os.environ.get(_ENDPOINTS[0]) else "none")
    ]
    trace.set_tracer_provider(traces)
    metrics.set_meter_provider(MeterProvider(readers, resource=resource, shutdown_on_exit=False))


def _exporters(signal: str, default: str) -> list[Any]:
    """Return the classes of the exporters of traces or metrics that the environment names."""
    names = os.environ.get(f"OTEL_{signal.upper()}_EXPORTER") or default
    common = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
    protocol = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL") or common
    found = []
    for name in filter(lambda one: one != "none", map(str.strip, names.split(","))):
        known = name if name != "otlp" else f"otlp_proto_{'grpc' if protocol == 'grpc' else 'http'}"
        places = [*entry_points(group=f"opentelemetry_{signal}_exporter", name=known)]
        if not places:
            raise LookupError(f"there is no exporter {name!r}")
        found.append(places[0].load())
    return found


def _flush() -> None:
    """Export what is left. A collector that hangs delays the end of a command for some seconds only."""
    from opentelemetry import metrics, trace

    def flush() -> None:
        for provider in (trace.get_tracer_provider(), metrics.get_meter_provider()):
            getattr(provider, "force_flush", lambda _: None)(_PATIENCE * 1000)

    thread = threading.Thread(target=flush, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
