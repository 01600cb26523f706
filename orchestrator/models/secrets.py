"""Values that are secret: given as they are, or as `env:NAME` to be read from the environment when they are used."""

from __future__ import annotations

import os

ENV = "env:"


def looked_up(given: str) -> str | None:
    """The value; None if the environment does not have it."""
    return (os.environ.get(given.removeprefix(ENV)) or None) if given.startswith(ENV) else given


def without(words: str, secrets: tuple[str, ...]) -> str:
    """Words for an error message, without these secrets."""
    for secret in secrets:
        if len(secret) >= 6:
            words = words.replace(secret, "***")
    return words
