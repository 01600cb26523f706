"""Clients that programs of others generate from the OpenAPI document drive runs on a real server.

The generators are in environments of their own, which the environment variables OPENAPI_PYTHON_CLIENT and
OPENAPI_TYPESCRIPT name the programs of. The second one has openapi-fetch and TypeScript (TSC) beside it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web.api import Api, api

pytestmark = pytest.mark.peer

PYTHON = """
import sys
from generated.client import Client
from generated.api.runs import answer_question, cancel_run, list_runs, pause_run, resume_run, show_run, start_run
from generated.models import AnswerBody, ListRunsStatusItem, ProblemDocument, ResumeBody
from generated.models import StartBody, StartBodyLabels, StopBody

with Client(base_url=sys.argv[1], timeout=60) as client:
    labels = StartBodyLabels.from_dict({"team": "north"})
    started = start_run.sync(client=client, body=StartBody(graph="letter", input_="bees", labels=labels, wait=True))
    asked, run_id = started.waiting[0], started.run_id
    assert show_run.sync(run_id, client=client).labels.to_dict() == {"team": "north"}
    assert pause_run.sync(run_id, client=client, body=StopBody(by="ann", reason="lunch")).status == "paused"
    resume_run.sync(run_id, client=client, body=ResumeBody())
    answer = AnswerBody(question=asked.id, digest=asked.digest, approve=True, by="ann")
    assert answer_question.sync(run_id, client=client, body=answer).run_id == run_id

    other = start_run.sync(client=client, body=StartBody(graph="letter", input_="wasps", wait=True))
    assert cancel_run.sync(other.run_id, client=client, body=StopBody(by="ann")).status == "cancelled"
    listed = list_runs.sync(client=client, status=[ListRunsStatusItem("cancelled")])
    assert other.run_id in [row.run_id for row in listed.runs]

    refused = start_run.sync(client=client, body=StartBody(graph="", input_=1, run_id="x" * 201))
    assert isinstance(refused, ProblemDocument)
    print(run_id, refused.status, refused.errors[0].field, refused.errors[0].message, sep="|")
"""

TYPESCRIPT = """
import createClient from "openapi-fetch";
import type { paths } from "./api.js";

declare const process: { argv: string[] };
const api = createClient<paths>({ baseUrl: process.argv[2]! });

async function main() {
  const body = { graph: "letter", input: "bees", labels: { team: "north" }, wait: true };
  const started = await api.POST("/api/runs", { body });
  const { run_id, waiting } = started.data!;
  const at = { params: { path: { run_id } } };
  const shown = await api.GET("/api/runs/{run_id}", at);
  const paused = await api.POST("/api/runs/{run_id}/pause", { ...at, body: { by: "ann", reason: "lunch" } });
  await api.POST("/api/runs/{run_id}/resume", { ...at, body: {} });
  const { id, digest } = waiting[0]!;
  const answer = { question: id, digest, approve: true as const, by: "ann" };
  const answered = await api.POST("/api/runs/{run_id}/answer", { ...at, body: answer });

  const other = await api.POST("/api/runs", { body: { graph: "letter", input: "wasps", wait: true } });
  const there = { params: { path: { run_id: other.data!.run_id } } };
  const cancelled = await api.POST("/api/runs/{run_id}/cancel", { ...there, body: {} });
  const listed = await api.GET("/api/runs", { params: { query: { status: ["cancelled"] } } });
  const refused = await api.POST("/api/runs", { body: { graph: "letter", run_id: "x".repeat(201) } });

  const page = listed.data!;
  if (!("runs" in page)) throw new Error("not a page");

  const seen = [shown.data!.labels["team"], paused.data!.status, answered.data!.run_id === run_id,
    cancelled.data!.status, page.runs.some((row) => row.run_id === other.data!.run_id)];
  if (seen.join() !== "north,paused,true,cancelled,true") throw new Error(seen.join());
  const fault = refused.error!.errors![0]!;
  console.log([run_id, refused.error!.status, fault.field, fault.message].join("|"));
}
main();
"""

WRONG = """
import type { paths } from "./api.js";
type Body = NonNullable<paths["/api/runs"]["post"]["requestBody"]>["content"]["application/json"];
export const unknown: Body = { graph: "letter", colour: "blue" };
export const risk: Body = { graph: "letter", approve: "everything" };
export const missing: Body = { input: "bees" };
"""


@pytest.fixture
def letters() -> Iterator[Api]:
    with api() as found:
        yield found


def program(name: str) -> str:
    """The path of a program that is named in the environment."""
    found = os.environ.get(name)
    if found is None:
        pytest.skip(f"{name} does not name the program")
    return found


def ran(*words: object, place: Path, status: int = 0, **environment: str) -> str:
    """Run a program, which reaches the loopback only, and return what it printed."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    found = subprocess.run(
        [*map(str, words)], cwd=place, capture_output=True, text=True, timeout=300,
        env={**kept, "HOME": str(place), "NO_PROXY": "127.0.0.1", **environment},
    )  # fmt: skip
    assert found.returncode == status, found.stdout + found.stderr
    return found.stdout


