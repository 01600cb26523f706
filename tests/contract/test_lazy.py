"""Packages that load what they name when it is first used."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest

from orchestrator.errors import GraphUnknown
from orchestrator.graph.model import Node
from orchestrator.graph.reading import node_from_data
from orchestrator.nodes import KINDS
from tests.kinds.shipped import shipped
from tests.support.sources import imports_of, text_of

ROOT = Path(__file__).parents[2] / "orchestrator"

PACKAGES = ("", ".executor", ".graph", ".models", ".models.text", ".nodes", ".render", ".stores", ".testing", ".tools")

UNCHANGED = """
import pickle, sys, types
import orchestrator.nodes
assert "orchestrator.nodes.confirm" not in sys.modules
assert orchestrator.nodes.confirm.Confirm is orchestrator.nodes.Confirm
from orchestrator.graph import node, Node
from orchestrator.tools import handoff, tool
assert not any(isinstance(one, types.ModuleType) for one in (node, tool, handoff))
import orchestrator.graph.model, orchestrator.tools.toolbox, orchestrator.tools.tool
import orchestrator.graph, orchestrator.tools
assert orchestrator.graph.node is node and orchestrator.tools.tool is tool and orchestrator.tools.handoff is handoff
assert orchestrator.graph.node is orchestrator.node
assert pickle.loads(pickle.dumps(orchestrator.nodes.Confirm)) is orchestrator.nodes.confirm.Confirm
"""


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_what_it_names(package: str) -> None:
    face = import_module(f"orchestrator{package}")
    names: dict[str, object] = {}
    exec(f"from orchestrator{package} import *", names)
    assert set(face.__all__) - {"__version__"} <= names.keys() & {*dir(face)}
    assert not [name for name in face.__all__ if isinstance(names.get(name), ModuleType)]
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        face.nothing  # noqa: B018


def test_modules_whose_parts_others_import_load_no_other_part() -> None:
    """A thread that imports the package waits for no other that imports a part of it, which waits for the package."""
    code = (
        "import sys, orchestrator.models.text.forms\n"
        "assert 'orchestrator.models.text.protocol' not in sys.modules\n"
        "from orchestrator.models.text import TextProtocol\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_a_function_is_not_replaced_by_the_module_of_its_name() -> None:
    subprocess.run([sys.executable, "-c", UNCHANGED], check=True, timeout=300)


def test_a_name_of_a_package_can_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = import_module("orchestrator.graph")
    before = graph.node
    with monkeypatch.context() as patch:
        patch.setattr(graph, "node", len)
        assert graph.node is len
    assert graph.node is before


@pytest.mark.parametrize("name", ["orchestrator.graph.node", "orchestrator.tools.tool", "orchestrator.nodes.Confirm"])
@pytest.mark.parametrize("other", [len, sys, None])
def test_a_name_of_a_package_can_be_mocked(name: str, other: object) -> None:
    package, _, short = name.rpartition(".")
    face = import_module(package)
    before = getattr(face, short)
    with patch(name, other):
        assert getattr(face, short) is other
    assert getattr(face, short) is before


FAMILIES = {
    "call_model": "respond",
    "read_reply": "respond",
    "read_plan": "plan",
    "fill": "planned_calls",
    "record": "planned_calls",
    "work": "planned_calls",
}
"""Kinds that share a file, and the file. Any other kind has its own, of its name."""


def test_the_table_of_kinds_is_whole() -> None:
    assert {kind: cls.__name__ for kind, cls in shipped().items()} == KINDS
    files = {kind: cls.__module__.rpartition(".")[2] for kind, cls in shipped().items()}
    assert files == {kind: FAMILIES.get(kind, kind) for kind in KINDS}


def test_a_stored_name_of_a_kind_leads_to_no_other_module() -> None:
    with pytest.raises(GraphUnknown, match="there is no node kind 'templates'"):
        node_from_data({"kind": "templates"}, resolve=True)
    assert node_from_data({"kind": "templates"}).kind == "unresolved"


def test_no_kind_of_others_has_the_name_of_one_of_the_library() -> None:
    with pytest.raises(TypeError, match="'sleep' of Sleep is one of the library's"):
        type("Sleep", (Node,), {"__module__": "mine"})


def test_a_lazy_module_is_imported_when_something_in_it_is_used() -> None:
    code = (
        "import sys\n"
        "from orchestrator._lazy import lazy_modules\n"
        "forms, protocol = lazy_modules('orchestrator.models.text', 'forms protocol')\n"
        "assert 'orchestrator.models.text.forms' not in sys.modules\n"
        "found = forms.__name__\n"
        "assert found in sys.modules and 'orchestrator.models.text.protocol' not in sys.modules\n"
        "import orchestrator.models.text.forms as eager\n"
        "assert all(getattr(forms, name) is value for name, value in vars(eager).items() if name[0] != '_')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_lazy_modules_are_those_that_type_checkers_see() -> None:
    found = 0
    for file in sorted(ROOT.rglob("*.py")):
        for package, names in re.findall(r'lazy_modules\(\s*"([\w.]+)", "([\w ]+)"', text_of(file)):
            if file.name == "_lazy.py":
                continue
            seen = {
                alias.name
                for one in imports_of(file)
                if one.for_types and isinstance(one.statement, ast.ImportFrom) and one.statement.module == package
                for alias in one.statement.names
            }
            assert {*names.split()} <= seen, file
            assert all(isinstance(import_module(f"{package}.{name}"), ModuleType) for name in names.split())
            found += 1
    assert found > 5
