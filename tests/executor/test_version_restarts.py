"""A chat that lives through changes of its graph, each over a new process, and processes that die while it migrates."""

from __future__ import annotations

from pathlib import Path

import anyio.to_thread
import pytest

from orchestrator import Executor
from tests.executor.chatting import VERSIONS, talk
from tests.support.programs import run as run_program
from tests.support.sizes import quick_on, sized

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("impatient")]


async def turns(url: str, backend: str, versions: str, count: int, where: str = "") -> int:
    """Have turns in a process of its own, and return its exit code."""
    words = [url, backend, versions, count, *([where] if where else [])]
    module = "tests.executor.chatting"
    done = await anyio.to_thread.run_sync(lambda: run_program(words, module=module, loads=[module]))
    assert done.code <= 0, done.err
    return done.code


@quick_on("trio")
async def test_a_chat_survives_a_field_a_renamed_node_a_removed_node_and_a_new_version(
    tmp_path: Path, anyio_backend_name: str
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    each = sized(12, 50) // 6
    for versions in ("first", "field", "renamed", "shorter", "other,shorter"):
        assert await turns(url, anyio_backend_name, versions, each) == 0
    async with Executor(url, graphs=[VERSIONS["other"], VERSIONS["shorter"]]) as executor:
        run = await executor.load("r")
        while len(run.values["said"]) < sized(12, 50):
            run = await executor.answer("r", run.waiting[0].id, f"word {len(run.values['said'])}")
        assert run.values["said"] == [f"{number}: word {number}" for number in range(sized(12, 50))]
        assert run.values["turns"] == sized(12, 50) - each  # since there is a field for it
        assert run.waiting[0].node == "person"  # it stays in the version that it has
        moves = [event.data async for event in executor.events("r") if event.type == "migrated"]
        assert [move.get("grade", "compatible") for move in moves] == ["compatible", "migration", "compatible"]
        assert [move["structure"] for move in moves] == [
            VERSIONS[name].structure for name in ("field", "renamed", "shorter")
        ]
        points = await executor.history("r")
        assert [one.values["said"][-1] for one in points if one.node == "reply"] == run.values["said"]
        assert {one.node for one in points} == {"you", "person", "reply", "polish", "tidy"}
        fresh = await executor.start("chat", run_id="fresh")
        assert fresh.waiting[0].node == "human"


@pytest.mark.parametrize("where", ["before", "during", "after"])
async def test_a_process_that_dies_in_a_migration_leaves_it_whole_or_undone(
    where: str, tmp_path: Path, anyio_backend_name: str
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    for versions in ("first", "field"):
        await talk(url, versions, 1)
    assert await turns(url, anyio_backend_name, "renamed", 1, where) == -9
    async with Executor(url) as executor:
        run = await executor.load("r")
        expected = VERSIONS["renamed" if where == "after" else "field"]
        assert run.definition.structure == expected.structure
        assert len(run.values["said"]) == 2
    await talk(url, "renamed", 1)
    async with Executor(url) as executor:
        run = await executor.load("r")
        assert run.definition.structure == VERSIONS["renamed"].structure
        assert run.values["said"] == ["0: word 0", "1: word 1", "2: word 2"]
        assert [event.type async for event in executor.events("r")].count("migrated") == 2
