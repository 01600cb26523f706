"""Resuming, and looking, by snapshots: the same as by the whole journal, and shorter."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from secrets import token_bytes, token_hex
from sqlite3 import connect
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Executor, Graph, Limits, Outcome, append, node
from orchestrator.executor import loader, snapshots
from orchestrator.kernel.records import Record
from orchestrator.kernel.seals import Seal
from orchestrator.nodes import Ask
from orchestrator.stores.sqlite import SQLiteStore
from orchestrator.testing import assert_crash_safe
from tests.benchmarks.subjects.ours import FAN, UNTOUCHED, Message
from tests.support.executors import Log, counting, says
from tests.support.sizes import quick_on, sized
from tests.testing.acting import drawn_graph, ends, said
from tests.testing.acting import tools as acting_tools
from tests.testing.shop import Echo, Till, shop, yes

pytestmark = pytest.mark.anyio


@pytest.fixture
def all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots behind nearly every write, and with each pause and end, whatever their size."""
    monkeypatch.setattr(snapshots, "EVERY", 1)
    monkeypatch.setattr(snapshots, "FEW", 1)
    monkeypatch.setattr(snapshots, "RECORDS", 0)
    monkeypatch.setattr(snapshots, "ITEMS", 0)
    monkeypatch.setattr(snapshots, "AT_REST", 1 << 30)
    monkeypatch.setattr(snapshots, "BYTES", 1 << 30)


class Counting(SQLiteStore):
    """A store that tells how many records were read from it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.records = self.put = 0

    async def put_snapshot(self, run_id: str, seq: int, data: bytes) -> None:
        self.put += 1
        await super().put_snapshot(run_id, seq, data)

    async def read(self, *args: Any, **kw: Any) -> list[Record]:
        found = await super().read(*args, **kw)
        self.records += len(found)
        return found


class Lines(BaseModel):
    """Lines that are only added to."""

    n: int = 0
    lines: Annotated[list[str], append] = []


def asking() -> Graph:
    """Counts, asks, and goes on."""
    nodes = {**counting().nodes, "ask": Ask(prompt="Go on?", answer="answer"), "end": says("end")}
    edges = "START -> count\ncount -> count : again\ncount -> ask : enough\nask -> end -> END"
    return Graph(name="asking", state=Log, nodes=nodes, edges=edges, output="n", limits=counting().limits)


@pytest.mark.full
@pytest.mark.parametrize(("store", "anyio_backend"), [("memory", "trio"), ("sqlite", "asyncio")])
@pytest.mark.usefixtures("all_the_time")
async def test_every_kind_of_effect_survives_stops_with_snapshots_everywhere(store: Any) -> None:
    report = await assert_crash_safe(
        shop(), {"order": "o", "items": ["x", "y"]}, setup=Till().setup, model=Echo(), answer=yes, store=store,
        most=sized(2, 3), stops=2,
    )  # fmt: skip
    assert report.status == "completed", report


@pytest.mark.full
@quick_on("trio")
@pytest.mark.usefixtures("all_the_time")
async def test_generated_graphs_survive_stops_with_snapshots_everywhere(anyio_backend: str) -> None:
    tried = 0
    for seed in range(300, 320)[:: 1 if anyio_backend == "trio" else -1]:
        found = drawn_graph("structured", seed)
        if not tried and found is not None and await ends(*found):
            tried += 1
            await assert_crash_safe(
                *found,
                model=Echo(),
                setup=lambda: {"tools": acting_tools()},
                answer=said,
                most=sized(2, 4),
                stops=2,
                seed=seed,
            )
    assert tried == 1


@quick_on("asyncio")
async def test_a_long_run_is_gone_on_with_from_its_snapshot(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url) as executor:
        run = await executor.start(asking(), {"until": 2500}, run_id="r")
        assert run.status == "paused"
    store = Counting(f"{tmp_path}/runs.db")
    async with Executor(store, graphs=[asking()]) as executor:
        assert (await executor.load("r")).values == run.values
        assert store.records < 1000
        early = await executor.load("r", at=1500)
        assert early.values["n"] == 1499
        assert store.records < 2000
        before = store.records
        run = await executor.answer("r", run.waiting[0].id, "yes")
        assert (run.status, run.output) == ("completed", 2500)
        assert store.records - before < 1000
    assert run.steps == 2502


async def test_what_only_waits_in_this_process_is_not_folded_again(tmp_path: Path) -> None:
    store = Counting(f"{tmp_path}/runs.db")
    async with Executor(store) as executor:
        run = await executor.start(asking(), {"until": 300}, run_id="r")
        before = store.records
        again = await executor.answer("r", run.waiting[0].id, "yes")
        assert again.status == "completed"
        assert store.records - before < 10
        # What was told of it before stays as it was.
        assert run.status == "paused"
        assert len(run.waiting) == 1
        assert run.values["answer"] == ""


async def test_a_run_of_the_same_id_that_is_another_one_is_not_taken_for_it(tmp_path: Path) -> None:
    graph = asking()
    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[graph]) as executor:
        await executor.start(graph, {"until": 5}, run_id="r")
        await executor.store.delete("r")
        async with Executor(f"sqlite:///{tmp_path}/runs.db") as other:
            waiting = (await other.start(asking(), {"until": 9}, run_id="r")).waiting
        assert (await executor.answer("r", waiting[0].id, "yes")).output == 9


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"null", b'{"format": 0}', b'{"format": 5}', b'[1, "two"]', b"x", zlib.compress(b'{"format": 0}'),
        zlib.compress(b"[]"), zlib.compress(b'{"format": 10}')[:-1], zlib.compress(b" " * 200_000),
    ],
)  # fmt: skip
async def test_a_snapshot_that_cannot_be_read_is_none(tmp_path: Path, data: bytes) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url) as executor:
        run = await executor.start(asking(), {"until": 3}, run_id="r")
        await executor.store.put_snapshot("r", run.seq, data)
    async with Executor(url, graphs=[asking()]) as executor:
        assert (await executor.load("r")).values == run.values
        assert (await executor.answer("r", run.waiting[0].id, "yes")).output == 3


async def test_no_more_of_a_snapshot_is_unpacked_than_could_have_been_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few bytes can unpack to a text that needs gigabytes when it is read."""
    read, real = [], loader.from_json
    monkeypatch.setattr(loader, "from_json", lambda text: read.append(len(text)) or real(text))
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url) as executor:
        run = await executor.start(counting(), {"until": 60}, run_id="r")
        assert (await executor.load("r")).values == run.values
        _, data = await executor.store.snapshot("r") or (0, b"")
        for blanks in (1, 3 << 20):
            text = zlib.decompress(data) + b" " * blanks
            await executor.store.put_snapshot("r", run.seq, zlib.compress(text))
            assert (await executor.load("r")).values == run.values
    assert len(read) == 2
    assert max(read) < 1 << 20


