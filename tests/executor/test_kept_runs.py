"""Kept runs of every strategy in every status, and of an errand at every place: they open, list, fold and go on."""

from __future__ import annotations

import json
import lzma
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from orchestrator import Approve, Executor, Graph, Limits, Run, ToolCall
from orchestrator.kernel.fold import apply
from orchestrator.kernel.queries import state_values
from orchestrator.kernel.seals import audit
from orchestrator.kernel.snapshot import dump, load
from orchestrator.kernel.status import FINAL
from orchestrator.testing import ScriptedModel
from tests.data.kept_runs import (
    ANSWER,
    CALLING,
    ERRANDS,
    INSIDE,
    KEPT,
    LATER,
    QUESTION,
    SEAL,
    STRATEGIES,
    add,
    answer_to,
    graph_named,
    opened,
)
from tests.support.postgres import PostgresDatabase
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio

PAUSED = ("approval", "input", "unknown")
GOING_ON = [
    *(f"{name}-{status}" for name in CALLING for status in (*PAUSED, "interrupted", "answered", "message")),
    *(
        f"{name}-{status}"
        for name in INSIDE
        for status in ("approval", "unknown", "interrupted", "answered", "message")
    ),
    "plan_and_solve_prompt-interrupted",
]
OVER = [
    *(f"{name}-{status}" for name in STRATEGIES for status in ("completed", "failed", "exhausted")),
    *(f"{name}-cancelled" for name in (*CALLING, *INSIDE)),
    *(f"{name}-completed" for name in INSIDE),
    "over_words-exhausted",
]


RELEASES = [name for name in KEPT if name != "before"]
every_release = pytest.mark.parametrize("kept", KEPT)


def unpacked(kept: str, folder: Path) -> str:
    """The SQLite store of a release."""
    (folder / "runs.db").write_bytes(lzma.decompress(KEPT[kept].store.read_bytes()))
    return f"sqlite:///{folder}/runs.db"


