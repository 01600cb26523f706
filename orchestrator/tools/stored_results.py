"""Long results of tools: the excerpt that a model is shown, and the tool that reads the rest.

The whole result is in the journal already, with the call that returned it. Its id is a digest of its text: it is the
same in a fork and in a replay, and says nothing about results that a model was not shown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated

import anyio.to_thread
from pydantic import Field

from orchestrator.errors import ToolError
from orchestrator.tools.result import SHOWN, Effect, Risk, cut
from orchestrator.tools.tool import Tool

OFFLOADED = "offloaded"
"""Key in the data of a message: it shows an excerpt of a result with this id, or replaces such messages (True)."""
PART_OF = "part_of"
"""Key in the data of a message: it shows a part of the result with this id, and does not say how to read the rest."""
CHECKED = "checked_result"
"""Name of the effect that stores a long result as a guard changed it."""
READ_RESULT = "read_result"
"""Name of the tool that reads stored results."""

_AROUND = 150
"""Number of characters shown before and after a place that was searched for."""


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A result in the journal of a run."""

    text: str
    checked_by: str = ""
    """Digest of the rules of the guard that changed it; empty for a result as its tool returned it."""


def id_of(text: str) -> str:
    """Return the id of a result, given its text."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def excerpt(text: str, most: int) -> str:
    """Return the start and the end of a result, with its length and its id.

    Args:
        text: the result.
        most: number of characters of it that are shown.
    """
    return f"{heading(text)}{cut(text, most)}"


def heading(text: str) -> str:
    """Return the first line of a result's excerpt."""
    return f"[Excerpt of a result of {len(text):,} characters: {reads(id_of(text))} reads it.]\n"


def reads(id_: object) -> str:
    """Return the call that reads a result, in the words that a model is shown."""
    return f'{READ_RESULT}(id="{id_}")'


class ReadResult(Tool):
    """Reads parts of long results of a run."""

    name = READ_RESULT
    risk: Risk = "none"
    effect: Effect = "pure"

    def __init__(self, find: Callable[[str], Awaitable[StoredResult | None]]) -> None:
        """
        Args:
            find: returns the run's result with an id; None if the run has no such result.
        """
        self._find = find

    async def call(
        self,
        id: str,  # noqa: A002  the name that models are given
        offset: Annotated[int, Field(ge=0)] = 0,
        limit: Annotated[int, Field(ge=1)] = 4_000,
        pattern: str = "",
    ) -> str:
        """Read a part of a long result of an earlier call, of which you were shown an excerpt.

        Args:
            id: the id in the excerpt.
            offset: number of the first character to read.
            limit: the most characters to read, up to 18,000.
            pattern: a text to search for, in upper or lower case; you receive each place from offset on that has it.
                It is a plain text, not a regular expression.
        """
        found = await self._find(id)
        if found is None:
            raise ToolError(f"this run has no result with the id {id[:40]!r}: use an id from an excerpt")
        text = found.text
        limit = min(limit, _MOST)
        if offset >= len(text):
            raise ToolError(f"offset {offset:,} is after the end: the result has {len(text):,} characters")
        if pattern:
            return await anyio.to_thread.run_sync(_found, text, pattern, offset, limit)
        end = min(offset + limit, len(text))
        more = "" if end == len(text) else f"; continue with offset={end}"
        return f"[Characters {offset:,} to {end:,} of {len(text):,}{more}]\n{text[offset:end]}"


_MOST = SHOWN - 2_000
"""Maximum number of characters that one call reads: its own result is shown as a whole."""


def _lower(text: str) -> str:
    """Return a text of the same length in lower case. İ is the only letter that would become two."""
    return text.replace("İ", "i").lower().replace("ς", "σ")


def _found(text: str, pattern: str, offset: int, limit: int) -> str:
    """Return the places of a text that contain a pattern, in time in proportion to the text."""
    plain, wanted = _lower(text), _lower(pattern)
    parts: list[str] = []
    at = plain.find(wanted, offset)
    while at >= 0 and limit > 0:
        start, end = max(offset, at - _AROUND), min(at + len(wanted) + _AROUND, at + limit)
        parts.append(f"[at {at:,}]\n{text[start:end]}")
        limit -= end - start
        offset = max(end, at + 1)
        at = plain.find(wanted, offset)
    if not parts:
        return f"[{pattern[:100]!r} does not occur in the {len(text) - offset:,} characters from {offset:,} on]"
    more = "" if at < 0 else f"; continue with offset={at}"
    return "\n".join((f"[Places: {len(parts)}, in {len(text):,} characters{more}]", *parts))