async def test_the_last_snapshot_is_stored_with_the_records_of_a_pause_and_of_an_end(tmp_path: Path) -> None:
    store = Counting(f"{tmp_path}/runs.db")
    async with Executor(store, graphs=[asking()]) as executor:
        run = await executor.start(asking(), {"until": 100}, run_id="r")
        paused, head = await store.snapshot("r"), run.seq
        run = await executor.answer("r", run.waiting[0].id, "yes")
        assert run.status == "completed"
        await executor.start(asking(), {"until": 3}, run_id="short")
        assert paused is not None
        assert paused[0] == head
        assert await store.snapshot("r") == paused  # too little came since
        assert await store.snapshot("short") is None
        await executor.start(counting(), {"until": 100}, run_id="ended")
        assert (await store.snapshot("ended") or (0,))[0] == (await store.info("ended")).head
    assert store.put == 0


@pytest.mark.parametrize("steps", [sized(80, 800), sized(800, 8000)])
async def test_a_run_of_any_length_is_loaded_by_as_few_records(tmp_path: Path, steps: int) -> None:
    """The same number for n and 10 n steps."""
    async with Executor(f"sqlite:///{tmp_path}/runs.db") as executor:
        done = await executor.start(counting(), {"until": steps}, run_id="ended")
        waits = await executor.start(asking(), {"until": steps}, run_id="waits")
    for graphs in ([], [counting(), asking()]):
        store = Counting(f"{tmp_path}/runs.db")
        async with Executor(store, graphs=graphs) as executor:
            for run in (done, waits):
                found = await executor.load(run.run_id)
                assert (found.values, found.output, found.usage) == (run.values, run.output, run.usage)
                assert [one.id for one in found.waiting] == [one.id for one in run.waiting]
        assert store.records < 2 * snapshots.FEW


