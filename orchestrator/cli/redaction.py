"""Blanking what looks like a secret in whatever a view shows. The journal itself is never changed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orchestrator.cli.exits import UsageError

if TYPE_CHECKING:
    from orchestrator.stores import RunInfo


def redacted(value: object) -> object:
    """A plain value in which every text that holds a secret has it blanked.

    What a person is to approve is shown as it is: that is what will run.
    """
    from orchestrator import redaction  # late: its patterns take a while to compile

    return redaction.redacted(value)


def row_document(info: RunInfo) -> dict[str, object]:
    """The row of a run as plain JSON, redacted."""
    made = info.to_json()
    return made | {name: redacted(made[name]) for name in info.REDACTED}


def redact_own() -> None:
    """`ORCHESTRATOR_REDACT`: regular expressions, one a line, whose matches are blanked in all that is shown.

    Raises:
        UsageError: one cannot be compiled, or matches the empty text.
    """
    said = os.environ.get("ORCHESTRATOR_REDACT", "").splitlines()
    if said:
        from orchestrator.redaction import redact_also

        for pattern in filter(None, map(str.strip, said)):
            try:
                redact_also(pattern)
            except ValueError as error:
                raise UsageError(f"ORCHESTRATOR_REDACT: {error}") from None
