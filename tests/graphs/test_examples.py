"""The graphs in docs/examples, in Python and in YAML, from the command line and under crashes."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from orchestrator import Approve, Graph
from orchestrator.testing import assert_crash_safe
from tests.support.shell import Shell
from tests.support.sizes import sized

PLACE = Path(__file__).parents[2] / "docs" / "examples"
MODELS = ("--model", f"cheap={PLACE}/models.py:cheap", "--model", f"clever={PLACE}/models.py:clever")
NAMES = ("router", "triage", "supervisor_tools", "supervisor_subgraphs", "supervisor_handoff")
FORMS = ("py:graph", "yaml")
ASKED = "I was charged twice"
ANSWERS = {
    "router": "Billing: I was charged twice",
    "triage": "Support: I was charged twice",
    "supervisor_tools": "Done: Review: step 3",
    "supervisor_subgraphs": "Writing: I was charged twice",
    "supervisor_handoff": "Billing: I was charged twice",
}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A new directory for each test."""
    return Shell(tmp_path, inside=True)


def loaded(name: str) -> ModuleType:
    """A file of the examples, as a module."""
    known = sys.modules.get(f"examples_{name}")
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(f"examples_{name}", PLACE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[f"examples_{name}"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def of_file(name: str, form: str) -> Graph:
    """An example in one of its forms."""
    if form == "yaml":
        return Graph.load(PLACE / f"{name}.yaml")
    graph: Graph = loaded(name).graph
    return graph


def test_every_example_is_there_in_both_forms() -> None:
    assert {path.stem for path in PLACE.glob("*.py")} == {*NAMES, "models"}
    assert {path.stem for path in PLACE.glob("*.yaml")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_both_forms_are_the_same_graph_and_short(name: str) -> None:
    ours, theirs = of_file(name, "py"), of_file(name, "yaml")
    assert ours.edges == theirs.edges
    assert {key: (node.kind, node.outcomes) for key, node in ours.nodes.items()} == {
        key: (node.kind, node.outcomes) for key, node in theirs.nodes.items()
    }
    assert set(ours.schema.fields) == set(theirs.schema.fields)
    assert len((PLACE / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 60


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_it_runs_from_the_command_line_with_two_named_models(name: str, form: str, shell: Shell) -> None:
    done = shell("run", f"{PLACE}/{name}.{form}", ASKED, *MODELS)
    assert done.code == 0, done.err
    assert ANSWERS[name] in done.out


@pytest.mark.parametrize("form", FORMS)
def test_an_urgent_ticket_waits_for_approval_and_goes_on_with_the_same_models(form: str, shell: Shell) -> None:
    done = shell("run", f"{PLACE}/triage.{form}", f"{ASKED}, help now", *MODELS, "--run-id", "r")
    assert (done.code, done.out) == (3, "")
    denied = shell("deny", "r", "--reason", "Be kind.")
    assert denied.code == 3, denied.err
    assert "Be kind." in shell("show", "r").out  # the next question is seen before it is answered
    approved = shell("approve", "r")
    assert approved.code == 0, approved.err
    assert "Support: I was charged twice, help now" in approved.out
    assert approved.out.rstrip().endswith("Be kind.")
    (seq,) = re.findall(r"^ *(\d+)  sort -> urgent  \[its guards: urgent true\]", shell("show", "r").out, re.M)
    assert "decided by its guards: urgent true" in shell("why", "r", seq).out


@pytest.mark.anyio
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
async def test_it_survives_crashes(name: str, form: str, anyio_backend: str) -> None:
    models = loaded("models")

    def setup() -> dict[str, Any]:
        return {"models": {"cheap": models.cheap, "clever": models.clever}}

    given = f"{ASKED}, help now"
    report = await assert_crash_safe(
        of_file(name, form), given, setup=setup, answer=lambda question: Approve(), most=sized(3, None)
    )
    assert report.status == "completed"


def test_pages_name_every_example() -> None:
    page = (PLACE.parent / "routing.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert f"(examples/{name}.py)" in page
        assert f"(examples/{name}.yaml)" in page
