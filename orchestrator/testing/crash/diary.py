"""What a process did outside, in a file that outlives it: one line per call that began, ended, or was reused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.testing.crash.facts import Call

if TYPE_CHECKING:
    from orchestrator.kernel.records import EffectClass, EffectKind


class Diary:
    """Reads what is in the file, and adds to it.

    A line is written with one call of the system, so a killed process leaves whole lines only.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.calls: dict[str, Call] = {}
        self.replies: dict[str, object] = {}
        """What models said, by key."""
        self.faults: list[str] = []
        """What must never be."""
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                self._take(json.loads(line))

    def begin(self, key: str, kind: EffectKind, name: str, effect: EffectClass, wanted: str) -> None:
        """A call begins."""
        self._write({"did": "begin", "key": key, "kind": kind, "name": name, "effect": effect, "wanted": wanted})

    def finish(self, key: str, result: object) -> None:
        """It is done."""
        self._write({"did": "finish", "key": key, "result": result})

    def reuse(self, key: str, wanted: str) -> None:
        """Its result was given to a call that wants this."""
        self._write({"did": "reuse", "key": key, "wanted": wanted})

    def _write(self, line: dict[str, Any]) -> None:
        data = json.dumps(line).encode() + b"\n"
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, data)
        finally:
            os.close(file)
        self._take(line)

    def _take(self, line: dict[str, Any]) -> None:
        key: str = line["key"]
        if line["did"] == "begin":
            known = self.calls.setdefault(key, Call(key, line["kind"], line["name"], line["effect"], line["wanted"]))
            known.begun += 1
            if known.wanted != line["wanted"]:
                self.faults.append(f"{known} was called with two requests under one key")
            return
        found = self.calls.get(key)
        if found is None:
            return
        if line["did"] == "reuse":
            if found.wanted != line["wanted"]:
                self.faults.append(f"the result of {found} was given to a call with another request")
            return
        found.finished += 1
        found.result = line["result"]
        if found.kind == "model":
            self.replies[key] = found.result
