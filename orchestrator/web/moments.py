"""Moments and days in queries. A day is in UTC and counts as a whole."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, TypeAlias

from pydantic import AwareDatetime, BeforeValidator, Field, WithJsonSchema

DAY = 86400.0
"""Seconds."""
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_OR_DAY = WithJsonSchema(
    {
        "anyOf": [
            {"type": "number"},
            {"type": "string", "format": "date-time"},
            {"type": "string", "format": "date"},
        ]
    }
)


def _beginning(given: object) -> object:
    """A day as its first moment; what else was given as it is."""
    if isinstance(given, str) and _DATE.fullmatch(given):
        return datetime.fromisoformat(given).replace(tzinfo=UTC).timestamp()
    return given


def _end(given: object) -> object:
    """A day as the moment after its last."""
    found = _beginning(given)
    return found + DAY if found is not given and isinstance(found, float) else found


Moment: TypeAlias = Annotated[
    Annotated[float, Field(allow_inf_nan=False)] | AwareDatetime,
    Field(description="Unix seconds, or ISO 8601 with a time zone."),
]
Since: TypeAlias = Annotated[Moment, BeforeValidator(_beginning), _OR_DAY]
"""A moment, or a day from its beginning on."""
Until: TypeAlias = Annotated[Moment, BeforeValidator(_end), _OR_DAY]
"""The moment after the last that counts, or a day up to its end."""


def unix(moment: float | datetime | None) -> float | None:
    """A moment of a query in Unix seconds."""
    return moment.timestamp() if isinstance(moment, datetime) else moment
