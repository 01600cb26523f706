"""Traces as a backend of others shows them: Arize Phoenix, in an environment of its own.

The environment variable PHOENIX names its program.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest

from tests.otel.test_processes import over_processes, until
from tests.support.ports import free_port

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]


@pytest.fixture
def phoenix(tmp_path: Path) -> Iterator[str]:
    """The address of a server of its own, on this machine, which tells nobody of itself."""
    program = os.environ.get("PHOENIX") or shutil.which("phoenix")
    if program is None:
        pytest.skip("PHOENIX does not name the program")
    url, place = f"http://127.0.0.1:{(port := free_port())}", tmp_path / "phoenix"
    env = {
        **os.environ, "PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": str(port), "PHOENIX_GRPC_PORT": str(free_port()),
        "PHOENIX_WORKING_DIR": str(place), "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    }  # fmt: skip
    place.mkdir()
    with (
        (place / "log").open("w") as log,
        subprocess.Popen([program, "serve"], env=env, stdout=log, stderr=log) as server,
    ):
        try:
            until(lambda: answers(f"{url}/v1/projects"), 240)  # it makes its database first
            yield url
        finally:
            server.kill()


def answers(url: str) -> bool:
    """Return True if a server is there."""
    try:
        return urllib.request.urlopen(url, timeout=30).status == 200
    except (URLError, OSError):
        return False


def spans(url: str) -> list[dict[str, Any]]:
    """The spans that the server has."""
    with urllib.request.urlopen(f"{url}/v1/projects/default/spans?limit=1000", timeout=60) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]
    return found


_TRACE = """query ($id: ID!) { projects { edges { node { trace(traceId: $id) {
    numSpans rootSpan { name cumulativeTokenCountTotal } costSummary { total { cost tokens } } } } } } }"""


def trace_of(url: str, trace_id: str) -> dict[str, Any]:
    """What the server shows of a trace."""
    body = json.dumps({"query": _TRACE, "variables": {"id": trace_id}}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        edges = json.load(answer)["data"]["projects"]["edges"]
    (found,) = (edge["node"]["trace"] for edge in edges if edge["node"]["trace"] is not None)
    return dict(found)


def test_a_run_over_processes_is_one_trace_with_tokens_and_cost(phoenix: str, tmp_path: Path) -> None:
    def drives() -> list[dict[str, Any]]:
        return [span for span in spans(phoenix) if span["name"] == "invoke_workflow order"]

    trace_id = over_processes(f"{phoenix}/v1/traces", tmp_path, lambda: len(drives()) == 1)
    until(lambda: len(drives()) == 2)
    deadline = time.monotonic() + 60
    while (found := trace_of(phoenix, trace_id))["costSummary"]["total"]["cost"] is None:  # it is computed later
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert found["rootSpan"] == {"name": "enqueue order", "cumulativeTokenCountTotal": 3000}
    assert found["costSummary"]["total"] == {"tokens": 3000, "cost": pytest.approx(0.00072)}
    inside = [span for span in spans(phoenix) if span["context"]["trace_id"] == trace_id]
    assert len(inside) == found["numSpans"]
    named: dict[str, list[dict[str, Any]]] = {}
    for span in inside:
        named.setdefault(span["name"], []).append(span)
    counts = {name: len(one) for name, one in named.items()}
    assert counts["invoke_workflow order"] == counts["invoke_agent describe"] == 2
    assert counts["execute_tool in_stock"] == counts["MCP send tools/call in_stock"] == counts["chat gpt-4o-mini"] == 2
    assert {span["span_kind"] for span in named["chat gpt-4o-mini"]} == {"LLM"}
    assert {span["span_kind"] for span in named["execute_tool in_stock"]} == {"TOOL"}
    assert sum(span["attributes"]["orchestrator.cost"] for span in named["chat gpt-4o-mini"]) == pytest.approx(0.00072)
    known = {span["context"]["span_id"] for span in inside}
    assert [span["name"] for span in inside if span["parent_id"] not in known] == ["enqueue order"]
