"""Tools named by text."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator import Toolbox, tool
from orchestrator.errors import GraphUnknown
from orchestrator.tools import tools_from_ref


@tool
def first() -> None:
    """First."""


@tool
def second() -> None:
    """Second."""


_hidden = tool(first, name="hidden")
again = second
box = Toolbox(second, first)
some = [first]
nothing: list[object] = []


@pytest.mark.parametrize(
    ("ref", "names"),
    [
        ("arithmetic", ["add", "subtract", "multiply", "divide", "power"]),
        (__name__, ["first", "second"]),
        (f"{__name__}:first", ["first"]),
        (f"{__name__}:box", ["second", "first"]),
        (f"{__name__}:some", ["first"]),
        (f"{__name__}:_hidden", ["hidden"]),
        ("orchestrator.tools.builtin.arithmetic:power", ["power"]),
    ],
)
def test_groups_modules_and_attributes(ref: str, names: list[str]) -> None:
    assert [one.name for one in tools_from_ref(ref)] == names


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "my tools.py"
    file.write_text("from orchestrator import tool\n\n@tool\ndef mine(a: int) -> int:\n    'Mine.'\n    return a\n")
    assert [one.name for one in tools_from_ref(str(file))] == ["mine"]
    assert tools_from_ref(f"{file}:mine").tools == tools_from_ref(str(file)).tools


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        ("nobody", "neither a shipped group .*arithmetic.* nor a module"),
        (f"{__name__}:third", "third"),
        (f"{__name__}:pytest", "is not a tool: decorate it with @tool, or subclass Tool"),
        (f"{__name__}:nothing", "is not a tool, toolbox or list of tools"),
        ("json", "there is no tool in json; decorate functions with @tool"),
        ("nobody.py", "there is no file 'nobody.py'"),
    ],
)
def test_what_names_no_tool(ref: str, words: str) -> None:
    with pytest.raises(GraphUnknown, match=words):
        tools_from_ref(ref)
