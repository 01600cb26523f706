"""The graphs in docs/examples, in Python and in YAML, from the command line and under crashes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import Approve, Graph
from orchestrator.models.base import ModelRequest
from orchestrator.testing import ScriptedModel, assert_crash_safe, assert_kill_safe
from tests.graphs.examples import ASKED, FORMS, NAMES, PLACE, loaded, models, of_file, ordered, reference
from tests.support.kit import fork_processes
from tests.support.shell import Shell
from tests.support.sizes import in_turn, sized

MODELS = ("--model", f"cheap={PLACE}/models.py:cheap", "--model", f"clever={PLACE}/models.py:clever")
ANSWERS = {"first_two": 'Offers: [\\"100 a piece\\", \\"100 a piece\\"]'}
each = pytest.mark.parametrize(("name", "form"), [(name, form) for name in NAMES for form in FORMS])


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A new directory for each test."""
    return Shell(tmp_path, inside=True)


def test_every_example_is_there_in_both_forms() -> None:
    assert {path.stem for path in PLACE.glob("*.py")} == {*NAMES, "models", "local_server", "protocols"}
    assert {path.stem for path in PLACE.glob("*.yaml")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_both_forms_are_the_same_graph_and_short(name: str) -> None:
    ours, theirs = of_file(name, "py"), of_file(name, "yaml")
    same_parts(ours, theirs)
    assert len((PLACE / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 60


def same_parts(ours: Graph, theirs: Graph) -> None:
    """Both graphs have the same edges, nodes, ways to join and fields, also inside of their nodes."""
    assert ours.edges == theirs.edges
    assert {key: (node.kind, node.outcomes, node.join, node.rest, node.model) for key, node in ours.nodes.items()} == {
        key: (node.kind, node.outcomes, node.join, node.rest, node.model) for key, node in theirs.nodes.items()
    }
    assert set(ours.schema.fields) == set(theirs.schema.fields)
    for name, node in ours.nodes.items():
        if node.subgraph is not None:
            inner = theirs.nodes[name].subgraph
            assert isinstance(node.subgraph, Graph)
            assert isinstance(inner, Graph)
            same_parts(node.subgraph, inner)


@each
def test_it_runs_from_the_command_line_with_two_named_models(name: str, form: str, shell: Shell) -> None:
    done = shell("run", reference(name, form), ASKED, *MODELS)
    assert done.code == 0, done.err
    assert ANSWERS[name] in done.out


@pytest.mark.anyio
@pytest.mark.parametrize("form", FORMS)
async def test_two_offers_are_compared_while_the_other_suppliers_still_write(form: str, anyio_backend: str) -> None:
    decided = anyio.Event()
    compared: list[str] = []

    async def offer(request: ModelRequest) -> str:
        name = request.messages[-1].content.removeprefix("For ").partition(":")[0]
        if name not in ("Ash", "Birch"):
            await decided.wait()  # if the comparison waited for these, the run would never end
        return name

    def choose(request: ModelRequest) -> str:
        compared.append(request.messages[-1].content)
        decided.set()
        return "the first"

    both = {"cheap": ScriptedModel(offer), "clever": ScriptedModel(choose)}
    run = await of_file("first_two", form).run("A desk", models=both)
    assert run.status == "completed"
    assert sorted(re.findall(r'"(\w+)"', compared[0])) == ["Ash", "Birch"]
    assert run.values["choice"] == "the first"
    assert sorted(run.values["offers"]) == ["Ash", "Birch", "Cedar", "Elm", "Fir"]  # type: ignore[type-var]


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "form"), in_turn([*NAMES], FORMS))
async def test_it_survives_a_stop_at_every_write(name: str, form: str, anyio_backend: str) -> None:
    def setup() -> dict[str, Any]:
        return {"models": models()}

    report = await assert_crash_safe(
        ordered(name, form), ASKED, setup=setup, answer=lambda question: Approve(), most=sized(2, None)
    )
    assert report.status == "completed"


@pytest.mark.parametrize(("name", "form"), sized([("first_two", "yaml")], [(n, f) for n in NAMES for f in FORMS]))
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
def test_it_survives_kills_of_its_process(
    name: str, form: str, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork_processes(monkeypatch, "tests.graphs.examples")
    report = assert_kill_safe(f"tests.graphs.examples:{name}_{form}", runs=1, kills=sized(1, 3), seed=7)
    assert report.status == "completed"


def test_pages_name_every_example() -> None:
    page = (PLACE.parent / "routing.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert f"(examples/{name}.py)" in page
        assert f"(examples/{name}.yaml)" in page
    assert loaded("models").__doc__