@pytest.mark.parametrize("count", sized([3], [3, 15]))
async def test_a_run_that_goes_on_has_a_snapshot_behind_every_so_many_records(tmp_path: Path, count: int) -> None:
    """Were it killed, few records would be folded again, however long it is. Steps can be ahead of what is stored."""
    store = Counting(f"{tmp_path}/runs.db")
    async with Executor(store) as executor:
        await executor.start(counting(), {"until": count * snapshots.EVERY + 100}, run_id="r")
    assert count // 3 <= store.put <= count


@pytest.mark.full
@pytest.mark.parametrize("steps", [175, 1750])
async def test_a_run_of_any_length_is_loaded_by_as_few_records_while_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """By another executor, as if the first one had been killed there."""
    monkeypatch.setattr(snapshots, "EVERY", 50)
    read = {}

    @node(effect="idempotent")
    async def work(state: Log) -> Outcome[Literal["again", "enough"]]:
        if state.n in (steps // 2, steps - 5):
            store = Counting(f"{tmp_path}/runs.db")
            async with Executor(store) as other:
                assert (await other.load("r")).values["n"] == state.n
            read[state.n] = store.records
        return Outcome("again" if state.n + 1 < steps else "enough", n=state.n + 1)

    graph = Graph(
        name="works", state=Log, nodes={"work": work}, output="n", limits=Limits(steps=None),
        edges="START -> work\nwork -> work : again\nwork -> END : enough",
    )  # fmt: skip
    async with Executor(f"sqlite:///{tmp_path}/runs.db") as executor:
        assert (await executor.start(graph, run_id="r")).output == steps
    assert len(read) == 2
    assert max(read.values()) <= 2 * snapshots.EVERY, read


@pytest.mark.full
@quick_on("asyncio")
@pytest.mark.parametrize("steps", [500, sized(5000, 50_000)])
async def test_a_large_state_that_packs_well_is_loaded_by_few_records_however_long_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    packed, real = [], snapshots.dump
    monkeypatch.setattr(snapshots, "dump", lambda machine: packed.append(machine.head) or real(machine))
    line = "a line of text, and " * 50

    @node(effect="pure")
    def write(state: Lines) -> Outcome[Literal["again", "enough"]]:
        return Outcome("again" if state.n + 1 < steps else "enough", n=state.n + 1, lines=line)

    graph = Graph(
        name="lines", state=Lines, nodes={"write": write}, output="n", limits=Limits(steps=None),
        edges="START -> write\nwrite -> write : again\nwrite -> END : enough",
    )  # fmt: skip
    store = Counting(f"{tmp_path}/runs.db")
    async with Executor(store) as executor:
        assert (await executor.start(graph, run_id="r")).output == steps
    async with Executor(store) as executor:
        assert len((await executor.load("r")).values["lines"]) == steps
    # The state of a very long run is large when packed, too: a snapshot of it pays once in so many records only.
    assert store.records <= (snapshots.FEW if steps <= 5000 else steps / 4)
    assert len(packed) <= 1 + steps / snapshots.EVERY, packed
    with closing(connect(tmp_path / "runs.db")) as file:
        sizes = [
            file.execute(f"SELECT sum(length(data)) FROM {name}").fetchone()[0] for name in ("records", "snapshots")
        ]
    assert sizes[1] < sizes[0] / 10, sizes


def test_a_text_that_hardly_packs_is_not_packed_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[int] = []

    class Packer:
        def __init__(self, level: int) -> None:
            self.packer = compressobj(level)

        def compress(self, data: bytes) -> bytes:
            parts.append(len(data))
            return self.packer.compress(data)

        def flush(self) -> bytes:
            return self.packer.flush()

    compressobj = zlib.compressobj
    monkeypatch.setattr(zlib, "compressobj", Packer)
    text, dense = token_bytes(4 << 20), b"blank " * 800_000
    assert snapshots._packed(text, 1 << 17) == b""
    assert sum(parts) <= 1 << 19
    for whole in (text[:1000], dense):
        size = len(zlib.compress(whole, 1))
        assert zlib.decompress(snapshots._packed(whole, size)) == whole
        assert snapshots._packed(whole, size - 1) == b""


async def test_a_snapshot_at_another_position_than_its_own_is_not_believed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url) as executor:
        await executor.start(counting(), {"until": 50}, run_id="other")
        run = await executor.start(counting(), {"until": 60}, run_id="r")
        _, data = await executor.store.snapshot("other") or (0, b"")
        await executor.store.put_snapshot("r", run.seq, data)
    async with Executor(url) as executor:
        assert (await executor.load("r")).values == run.values
        assert (await executor.load("r", at=30)).values["n"] == 29


