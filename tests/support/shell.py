"""The command line as users run it: real processes in a separate directory, and a real terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from orchestrator.stores import open_store
from tests.support.inside import run_inside
from tests.support.programs import PATIENCE, ROOT, Begun, Piped


@dataclass(frozen=True)
class Done:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The JSON document that is the command's stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The values of the JSON Lines in the command's stdout."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def command(self) -> str:
        """The last command that it printed to continue a run."""
        return re.findall(r"^ *(\S.* -m orchestrator (?:resume|approve|answer) .*)$", self.err, re.M)[-1]


class Shell:
    """A directory with the trial module in it, and commands that run there.

    Args:
        inside: whether a call runs the command in this process. `begin`, `terminal` and `sh` always start processes.
    """

    def __init__(self, place: Path, *, inside: bool = False) -> None:
        self.place, self._inside = place, inside
        shutil.copy(Path(__file__).with_name("trial.py"), place)
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        self._seen: dict[tuple[object, ...], Done] = {}
        self.env = {"PATH": path, "HOME": str(place / "home"), "PYTHONPATH": str(ROOT), "TERM": "xterm"}

    def __call__(self, *words: object, **options: Any) -> Done:
        """Run a command, without input to its stdin unless `stdin` is given."""
        if self._inside and options.keys() <= {"stdin", "env", "cwd"}:
            return self._run_inside(words, **options)
        return self.process(*words, **options)

    def process(self, *words: object, **options: Any) -> Done:
        """Run a command as a separate process."""
        with self.begin(*words, **options) as process:
            return process.end()

    def _run_inside(
        self, words: Sequence[object], stdin: str = "", env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Done:
        done = Done(
            *run_inside([*map(str, words)], cwd=cwd or self.place, env={**self.env, **(env or {})}, stdin=stdin)
        )
        assert "Traceback" not in done.err or "--traceback" in words, done.err
        return done

    def sh(self, command: str | Sequence[str]) -> Done:
        """Run a program, or a line of bash, without the starter: commands in it start as for users."""
        done = subprocess.run(
            ["bash", "-c", command] if isinstance(command, str) else command,
            cwd=self.place, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        assert "Traceback" not in done.stderr or "--traceback" in command, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def pasted(self, command: str) -> list[str]:
        """Return the arguments that bash reads after `-m orchestrator` in a printed command."""
        _, words = command.split(" -m orchestrator ", 1)
        read = subprocess.run(["bash", "-c", rf"printf '%s\0' {words}"], capture_output=True, text=True, check=True)
        return read.stdout.split("\0")[:-1]

    def go_on(self, done: Done) -> Done:
        """Run the last command that a command printed to continue a run."""
        return self.typed(done.command)

    def typed(self, command: str) -> Done:
        """Run a printed command, without a shell."""
        *_, module, name = (words := shlex.split(command))[:3]
        assert (module, name) == ("-m", "orchestrator")
        return self(*words[3:])

    def all(self, *commands: Sequence[object], **options: Any) -> list[Done]:
        """Run independent commands; if they are processes, several at a time."""
        if self._inside:
            return [self(*words, **options) for words in commands]
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda words: self(*words, **options), commands))

    def look(self, *commands: tuple[object, ...]) -> list[Done]:
        """Run commands that change nothing: each is run once, and its result is kept."""
        new = [words for words in dict.fromkeys(commands) if words not in self._seen]
        self._seen.update(zip(new, self.all(*new), strict=True))
        return [self._seen[words] for words in commands]

    @contextmanager
    def begin(
        self,
        *words: object,
        module: str = "orchestrator",
        stdin: str = "",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        loads: Sequence[str] = (),
    ) -> Iterator[Process]:
        """Start a command, which is killed at the end of the block if it is still running."""
        env = {**self.env, **(env or {})}
        process = Process(words, module=module, cwd=cwd or self.place, env=env, stdin=stdin, loads=loads)
        process.traceback = "--traceback" in words
        try:
            yield process
        finally:
            process.close()

    def wait_for(self, file: str, lines: int = 1) -> None:
        """Wait until a file has at least this many lines."""
        self.until(lambda: (self.place / file).exists() and len(self.read(file)) >= lines)

    def read(self, file: str) -> list[str]:
        """Return the lines of a file."""
        return (self.place / file).read_text().splitlines()

    def journal(self, run_id: str) -> list[str]:
        """Return the types of a run's records."""

        async def read() -> list[str]:
            store = open_store(f"sqlite:///{self.place}/.orchestrator/runs.db")
            try:
                return [record.type for record in await store.read(run_id)]
            finally:
                await store.close()

        return anyio.run(read)

    @staticmethod
    def until(condition: Any) -> None:
        """Wait until a condition is true."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, "it never came"
            time.sleep(0.01)

    @contextmanager
    def terminal(self, *words: object, env: Mapping[str, str] | None = None) -> Iterator[Terminal]:
        """Start a command on a new terminal."""
        ours, theirs = pty.openpty()
        env = {**self.env, **(env or {})}
        process = Begun(words, cwd=self.place, env=env, streams=(theirs, theirs, theirs), terminal=True)
        os.close(theirs)
        terminal = Terminal(process, ours)
        try:
            yield terminal
        finally:
            terminal.close()


class Process(Piped):
    """A command that runs in the background."""

    traceback = False
    """Whether it was asked for the traceback of a run that failed; no other traceback is ever to be seen."""

    def end(self) -> Done:
        """Wait until the command ends, and return its result."""
        out, err = self.read()
        assert "Traceback" not in err or self.traceback, err
        return Done(self.wait(), out, err)


class Terminal:
    """A terminal: the text that was shown on it, and a keyboard."""

    def __init__(self, process: Begun, file: int) -> None:
        self._process, self._file = process, file
        self.shown = ""
        self._seen = 0
        """How much of what was shown lies before the end of the last text that was waited for."""

    def wait_for(self, text: str) -> str:
        """Wait until a text is shown after the previous one, and return all text between the two, with the new one."""
        begin = self._seen
        while text not in self.shown[begin:]:
            assert self._read(), f"{text!r} never came: {self.shown}"
        self._seen = self.shown.index(text, begin) + len(text)
        return self.shown[begin : self._seen]

    def type(self, keys: str) -> None:
        """Type keys."""
        os.write(self._file, keys.encode())

    def end(self) -> int:
        """Wait until the command ends, and return its exit code."""
        while self._read():
            pass
        return self._process.wait()

    def close(self) -> None:
        """Leave nothing behind."""
        self._process.close()
        os.close(self._file)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._file], [], [], PATIENCE)
        assert ready, f"nothing more came: {self.shown}"
        try:
            data = os.read(self._file, 65536)
        except OSError:  # the other end is closed
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)
