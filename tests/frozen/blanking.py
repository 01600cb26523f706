"""What is blanked in a frozen text: moments, durations, who held a run, and where library code stands."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from orchestrator.kernel.records import Record, encode

ROOT = Path(__file__).parents[2]
_CALENDAR = 1_500_000_000.0
"""Floats above it are moments."""
_SECONDS = frozenset({"seconds", "duration", "elapsed", "execution_time", "took"})
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?")
_FRAME = re.compile(r'File "([^"]+)", line \d+, in (.+)')


def blanked(value: object, key: str = "") -> object:
    """The same plain JSON without what differs from run to run."""
    if isinstance(value, Mapping):
        # The facts of a message come in the order of a set.
        names = sorted(value) if key == "data" else value
        return {name: blanked(value[name], name) for name in names}
    if isinstance(value, list | tuple):
        return [blanked(inner) for inner in value]
    if key in _SECONDS and isinstance(value, float | str):
        return "seconds"
    if isinstance(value, float):
        return "moment" if value > _CALENDAR else value
    if isinstance(value, str):
        if key == "holder":
            return "holder"
        return frames(value) if key == "traceback" else _DATE.sub("moment", value)
    return value


def frames(traceback: str) -> str:
    """Of a traceback the functions of the tests that it names, and its last line."""
    lines = traceback.rstrip().splitlines()
    found = [
        f"{Path(match[1]).name}: {match[2]}" for line in lines if (match := _FRAME.search(line)) and "tests" in match[1]
    ]
    return "; ".join([*found, *lines[-1:]])


def compact(value: object) -> str:
    """One line of JSON, keys in their order."""
    return json.dumps(blanked(value), ensure_ascii=False, separators=(",", ":"))


def line_of(record: Record) -> str:
    """A record as it is stored, on one line."""
    data = json.loads(encode(record))
    for name in ("ts", "started", "ended"):
        data.pop(name, None)
    if data.get("next_at") is not None:
        data["next_at"] = "moment"
    return f"{data.pop('seq'):>3} {data.pop('type')} {compact(data)}"
