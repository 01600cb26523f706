"""Executors and toolboxes in fixtures of tests, lifespans of web applications, and cells of notebooks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from fastapi import FastAPI
from nbclient import NotebookClient
from starlette.applications import Starlette
from starlette.testclient import TestClient

from tests.notebooks.books import kernel
from tests.web.server import PAGE

_COMMON = """
import sys

import anyio
from pydantic import BaseModel

from orchestrator import Executor, Graph, node, tool
from orchestrator.tools.mcp import McpToolbox


class S(BaseModel):
    n: int = 0


@node
async def work(state: S):
    return {"n": 1}


@node
async def wait(state: S):
    await anyio.sleep_forever()


graph = Graph(name="g", state=S, nodes={"work": work}, edges="START -> work -> END", output="n")
slow = Graph(name="slow", state=S, nodes={"wait": wait}, edges="START -> wait -> END", output="n")
server = McpToolbox.stdio(sys.executable, "server.py")
"""

_SERVER = '''
from mcp.server import MCPServer

server = MCPServer("clock")


@server.tool()
def now() -> str:
    """The time."""
    return "noon"


server.run()
'''

_TESTS = {
    "pytest_asyncio": """
import pytest_asyncio


@pytest_asyncio.fixture
async def executor():
    async with Executor("sqlite:///runs.db", graphs=[graph, slow], tools=[server]) as executor:
        yield executor


@pytest_asyncio.fixture
async def live(executor):
    async with executor.stream(slow) as live:
        yield live


@pytest_asyncio.fixture
async def box():
    async with McpToolbox.stdio(sys.executable, "server.py") as box:
        yield box


@pytest.mark.asyncio
async def test_a_run_ends(executor):
    assert (await executor.start(graph)).output == 1


@pytest.mark.asyncio
async def test_a_run_is_left(executor):
    await executor.submit(slow)


@pytest.mark.asyncio
async def test_a_stream_is_left(executor, live):
    assert (await anext(live)).type == "run_started"


@pytest.mark.asyncio
async def test_a_server_is_called(box):
    assert (await box.execute(name="now")).error is None
""",
    "anyio": """
@pytest.fixture
async def executor():
    async with Executor("sqlite:///runs.db", graphs=[graph, slow], tools=[server]) as executor:
        yield executor


@pytest.fixture
async def live(executor):
    async with executor.stream(slow) as live:
        yield live


@pytest.mark.anyio
async def test_a_run_is_left(executor, live):
    await executor.submit(slow)
    assert (await executor.start(graph)).output == 1
    assert (await anext(live)).type == "run_started"
""",
    "unittest": """
import unittest


class Tests(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.executor = await Executor("sqlite:///runs.db", graphs=[graph, slow], tools=[server]).open()

    async def asyncTearDown(self):
        await self.executor.close()

    async def test_a_run_is_left(self):
        await self.executor.submit(slow)
        assert (await self.executor.start(graph)).output == 1

    async def test_another_one_is_entered(self):
        executor = await self.enterAsyncContext(Executor(graphs=[graph]))
        assert (await executor.start(graph)).output == 1
""",
}


@pytest.mark.full
@pytest.mark.parametrize("kind", _TESTS)
def test_fixtures_hold_executors_streams_and_servers(kind: str, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(_SERVER)
    (tmp_path / "test_it.py").write_text(f"import pytest\n{_COMMON}{_TESTS[kind]}")
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    words = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    env = {**os.environ, "PYTHONPATH": str(PAGE.parents[1]), "PYTEST_ADDOPTS": ""}
    ended = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    assert "passed" in said
    assert "never retrieved" not in said


# -- web applications ----------------------------------------------------------------------------------------------

_AGENT = """
from pydantic import BaseModel

from orchestrator import Graph, node


class S(BaseModel):
    n: int = 0


@node
async def work(state: S):
    return {"n": 1}


graph = Graph(name="g", state=S, input="n", nodes={"work": work}, edges="START -> work -> END", output="n")
model = None
"""


@pytest.mark.full
@pytest.mark.parametrize("kind", [Starlette, FastAPI])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_application_of_the_page_is_started_twice(
    kind: Any, backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its executor belongs to the module; each client begins and ends its lifespan, in an event loop of its own."""
    monkeypatch.chdir(tmp_path)
    code = PAGE.read_text().partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(_AGENT, names)
    exec(code.replace("from agent import graph, model\n", ""), names)
    app = kind(routes=names["routes"], lifespan=names["lifespan"])
    for run_id in ("a", "b"):
        with TestClient(app, backend=backend) as client:
            assert client.post("/runs", json={"input": 0, "run_id": run_id}).status_code == 201
            assert '"type":"ended"' in client.get(f"/runs/{run_id}/events").text.replace(" ", "")
            assert {one["run_id"] for one in client.get("/runs").json()} == {"a", run_id}


# -- notebooks -----------------------------------------------------------------------------------------------------

_CELLS = (
    _COMMON,
    'executor = await Executor("sqlite:///runs.db", graphs=[graph, slow], tools=[server]).open()',
    'await executor.submit(slow, run_id="r"); (await executor.start(graph)).output',
    "block = executor.stream(graph); live = await block.__aenter__(); print((await anext(live)).type)",
    "[event.type async for event in live][-1]",
    "await block.__aexit__(None, None, None); await executor.close()",
    '(await (await executor.open()).load("r")).status',
    "await executor.close()",
)


@pytest.mark.full
def test_cells_of_a_notebook_open_use_and_close_an_executor(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(_SERVER)
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in _CELLS])
    with kernel(tmp_path) as manager:
        client = NotebookClient(book, km=manager, timeout=120)
        try:
            client.execute()
        finally:
            client.kc.stop_channels()
    said = [[out.get("text") or out["data"]["text/plain"] for out in cell.outputs] for cell in book.cells]
    assert said == [[], [], ["1"], ["run_started\n"], ["'ended'"], [], ["'interrupted'"], []]
