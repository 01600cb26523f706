"""`resume --retry` for one run, and `resume --all` for a batch that failed by a bug: nothing is done twice."""

from __future__ import annotations

import importlib.util
import re
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import anyio
import pytest

from orchestrator import Executor
from orchestrator.stores import RunInfo
from tests.support.shell import Shell
from tests.support.sizes import sized

RUNS, EVERY = sized((60, 6), (500, 12))
"""Orders, and every how-manieth of them fails: with `--full` 42 of 500."""


def module_at(place: Path) -> ModuleType:
    """The batch's code, as the file has it."""
    spec = importlib.util.spec_from_file_location("batch_of_orders", place / "batch.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules["batch_of_orders"] = found
    spec.loader.exec_module(found)
    return found


class Orders:
    """A batch in a store."""

    def __init__(self, shell: Shell) -> None:
        self.shell, self.place = shell, shell.place
        shutil.copy(Path(__file__).with_name("batch.py"), self.place)
        self.write(EVERY)
        self.store = f"sqlite:///{self.place}/orders.db"
        self.failing = [number for number in range(RUNS) if number % EVERY == 0]
        code = module_at(self.place)

        async def run() -> None:
            async with Executor(self.store, graphs=[code.graph], tools=[code.pay]) as executor:
                gate = anyio.CapacityLimiter(20)

                async def one(number: int) -> None:
                    async with gate:
                        labels = {"batch": "night" if number < RUNS - EVERY else "day"}
                        run = await executor.start(code.graph, number, run_id=self.id_of(number), labels=labels)
                        assert run.status == ("failed" if number in self.failing else "completed")

                async with anyio.create_task_group() as tasks:
                    for number in range(RUNS):
                        tasks.start_soon(one, number)

        anyio.run(run)

    @staticmethod
    def id_of(number: int) -> str:
        return f"order-{number}"

    def write(self, bug: int) -> None:
        """Write the code: with a bug, or without it."""
        text = Path(__file__).with_name("batch.py").read_text() + "#" * bug  # compiled files go by time and size
        (self.place / "batch.py").write_text(re.sub(r"^BUG = \d+", f"BUG = {bug}", text, flags=re.M))

    @property
    def words(self) -> list[str]:
        return ["--graph", "batch.py:graph", "--tools", "batch.py:pay", "--model", "offline", "--store", self.store]

    def diary(self) -> Counter[str]:
        return Counter((self.place / "diary.txt").read_text().splitlines())

    def statuses(self) -> Counter[str]:
        return Counter(info.status for info in self.runs())

    def ids(self, status: str) -> list[str]:
        return [info.run_id for info in self.runs() if info.status == status]

    def runs(self) -> list[RunInfo]:
        async def look() -> list[RunInfo]:
            async with Executor(self.store) as executor:
                return list((await executor.runs(limit=RUNS)).runs)

        return anyio.run(look)

    def all_is_done_once(self) -> None:
        assert self.statuses() == {"completed": RUNS}
        diary = self.diary()
        assert diary == {f"{what} {number}": 1 for what in ("reserve", "pay", "ship") for number in range(RUNS)}


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(Shell(tmp_path))


def test_a_batch_that_failed_by_a_bug_goes_on_when_the_code_is_repaired(orders: Orders) -> None:
    assert orders.statuses() == {"failed": len(orders.failing), "completed": RUNS - len(orders.failing)}
    orders.write(0)
    done = orders.shell.process("resume", "--all", "--status", "failed", "--retry", *orders.words)
    assert done.code == 0, done.err
    lines = [line for line in done.out.splitlines() if "->" not in line]
    assert len(lines) == len(orders.failing)
    assert all(re.fullmatch(r"order-\d+ +orders +failed +completed", line) for line in lines), done.out
    count = len(orders.failing)
    assert f"{count}/{count}  order-" in done.err
    assert f"{count} completed" in done.err
    orders.all_is_done_once()


def test_a_kill_in_the_middle_of_a_batch_harms_nothing(orders: Orders) -> None:
    orders.write(0)
    words = ["resume", "--all", "--status", "failed", "--status", "interrupted", "--retry", *orders.words]
    lines = len((orders.place / "diary.txt").read_text().splitlines())
    for more in (1, 4):
        with orders.shell.begin(*words, "--concurrency", "3") as process:
            orders.shell.until(lambda: process.ended or sum(orders.diary().values()) >= lines + more)  # noqa: B023
            assert not process.ended, process.end()
            process.signal(signal.SIGKILL)
            process.wait()
    assert orders.statuses()["completed"] < RUNS
    done = orders.shell.process(*words, "--json")
    assert {one["status"] for one in done.json["runs"]} <= {"completed", "paused"}, done.out
    for run_id in orders.ids("paused"):  # killed between the intent of a step that is irreversible, and its end
        happened = orders.diary()[f"ship {run_id.removeprefix('order-')}"]
        said = "happened" if happened else "retry"
        (question,) = orders.shell.process("show", run_id, "--json", "--store", orders.store).json["waiting"]
        answered = orders.shell.process("answer", run_id, said, "--question", question["id"], *orders.words)
        assert answered.code == 0, answered.err
    diary = orders.diary()
    assert {what: count for what, count in diary.items() if count > 1} == {}
    assert orders.statuses() == {"completed": RUNS}


@pytest.mark.full
def test_two_processes_that_resume_one_batch_do_each_run_once(orders: Orders) -> None:
    orders.write(0)
    words = ["resume", "--all", "--status", "failed", "--retry", "--json", "--wait", "10", *orders.words]
    with orders.shell.begin(*words) as one, orders.shell.begin(*words) as other:
        ended = [one.end(), other.end()]
    found: dict[str, list[str]] = {}
    for done in ended:
        for run in done.json["runs"]:
            found.setdefault(run["run_id"], []).append(run["status"])
            # The slower process reports that, and the run is not reopened a second time.
            assert run["status"] == "completed" or re.match("RunConflict|RunEnded", run["error"]), run
    assert all("completed" in statuses for statuses in found.values())
    assert len(found) == len(orders.failing)
    orders.all_is_done_once()


def test_a_terminal_shows_a_bar_whatever_runs_are_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Orders, "id_of", staticmethod(lambda number: f"order-{number}[red][bold"))
    monkeypatch.setattr(sys.modules[__name__], "RUNS", 3 * EVERY)
    orders = Orders(Shell(tmp_path))
    orders.write(0)
    with orders.shell.terminal("resume", "--all", "--status", "failed", "--retry", *orders.words) as terminal:
        assert terminal.end() == 0
        assert "3/3" in terminal.shown
        assert "━" in terminal.shown
        assert re.search(r"order-0\[red\]\[bold +orders  failed  completed", terminal.shown)
    orders.all_is_done_once()


