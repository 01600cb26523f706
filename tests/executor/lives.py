"""Processes that carry out orders, see `program`, from the side of who gives them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from tests.support.programs import Begun
from tests.support.stores import in_a_transaction

LONGEST = 200.0
"""Seconds after which an order counts as hanging."""


class Life:
    """One process, which carries out one order."""

    def __init__(self, says: TextIO, name: str) -> None:
        self.name = name
        self.told: dict[str, Any] = {}
        self._says = says
        self._hangs = False
        self.pid = int(self._hear("pid"))
        # A process id may be given to another process; this names the process itself.
        try:
            self._process = os.pidfd_open(self.pid)
        except ProcessLookupError:  # a short one, which has ended by now
            self._process = -1
        self._watch = threading.Timer(LONGEST, self._give_up)
        self._watch.start()
        self._hear("ready")

    def send(self, number: int) -> None:
        """Send it a signal, if it is still there."""
        with contextlib.suppress(ProcessLookupError, OSError):
            signal.pidfd_send_signal(self._process, number)

    def stop(self, store: str) -> None:
        """Let it stand still, but not in the middle of a write, which would lock it for all others."""
        while True:
            self.send(signal.SIGSTOP)
            while Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
                time.sleep(0.001)
            if not in_a_transaction(store):
                return
            self.send(signal.SIGCONT)
            time.sleep(0.01)

    def kill(self) -> None:
        """The power fails."""
        self.send(signal.SIGKILL)

    def end(self) -> dict[str, Any]:
        """Wait for its end: `result` or `error`, and `ended`, the process's exit code."""
        if "ended" not in self.told:
            self._hear("ended")
            self._watch.cancel()
            if self._process >= 0:
                os.close(self._process)
                self._process = -1
        assert not self._hangs, f"{self.name} hung: {self.told}"
        assert self.told.get("error") != "crash", self.told["message"]
        return self.told

    def result(self) -> dict[str, Any]:
        """Wait for its end; what came of it."""
        told = self.end()
        assert "result" in told, told
        result: dict[str, Any] = told["result"]
        return result

    def _give_up(self) -> None:
        self._hangs = True
        self.kill()

    def _hear(self, what: str) -> Any:
        while what not in self.told:
            line = self._says.readline()
            assert line, f"the program is gone, {what!r} was not heard of; before: {self.told}"
            self.told.update(json.loads(line))
            if "ended" in self.told and what != "ended":
                return None
        return self.told[what]


class Program:
    """A Python process that carries out one order after the other, each in a process of its own."""

    _count = itertools.count()

    def __init__(self, module: str = "program") -> None:
        (orders, write), (read, says) = os.pipe(), os.pipe()
        self._process = Begun([], module=f"tests.executor.{module}", streams=(orders, says, 2))
        os.close(orders)
        os.close(says)
        self._orders, self._says = os.fdopen(write, "w", 1), os.fdopen(read)
        self._last: Life | None = None

    def begin(self, do: str, **order: Any) -> Life:
        """Give an order; returns when its process is about to open its executor."""
        name = f"{os.getpid()}.{next(self._count)}"
        self._orders.write(json.dumps({"do": do, "life": name, **order}) + "\n")
        self._last = Life(self._says, name)
        return self._last

    def send(self, number: int) -> None:
        """Send a signal to the one that begins processes and waits for their ends."""
        self._process.signal(number)

    def stop(self) -> None:
        """End what it still does."""
        if self._last is not None and "ended" not in self._last.told:
            self._last.kill()
            with contextlib.suppress(AssertionError):
                self._last.end()

    def close(self) -> None:
        """End it, and what it still does."""
        self.stop()
        self._orders.close()
        self._process.wait()
        self._says.close()


@contextmanager
def programs(count: int = 1, module: str = "program") -> Iterator[list[Program]]:
    """So many of them."""
    found = [Program(module) for _ in range(count)]
    try:
        yield found
    finally:
        for program in found:
            program.close()