@pytest.fixture(params=[(kept, kind) for kept in KEPT for kind in ("sqlite", "postgres")], ids="-".join)
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of a release."""
    kept, kind = request.param
    if kind == "sqlite":
        return unpacked(kept, tmp_path)
    postgres: PostgresDatabase = request.getfixturevalue("postgres")
    postgres.server.drop_database(postgres.name)
    postgres.server.create_database(postgres.name, tables=False)
    postgres.execute(lzma.decompress(KEPT[kept].database.read_bytes()).decode())
    return postgres.url


@pytest.mark.full
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_all_runs_are_listed_loaded_folded_and_drawn_without_code(any_store: str) -> None:
    async with Executor(any_store) as executor:
        listed = {info.run_id: info for info in (await executor.runs(limit=1000)).runs}
        assert {*GOING_ON, *OVER, *(f"errand-{place}" for place in ERRANDS)} <= listed.keys()
        for number, (run_id, info) in enumerate(listed.items()):
            run = await executor.load(run_id)
            status = run_id.rpartition("-")[2]
            status = status if run.graph != "errand" else ERRANDS[status]
            assert status not in FINAL or run.status == status
            assert status not in PAUSED or (run.status, bool(run.waiting)) == ("paused", True)
            assert status not in ("interrupted", "message") or run.status == "interrupted"
            assert status != "answered" or run.status == "running"
            records = await executor.store.read(run_id)
            moved = next((record.seq for record in records if record.type == "migrated"), 1)
            whole = (await executor.load(run_id, at=moved)).machine
            for record in records[moved:]:
                apply(whole, record)
                if whole.ended is None and number % sized(4, 1) == 0:
                    whole = load(whole.plan, json.loads(json.dumps(dump(whole))))
            assert (whole.status, state_values(whole)) == (run.machine.status, run.values)
            assert run.to_mermaid().startswith("flowchart"), info
            assert (await executor.history(run_id)) or not run.steps


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_errands_go_on_from_every_place(any_store: str) -> None:
    places = [place for place, status in ERRANDS.items() if status != "completed" and "sealed" not in place]
    async with opened(any_store, "errand", idle="sleep") as executor:
        for place in places:
            run = await executor.load(run_id := f"errand-{place}")
            if place == "unmigrated" or not run.waiting or run.waiting[0].kind == "pause":
                run = await executor.resume(run_id, pause_before=())
            while run.waiting:
                if (question := run.waiting[0]).kind == "timer":
                    break
                if question.kind == "event":
                    run = await executor.send(run_id, "parcel", {"content": "books"})
                else:
                    run = await executor.answer(run_id, question.id, Approve())
            assert run.status == ("paused" if place == "timer" else "completed"), (place, run.error)
        moved = [record.type for record in await executor.store.read("errand-unmigrated")]
        assert "migrated" in moved


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_items_schedules_and_open_questions_are_there(any_store: str) -> None:
    async with opened(any_store, "errand") as executor:
        assert [(one.name, one.paused) for one in await executor.schedules.list()] == [
            ("paused", True),
            ("yearly", False),
        ]
        assert [item.key for item in await executor.memory.search(("kept",), "tea")] == ["tea"]
        item = await executor.memory.get(("kept", "ann"), "long")
        assert item is not None
        assert item.value == {"errand": "long"}
        asked = {one.run_id for one in (await executor.questions(limit=1000)).questions}
        assert {"errand-approval", "errand-event", "react-approval"} <= asked
        assert [info.run_id for info in (await executor.runs(search="remembered completed")).runs]
        assert await executor.stats(("graph",))
        assert [one for one in await executor.store.check() if not one.note] == []


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_seals_hold_in_a_fork(any_store: str) -> None:
    async with Executor(any_store, graphs=[graph_named("errand")], seal=SEAL) as executor:
        for run_id in ("errand-sealed", "errand-sealed_fork"):
            records = await executor.store.read(run_id)
            assert audit(SEAL, run_id, records).believed == {record.seq for record in records}
        run = await executor.send("errand-sealed_fork", "parcel", {"content": "books"})
        run = await executor.answer(run.run_id, run.waiting[0].id, Approve())
        assert run.status == "completed"


@every_release
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_export_is_imported_and_its_runs_go_on(kept: str, tmp_path: Path) -> None:
    lines = lzma.decompress(KEPT[kept].export.read_bytes()).decode()
    async with opened(f"sqlite:///{tmp_path}/runs.db", "approval") as executor:
        found = await executor.import_(lines.splitlines())
        assert len(found.runs) == 7  # one of them was begun by another one
        (child,) = (await executor.runs(parent="delegating-completed")).runs
        assert child.graph == "finding"
        run = await executor.load("react-approval")
        while run.waiting:
            run = await executor.answer(run.run_id, run.waiting[0].id, Approve())
        assert ANSWER in str(run.output)


@every_release
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_archived_runs_are_read_restored_and_reopened(kept: str, tmp_path: Path) -> None:
    with tarfile.open(fileobj=BytesIO(lzma.decompress(KEPT[kept].archive.read_bytes()))) as file:
        file.extractall(tmp_path, filter="data")
    async with opened(f"sqlite:///{tmp_path}/runs.db", "completed", archive=f"{tmp_path}/archive") as executor:
        archived = [info for info in (await executor.runs(limit=100)).runs if info.archived is not None]
        assert {info.run_id for info in archived if info.parent is None} == {"react-archived", "delegating-archived"}
        for info in archived:
            before = await executor.store.read(info.run_id)
            assert await executor.restore(info.run_id)
            assert await executor.store.read(info.run_id) == before
        assert ANSWER in str((await executor.load("react-archived")).output)


@every_release
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_runs_are_copied_into_memory(kept: str, tmp_path: Path) -> None:
    """What a store in memory holds is what the records say."""
    async with Executor(unpacked(kept, tmp_path)) as executor:
        lines = [line async for line in executor.export([f"errand-{place}" for place in ERRANDS])]
        async with Executor() as other:
            assert len((await other.import_(lines)).runs) == len(ERRANDS)
            for place in ERRANDS:
                run = await other.load(f"errand-{place}")
                assert run.values == (await executor.load(run.run_id)).values


@pytest.mark.parametrize("run_id", GOING_ON[:: sized(10, 1)])
async def test_a_run_goes_on_to_its_end(any_store: str, run_id: str) -> None:
    name, _, status = run_id.rpartition("-")
    async with opened(any_store, status) as executor:
        run: Run = await executor.load(run_id)
        if status not in PAUSED:
            run = await executor.resume(run_id, wait=5)
        if run.status == "paused" and not run.waiting:  # the message was read before the run was over
            run = await executor.resume(run_id)
        while run.waiting:
            question = run.waiting[0]
            run = await executor.answer(run_id, question.id, answer_to(question.kind))
        assert await executor.store.inbox([run_id]) == []
    assert run.status == "completed", run.error
    if name in STRATEGIES:
        assert name == "function_call" or ANSWER in str(run.output)
    else:
        assert "42" in str(run.output)


@every_release
@pytest.mark.parametrize("name", [*STRATEGIES, *INSIDE])
async def test_graphs_have_the_structure_that_they_had_or_say_how_runs_continue(
    kept: str, name: str, tmp_path: Path
) -> None:
    async with Executor(unpacked(kept, tmp_path)) as executor:
        same = (await executor.store.info(f"{name}-completed")).structure == graph_named(name).structure
        assert same or graph_named(name).migrations


@pytest.mark.parametrize("kept", RELEASES)
@pytest.mark.parametrize("status", ["exhausted", "interrupted"])
@pytest.mark.parametrize("name", LATER)
async def test_later_strategies_go_on_to_their_ends(kept: str, status: str, name: str, tmp_path: Path) -> None:
    async with opened(unpacked(kept, tmp_path), "completed") as executor:
        whole = await executor.load(f"{name}-completed")
        retried = {"retry": True, "limits": Limits(steps=1000)} if status == "exhausted" else {"wait": 5}
        run = await executor.resume(f"{name}-{status}", **retried)
        while run.waiting:
            run = await executor.answer(run.run_id, run.waiting[0].id, Approve())
        assert (run.status, str(run.output)) == ("completed", str(whole.output)), run.error


@pytest.mark.parametrize("kept", RELEASES)
@pytest.mark.parametrize("status", ["approval", "call"])
async def test_code_goes_on_at_the_call_in_its_block(kept: str, status: str, tmp_path: Path) -> None:
    async with opened(unpacked(kept, tmp_path), "interrupted") as executor:
        run = await executor.resume(f"code_act-{status}", wait=5)
        while run.waiting:
            run = await executor.answer(run.run_id, run.waiting[0].id, Approve())
        assert run.status == "completed", run.error
        assert ANSWER in str(run.output)


@pytest.mark.parametrize("kept", RELEASES)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_notes_are_there(kept: str, tmp_path: Path) -> None:
    async with Executor(unpacked(kept, tmp_path)) as executor:
        (note,) = await executor.notes.list("react-completed")
        assert (note.text, note.score, note.name, note.by) == ("a good answer", 1.0, "quality", "ann")


@pytest.mark.parametrize("kept", RELEASES)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_graphs_in_yaml_are_read_and_run(kept: str, tmp_path: Path) -> None:
    file = KEPT[kept].graphs
    assert file is not None
    texts = json.loads(lzma.decompress(file.read_bytes()))
    assert texts.keys() == {*STRATEGIES, *LATER}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
        graph = Graph.load(tmp_path / f"{name}.yaml", trust="orchestrator")
        assert graph.name == name
        if name in sized(("react",), LATER):
            async with opened(f"sqlite:///{tmp_path}/{name}.db", "completed") as executor:
                run = await executor.start(graph, QUESTION, approve="dangerous")
                assert run.status == "completed", run.error


@pytest.mark.parametrize("kept", RELEASES)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_supervisor_in_yaml_works_through_rounds_of_any_size(kept: str, tmp_path: Path) -> None:
    file = KEPT[kept].graphs
    assert file is not None
    (tmp_path / "kept.yaml").write_text(json.loads(lzma.decompress(file.read_bytes()))["supervisor"])
    calls = [ToolCall(id=f"c{n}", name="transfer_to_writer", arguments={"message": f"task {n}"}) for n in range(4)]
    model = ScriptedModel({"lead": [calls[:1], calls[1:], "done"], "answer": ["one", "two"]})
    run = await Graph.load(tmp_path / "kept.yaml", trust="orchestrator").run(QUESTION, model=model, tools=[add])
    assert (run.status, run.output) == ("completed", "done"), run.error
    assert [model.requests[n].messages[-1].content for n in (1, 3)] == ["task 0", "task 1"]
