"""Ctrl-C and SIGTERM interrupt runs: they are checkpointed, their leases given back."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import anyio
import pytest

from orchestrator import Executor, Run
from tests.support.programs import Begun, next_line

ONE = """
async def main():
    async with Executor(url, graphs=[graph]) as ex:
        await ex.start(graph, run_id="r")
        print("never", flush=True)
        await anyio.sleep(30)
"""
BESIDE = """
async def main():
    async with Executor(url, graphs=[graph]) as ex, Executor(url, graphs=[graph]) as other:
        await other.submit(graph, run_id="r")
        await ex.start(graph, run_id="s")
"""
ONE_CLOSED_BEFORE = """
async def brief(opened):
    async with Executor(url):
        await anyio.sleep(0.1)
        opened.set()
        await anyio.sleep(0.1)

async def main():
    opened = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(brief, opened)
        await opened.wait()
        async with Executor(url, graphs=[graph]) as ex:
            await anyio.sleep(0.3)
            await ex.start(graph, run_id="r")
"""
OWN_HANDLER = """
async def main():
    async with Executor(url, graphs=[graph]) as ex:
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ex.start, graph, None)
                async for _ in signals:
                    print("mine", flush=True)
                    tasks.cancel_scope.cancel()
"""
IN_A_FORK = """
async def main():
    async with Executor(url, graphs=[graph]) as ex:
        await anyio.sleep(0.1)
        told, tell = os.pipe()
        child = os.fork()
        if not child:
            os.write(tell, b".")  # only now: Python forgets signals that come while it forks
            for _ in range(600):  # a signal that comes just before a sleep is heard after it
                time.sleep(0.05)
            os._exit(1)
        os.read(told, 1)
        os.kill(child, signal.SIGTERM)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        await ex.start(graph, run_id="r")
"""
AFTERWARDS = """
async def main():
    async with Executor(url, graphs=[graph]) as ex:
        await ex.submit(graph, run_id="r")
        await anyio.sleep(0.1)
    print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)
    time.sleep(30)
"""


class Program:
    """A process that runs one of these."""

    def __init__(self, text: str, backend: str, folder: Path) -> None:
        self.url, self.file = f"sqlite:///{folder}/runs.db", folder / "runs.db"
        text = (
            "import os, signal, sys, time, anyio\n"
            "from orchestrator import Executor\n"
            "from tests.contract.hanging import hangs as graph\n"
            f"url = sys.argv[1]\n{text}\nanyio.run(main, backend=sys.argv[2])\n"
        )
        read, write = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        self.process = Begun([text, self.url, backend], module="tests.support.script", streams=(null, write, null))
        self._said = read
        for stream in (write, null):
            os.close(stream)

    def lines(self, count: int) -> list[str]:
        return [next_line(self._said).strip() for _ in range(count)]

    def end(self, number: int) -> tuple[int, str]:
        self.process.signal(number)
        code = self.process.wait()
        with os.fdopen(self._said, closefd=False) as rest:
            return code, rest.read()

    def close(self) -> None:
        self.process.close()
        os.close(self._said)

    def leases(self) -> int:
        with closing(sqlite3.connect(self.file)) as db:
            return int(db.execute("select count(*) from runs where token is not null").fetchone()[0])

    def load(self, run_id: str = "r") -> Run:
        async def look() -> Run:
            async with Executor(self.url) as ex:
                return await ex.load(run_id)

        return anyio.run(look)


@contextmanager
def begun(text: str, backend: str, folder: Path) -> Iterator[Program]:
    """A program, which is gone at the end."""
    program = Program(text, backend, folder)
    try:
        yield program
    finally:
        program.close()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_signals_interrupt_a_run_and_never_cancel_it(name: str, backend: str, tmp_path: Path) -> None:
    with begun(ONE, backend, tmp_path) as program:
        assert program.lines(1) == ["here"]
        code, rest = program.end(getattr(signal, name))
        assert code == -signal.SIGTERM if name == "SIGTERM" else code != 0
        assert rest == ""
        assert program.leases() == 0
        run = program.load()
        assert (run.status, run.values["log"]) == ("interrupted", ["work"])


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_several_executors(backend: str, tmp_path: Path) -> None:
    with begun(BESIDE, backend, tmp_path) as program:
        assert program.lines(2) == ["here", "here"]
        assert program.end(signal.SIGTERM) == (-signal.SIGTERM, "")
        assert program.leases() == 0
        assert [program.load(run_id).values["log"] for run_id in "rs"] == [["work"], ["work"]]


def test_one_executor_that_is_closed_leaves_the_other_guarded(tmp_path: Path) -> None:
    with begun(ONE_CLOSED_BEFORE, "asyncio", tmp_path) as program:
        assert program.lines(1) == ["here"]
        assert program.end(signal.SIGTERM) == (-signal.SIGTERM, "")
        assert program.leases() == 0


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_program_that_handles_the_signal_itself_goes_on_to_do_so(backend: str, tmp_path: Path) -> None:
    with begun(OWN_HANDLER, backend, tmp_path) as program:
        assert program.lines(1) == ["here"]
        assert program.end(signal.SIGTERM) == (0, "mine\n")
        assert program.leases() == 0


def test_a_fork_ends_by_the_signal_and_its_parent_goes_on(tmp_path: Path) -> None:
    with begun(IN_A_FORK, "asyncio", tmp_path) as program:
        assert program.lines(2) == ["-15", "here"]
        assert program.end(signal.SIGTERM)[0] == -signal.SIGTERM
        assert program.leases() == 0


def test_when_no_executor_is_open_the_signal_is_as_before(tmp_path: Path) -> None:
    with begun(AFTERWARDS, "asyncio", tmp_path) as program:
        assert program.lines(2) == ["here", "True"]
        assert program.end(signal.SIGTERM)[0] == -signal.SIGTERM
