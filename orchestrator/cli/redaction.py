"""Blanking what looks like a secret in whatever a view shows. The journal itself is never changed."""

from __future__ import annotations


def redacted(value: object) -> object:
    """A plain value in which every text that holds a secret has it blanked.

    What a person is to approve is shown as it is: that is what will run.
    """
    from orchestrator import redaction  # late: its patterns take a while to compile

    return redaction.redacted(value)
