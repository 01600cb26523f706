"""Values that are secret: given as they are, or as `env:NAME` to be read from the environment when they are used."""

from __future__ import annotations

import os

from orchestrator.redaction import forms_of, know

ENV = "env:"


def looked_up(given: str) -> str | None:
    """The value; None if the environment does not have it."""
    if not given.startswith(ENV):
        return given
    found = os.environ.get(given.removeprefix(ENV)) or None
    if found is not None:
        know(found.strip())
    return found


def without(words: str, secrets: tuple[str, ...]) -> str:
    """Words for an error message, without these secrets."""
    for secret in secrets:
        if len(secret) >= 6:
            for form in forms_of(secret):
                words = words.replace(form, "***")
    return words
