"""Whatever the library refuses, no irreversible call is made twice without a question, and none is lost."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import Approve, Executor, Question, Run
from orchestrator.cli.trust import journal_seal
from orchestrator.errors import InvalidValue
from orchestrator.stores.memory import MemoryStore
from tests.executor.refusing_program import DOORS, KINDS, app, plain, retried
from tests.executor.test_worker_processes import worker
from tests.support.sizes import quick_on, sized

both_loops = pytest.mark.parametrize("backend", ["asyncio", "trio"])
WAYS = ("retry", "resume_all", "answer", "fork", "replay", "worker")


def drawn(dice: random.Random, name: str) -> dict[str, Any]:
    """The input of a run."""
    # A result that is too large takes 64 MiB: it is rare.
    weights = [1 if kind == "large" else 20 for kind in KINDS]
    calls = [(dice.choice(DOORS), dice.choices(KINDS, weights)[0]) for _ in range(dice.randint(1, 3))]
    # A node cannot fail behind a call that it is itself.
    return {"name": name, "calls": [("effect" if kind == "raises after" else door, kind) for door, kind in calls]}


class Person:
    """Who answers, and looks into the diary of what was done before.

    Each call may be made once in the run that was started, and once more after each answer that has it made: an
    approval, or "it did not happen: call it now".
    """

    def __init__(self, executor: Executor, diary: Path, dice: random.Random, **how: Any) -> None:
        self.executor, self.diary, self.dice, self.how = executor, diary, dice, how
        self.allowed: dict[str, int] = {}
        """How often a call of a run may be made by what was answered last; by the start alone, where nothing was."""

    def made(self) -> Counter[str]:
        return Counter(self.diary.read_text().splitlines()) if self.diary.exists() else Counter()

    async def answer(self, run: Run) -> None:
        for question in run.waiting:
            await self.executor.answer(run.run_id, question.id, self._said(run, question), **self.how)

    def _said(self, run: Run, question: Question) -> Any:
        state: Any = run.state
        call = f"{run.run_id} {state.name} {state.i}"
        made = self.made()[call]
        if question.kind == "approval":
            if question.choices and self.dice.random() < 0.5:
                return "recorded"
            self.allowed[call] = made + 1
            return Approve()
        assert question.kind == "unknown_outcome"
        # A fork may ask what became of the call of its parent.
        everywhere = sum(times for line, times in self.made().items() if line.endswith(f" {state.name} {state.i}"))
        assert everywhere or question.payload["why"] != "refused", "it is said to have returned, and was not made"
        if self.dice.random() < 0.2:
            return "failed"  # says neither that it happened nor that it is to be called
        if everywhere and (made > 2 or self.dice.random() < 0.6):
            by_node = state.calls[state.i][0] == "node"
            return {"choice": "happened", "result": {"i": state.i + 1} if by_node else "by hand"}
        self.allowed[call] = made + 1
        return "retry"

    async def check(self, family: list[str], started: list[str]) -> None:
        """Nothing was done twice without a question, and nothing is lost."""
        made = self.made()
        for call, times in made.items():
            most = self.allowed.get(call, call.split()[0] in started)
            assert times <= most, f"call {call} was made {times} times, and allowed {most} times"
        whole = {call.split(" ", 1)[1] for call in made}
        for run_id in family:
            run = await self.executor.load(run_id)
            state: Any = run.state
            assert run.status == "completed", (run_id, run.status, run.error)
            assert whole.issuperset(f"{state.name} {i}" for i in range(len(state.calls))), f"a call of {run_id} is lost"


@contextlib.contextmanager
def writing_to(diary: Path) -> Iterator[None]:
    """Have calls of this process, and of those that it starts, write to a file."""
    os.environ["DIARY"] = str(diary)
    try:
        yield
    finally:
        del os.environ["DIARY"]


async def live(seed: int, rounds: int = 8) -> None:
    """A run and its forks, in ways that are drawn."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, writing_to(diary := Path(folder, "diary")):
        async with Executor(MemoryStore(), graphs=app.graphs, tools=[*app.tools]) as executor:
            person, family = Person(executor, diary, dice), ["r"]
            await executor.start(dice.choice((plain, retried)), drawn(dice, "a"), run_id="r")
            for _ in range(rounds):
                run = await executor.load(dice.choice(family))
                match dice.choice(WAYS):
                    case "retry" if run.status == "failed":
                        await executor.resume(run.run_id, retry=True)
                    case "resume_all":
                        await executor.resume_all(("failed", "paused"), retry=True)
                    case "answer":
                        await person.answer(run)
                    case "fork" if len(family) < 3:
                        with contextlib.suppress(InvalidValue):  # nothing can follow this record
                            family.append((await executor.fork(run.run_id, at=dice.randint(1, run.seq))).run_id)
                    case "replay":
                        before = person.made()
                        await executor.replay(run.run_id)
                        assert person.made() == before
                    case "worker":
                        with anyio.move_on_after(0.01):
                            await executor.work(slots=2)
            with anyio.fail_after(120):
                for run_id in family:
                    while (run := await executor.load(run_id)).status != "completed":
                        await (executor.resume(run_id, retry=True) if run.status == "failed" else person.answer(run))
            await person.check(family, ["r"])