def check(letters: Api, said: str) -> None:
    """The client drove its run to the end, and had a refusal in words."""
    run_id, status, field, message = said.strip().split("|")
    assert (status, field, message) == ("422", "run_id", "give 200 characters at most")
    assert letters.settled(run_id)["status"] == "completed"
    about = [record for record in letters.get(f"runs/{run_id}/records")["records"] if record["type"] == "paused"]
    assert [(record["by"], record["reason"]) for record in about] == [("ann", "lunch")]


def test_a_generated_python_client_drives_runs(letters: Api, tmp_path: Path) -> None:
    generator = program("OPENAPI_PYTHON_CLIENT")
    (tmp_path / "openapi.json").write_bytes(letters.client.get("/api/openapi.json").content)
    (tmp_path / "config.yaml").write_text("post_hooks: []\n")
    said = ran(
        generator, "generate", "--path", "openapi.json", "--output-path", "generated", "--meta", "none",
        "--config", "config.yaml", place=tmp_path,
    )  # fmt: skip
    assert "Endpoint will not be generated" not in said
    operations = letters.get("openapi.json")["paths"].values()
    made = [one for one in (tmp_path / "generated/api").rglob("*.py") if one.name != "__init__.py"]
    assert len(made) == sum(map(len, operations))
    (tmp_path / "drive.py").write_text(PYTHON)
    check(letters, ran(Path(generator).with_name("python"), "drive.py", letters.url, place=tmp_path))


def test_a_generated_typescript_client_drives_runs(letters: Api, tmp_path: Path) -> None:
    generator, compiler = program("OPENAPI_TYPESCRIPT"), program("TSC")
    modules = Path(generator).parents[1]
    (tmp_path / "node_modules").symlink_to(modules)
    (tmp_path / "openapi.json").write_bytes(letters.client.get("/api/openapi.json").content)
    # A default in a body is what the server takes if the field is left out.
    ran(generator, "openapi.json", "--default-non-nullable=false", "-o", "api.d.ts", place=tmp_path)
    (tmp_path / "drive.ts").write_text(TYPESCRIPT)
    (tmp_path / "wrong.ts").write_text(WRONG)
    checked = [
        compiler, "--strict", "--target", "es2022", "--module", "nodenext", "--noUncheckedIndexedAccess", "--lib",
        "es2022,dom", "--skipLibCheck",
    ]  # fmt: skip
    ran(*checked, "drive.ts", place=tmp_path)
    check(letters, ran("node", "drive.js", letters.url, place=tmp_path))

    faults = ran(*checked, "--noEmit", "wrong.ts", place=tmp_path, status=2)
    assert [name for name in ("colour", "everything", "'graph' is missing") if name not in faults] == []
