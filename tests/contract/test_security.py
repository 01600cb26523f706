"""docs/security.md and what is said of approvals are held true: rows name tests, tables follow from the code."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import Executor, Graph, OpenAIModel, strategies, values
from orchestrator.cli import dotenv
from orchestrator.graph.text import source
from orchestrator.models.messages import Reply, ToolCall
from orchestrator.models.middleware import cassette
from orchestrator.nodes import Confirm
from orchestrator.testing import ScriptedModel
from orchestrator.tools.builtin.files import READ_ONLY, SECRETS, Files
from orchestrator.tools.builtin.web_fetch import WebFetch
from orchestrator.tools.mcp import servers
from orchestrator.tools.result import Risk
from orchestrator.visible import UNICODE

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TEXT = (DOCS / "security.md").read_text()
PROOF = re.compile(r"\[`(test_\w+)`\]\(([^)]+)\)")
RISKS: tuple[Risk, ...] = ("none", "read", "write", "dangerous")


def claims() -> list[str]:
    """The rows of tables whose last column names tests."""
    return [line for line in TEXT.splitlines() if line.startswith("| ") and "[`test_" in line]


@pytest.mark.parametrize("row", claims(), ids=lambda row: row.split("|")[1].strip()[:60])
def test_a_claim_names_tests_that_exist(row: str) -> None:
    proofs = PROOF.findall(row)
    assert row.count("[`") == len(proofs)
    for name, path in proofs:
        text = (DOCS / path).read_text()
        assert re.search(rf"^(async )?def {name}\(", text, re.M), f"{path} has no {name}"


def test_every_row_of_a_table_of_claims_has_its_test() -> None:
    part = TEXT[TEXT.index("| attack |") :]
    rows = [line for line in part.splitlines() if line.startswith("| ") and not line.startswith("| attack |")]
    table = [line for line in rows if line.count("|") == 4]
    assert len(table) > 25
    assert [line for line in table if "[`test_" not in line] == []


def confirms(graph: Graph) -> Iterator[Confirm]:
    for node in graph.nodes.values():
        if isinstance(node, Confirm) and node.tool is not None:
            yield node
        if node.subgraph is not None:
            yield from confirms(node.subgraph)


def asked_by_default() -> list[str]:
    """The table of what each shipped strategy asks about, from its graph."""
    rows = []
    for module in sorted(pkgutil.iter_modules(strategies.__path__), key=lambda one: one.name):
        graph = importlib.import_module(f"orchestrator.strategies.{module.name}").graph
        found = list(confirms(graph))
        cells = ["asked" if any(one.asks_about(risk) for one in found) else "" for risk in RISKS]
        rows.append(f"| {module.name} | " + " | ".join(cells) + " |")
    return [re.sub(r" +", " ", row) for row in rows]


@pytest.mark.parametrize("page", ["docs/strategies/README.md", "docs/security.md"])
def test_what_is_asked_by_default_is_as_the_graphs_say(page: str) -> None:
    text = (ROOT / page).read_text()
    table = text[text.index("| strategy | none | read | write | dangerous |") :].split("\n\n")[0]
    assert [re.sub(r" +", " ", row) for row in table.splitlines()[2:]] == asked_by_default()


def test_the_page_names_all_that_files_hides_and_the_version_of_unicode() -> None:
    assert [name for name in (*SECRETS, *READ_ONLY) if f"`{name}`" not in TEXT] == []
    assert f"Unicode {UNICODE}" in TEXT


def test_the_bounds_on_the_page_are_those_of_the_code() -> None:
    part = TEXT[TEXT.index("## What is bounded") : TEXT.index("## Regular expressions")]
    rows = {line.split("|")[1].strip(): line for line in part.splitlines() if line.startswith("| ")}
    mib = 1 << 20
    reply = inspect.signature(OpenAIModel).parameters["max_reply_bytes"]
    for row, bounds in {
        "a graph file": (f"{source.LONGEST:,} bytes", f"{source.DEEPEST} levels", f"{source.MOST:,} values"),
        "the answer of a model server": (f"{reply.default // mib} MiB",),
        "`--input @FILE`, `--input -`": (f"{values.MAX_BYTES:,} bytes",),
        "an answer, `--args`, any value of a run": (f"{values.MAX_BYTES // mib} MiB", f"{values.MAX_DEPTH} levels"),
        "`.mcp.json`": (f"{servers.MOST_BYTES:,} bytes",),
        "`.env`": (f"{dotenv.MOST_BYTES:,} bytes",),
        "a cassette of recorded replies": (f"{cassette.MOST_BYTES // mib} MiB",),
    }.items():
        assert [bound for bound in bounds if bound not in rows[row]] == []
    places = {name for line in rows.values() for name in re.findall(r"`(orchestrator/[\w/]+\.py)`", line)}
    assert len(places) > 15
    assert [place for place in sorted(places) if not (ROOT / place).exists()] == []


def test_both_pages_are_linked_and_name_no_host_and_no_address() -> None:
    short = (ROOT / "SECURITY.md").read_text()
    readme = (ROOT / "README.md").read_text()
    assert "](SECURITY.md)" in readme
    assert "](docs/security.md)" in readme
    assert "](docs/security.md" in short
    for text in (short, TEXT):
        assert not re.search(r"[\w.]+@[\w.]+\.\w+", text)
        assert "http" not in re.sub(r"`[^`]*`", "", text)
    for path in re.findall(r"\]\(([^)#]+)", short):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"\]\(([^)#]+)", TEXT):
        assert (DOCS / path).exists(), path


@pytest.mark.anyio
async def test_what_was_read_is_not_sent_without_a_question(tmp_path: Path) -> None:
    """A page, or a file, has the model send what it read: strategies that read without a question ask about it."""
    (tmp_path / "notes.txt").write_text("the plan")
    said = [
        ToolCall(id="1", name="view_file", arguments={"path": "notes.txt"}),
        ToolCall(id="2", name="web_fetch", arguments={"url": "http://127.0.0.1:9/?q=the+plan"}),
    ]
    for name in ("react", "function_call_agent", "chat"):
        graph = importlib.import_module(f"orchestrator.strategies.{name}").graph
        model = ScriptedModel([Reply(text="I look.", tool_calls=(call,)) for call in said])
        async with Executor(model=model, tools=[Files(tmp_path), WebFetch()]) as executor:
            run = await executor.start(graph, "What do the notes say?")
        assert run.status == "paused", (name, run.error)
        assert [question.payload["tool"] for question in run.waiting] == ["web_fetch"]