@settings(max_examples=sized(2, 100), deadline=None)
@given(seed=st.integers(0, 1_000_000))
@both_loops
def test_no_call_is_made_twice_without_a_question_or_lost(backend: str, seed: int) -> None:
    anyio.run(live, seed, backend=backend)


@pytest.mark.storm
@both_loops
def test_nor_in_many_runs(backend: str, scale: int) -> None:
    for seed in range(40 * scale):
        anyio.run(live, seed, 12, backend=backend)


async def under_kills(folder: Path, runs: int, kills: int) -> None:
    """Runs of workers that are killed, with a person who answers, retries and forks."""
    url, diary, dice = f"sqlite:///{folder / 'runs.db'}", folder / "diary", random.Random(runs)
    seal = journal_seal(url, make=True)  # as of the workers, which believe no other answers
    async with Executor(url, seal=seal, graphs=app.graphs, tools=[*app.tools]) as executor:
        person, started = Person(executor, diary, dice, resume=False), [f"r{number}" for number in range(runs)]
        family = [*started]
        for name in family:
            await executor.enqueue(dice.choice((plain, retried)), drawn(dice, name), run_id=name)
        workers = [worker(url, diary, "tests.executor.refusing_program") for _ in range(2)]
        due = time.monotonic()
        try:
            while left := [run for name in family if (run := await executor.load(name)).status != "completed"]:
                for run in left:
                    if run.status == "paused":
                        await person.answer(run)
                if failed := [run.run_id for run in left if run.status == "failed"]:
                    await executor.resume_all(retry=True, only=failed)
                if len(family) < runs + runs // 10:
                    run = dice.choice(left)
                    with contextlib.suppress(InvalidValue):
                        family.append((await executor.fork(run.run_id, at=dice.randint(1, run.seq))).run_id)
                if kills and time.monotonic() > due and diary.exists():
                    place = dice.randrange(2)
                    workers[place].signal(signal.SIGKILL)
                    workers[place].close()
                    workers[place] = worker(url, diary, "tests.executor.refusing_program")
                    kills, due = kills - 1, time.monotonic() + dice.uniform(0.1, 0.5)
                await anyio.sleep(0.02)
        finally:
            for one in workers:
                one.close()
        assert not kills
        await person.check(family, started)


@quick_on("asyncio")
@pytest.mark.anyio
async def test_nor_by_workers_that_are_killed(tmp_path: Path) -> None:
    with anyio.fail_after(sized(120, 300)), writing_to(tmp_path / "diary"):
        await under_kills(tmp_path, sized(8, 40), sized(2, 10))


@pytest.mark.storm
@pytest.mark.anyio
async def test_nor_by_many_workers_that_are_killed(tmp_path: Path, scale: int) -> None:
    with anyio.fail_after(1800 * scale), writing_to(tmp_path / "diary"):
        await under_kills(tmp_path, 75 * scale, 6 * scale)