async def test_where_records_are_sealed_no_snapshot_is_stored(tmp_path: Path) -> None:
    async with Executor(f"sqlite:///{tmp_path}/runs.db", seal=Seal(b"k" * 32, "here")) as executor:
        await executor.start(counting(), {"until": 100}, run_id="r")
        assert await executor.store.snapshot("r") is None


@pytest.mark.full
@pytest.mark.parametrize("text", [token_hex, lambda size: "blank" + " " * size])
async def test_the_snapshots_of_a_run_that_pauses_often_are_a_fraction_of_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: Callable[[int], str]
) -> None:
    """And few of them are made in vain."""
    made, real = [], snapshots.dump
    monkeypatch.setattr(snapshots, "dump", lambda machine: made.append(machine.head) or real(machine))
    turns = sized(40, 200)

    @node(effect="pure")
    def work(state: Log) -> Outcome[Literal["again", "enough", "over"]]:
        return Outcome("again" if (state.n + 1) % 12 else "enough", n=state.n + 1, log=text(100))

    graph = Graph(
        name="chat", state=Log, nodes={"work": work, "ask": Ask(prompt="Go on?", answer="answer")},
        edges="START -> work\nwork -> work : again\nwork -> ask : enough\nask -> work\nwork -> END : over",
        limits=Limits(steps=None),
    )  # fmt: skip
    async with Executor(f"sqlite:///{tmp_path}/runs.db") as executor:
        run = await executor.start(graph, {}, run_id="r")
        for _ in range(turns):
            run = await executor.answer("r", run.waiting[0].id, "yes")
    with closing(connect(tmp_path / "runs.db")) as file:
        sizes = [
            file.execute(f"SELECT sum(length(data)) FROM {name}").fetchone()[0] for name in ("records", "snapshots")
        ]
    assert 0 < sizes[1] < sizes[0] / 2, (sizes, len(made))
    assert len(made) <= run.seq / snapshots.FEW, (sizes, len(made))


async def test_no_snapshot_is_tried_while_most_of_a_long_map_is_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try would cost what the machine holds, however often it is tried. Behind the map it pays."""
    tried, real = [], snapshots.dump
    monkeypatch.setattr(snapshots, "EVERY", 50)
    monkeypatch.setattr(
        snapshots, "dump", lambda machine: tried.append((machine.head, len(machine.root.live))) or real(machine)
    )
    for items in (100, 1000):
        tried.clear()
        async with Executor(f"sqlite:///{tmp_path}/{items}.db") as executor:
            run = await executor.start(FAN, {"items": list(range(items))}, run_id="r")
            assert run.status == "completed"
            assert await executor.store.snapshot("r") is not None
        held = sum(live for _, live in tried)
        assert held <= items / 10, tried


async def test_items_that_no_step_touches_are_written_with_half_as_many_records_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of a run, too: a short run beside many messages costs what one beside few costs."""
    written, real = [], snapshots.dump
    monkeypatch.setattr(snapshots, "dump", lambda machine: written.append(machine.head) or real(machine))
    said = [Message(role="user", content=str(number)) for number in range(400)]
    async with Executor(f"sqlite:///{tmp_path}/runs.db") as executor:
        for steps, tries in ((150, 0), (250, 1)):
            run = await executor.start(UNTOUCHED, {"until": steps, "messages": said}, run_id=f"r{steps}")
            assert (run.output, len(written)) == (steps, tries)
            assert (await executor.store.snapshot(run.run_id) is not None) == bool(tries)
    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[UNTOUCHED]) as executor:
        assert (await executor.load("r150")).values["messages"] == [one.model_dump() for one in said]


async def test_what_would_be_as_long_as_the_records_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "EVERY", 10)
    async with Executor(f"sqlite:///{tmp_path}/runs.db") as executor:
        long = {"until": 40, "question": token_hex(50_000)}
        await executor.start(counting(), long, run_id="large")
        await executor.start(counting(), {"until": 400}, run_id="small")
        with anyio.fail_after(60):
            while await executor.store.snapshot("small") is None:  # noqa: ASYNC110  it is written in the background
                await anyio.sleep(0.01)
        assert await executor.store.snapshot("large") is None
