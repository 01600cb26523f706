"""The conformance suite of the protocol, against `serve-mcp` and with our client, and its inspector on the server.

`MCP_CONFORMANCE` and `MCP_INSPECTOR` name their programs. What fails here is named, with the reason, in docs/mcp.md.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tools.mcp.conformance_graphs import NAMES

pytestmark = pytest.mark.peer
HERE = Path(__file__).parent
ROOT = HERE.parents[2]
DOCS = (ROOT / "docs" / "mcp.md").read_text(encoding="utf-8")


def named(kind: str) -> dict[str, str]:
    """The scenarios that docs/mcp.md names as failing, with their reasons."""
    table = DOCS[DOCS.index(f"| {kind} scenario |") :].split("\n\n")[0]
    rows = re.findall(r"^\| (`.+?) \| (.+) \|$", table, flags=re.M)
    return {name: why for names, why in rows for name in re.findall(r"`([^`]+)`", names)}


def program(variable: str) -> list[str]:
    """The command of a program that npm brought."""
    if variable not in os.environ:
        pytest.skip(f"{variable} names no program of npm: see .ci/run")
    return ["node", os.environ[variable]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of `serve-mcp` with the graphs that the suite calls."""
    graphs = [f"{HERE / 'conformance_graphs.py'}:{name}" for name in NAMES]
    words = ("-m", "orchestrator", "serve-mcp", *graphs, "--http", "--port", "0", "--store", "sqlite:///runs.db")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        (sys.executable, *words), cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = next((one for one in process.stderr if one.startswith("serving http://")), "")
        assert line, "it does not start"
        yield line.split()[1]
        process.kill()


@pytest.mark.timeout(600)
def test_every_server_scenario_passes_or_is_named(tmp_path: Path, server: str) -> None:
    words = [*program("MCP_CONFORMANCE"), "server", "--url", server, "--suite", "all", "-o", str(tmp_path / "out")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    results = dict(re.findall(r"^[^\w\n]*([\w-]+): \d+ passed, (\d+) failed", done.stdout, flags=re.M))
    assert len(results) >= 32, done.stdout[-2000:] + done.stderr[-2000:]
    assert sorted(name for name, failed in results.items() if failed != "0" and name != "Total") == sorted(
        named("server")
    )


@pytest.mark.timeout(900)
def test_every_client_scenario_passes_or_is_named(tmp_path: Path) -> None:
    listed = subprocess.run([*program("MCP_CONFORMANCE"), "list"], capture_output=True, text=True, check=True).stdout
    scenarios = re.findall(r"^  - (\S+)", listed.partition("Client scenarios")[2], flags=re.M)
    assert len(scenarios) >= 26
    client = f"{sys.executable} {HERE / 'conformance_client.py'}"
    failed = []
    for number, name in enumerate(scenarios):
        env = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path / str(number))}
        words = [*program("MCP_CONFORMANCE"), "client", "--command", client, "--scenario", name, "--timeout", "90000"]
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            failed.append(name)
    assert sorted(failed) == sorted(named("client"))


@pytest.mark.timeout(300)
def test_the_inspector_lists_calls_and_reads(server: str) -> None:
    def inspected(*words: str) -> Any:
        line = [*program("MCP_INSPECTOR"), "--cli", server, "--transport", "http", *words]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    tools = [one["name"] for one in inspected("--method", "tools/list")["tools"]]
    assert tools == [*(f"test_{name}" for name in ("simple_text", "error_handling")), *tools[2:]]
    assert tools[-1] == "run_result"
    said = inspected("--method", "tools/call", "--tool-name", "test_simple_text")
    assert said["structuredContent"]["output"] == "This is a simple text response for testing."
    page = inspected("--method", "resources/read", "--uri", said["structuredContent"]["page"])
    assert "<html" in page["contents"][0]["text"].lower()[:500]
