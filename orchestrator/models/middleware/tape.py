"""The file of a cassette: what was asked, and what came of it, in the order of asking."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.errors import ModelError, message_of
from orchestrator.json import canonical, cleaned, digest
from orchestrator.models.middleware.files import write_whole
from orchestrator.values import MAX_BYTES, read_bounded

VERSION = 1
MOST_BYTES = 2 * MAX_BYTES
"""Bytes of a cassette that is read."""
_SHOWN = 60


@dataclass
class RecordedOutcome:
    """What came of one request. Neither reply nor error: its reader left after these pieces."""

    reply: dict[str, Any] | None = None
    pieces: list[dict[str, Any]] = field(default_factory=list)
    """As they came, if they were asked for: `text` or `reasoning`."""
    error: dict[str, Any] | None = None


@dataclass
class Entry:
    """One request, and what came of it each time that it was made. None: it is under way."""

    asked: dict[str, Any]
    """The model's name, and the request."""
    outcomes: list[RecordedOutcome | None] = field(default_factory=list)
    used: int = 0
    """How many of them were given out."""


class Tape:
    """Entries by what was asked, in the order of first use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[str, Entry] = {}

    def load(self) -> None:
        """Read the file.

        Raises:
            ValueError: it is no cassette.
        """
        try:
            written = json.loads(read_bounded(self.path, MOST_BYTES))
            if written["version"] != VERSION:
                raise ValueError(f"its version is {written['version']!r}, not {VERSION}")
            for one in written["entries"]:
                asked = {"model": one["model"], "request": one["request"]}
                outcomes: list[RecordedOutcome | None] = [RecordedOutcome(**outcome) for outcome in one["outcomes"]]
                # The digest is not stored, so that a request may be mended by hand.
                self.entries.setdefault(digest(asked), Entry(asked)).outcomes.extend(outcomes)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            advice = "correct it, or record it again with ORCHESTRATOR_CASSETTE=record"
            raise ValueError(f"{self.path} is not a cassette ({type(error).__name__}: {error}); {advice}") from None

    def save(self) -> None:
        """Write the file: whole or not at all, sorted keys, so that a version control shows what has changed."""
        entries = [
            {
                **entry.asked,
                "outcomes": [
                    {name: value for name, value in vars(outcome).items() if value not in (None, [])}
                    for outcome in entry.outcomes
                    if outcome is not None
                ],
            }
            for entry in self.entries.values()
            if any(entry.outcomes)
        ]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        data = cleaned({"version": VERSION, "entries": entries})
        write_whole(self.path, json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n")

    def unused(self) -> list[str]:
        """One line for each request that has outcomes which were not given out."""
        return [
            f"{len(entry.outcomes) - entry.used} of {_last(entry.asked)}"
            for entry in self.entries.values()
            if entry.used < len(entry.outcomes)
        ]

    def nearest(self, asked: Mapping[str, object]) -> str:
        """How the recorded request that is most like this one differs from it."""
        if not self.entries:
            return "nothing is recorded"
        text = canonical(asked)

        def likeness(entry: Entry) -> tuple[int, float]:
            found = sum(1 for _ in differences(entry.asked, asked))
            return -found, difflib.SequenceMatcher(None, canonical(entry.asked)[-2000:], text[-2000:]).quick_ratio()

        best = max(self.entries.values(), key=likeness)
        found = list(differences(best.asked, asked))
        more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
        return f"the nearest recorded one, {_last(best.asked)}, differs in " + "; ".join(found[:3]) + more


def differences(old: object, new: object, place: str = "") -> Iterator[str]:
    """Where two JSON values differ: `request.messages[1].content: recorded '...', asked '...'`."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*old, *new]):
            at = f"{place}.{key}" if place else str(key)
            if key not in new:
                yield f"{at}: recorded {_shown(old[key])}, not asked"
            elif key not in old:
                yield f"{at}: asked {_shown(new[key])}, not recorded"
            else:
                yield from differences(old[key], new[key], at)
    elif isinstance(old, list) and isinstance(new, list):
        for number, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from differences(one, other, f"{place}[{number}]")
        if len(old) != len(new):
            yield f"{place}: {len(old)} recorded, {len(new)} asked"
    elif isinstance(old, str) and isinstance(new, str) and old != new:
        # A long text is shown from shortly before the place where they part.
        same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        start = max(0, same - 20)
        where = f" (from character {start})" if start else ""
        yield f"{place}{where}: recorded {_shown(old[start:])}, asked {_shown(new[start:])}"
    elif type(old) is not type(new) or old != new:
        yield f"{place}: recorded {_shown(old)}, asked {_shown(new)}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _last(asked: Mapping[str, Any]) -> str:
    messages = asked["request"].get("messages") or [{}]
    return f"{messages[-1].get('role', 'no')} {_shown(messages[-1].get('content', ''))}"


# -- replies and errors as data --------------------------------------------------------------------------------------


def error_data(error: ModelError) -> dict[str, Any]:
    """An error as data: its class, its words, and those of its fields that are plain."""
    fields = {name: value for name, value in vars(error).items() if isinstance(value, bool | int | float | str | None)}
    return {"type": type(error).__name__, "message": message_of(error), **({"fields": fields} if fields else {})}


def error_from(data: Mapping[str, Any]) -> ModelError:
    """The error again; one of an unknown class is a plain `ModelError`."""
    kind = next((kind for kind in _kinds(ModelError) if kind.__name__ == data["type"]), ModelError)
    error = kind.__new__(kind, data["message"])
    error.args = (data["message"],)
    vars(error).update(data.get("fields", {}))  # as copying does: a class may have an `__init__` of its own
    return error


def _kinds(kind: type[ModelError]) -> Iterator[type[ModelError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)
