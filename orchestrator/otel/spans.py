"""Spans whose faults stay out of runs: an error of a tracer, a processor or an exporter is logged and ignored."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Link, Span, SpanContext, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace import set_span_in_context as with_span
from opentelemetry.util.types import AttributeValue

from orchestrator.otel import names as n

log = logging.getLogger("orchestrator")
Attributes = Mapping[str, AttributeValue | None]


@contextmanager
def ignoring_faults() -> Iterator[None]:
    """Ignore errors of the block, which only traces."""
    try:
        yield
    except Exception as error:
        log.debug("a trace is incomplete: %r", error)


class OpenSpan:
    """A span in progress."""

    def __init__(
        self,
        tracer: Tracer,
        name: str,
        attributes: Attributes,
        *,
        parent: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[tuple[SpanContext, str]] = (),
    ) -> None:
        """
        Args:
            tracer: makes it.
            name: its name.
            attributes: its attributes; those that are None are left out.
            parent: the context of its parent; None: the current one.
            kind: its kind.
            links: other spans, and why it is linked to each; invalid ones are left out.
        """
        self._span: Span = INVALID_SPAN
        self.parent = contexts.get_current() if parent is None else parent
        with ignoring_faults():
            self._span = tracer.start_span(
                name,
                self.parent,
                kind,
                _given(attributes),
                [Link(one, {n.LINK: why}) for one, why in links if one.is_valid],
            )
        self.context = with_span(self._span, self.parent)
        """The context in which it is the current span."""

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make it the current span of the block, and of the tasks and threads that the block starts."""
        token = contexts.attach(self.context)
        try:
            yield
        finally:
            contexts.detach(token)

    def set(self, attributes: Attributes) -> None:
        """Set attributes. Those that are None are left out."""
        with ignoring_faults():
            self._span.set_attributes(_given(attributes))

    def event(self, name: str, attributes: Attributes) -> None:
        """Add an event."""
        with ignoring_faults():
            self._span.add_event(name, _given(attributes))

    def fail(self, error_type: str, message: str | None = None) -> None:
        """Give it the status of an error.

        Args:
            error_type: the class of the error.
            message: its message, if it may be shown.
        """
        self.set({n.ERROR_TYPE: error_type})
        with ignoring_faults():
            self._span.set_status(Status(StatusCode.ERROR, message))

    def end(self) -> None:
        """End it: it is exported."""
        with ignoring_faults():
            self._span.end()


def _given(attributes: Attributes) -> dict[str, AttributeValue]:
    return {name: value for name, value in attributes.items() if value is not None}
