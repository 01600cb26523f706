"""Records that hold what no executor writes, under checksums that fit: reading them works, or says what is wrong."""

from __future__ import annotations

import copy
import json
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Run, append, node, tool
from orchestrator.cli.output import _json, row_document
from orchestrator.cli.report import NextCommands, document, waiting_text
from orchestrator.cli.run_lookup import approvals
from orchestrator.comparison import compared_run
from orchestrator.errors import OrchestratorError
from orchestrator.nodes import Ask
from orchestrator.render import to_html, to_mermaid, to_svg, to_text
from orchestrator.render.terminal.run_report import run_text
from orchestrator.render.terminal.tables import run_table
from orchestrator.stores.stored import checksum
from orchestrator.views.run import explainer_of
from tests.support.sizes import sized

ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**63, -(2**70), 1e308, -1e308, float("nan"), float("inf"), float("-inf"), 0.5, 1e12,
    "", "x", "\n", "a\nb", "\x1b[2J", "\u202e", "\x00", "a" * 5_000, "START", "END", "*", "../../x", "1", "e:0", "-",
    [], [[]], ["a"], [None], [["a"]], {}, {"a": 1}, {"": None}, {"a": {"a": {}}}, {"$ref": "x"},
]  # fmt: skip
"""What is put in the place of something else."""


class Work(BaseModel):
    items: list[str] = ["a", "b"]
    done: Annotated[list[str], append] = []
    answer: str = ""


@tool(risk="write", effect="idempotent")
def keep(text: str) -> str:
    """Keep a text."""
    return f"kept {text}"


@node(tools=[keep])
async def each(item: str, ctx: Context) -> dict[str, str]:
    await ctx.emit("news", {"n": 1})
    return {"done": str((await ctx.tool("keep", {"text": item})).output)}


@node
def meet(state: Work) -> dict[str, str]:
    return {"done": "met"}


@node
def breaks(state: Work) -> None:
    raise RuntimeError("no luck")


EDGES = "START -> each : each items\neach -> meet -> last -> END"
GRAPHS = {
    name: Graph(
        name=name, state=Work, edges=EDGES, output="answer",
        nodes={"each": each, "meet": meet.with_(join="all"), "last": last},
    )
    for name, last in (("waits", Ask(prompt="Well?", answer="answer")), ("fails", breaks))
}  # fmt: skip


@pytest.fixture(scope="module")
def true(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with runs as an executor writes them."""
    path = tmp_path_factory.mktemp("true") / "runs.db"

    async def work() -> None:
        async with Executor(f"sqlite:///{path}") as executor:
            for name, graph in GRAPHS.items():
                await executor.start(graph, run_id=name, labels={"user": "ann"})

    anyio.run(work)
    return path


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in plain JSON."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*at, key)
        yield from places(part, (*at, key))


def forged(data: Any, chance: random.Random) -> Any:
    """The data with something odd, missing or moved in it."""
    data = copy.deepcopy(data)
    found = [*places(data)]
    *path, last = chance.choice(found)
    inside = data
    for key in path:
        inside = inside[key]
    match chance.randrange(6):
        case 0:
            del inside[last]
        case 1:
            other = data
            for key in chance.choice(found):
                other = other[key]
            inside[last] = copy.deepcopy(other)
        case 2 if isinstance(inside, dict):
            inside[chance.choice(["x", "ts", "type", "values", "default", "digest", "$ref"])] = chance.choice(ODD)
        case _:
            inside[last] = copy.deepcopy(chance.choice(ODD))
    return data


def forge(path: Path, chance: random.Random) -> str:
    """Change one record, or one graph, of a file; what it was changed to."""
    with closing(sqlite3.connect(path)) as connection:
        if chance.random() < 0.3:
            digest, data = chance.choice(connection.execute("SELECT digest, data FROM graphs").fetchall())
            text = json.dumps(forged(json.loads(data), chance))
            connection.execute("UPDATE graphs SET data = ? WHERE digest = ?", (text, digest))
        else:
            runs = dict(connection.execute("SELECT id, run_id FROM runs").fetchall())
            key, data = chance.choice(connection.execute("SELECT id, data FROM records").fetchall())
            text = json.dumps(forged(json.loads(data), chance))
            run, seq, raw = runs[key >> 32], key & 0xFFFFFFFF, text.encode()
            connection.execute("UPDATE records SET data = ?, crc = ? WHERE id = ?", (raw, checksum(run, seq, raw), key))
            connection.execute("DELETE FROM snapshots")
        connection.commit()
    return text


async def look(path: Path) -> list[str]:
    """Everything that reads a run without its code; the names of errors that say what is wrong."""
    faults: list[str] = []
    async with Executor(f"sqlite:///{path}") as executor:
        found = (await executor.runs()).runs
        run_table(found)
        _json([row_document(info) for info in found])
        for name in GRAPHS:
            try:
                await read(executor, name)
            except OrchestratorError as error:
                faults.append(type(error).__name__)
    return faults


async def read(executor: Executor, name: str) -> None:
    run: Run = await executor.load(name)
    async for event in executor.events(name):
        _json(event.to_json())
    points = await executor.history(name, at=run.seq)
    why = explainer_of(run).reasons()
    waiting = waiting_text(run.run_id, run.waiting, NextCommands(None))
    run_text(run, points, why, await approvals(executor, run), waiting)
    stand = run.why()
    _json([stand.to_json(), stand.to_text(), (await compared_run(executor, run)).cells()])
    _json([document(run), [point.to_json() for point in points]])
    for draw in (to_svg, to_text, to_mermaid, to_html):
        draw(run.definition, run)


def storm(true: Path, place: Path, seeds: range) -> Counter[str]:
    """Forge and read; what came of it. Anything but an error of ours is raised with its seed."""
    came: Counter[str] = Counter()
    path = place / "forged.db"
    for seed in seeds:
        shutil.copy(true, path)
        text = forge(path, random.Random(seed))
        try:
            faults = anyio.run(look, path)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {text[:2_000]}") from error
        came.update(faults or ["read"])
    return came


def test_a_true_store_is_read(true: Path) -> None:
    assert anyio.run(look, true) == []


@pytest.mark.full
def test_a_forged_record_is_read_or_refused(true: Path, tmp_path: Path) -> None:
    came = storm(true, tmp_path, range(sized(12, 25)))
    assert came["StoreCorrupt"] > 3
    assert came["read"] > 1


@pytest.mark.parametrize("seed", [231, 1043])
def test_a_forgery_that_was_once_a_traceback_is_refused(true: Path, tmp_path: Path, seed: int) -> None:
    """An update with a field that the state does not have."""
    assert set(storm(true, tmp_path, range(seed, seed + 1))) <= {"StoreCorrupt", "read"}


@pytest.mark.storm
def test_a_storm_of_forged_records(true: Path, tmp_path: Path, scale: int) -> None:
    """`--storm-scale N`: N times 500 forged files."""
    came = storm(true, tmp_path, range(1_000, 1_000 + 500 * scale))
    print(f"\nforged records: {dict(came)}")
