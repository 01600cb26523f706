"""Files that are damaged: what precedes the damage is shown, nothing goes on behind it, other runs do not notice."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio.to_thread
import pytest

from orchestrator import Context, Executor, Graph, Outcome, Update, node
from orchestrator.errors import OrchestratorError, RunUnknown, StoreCorrupt, StoreError, StoreTooNew, StoreUnavailable
from orchestrator.stores import open_store
from tests.support.executors import Log, says
from tests.support.shell import Shell
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio

RUNS = ("a", "r", "z")


class Book:
    """A graph with three irreversible effects, then a question; and what was done for whom."""

    def __init__(self) -> None:
        self.done: list[str] = []

        @node
        async def work(state: Log, ctx: Context) -> Outcome[Literal["again", "enough"]]:
            async def act(n: int) -> str:
                self.done.append(f"{ctx.run_id}{n}")
                return f"{n}"

            text = await ctx.effect("act", act, state.n, returns=str, effect="irreversible")
            return Outcome("again" if state.n < 2 else "enough", n=state.n + 1, log=text)

        @node
        async def agree(state: Log, ctx: Context) -> Update:
            return {"log": (await ctx.ask("input", prompt="go on?")).value}

        self.graph = Graph(
            name="book", state=Log, nodes={"work": work, "agree": agree, "last": says("last")},
            edges="START -> work\nwork -> work : again\nwork -> agree : enough\nagree -> last -> END", output="log",
        )  # fmt: skip


@dataclass
class Whole:
    """A file with three runs that wait for an answer, as it was before anything happened to it."""

    path: Path
    head: int
    question: dict[str, str]
    loaded: dict[int, tuple[object, ...]]
    """What `r` was after each of its records."""

    def copy(self, to: Path) -> str:
        shutil.copy(self.path, to)
        return f"sqlite:///{to}"


def shown(run: object) -> tuple[object, ...]:
    return tuple(getattr(run, name) for name in ("status", "values", "steps", "seq", "output"))


@pytest.fixture
async def whole(tmp_path: Path) -> Whole:
    book = Book()
    path = tmp_path / "whole.db"
    async with Executor(f"sqlite:///{path}", graphs=[book.graph]) as executor:
        paused = {name: await executor.start(book.graph, run_id=name, labels={"user": "u"}) for name in RUNS}
        head = paused["r"].seq
        loaded = {at: shown(await executor.load("r", at=at)) for at in range(1, head + 1)}
    assert head > 8
    return Whole(path, head, {name: run.waiting[0].id for name, run in paused.items()}, loaded)


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount > 0, statement
        connection.commit()


def flipped(seq: int, byte: int = 9) -> Callable[[Path, int], object]:
    """One bit of one record."""

    def act(path: Path, run: int) -> None:
        with closing(sqlite3.connect(path)) as connection:
            (data,) = connection.execute(f"SELECT data FROM records WHERE id = ({run} << 32) | {seq}").fetchone()
            data = data[:byte] + bytes([data[byte] ^ 4]) + data[byte + 1 :]
            connection.execute(f"UPDATE records SET data = ? WHERE id = ({run} << 32) | {seq}", (data,))
            connection.commit()

    return act


def said(*statements: str) -> Callable[[Path, int], object]:
    """Statements about the records and the row of a run."""
    return lambda path, run: change(path, *(line.replace(":run", str(run)) for line in statements))


KEY = "WHERE id = (:run << 32)"
DAMAGES: dict[str, tuple[int, Callable[[Path, int], object]]] = {
    "a bit of the first record": (1, flipped(1)),
    "a bit of a record": (6, flipped(6)),
    "a row in the middle is missing": (5, said(f"DELETE FROM records {KEY} + 5")),
    "rows at the end are missing": (7, said("DELETE FROM records WHERE id >> 32 = :run AND id & 15 > 6")),
    "two rows changed places": (3, said(
        f"UPDATE records SET id = -1 {KEY} + 3",
        f"UPDATE records SET id = (:run << 32) + 3 {KEY} + 6",
        "UPDATE records SET id = (:run << 32) + 6 WHERE id = -1",
    )),
    "a record of another run": (
        4, said(f"UPDATE records SET (crc, data) = (SELECT crc, data FROM records WHERE id = (1 << 32) + 4) {KEY} + 4"),
    ),
    "all records of another run": (1, said(
        "DELETE FROM records WHERE id > :run << 32 AND id < (:run + 1) << 32",
        "UPDATE records SET id = (:run << 32) | (id & 4294967295) WHERE id < 2 << 32",
        "UPDATE runs SET head = 0 WHERE id = 1",
    )),
    "a bit of the head, down": (3, said("UPDATE runs SET head = 2 WHERE id = :run")),
    "a bit of the head, up": (-1, said("UPDATE runs SET head = head | 1024 WHERE id = :run")),
    "the graph in the row": (0, said("UPDATE runs SET graph = 'bopk' WHERE id = :run")),
    "the content in the row": (0, said("UPDATE runs SET content = 'x' || substr(content, 2) WHERE id = :run")),
    "the structure in the row": (0, said("UPDATE runs SET structure = 'x' || substr(structure, 2) WHERE id = :run")),
    "the status in the row": (0, said("UPDATE runs SET status = 'pausee' WHERE id = :run")),
    "the labels in the row": (0, said("UPDATE runs SET labels = '{' WHERE id = :run")),
}  # fmt: skip


async def refused(executor: Executor, book: Book, question: str) -> list[OrchestratorError]:
    """What everybody is told who wants to go on with a damaged run."""
    found: list[OrchestratorError] = []
    for act in (
        executor.resume("r"), executor.answer("r", question, "yes"), executor.answer("r", question, "no", resume=False),
        executor.cancel("r"), executor.pause("r"), executor.load("r"), executor.history("r"),
    ):  # fmt: skip
        with pytest.raises(StoreCorrupt) as caught:
            await act
        found.append(caught.value)
    assert "r" not in [run.run_id for run in await executor.recover()]
    assert book.done == []
    return found


def rows_of(path: Path, run: int) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(f"SELECT * FROM records WHERE id >> 32 = {run} ORDER BY id").fetchall()
        return rows + connection.execute(f"SELECT * FROM runs WHERE id = {run}").fetchall()


@pytest.mark.parametrize(("name", "anyio_backend"), [*zip(DAMAGES, itertools.cycle(("asyncio", "trio")), strict=False)])
async def test_damage_is_named_and_nothing_goes_on_behind_it(whole: Whole, tmp_path: Path, name: str) -> None:
    seq, damage = DAMAGES[name]
    seq = seq if seq >= 0 else whole.head + 1
    path = tmp_path / "damaged.db"
    url = whole.copy(path)
    damage(path, 2)
    before = rows_of(path, 2)
    book = Book()
    async with Executor(url, graphs=[book.graph]) as executor:
        for error in await refused(executor, book, whole.question["r"]):
            assert isinstance(error, StoreCorrupt)
            assert (error.run_id, error.seq) == ("r", seq), error
            assert str(error).startswith(
                f"run 'r': {f'record {seq}' if seq else 'its row in the list of runs'} is damaged"
            )
            assert "restore the store from a copy" in str(error)
            assert (f"orchestrator show r --at {seq - 1}" in str(error)) == (seq > 1)
        for at in sized(range(1, seq)[-2:], range(1, seq)):
            assert shown(await executor.load("r", at=at)) == whole.loaded[at]
            assert [point.seq for point in await executor.history("r", at=at)] == sorted(
                point.seq for point in await executor.history("z") if point.seq <= at
            )
        seen: list[int | None] = []
        try:
            async for event in executor.events("r"):
                seen.append(event.seq)
        except StoreCorrupt:
            assert seen == list(range(1, seq))
        else:  # of the row, the records need the head only
            assert name == "the status in the row"
            assert seen == list(range(1, whole.head + 1))
        # nothing was written, and nobody else notices
        assert rows_of(path, 2) == before
        assert {info.run_id for info in (await executor.runs()).runs} == set(RUNS)
        for other in ("z",) if name == "all records of another run" else ("a", "z"):
            run = await executor.answer(other, whole.question[other], "yes")
            assert (run.status, run.output) == ("completed", ["0", "1", "2", "yes", "last"])
    assert book.done == []


async def test_a_damaged_graph_is_named_and_the_graph_itself_goes_on(whole: Whole, tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    url = whole.copy(path)
    for data in ("replace(data, 'agree', 'agref')", "substr(data, 2)", "x'ff'"):
        change(path, f"UPDATE graphs SET data = {data}")
        async with Executor(url) as executor:
            with pytest.raises(StoreError, match=r"graph '.*' is damaged.*give the executor the graph itself"):
                await executor.load("r")
        book = Book()
        async with Executor(url, graphs=[book.graph]) as executor:
            assert shown(await executor.load("r")) == whole.loaded[whole.head]
    async with Executor(url, graphs=[book.graph]) as executor:
        assert (await executor.answer("r", whole.question["r"], "yes")).status == "completed"


async def test_what_else_a_bit_can_flip_in_holds_nothing_up(whole: Whole, tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    url = whole.copy(path)
    change(
        path,
        "INSERT INTO holders (holder, owner, ttl, expires, robbed) VALUES ('h', '{\"host', 'often', 'soon', 'no')",
        "UPDATE runs SET token = 't', holder = 'h', deaths = 'many', retry_at = 'never' WHERE id = 2",
        "UPDATE summaries SET usage = '{\"steps', steps = 'some' WHERE run = 2",
        "INSERT INTO inbox (run, body) VALUES (2, '{\"type')",
    )
    book = Book()
    async with Executor(url, graphs=[book.graph]) as executor:
        assert (await executor.answer("r", whole.question["r"], "yes")).status == "completed"


# -- whole files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_file_cut_short_tells_what_is_gone(whole: Whole, tmp_path: Path) -> None:
    content = whole.path.read_bytes()
    path = tmp_path / "damaged.db"
    for kept in (0, 1, 99, *range(100, len(content), 4096 + 512), len(content)):
        path.write_bytes(content[:kept])
        faults: list[str] = []
        book = Book()
        try:
            async with Executor(f"sqlite:///{path}", graphs=[book.graph]) as executor:
                for run_id in RUNS:
                    try:
                        run = await executor.load(run_id)
                    except (StoreError, RunUnknown) as error:
                        faults.append(str(error))
                        with pytest.raises((StoreError, RunUnknown)):
                            await executor.resume(run_id)
                    else:
                        assert run.seq == whole.head
        except StoreError as error:  # not even opened
            faults.append(str(error))
        if kept == len(content):
            assert not faults
        assert faults or kept > len(content) / 2, kept  # the last pages hold tables that are empty
        for fault in faults:
            assert kept == 0 or "damaged" in fault or "not an SQLite database" in fault, fault


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_a_log_cut_at_any_byte_gives_the_state_before_the_write(tmp_path: Path) -> None:
    """As after a power failure in the middle of a write: every state that is read was once the state of the run."""
    book = Book()
    async with Executor(f"sqlite:///{tmp_path}/live.db", graphs=[book.graph]) as executor:
        question = (await executor.start(book.graph, run_id="r")).waiting[0].id
        for file in ("live.db", "live.db-wal"):
            shutil.copy(tmp_path / file, tmp_path / file.replace("live", "kept"))
        head = (await executor.load("r")).seq
        states = {at: shown(await executor.load("r", at=at)) for at in range(1, head + 1)}
        whole = (await executor.answer("r", question, "yes")).output
    log = (tmp_path / "kept.db-wal").read_bytes()
    page = int.from_bytes(log[8:12], "big") + 24
    frames = [
        at for at in range(32, len(log) + 1, page) if any(log[max(at - page, 0) : at])
    ]  # zeros are room for others
    aside = sized((-1, 0, 24), (-page // 2, -1, 0, 1, 23, 24))
    cuts = [0, 17, 31, *(at + more for at in frames[-36::2] for more in aside)]
    heads: set[int] = set()
    path = tmp_path / "cut.db"
    for number, cut in enumerate(cuts):
        shutil.copy(tmp_path / "kept.db", path)
        (tmp_path / "cut.db-wal").write_bytes(log[: max(0, min(cut, len(log)))])
        book.done.clear()
        async with Executor(f"sqlite:///{path}", graphs=[book.graph]) as executor:
            try:
                run = await executor.load("r")
            except RunUnknown:
                continue
            heads.add(run.seq)
            expected = states[run.seq]
            assert shown(run)[1:] == expected[1:]
            if number % 6 == 0:
                while run.status in ("interrupted", "paused"):
                    if run.status == "interrupted":
                        run = await executor.resume("r")
                        continue
                    said: object = "yes"
                    if run.waiting[0].kind == "unknown_outcome":
                        said = {"choice": "happened", "result": str(run.waiting[0].payload["args"][0])}
                    run = await executor.answer("r", run.waiting[0].id, said)
                assert [str(text) for text in run.output] == whole
                assert len(book.done) == len(set(book.done))
        for file in tmp_path.glob("cut.db*"):
            file.unlink()
    assert len(heads) > 3
    assert head in heads


async def test_what_is_no_store_is_told_and_left_as_it_is(whole: Whole, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE runs (id, run_id, head)")
    text = tmp_path / "text.db"
    text.write_text("Dear diary, " * 1000)
    short = tmp_path / "short.db"
    short.write_text("Dear diary")
    newer = tmp_path / "newer.db"
    whole.copy(newer)
    with closing(sqlite3.connect(newer)) as connection:
        connection.execute("PRAGMA user_version = 99")
    directory = tmp_path / "directory.db"
    directory.mkdir()
    for path, kind, words in (
        (foreign, StoreError, "the SQLite database of another program; name another file"),
        (text, StoreError, "is not an SQLite database; name another file"),
        (short, StoreError, "is not an SQLite database; name another file"),
        (newer, StoreTooNew, "schema version 99, .* update the library"),
        (directory, StoreUnavailable, "it is a directory, which cannot be opened as a store; name a file in it"),
    ):
        before = path.read_bytes() if path.is_file() else b""
        with pytest.raises(kind, match=words) as caught:
            open_store(f"sqlite:///{path}")
        assert str(path) in str(caught.value)
        assert before == (path.read_bytes() if path.is_file() else b"")
    empty = tmp_path / "empty.db"
    empty.touch()
    async with Executor(f"sqlite:///{empty}", graphs=[Book().graph]) as executor:
        with pytest.raises(RunUnknown):
            await executor.resume("r")


# -- the command line --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_command_line_names_the_damage_and_shows_what_precedes_it(whole: Whole, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    flipped(6)(whole.path, 2)
    store = ("--store", f"sqlite:///{whole.path}")
    show, at, resume, events = await anyio.to_thread.run_sync(
        lambda: shell.all(
            ("show", "r", *store), ("show", "r", "--at", 5, *store), ("resume", "r", *store), ("events", "r", *store),
        )
    )  # fmt: skip
    for done in (show, resume, events):
        assert done.code == 1
        assert "error: run 'r': record 6 is damaged (its checksum does not match)" in done.err
        assert "-m orchestrator show r --at 5 --store " in done.err
        assert "restore the store from a copy" in done.err
    assert [show.out, resume.out] == ["", ""]
    assert [event["seq"] for event in events.lines] == [1, 2, 3, 4, 5]
    assert at.code == 0
    assert at.out.startswith("r  book  running  (record 5;")
