"""The calls that a run made outside of itself: counted by idempotency key, and kept when its process is stopped.

`World` counts them for runs in this process. `Diary` is a file for runs in processes of their own: a line for each call
that began, ended or was reused. A process sends its lines through a pipe to the process that started it, which writes
the file: a pipe loses nothing when the process is killed, and still takes lines when the disk is full.

A model is asked once per key, as by a server that honours the keys: asked again for the same, it gives the same reply.
So what a model answers never differs between the runs that are compared. Tools and functions are really called.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup

from orchestrator.executor.effects.effect import Effect
from orchestrator.executor.interrupts import Lost, Refused, Suspend
from orchestrator.json import digest
from orchestrator.kernel.records import EffectClass, EffectKind, EffectSettled
from orchestrator.testing.crash.facts import ObservedCall
from orchestrator.testing.crash.life import StoppingStore

T = TypeVar("T")


@dataclass
class World:
    """Counts effects. Those in progress when a process stops continue here, as they would outside."""

    tasks: TaskGroup
    replies: dict[str, object] = field(default_factory=dict)
    """Replies of models, by key."""
    calls: dict[str, ObservedCall] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    """Violations, as soon as they are found."""
    life: StoppingStore | None = None
    """Store of the calling process; once it is stopped, the process receives no result any more."""
    _busy: int = 0
    _quiet: anyio.Event = field(default_factory=anyio.Event)

    async def call(self, effect: Effect[T], key: str) -> T:
        """See `Witness.call`."""
        wanted = wanted_of(effect)
        known = self.calls.setdefault(key, ObservedCall(key, effect.kind, effect.name, effect.effect, wanted))
        if known.wanted != wanted:
            self.faults.append(f"{known} was called with two requests under one key")
        known.begun += 1
        if effect.kind == "model" and key in self.replies:
            known.finished += 1
            return effect.decode(self.replies[key])
        return await self._outside(effect, key, known)

    def reuse(self, effect: Effect[object], settled: EffectSettled) -> None:
        """See `Witness.reuse`."""
        known = self.calls.get(settled.key)
        if known is not None and known.wanted != wanted_of(effect):
            self.faults.append(f"the result of {known} was given to a call of {effect.name} with another request")

    async def settle(self) -> None:
        """Wait until no call is in progress."""
        while self._busy:
            self._quiet = anyio.Event()
            await self._quiet.wait()

    async def _outside(self, effect: Effect[T], key: str, known: ObservedCall) -> T:
        found: list[T] = []
        raised: list[BaseException] = []
        done = anyio.Event()
        scope = anyio.CancelScope()

        async def work() -> None:
            try:
                with scope:
                    value = await effect.run(key)
                    known.result = effect.encode(value)
                    known.finished += 1
                    if effect.kind == "model":
                        self.replies[key] = known.result
                    found.append(value)
            except (Exception, Suspend, Refused, Lost) as error:
                raised.append(error)
            finally:
                self._busy -= 1
                self._quiet.set()
                done.set()

        self._busy += 1
        self.tasks.start_soon(work)
        try:
            await done.wait()
        except BaseException:
            if self.life is None or not self.life.stopped:
                scope.cancel()
                with anyio.CancelScope(shield=True):
                    await done.wait()
            raise
        if raised:
            raise raised[0]
        return found[0]


def wanted_of(effect: Effect[Any]) -> str:
    """Digest of what an effect asks for, independent of the ledger's own."""
    return digest([effect.kind, effect.name, effect.request])


class Diary:
    """Calls in the file, and those made since.

    Args:
        path: of the file.
        tell: receives each new line; None: this diary is only read.
    """

    def __init__(self, path: str | Path, tell: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._tell = tell
        self.calls: dict[str, ObservedCall] = {}
        self.replies: dict[str, object] = {}
        """Replies of models, by key."""
        self.faults: list[str] = []
        """Violations that were found."""
        if (file := Path(path)).exists():
            for line in file.read_text().splitlines():
                self._take(json.loads(line))

    def begin(self, key: str, kind: EffectKind, name: str, effect: EffectClass, wanted: str) -> None:
        """Note that a call starts."""
        self._add({"did": "begin", "key": key, "kind": kind, "name": name, "effect": effect, "wanted": wanted})

    def finish(self, key: str, result: object) -> None:
        """Note that a call is done."""
        self._add({"did": "finish", "key": key, "result": result})

    def reuse(self, key: str, wanted: str) -> None:
        """Note that its result was given to a call with this request."""
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
