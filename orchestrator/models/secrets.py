"""Values that are secret: given as they are, or as `env:NAME` to be read from the environment when they are used."""

from __future__ import annotations

import json
import os
from urllib.parse import quote

ENV = "env:"


def looked_up(given: str) -> str | None:
    """The value; None if the environment does not have it."""
    return (os.environ.get(given.removeprefix(ENV)) or None) if given.startswith(ENV) else given


def without(words: str, secrets: tuple[str, ...]) -> str:
    """Words for an error message, without these secrets."""
    for secret in secrets:
        if len(secret) >= 6:
            for form in {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], quote(secret, safe="")}:
                words = words.replace(form, "***")
    return words
