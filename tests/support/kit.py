"""How the crash kit starts its processes in tests: with modules already imported; with `--full`, as for its users."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from subprocess import PIPE
from types import SimpleNamespace
from typing import Self

import pytest

from orchestrator.testing.crash import processes
from tests.support.programs import Begun
from tests.support.sizes import FULL


class Forked(Begun):
    """The part of `subprocess.Popen` for `python -m MODULE ARGUMENTS` that the crash kit uses."""

    def __init__(
        self, command: Sequence[str], *, stdout: int, stderr: int, env: Mapping[str, str], loads: Sequence[str] = ()
    ) -> None:
        python, option, module, *words = command
        assert (python, option, stdout, stderr) == (sys.executable, "-m", PIPE, PIPE)
        nothing, (out, told), (err, said) = os.open(os.devnull, os.O_RDONLY), os.pipe(), os.pipe()
        self.stdout, self.stderr = os.fdopen(out, "rb"), os.fdopen(err, "rb")
        super().__init__(words, module=module, streams=(nothing, told, said), env=env, loads=loads)
        for stream in (nothing, told, said):
            os.close(stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.wait()
        self.stdout.close()
        self.stderr.close()

    def kill(self) -> None:
        """Kill the process."""
        self.signal(9)

    @property
    def returncode(self) -> int:
        """The exit code of the process; waits for its end."""
        return self.wait()


def fork_processes(monkeypatch: pytest.MonkeyPatch, *loads: str) -> None:
    """Start the processes of the crash kit with these modules loaded; with `--full`, as for its users."""
    if not FULL:
        begin = partial(Forked, loads=loads)
        monkeypatch.setattr(processes, "subprocess", SimpleNamespace(Popen=begin, PIPE=PIPE))
