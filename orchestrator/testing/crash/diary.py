"""What a run's processes did outside, in a file that outlives them: a line per call that began, ended, was reused.

A process tells its lines to who started it, who writes them down: a pipe loses nothing when the process is killed,
and is no file, so that it takes lines also where no file does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.kernel.records import EffectClass, EffectKind
from orchestrator.testing.crash.facts import ObservedCall


class Diary:
    """What the file says, and what was done since.

    Args:
        path: of the file.
        tell: is told what is done from now on; None: this diary is only read.
    """

    def __init__(self, path: str | Path, tell: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._tell = tell
        self.calls: dict[str, ObservedCall] = {}
        self.replies: dict[str, object] = {}
        """What models said, by key."""
        self.faults: list[str] = []
        """What must never be."""
        if (file := Path(path)).exists():
            for line in file.read_text().splitlines():
                self._take(json.loads(line))

    def begin(self, key: str, kind: EffectKind, name: str, effect: EffectClass, wanted: str) -> None:
        """A call begins."""
        self._add({"did": "begin", "key": key, "kind": kind, "name": name, "effect": effect, "wanted": wanted})

    def finish(self, key: str, result: object) -> None:
        """It is done."""
        self._add({"did": "finish", "key": key, "result": result})

    def reuse(self, key: str, wanted: str) -> None:
        """Its result was given to a call that wants this."""
        self._add({"did": "reuse", "key": key, "wanted": wanted})

    def _add(self, line: dict[str, object]) -> None:
        if self._tell is not None:
            self._tell(line)
        self._take(line)

    def _take(self, line: dict[str, Any]) -> None:
        key: str = line["key"]
        if line["did"] == "begin":
            known = self.calls.setdefault(
                key, ObservedCall(key, line["kind"], line["name"], line["effect"], line["wanted"])
            )
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
