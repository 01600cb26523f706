"""What the README and the quickstart show is what happens."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from orchestrator import Executor, Graph
from orchestrator.testing import ScriptedModel

ROOT = Path(__file__).parents[2]
LONG = "x" * 60
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINKS = sorted(set(re.findall(r"\]\(((?:docs|notebooks)/[^)]+)", README)))


def blocks(path: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(), re.S)


def load(code: str, name: str) -> ModuleType:
    """Run a block as the module that a reader would paste it into."""
    module = ModuleType(name)
    sys.modules[name] = module
    exec(compile(code, name, "exec"), module.__dict__)
    return module


async def awaited(code: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run a block with `await` at its top, as a notebook does."""
    result = eval(compile(code, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if result is not None:
        await result
    return names


@pytest.fixture(scope="module")
def essay() -> Graph:
    return load(blocks("README.md")[0], "readme_essay").essay


@pytest.mark.anyio
async def test_the_essay_waits_for_approval_and_ends_in_another_executor(essay: Graph, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    model = ScriptedModel(["short", LONG])
    run = await essay.run("graphs", model=model, store=store)
    assert run.status == "paused"
    assert run.values["drafts"] == ["short", LONG]
    assert [question.kind for question in run.waiting] == ["approval"]
    model.assert_done()

    second = blocks("README.md")[1].replace("sqlite:///runs.db", store)
    names = await awaited(second, {"essay": essay, "model": model, "run": run})
    assert names["run"].status == "completed"
    assert names["run"].output == ["short", LONG]


@pytest.mark.anyio
async def test_a_denial_brings_its_reason_back_to_the_writer(essay: Graph, tmp_path: Path) -> None:
    from orchestrator import Deny

    model = ScriptedModel([LONG, lambda request: f"{request.messages[-1].content} {LONG}"])
    async with Executor(store=f"sqlite:///{tmp_path}/runs.db", graphs=[essay], model=model) as executor:
        run = await executor.start(essay, {"topic": "graphs"})
        run = await executor.answer(run.run_id, run.waiting[0].id, Deny(reason="too dull"))
    assert run.status == "paused"
    assert run.state.feedback == "too dull"
    assert "too dull" in run.values["drafts"][-1]


def test_the_essay_runs_without_an_event_loop(essay: Graph) -> None:
    assert essay.run_sync("graphs", model=ScriptedModel([LONG])).status == "paused"


def test_the_quickstart_prints_its_greeting(capsys: pytest.CaptureFixture[str]) -> None:
    load(blocks("docs/quickstart.md")[0], "quickstart_hello")
    assert capsys.readouterr().out.strip() == "completed Hello, Ada"


@pytest.mark.parametrize("link", LINKS)
def test_links_of_the_readme_lead_somewhere(link: str) -> None:
    file, _, anchor = link.partition("#")
    assert (ROOT / file).exists()
    if anchor:
        headings = re.findall(r"^#+ (.+)$", (ROOT / file).read_text(encoding="utf-8"), re.M)
        assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_table_of_peers_has_eight_rows_each_with_its_proof_and_the_figures_that_were_measured() -> None:
    rows = re.findall(r"^\| \[(.+?)\]\(docs/.+?\) \| (.+) \|$", README.partition("## Why this one")[2], re.M)
    assert len(rows) == 8
    ours, langgraph, _, burr, _ = rows[-1][1].split(" | ")
    measured = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^\| history of 800 x 1 KiB; a step \| bytes \| (.+) \|$", measured, re.M)
    _, _, here, full, delta, theirs, *_ = line.split(" | ")
    assert (ours, burr, re.findall(r"[\d,]+", langgraph)) == (here, theirs, [full, delta])
    for named, part in (
        ("1,000 runs that wait; a run (KiB): LangGraph", 0.03),
        ("(ms, Mermaid): pydantic-graph", 0.06),
    ):
        assert f"{named}, {part} of ours" in measured
    (waiting,) = re.findall(r"^\| 1,000 runs that wait; a run \| KiB \| (.+) \|$", measured, re.M)
    assert f"here it keeps {float(waiting.split(' | ')[1]):.1f} KiB" in README
    assert "18 times as fast" in README