@pytest.mark.full
def test_runs_are_chosen_by_label_and_what_cannot_go_on_is_reported(orders: Orders) -> None:
    orders.write(0)
    one = orders.shell.process(
        "resume", "--all", "--status", "failed", "--label", "batch=day", "--retry", "--json", *orders.words
    )
    assert one.code == 0, one.err
    chosen = [run["run_id"] for run in one.json["runs"]]
    assert chosen == [f"order-{number}" for number in orders.failing if number >= RUNS - EVERY]
    assert one.json["counts"] == {"completed": len(chosen)}
    without = orders.shell.process(
        "resume", "--all", "--status", "failed", "--retry", "--json", "--store", orders.store
    )
    assert without.code == 1
    assert {run["status"] for run in without.json["runs"]} == {""}
    assert "add --graph" in without.json["runs"][0]["error"]
    orders.write(EVERY)
    still = orders.shell.process("resume", "--all", "--status", "failed", "--retry", *orders.words)
    assert still.code == 1
    assert re.search(r"failed +failed +ZeroDivisionError: order \d+ met a bug", still.out)
    none = orders.shell.process("resume", "--all", "--status", "exhausted", "--retry", *orders.words)
    assert (none.code, none.out) == (0, "")
    assert "no run matches" in none.err
    for words, said in (
        (["--all", "--retry"], "give --status"),
        (["--all", "--status", "failed"], "--retry"),
        (["--all", "--status", "completed", "--retry"], "cannot be resumed"),
        (["order-0", "--status", "failed"], "--all"),
        ([], "give the id of a RUN"),
    ):
        refused = orders.shell.process("resume", *words, "--store", orders.store)
        assert refused.code == 2
        assert said in refused.err


def test_one_run_goes_on_with_more_steps(tmp_path: Path) -> None:
    shell = Shell(tmp_path, inside=True)
    spent = shell("run", "trial:two", "roses", "--run-id", "two", "--max-steps", "1")
    assert spent.code == 5
    refused, low, done = (
        shell("resume", "two"),
        shell("resume", "two", "--retry"),
        shell("resume", "two", "--retry", "--max-steps", "9", "--json"),
    )
    assert refused.code == 1
    assert "orchestrator resume two --retry --max-steps N" in refused.err
    assert low.code == 1
    assert "steps=1 are spent (1 used)" in low.err
    assert done.code in (0, 3), done.err
