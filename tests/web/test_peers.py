"""What a program of others makes of the OpenAPI document: schemathesis sends what the document allows, and what it does
not, and compares each answer with what the document says.

It is in an environment of its own, which the environment variable SCHEMATHESIS names the program of.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.api import Api, api

pytestmark = pytest.mark.peer
SEED = 20
EXAMPLES = 10
"""Of each operation, beside those that go along the edges of its schema."""
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance",
)  # fmt: skip
OPEN = ["asks", "pays", "talks"]
ENDED = ["done", "cancelled"]


@pytest.fixture(scope="module")
def schemathesis() -> str:
    found = os.environ.get("SCHEMATHESIS") or shutil.which("schemathesis")
    if found is None:
        pytest.skip("SCHEMATHESIS does not name the program")
    return found


@pytest.fixture
def served() -> Iterator[Api]:
    """A server with a run of each kind, whose answers and streams wait for little."""
    with api(settings={"wait": 0.2, "heartbeat": 0.1, "poll": 0.1, "approve": "dangerous"}) as found:
        found.start("plain", run_id="done")
        found.start("letter", run_id="cancelled")
        found.post("runs/cancelled/cancel")
        for graph, run_id in zip(("letter", "payment", "chat"), OPEN, strict=True):
            found.start(graph, run_id=run_id)
        yield found


def narrowed(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the names that this server has: made up, they would all be unknown.

    Streams of runs that wait have no end, and are tested elsewhere.
    """
    for path, operations in document["paths"].items():
        runs = [*ENDED, *([] if path.endswith("/events") else OPEN), "nothing"]
        for operation in operations.values():
            for one in operation["parameters"]:
                if one["in"] == "path":
                    one["schema"] = {"enum": runs if one["name"] == "run_id" else ["letter", "plain", "nothing"]}
    graph = document["components"]["schemas"]["StartBody"]["properties"]["graph"]
    graph["enum"] = ["letter", "plain", "chat", "payment", "nothing"]
    return document


def tried(program: str, document: dict[str, Any], url: str, place: Path) -> subprocess.CompletedProcess[str]:
    """What the program says after it has tried every operation of a document."""
    (place / "openapi.json").write_text(json.dumps(document))
    (place / "none.toml").write_text("")  # else it would look for settings in every folder above
    words = [
        "--config-file", "none.toml", "run", "openapi.json", "--url", url, "--seed", SEED, "--max-examples", EXAMPLES,
        "--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing", "--no-color", "--warnings", "off",
        "--continue-on-failure", "--request-timeout", 60,
    ]  # fmt: skip
    return subprocess.run(
        [program, *map(str, words)], cwd=place, capture_output=True, text=True, timeout=500, env=_environment(place)
    )


def _environment(place: Path) -> dict[str, str]:
    """Only what a program needs: nothing leads it to other servers."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    return {**kept, "HOME": str(place), "NO_PROXY": "127.0.0.1"}


def test_every_answer_is_one_that_the_document_describes(schemathesis: str, served: Api, tmp_path: Path) -> None:
    found = tried(schemathesis, narrowed(served.get("openapi.json")), served.url, tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr
    operations = len(re.findall("operationId", json.dumps(served.get("openapi.json"))))
    assert f"Tested: {operations}" in found.stdout, found.stdout
    generated = re.search(r"(\d+) generated, (\d+) passed", found.stdout)
    assert generated is not None, found.stdout
    assert int(generated[1]) == int(generated[2]) > 1000
    assert served.start("plain")["status"] == "completed"


def test_an_answer_that_the_document_does_not_describe_is_found(schemathesis: str, served: Api, tmp_path: Path) -> None:
    """Else the test above could look at nothing."""
    document = narrowed(served.get("openapi.json"))
    document["paths"] = {"/api/graphs": document["paths"]["/api/graphs"]}
    document["components"]["schemas"]["GraphRow"]["properties"]["name"]["maxLength"] = 1
    found = tried(schemathesis, document, served.url, tmp_path)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "Response violates schema" in found.stdout
