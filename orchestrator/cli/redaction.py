"""Blanking what looks like a secret in whatever a view shows. The journal itself is never changed."""

from __future__ import annotations

_LEAST = 4
"""Characters that a secret has at least."""


def redacted(value: object) -> object:
    """A plain value in which every text that holds a secret has it blanked.

    What a person is to approve is shown as it is: that is what will run.
    """
    if isinstance(value, str):
        from orchestrator.render import redact

        return redact(value)
    if isinstance(value, dict):
        return {key: _under(str(key), part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(part) for part in value]
    return value


def _under(key: str, value: object) -> object:
    """A value that has a name, which may say that it is a secret (`password`)."""
    if not isinstance(value, str) or value.startswith("env:"):
        return redacted(value)
    from orchestrator.render.redacting import BLANK, redact

    secret = len(value) >= _LEAST and redact(f"{key}: 'something'") == f"{key}: {BLANK}"
    return BLANK if secret else redact(value)
