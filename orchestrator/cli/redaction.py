"""Blanking what looks like a secret in whatever a view shows. The journal itself is never changed."""

from __future__ import annotations


def redacted(value: object) -> object:
    """A plain value in which every text that holds a secret has it blanked.

    What a person is to approve is shown as it is: that is what will run.
    """
    if isinstance(value, str):
        from orchestrator.render import redact

        return redact(value)
    if isinstance(value, dict):
        return {key: redacted(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(part) for part in value]
    return value
