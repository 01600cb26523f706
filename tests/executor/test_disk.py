"""Disks that are full at any moment, files that cannot be written, locks that are held for long."""

from __future__ import annotations

import functools
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread
import pytest

from orchestrator import Context, Executor, Graph, Outcome, Run, Update, node
from orchestrator.errors import RunUnknown, StoreUnavailable
from orchestrator.stores import open_store
from orchestrator.stores.requests import RunQuery
from tests.support.disks import KINDS, Disk, SmallDisk, can_mount, disk_of, mounted
from tests.support.executors import Log, says, single
from tests.support.shell import Shell
from tests.support.sizes import quick_on

pytestmark = pytest.mark.anyio

ROUNDS = 4
ITEMS = [0, 1, 2]


@pytest.fixture(params=KINDS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    with disk_of(request.param, tmp_path) as found:
        yield found


class Work:
    """Irreversible effects, one after the other and then beside each other, a question, and one more."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.during: Callable[[], object] | None = None
        self.longer = 0.0

        async def act(what: str) -> str:
            self.done.append(what)
            during, self.during = self.during, None
            if during is not None:
                during()
                await anyio.sleep(self.longer)
            return f"{what} " * 500

        async def once(ctx: Context, what: str) -> str:
            return (await ctx.effect("act", act, what, returns=str, effect="irreversible"))[:2]

        @node
        async def work(state: Log, ctx: Context) -> Outcome[Literal["again", "enough"]]:
            text = await once(ctx, f"w{state.n}")
            return Outcome("again" if state.n + 1 < ROUNDS else "enough", n=state.n + 1, log=text)

        @node
        async def beside(state: Log, ctx: Context, item: int) -> Update:
            return {"log": await once(ctx, f"b{item}")}

        @node(join="all")
        async def agree(state: Log, ctx: Context) -> Update:
            return {"log": (await ctx.ask("input", prompt="go on?")).value}

        @node
        async def last(state: Log, ctx: Context) -> Update:
            return {"log": await once(ctx, "l0")}

        self.graph = Graph(
            name="work", state=Log,
            nodes={"work": work, "plan": says("plan"), "beside": beside, "agree": agree, "last": last},
            edges="START -> work\nwork -> work : again\nwork -> plan : enough\nplan -> beside : each items\n"
            "beside -> agree -> last -> END",
            output="log",
        )  # fmt: skip
        effects = [*(f"w{n}" for n in range(ROUNDS)), *(f"b{n}" for n in ITEMS), "l0"]
        self.effects = sorted(effects)
        self.output = [*effects[:ROUNDS], "plan", *effects[ROUNDS:-1], "yes", "l0"]

    async def begin(self, executor: Executor) -> Run:
        return await executor.start(self.graph, {"items": ITEMS}, run_id="r")

    async def answered(self, executor: Executor, run: Run) -> Run:
        """Answer what a run asks, as somebody who looks would, until it ends."""
        while run.status == "paused":
            question = run.waiting[0]
            said: object = "yes"
            if question.kind == "unknown_outcome":
                (what,) = question.payload["args"]
                said = {"choice": "happened", "result": what} if what in self.done else "retry"
            run = await executor.answer("r", question.id, said)
        return run

    async def to_its_end(self, executor: Executor) -> Run:
        """Begin the run or go on with it."""
        try:
            run = await executor.resume("r")
        except RunUnknown:
            run = await self.begin(executor)
        return await self.answered(executor, run)


def whole(disk: Path) -> int:
    """Hold what is in the file against itself; how many records the run has."""
    with closing(sqlite3.connect(disk / "runs.db")) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    try:
        records = open_store(f"sqlite:///{disk}/runs.db").read_now("r")
    except RunUnknown:
        return 0
    return len(records)  # it reads to the head, with nothing behind it and no hole, or raises


@quick_on("trio")
async def test_a_disk_that_fills_up_at_any_moment(tmp_path: Path, anyio_backend: str) -> None:
    """Room for nothing, for the beginning, ... for all: what is missing makes the run stop, never go wrong."""
    for kind in KINDS:
        heads: set[int] = set()
        faults: list[str] = []
        rooms = range(20_000 if anyio_backend == "trio" else 100_000, 900_000, 160_000)
        for room, new in [(0, True), (70_000, True), (0, False), *((room, False) for room in rooms)]:
            place = tmp_path / f"{kind.__name__}{room}{new}"
            place.mkdir()
            with disk_of(kind, place) as disk:
                work = Work()
                async with Executor(disk.url, graphs=[work.graph]) as executor:
                    if not new:
                        await executor.start(single(lambda state: None, name="before"))
                    disk.leave(room)
                    try:
                        run = await work.to_its_end(executor)
                    except StoreUnavailable as error:
                        faults.append(str(error))
                        with pytest.raises(StoreUnavailable):
                            await work.to_its_end(executor)
                    else:
                        assert run.output == work.output
                    disk.free()
                    head = whole(place)
                    heads.add(head)
                    if head:
                        loaded = await executor.load("r")
                        assert loaded.seq == head
                        assert loaded.status in ("interrupted", "paused", "completed")
                    if not head or loaded.status != "completed":
                        run = await work.to_its_end(executor)
                    assert run.output == work.output, room
                    assert sorted(work.done) == work.effects, room
        for fault in faults:
            assert f"/{kind.__name__}" in fault
            assert re.search(r"the disk (is full; free some space|.* its free space), then continue", fault), fault
        assert len(faults) > 3
        assert len(heads) > 3, heads
        assert 0 in heads


async def test_a_lease_that_cannot_be_renewed_for_a_while(disk: Disk) -> None:
    work = Work()
    work.longer = 1.0

    async with Executor(disk.url, graphs=[work.graph], lease_ttl=0.3) as executor:
        async with anyio.create_task_group() as tasks:

            def full_for_a_while() -> None:
                disk.fill()
                tasks.start_soon(freed)

            async def freed() -> None:
                await anyio.sleep(0.8)
                disk.free()

            work.during = full_for_a_while
            run = await work.begin(executor)
        # nobody took it over meanwhile: nothing happened
        assert [question.kind for question in run.waiting] == ["input"]
        assert (await work.answered(executor, run)).output == work.output
    assert sorted(work.done) == work.effects


async def test_an_answer_and_an_end_that_the_disk_has_no_room_for(disk: Disk) -> None:
    work = Work()
    async with Executor(disk.url, graphs=[work.graph]) as executor:
        run = await work.begin(executor)
        question = run.waiting[0].id
        # something else reads at the time, so that the log cannot be begun anew
        with closing(sqlite3.connect(disk.path / "runs.db", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM runs").fetchone()
            disk.fill()
            for _ in range(2):
                with pytest.raises(StoreUnavailable):
                    await executor.answer("r", question, "yes", resume=False)
            assert (await executor.load("r")).waiting[0].id == question
            disk.free()
            work.during = disk.fill
            with pytest.raises(StoreUnavailable):
                await executor.answer("r", question, "yes")
        assert "l0" in work.done
        disk.free()
        run = await work.to_its_end(executor)
        assert run.output == work.output
        assert sorted(work.done) == work.effects


def test_the_command_line_says_that_the_disk_is_full(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    shell = Shell(tmp_path)
    kind = KINDS[-1]
    with disk_of(kind, place) as disk:
        store = ("--store", disk.url)
        assert shell("run", "trial:number", "--run-id", "n", *store).code == 3
        if can_mount():
            disk.fill()
        for words in (("run", "trial:number", "--run-id", "m", *store), ("answer", "n", "4", *store)):
            small = f"ulimit -f 1; python -m orchestrator {shlex.join(words)}"  # in KiB
            done = shell(*words) if can_mount() else shell.sh(small)
            assert (done.code, done.out) == (1, "")
            assert re.search(r"the disk (is full|failed)", done.err)
            assert "free" in done.err
        disk.free()
        assert shell("answer", "n", "4", *store).out == "4\n"


async def test_what_a_killed_process_left_is_read_when_there_is_room(disk: Disk, tmp_path: Path) -> None:
    work = Work()
    elsewhere = tmp_path / "elsewhere" if disk.path != tmp_path else tmp_path.with_name(f"{tmp_path.name}-elsewhere")
    elsewhere.mkdir()
    async with Executor(f"sqlite:///{elsewhere}/runs.db", graphs=[work.graph]) as executor:
        await work.begin(executor)
        for name in ("runs.db", "runs.db-wal"):
            shutil.copy(elsewhere / name, disk.path / name)
    disk.fill()
    full = pytest.raises(StoreUnavailable, match=r"the disk is full; free some space, then continue")
    # on a disk that is full, what coordinates readers of the log finds no room either
    with full if isinstance(disk, SmallDisk) else nullcontext():
        assert len(open_store(disk.url).read_now("r")) > 10
    disk.free()
    async with Executor(disk.url, graphs=[work.graph]) as executor:
        assert (await work.to_its_end(executor)).output == work.output
    assert sorted(work.done) == work.effects


# -- files that may not be written -------------------------------------------------------------------------------------


@contextmanager
def immutable(file: Path) -> Iterator[None]:
    """Nobody may change a file, not even root."""
    subprocess.run(["chattr", "+i", file], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", file], check=True)


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """A directory on a file system that may only be read."""
    subprocess.run(["mount", "-o", "remount,ro", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", path], check=True)


@functools.cache
def can_freeze(path: Path) -> bool:
    """Whether a file can be made immutable here."""
    file = path / "frozen"
    file.touch()
    try:
        with immutable(file):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@contextmanager
def in_the_way(path: Path) -> Iterator[None]:
    """Where the directory of the store was, there is a file. Needs no rights at all."""
    path.rename(path.with_name("aside"))
    path.write_text("in the way")
    try:
        yield
    finally:
        path.unlink()
        path.with_name("aside").rename(path)


async def test_a_store_that_may_only_be_read_is_shown_and_goes_on_later(tmp_path: Path) -> None:
    possible = {"in the way": True, "immutable": can_freeze(tmp_path), "mount": can_mount()}
    for way in (way for way, can in possible.items() if can):
        place = tmp_path / way
        place.mkdir()
        with mounted(place) if way == "mount" else nullcontext():
            work = Work()
            url = f"sqlite:///{place}/runs.db"
            async with Executor(url, graphs=[work.graph]) as executor:
                question = (await work.begin(executor)).waiting[0].id
            taken = {"in the way": in_the_way, "mount": read_only}.get(way, lambda path: immutable(path / "runs.db"))
            with taken(place):
                if way == "in the way":
                    with pytest.raises((StoreUnavailable, RunUnknown)):
                        async with Executor(url, graphs=[work.graph]) as executor:
                            await executor.answer("r", question, "yes")
                    with pytest.raises(StoreUnavailable, match="name a file in a directory"):
                        async with Executor(url, graphs=[work.graph]) as executor:
                            await work.begin(executor)
                else:
                    async with Executor(url, graphs=[work.graph]) as executor:
                        assert (await executor.load("r")).waiting[0].id == question
                        for act in (executor.answer("r", question, "yes"), executor.cancel("r"), work.begin(executor)):
                            with pytest.raises(StoreUnavailable, match=r"read-only|cannot be opened") as caught:
                                await act
                            assert url in str(caught.value)
            async with Executor(url, graphs=[work.graph]) as executor:
                assert (await executor.answer("r", question, "yes")).output == work.output
            assert sorted(work.done) == work.effects


async def test_a_directory_that_is_removed_under_a_run(tmp_path: Path) -> None:
    place = tmp_path / "store"
    work = Work()
    work.during = lambda: shutil.rmtree(place)
    async with Executor(f"sqlite:///{place}/runs.db", graphs=[work.graph]) as executor:
        for action in (work.begin, work.begin, lambda executor: executor.resume("r")):
            with pytest.raises(StoreUnavailable, match=r"runs\.db was removed or renamed while it was open"):
                await action(executor)
            assert work.done == ["w0"]  # and not again, as a new run of that id
            assert not place.exists()
    work.done.clear()
    async with Executor(f"sqlite:///{place}/runs.db", graphs=[work.graph]) as executor:  # opened anew: another store
        assert (await work.to_its_end(executor)).output == work.output
    assert whole(place) > 0


# -- locks -------------------------------------------------------------------------------------------------------------


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another connection writes, and does not come to an end."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def test_a_lock_that_is_held_for_a_while_delays_a_run(tmp_path: Path) -> None:
    work = Work()
    path = tmp_path / "runs.db"
    async with Executor(f"sqlite:///{path}", graphs=[work.graph]) as executor:
        question = (await work.begin(executor)).waiting[0].id
        runs: list[Run] = []

        async def answer() -> None:
            runs.append(await executor.answer("r", question, "yes"))

        async with anyio.create_task_group() as tasks:
            with locked(path):
                tasks.start_soon(answer)
                await anyio.sleep(0.5)
                assert (await executor.load("r")).waiting[0].id == question  # reading waits for nobody
        assert runs[0].output == work.output


@pytest.mark.storm
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_lock_that_is_held_for_ever_is_told(tmp_path: Path) -> None:
    """Takes as long as a lock is waited for."""
    work = Work()
    path = tmp_path / "runs.db"
    async with Executor(f"sqlite:///{path}", graphs=[work.graph]) as executor:
        question = (await work.begin(executor)).waiting[0].id
        told: list[str] = []

        async def refused(act: Callable[[], Awaitable[object]]) -> None:
            with pytest.raises(StoreUnavailable) as caught:
                await act()
            told.append(str(caught.value))

        with locked(path):
            async with anyio.create_task_group() as tasks:
                for act in (
                    functools.partial(executor.answer, "r", question, "yes"),
                    functools.partial(executor.start, work.graph, run_id="new"),
                    functools.partial(executor.cancel, "r"),
                ):
                    tasks.start_soon(refused, act)
        assert len(told) == 3
        for fault in told:
            assert f"store sqlite:///{path}: another process has locked it for too long; end that process" in fault
        with pytest.raises(RunUnknown):
            await executor.load("new")
        assert (await executor.answer("r", question, "yes")).output == work.output
    assert sorted(work.done) == work.effects


async def test_what_one_store_opens_and_closes_takes_no_locks_from_another(tmp_path: Path) -> None:
    """The system takes a process's locks on a file when the process closes it, however it had opened it.

    Without them the next process that closes the file would think that it is the last one, and remove the log.
    """
    url = f"sqlite:///{tmp_path}/runs.db"
    work = Work()
    async with Executor(url, graphs=[work.graph]) as executor:
        question = (await work.begin(executor)).waiting[0].id
        second = open_store(url)
        assert len((await second.runs(RunQuery())).runs) == 1
        await second.put_graph("digest", {})
        await second.close()
        look = "import sqlite3, sys; f = sqlite3.connect(sys.argv[1]); f.execute('SELECT * FROM runs'); f.close()"
        await anyio.run_process([sys.executable, "-S", "-c", look, str(tmp_path / "runs.db")])
        assert (tmp_path / "runs.db-wal").exists()
        assert (await executor.answer("r", question, "yes")).output == work.output
    assert whole(tmp_path) > 0
