"""What people write about runs and steps: kept beside the journal, exported, copied and deleted with the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import Executor, Graph, node
from orchestrator.errors import InvalidExport, InvalidValue, RunUnknown
from orchestrator.executor.notes import MAX_NOTE
from orchestrator.stores import open_store
from orchestrator.stores.archive.store import ArchivedStore
from orchestrator.stores.copying import copy_store
from orchestrator.stores.rows import MAX_NOTES, Note

pytestmark = pytest.mark.anyio

SECRET = "sk-live-0123456789abcdef0123456789"


class State(BaseModel):
    topic: str = ""


@node(effect="pure")
def work(state: State) -> dict[str, str]:
    return {"topic": state.topic.upper()}


graph = Graph(name="g", state=State, input="topic", output="topic", nodes={"work": work}, edges="START -> work -> END")
STEP = 2
"""The record that ends the only step."""


def facts(note: Note) -> tuple[object, ...]:
    return note.step, note.text, note.score, note.name, note.by


async def test_notes_and_scores_on_a_run_and_on_a_step_are_listed_in_order_and_deleted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url, graphs=[graph]) as executor:
        run = await executor.start(graph, "x", run_id="r")
        first = await executor.notes.write("r", "wrong city", step=STEP, score=0, name="correctness", by="ann")
        await executor.notes.write("r", score=-1.5)
        assert [facts(note) for note in await executor.notes.list("r")] == [
            (STEP, "wrong city", 0.0, "correctness", "ann"),
            (None, "", -1.5, "", ""),
        ]
        assert await executor.notes.list("r", step=STEP) == [first]
        assert [note.id for note in run.notes()] == [note.id for note in await executor.notes.list("r")]
        assert (await executor.load("r")).seq == run.seq
    async with Executor(url) as other:
        assert len(await other.notes.list("r")) == 2
        assert await other.notes.delete("r", first.id)
        assert not await other.notes.delete("r", first.id)
        await other.delete("r")
        with pytest.raises(RunUnknown):
            await other.notes.list("r")


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({}, "text"),
        ({"text": " \n "}, "text"),
        ({"text": "x" * (MAX_NOTE + 1)}, "text"),
        ({"text": "\ud800"}, "text"),
        ({"text": 7}, "text"),
        ({"text": "x", "name": "x" * 101}, "name"),
        ({"text": "x", "by": "x" * 201}, "by"),
        ({"score": float("nan")}, "score"),
        ({"score": float("inf")}, "score"),
        ({"score": 10**400}, "score"),
        ({"score": True}, "score"),
        ({"score": "1"}, "score"),
        ({"text": "x", "step": 0}, "step"),
        ({"text": "x", "step": 1}, "step"),
        ({"text": "x", "step": 3}, "step"),
        ({"text": "x", "step": 10**12}, "step"),
        ({"text": "x", "step": -1}, "step"),
        ({"text": "x", "step": "2"}, "step"),
    ],
)
async def test_what_cannot_be_a_note_is_refused_and_nothing_is_written(given: dict[str, Any], where: str) -> None:
    async with Executor(graphs=[graph]) as executor:
        await executor.start(graph, "x", run_id="r")
        with pytest.raises(InvalidValue) as refused:
            await executor.notes.write("r", **given)
        assert refused.value.where == where
        assert await executor.notes.list("r") == []


async def test_a_run_has_a_limited_number_of_notes() -> None:
    async with Executor(graphs=[graph]) as executor:
        await executor.start(graph, "x", run_id="r")
        for number in range(MAX_NOTES):
            await executor.notes.write("r", str(number))
        with pytest.raises(InvalidValue, match="500 notes"):
            await executor.notes.write("r", "one more")
        await executor.notes.delete("r", (await executor.notes.list("r"))[0].id)
        await executor.notes.write("r", "one more")


async def test_forks_and_replays_have_no_notes_of_the_run_that_they_come_from() -> None:
    async with Executor(graphs=[graph]) as executor:
        await executor.start(graph, "x", run_id="r")
        await executor.notes.write("r", "about r")
        fork = await executor.fork("r", at=1, run_id="f")
        replay = await executor.replay("r", replay_id="p")
        assert await executor.notes.list(fork.run_id) == []
        assert await executor.notes.list(replay.run.run_id) == []


async def test_notes_are_exported_imported_and_copied_with_their_run(tmp_path: Path) -> None:
    async with Executor(graphs=[graph]) as executor:
        await executor.start(graph, "x", run_id="r")
        notes = [
            await executor.notes.write("r", f"the key is {SECRET}", step=STEP, by="ann"),
            await executor.notes.write("r", score=1, name="quality"),
        ]
        lines = [line async for line in executor.export("r")]
        without = [line async for line in executor.export("r", notes=False)]
        redacted = [line async for line in executor.export("r", redact=True)]
        other = open_store("memory://")
        await copy_store(executor.store, other)
        notes.append(await executor.notes.write("r", "later"))
        await copy_store(executor.store, other)
        assert await other.notes("r") == notes
    assert SECRET in "".join(lines)
    assert SECRET not in "".join(redacted)
    assert "quality" not in "".join(without)
    async with Executor(f"sqlite:///{tmp_path}/other.db", graphs=[graph]) as importing:
        await importing.import_(lines)
        assert await importing.notes.list("r") == notes[:2]


@pytest.mark.parametrize(
    "notes",
    [
        "x",
        [7],
        [{"id": "a", "at": 1}],
        [{"at": 1, "text": "x"}],
        [{"id": "a", "at": 1, "text": "x", "more": 1}],
        [{"id": "a", "at": 1, "text": "x" * (MAX_NOTE + 1)}],
        [{"id": "a", "at": 1, "text": "x", "step": 99}],
        [{"id": "a", "at": 1, "score": True}],
        [{"id": "a", "at": 1e400, "text": "x"}],
        [{"id": "a", "at": 1, "text": "x"}, {"id": "a", "at": 2, "text": "y"}],
        [{"id": str(n), "at": 1, "text": "x"} for n in range(MAX_NOTES + 1)],
    ],
)
async def test_an_export_with_notes_that_none_could_have_written_is_refused(notes: object) -> None:
    async with Executor(graphs=[graph]) as executor:
        await executor.start(graph, "x", run_id="r")
        lines = [line async for line in executor.export("r")]
    at = next(number for number, line in enumerate(lines) if json.loads(line)["type"] == "run")
    lines[at] = json.dumps({**json.loads(lines[at]), "notes": notes})
    async with Executor(graphs=[graph]) as importing:
        with pytest.raises(InvalidExport):
            await importing.import_(lines)
        assert (await importing.runs()).runs == ()


async def test_an_archived_run_keeps_its_notes_gets_more_and_its_object_has_those_of_before(tmp_path: Path) -> None:
    archive, url = tmp_path / "archive", f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url, graphs=[graph], archive=f"file://{archive}") as executor:
        await executor.start(graph, "x", run_id="r")
        await executor.notes.write("r", "before", step=STEP)
        await executor.archive()
        assert isinstance(executor.store, ArchivedStore)
        await executor.notes.write("r", "after", step=STEP)
        assert [note.text for note in await executor.notes.list("r")] == ["before", "after"]
        await executor.restore("r")
        assert [note.text for note in await executor.notes.list("r")] == ["before", "after"]
    (one,) = archive.rglob("*.jsonl")
    async with Executor(graphs=[graph]) as importing:
        await importing.import_(one)
        assert [note.text for note in await importing.notes.list("r")] == ["before"]


async def test_the_page_in_one_file_has_the_notes_unless_it_is_told_not_to() -> None:
    async with Executor(graphs=[graph]) as executor:
        run = await executor.start(graph, "x", run_id="r")
        await executor.notes.write("r", f"<script>alert(1)</script> {SECRET}", by="ann")
        page, without = run.to_html(), run.to_html(notes=False)
    assert "alert(1)" in page
    assert "<script>alert(1)" not in page
    assert SECRET not in page
    assert "alert(1)" not in without
