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
from orchestrator.nodes import Code, Confirm
from orchestrator.strategies.swarm import swarm
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


def confirms(graph: Graph) -> Iterator[Confirm | Code]:
    for node in graph.nodes.values():
        if isinstance(node, Code) or (isinstance(node, Confirm) and node.confirms_calls):
            yield node
        if node.subgraph is not None:
            yield from confirms(node.subgraph)


def asked_by_default() -> dict[str, list[str]]:
    """Of which risks each shipped strategy asks about calls, from its graph; none if it calls no tools."""
    found = {}
    for module in pkgutil.iter_modules(strategies.__path__):
        graph = importlib.import_module(f"orchestrator.strategies.{module.name}").graph
        asking = list(confirms(swarm(tools=["calculate"]) if module.name == "swarm" else graph))
        found[module.name] = [risk for risk in RISKS if any(one.asks_about(risk) for one in asking)]
    return found


def test_what_is_asked_by_default_is_as_the_graphs_say() -> None:
    asked = asked_by_default()
    without = {name for name, risks in asked.items() if not risks}
    page = " ".join((DOCS / "strategies" / "README.md").read_text().split())
    sentence = re.search(r"asks before every call\. ([^.]*) call no tools\.", page)
    assert sentence is not None
    assert set(re.findall(r"`(\w+)`", sentence[1])) == without
    assert asked.pop("tool_user") == list(RISKS)
    assert all(risks == ["write", "dangerous"] for name, risks in asked.items() if name not in without)
    table = TEXT[TEXT.index("| strategy | none | read | write | dangerous |") :].split("\n\n")[0]
    assert table.splitlines()[2:] == [
        "| tool_user | asked | asked | asked | asked |",
        "| all others that call tools | | | asked | asked |",
    ]


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
