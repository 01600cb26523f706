"""The strategies are `orchestrator.strategies` in a checkout, in a wheel and in an editable install.

Each module is there once, whatever else is called `graphs`, and references in the form `graphs.react:...` name it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import orchestrator.strategies
from orchestrator import Graph
from orchestrator.errors import GraphUnknown, UntrustedCode
from orchestrator.graph.refs import Trust, find, is_ours, module_of_file, ref_of, resolve
from orchestrator.strategies.react import LongReactState, ReactState, react
from tests.support.sizes import sized

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / "graphs").glob("*.py") if path.stem != "__init__")
CANARY = "open('canary', 'a').write(__name__)\nclass ReactState: ...\n"
REACT = """
import sys
from orchestrator.strategies import react
from orchestrator.graph.refs import find, ref_of, resolve
import orchestrator.strategies.react as again

assert react is again and react.ReactState.__module__ == "orchestrator.strategies.react"
for module in ("graphs", "orchestrator.strategies"):
    assert resolve(f"{module}.react:ReactState") is find(f"{module}.react:ReactState") is react.ReactState
assert ref_of(react.ReactState) == "graphs.react:ReactState"
"""
BOTH = """
import graphs, graphs.react
from graphs.chat import chat
import orchestrator.strategies
from orchestrator.strategies import react

assert graphs is orchestrator.strategies and graphs.react is react and graphs.chat is orchestrator.strategies.chat
"""
THEIRS = """
import graphs.react
from orchestrator.graph.refs import find, module_of_file, ref_of, resolve
from orchestrator.graph.refs import is_ours
from orchestrator.strategies import react

assert graphs.react is not react
assert ref_of(graphs.react.ReactState) == "graphs.react:ReactState" and not is_ours("graphs.react")
assert resolve("graphs.react:ReactState") is find("graphs.react:ReactState") is graphs.react.ReactState
assert resolve("orchestrator.strategies.react:ReactState") is react.ReactState
"""
CHECKED = """
from orchestrator import Graph
from orchestrator.strategies import react
from orchestrator.strategies.rewoo import rewoo

built: Graph = react.react(max_steps=3)
other: Graph = rewoo()
react.react(max_step=3)
"""


@dataclass(frozen=True)
class Place:
    """A directory with a folder `graphs` that is not the library's, and a Python that runs there."""

    path: Path
    python: Path = Path(sys.executable)
    env: dict[str, str] = field(default_factory=dict)

    def __call__(self, *words: str | Path) -> str:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.path / "home"), **self.env}
        command = [self.python, *words]
        done = subprocess.run(command, cwd=self.path, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def _fill(place: Path) -> None:
    (place / "graphs").mkdir()
    for name in ("__init__", *NAMES):
        (place / "graphs" / f"{name}.py").write_text(CANARY)


@pytest.fixture
def checkout(tmp_path: Path) -> Place:
    """The repository on the path, as in a checkout."""
    _fill(tmp_path)
    return Place(tmp_path, env={"PYTHONPATH": str(ROOT)})


def _tries(place: Place) -> None:
    """What holds of every installation."""
    ask = ("run", "react", "What is 2+2?", "--store", "memory://", "--approve", "none")
    assert place("-m", "orchestrator", *ask) == "4\n"
    for words in sized([], [["-P", "-c", REACT], ["-c", REACT]]):
        place(*words)
    assert not (place.path / "canary").exists()
    place("-c", sized(f"{REACT}\nimport os\nassert not os.path.exists('canary')\n{THEIRS}", THEIRS))


@pytest.mark.full
def test_a_folder_graphs_shadows_no_strategy_in_a_checkout(checkout: Place) -> None:
    _tries(checkout)


@pytest.mark.full
def test_the_folder_and_the_package_are_the_same_modules(checkout: Place) -> None:
    checkout("-P", "-c", BOTH)


def test_the_package_holds_what_the_folder_holds() -> None:
    assert os.path.samefile(orchestrator.strategies.__path__[0], ROOT / "graphs")
    assert {type(resolve(f"graphs.{name}:graph")) for name in NAMES} == {Graph}
    assert module_of_file(str(ROOT / "graphs" / "react.py")) is orchestrator.strategies.react


def test_graph_files_and_journals_name_strategies_by_their_folder(tmp_path: Path) -> None:
    react().save(tmp_path / "react.yaml")
    text = (tmp_path / "react.yaml").read_text()
    assert "state: graphs.react:LongReactState" in text
    (tmp_path / "new.yaml").write_text(text.replace("graphs.react:", "orchestrator.strategies.react:"))
    for file in ("react.yaml", "new.yaml"):
        loaded = Graph.load(tmp_path / file)
        assert (loaded.state, loaded.content) == (LongReactState, react().content)


def test_references_to_strategies_are_trusted_as_the_librarys_own() -> None:
    assert is_ours("graphs.react")
    assert is_ours("orchestrator.strategies.react")
    assert not is_ours("graphs.mine")
    assert not is_ours("graphs")
    assert Trust().follow("graphs.react:ReactState", "state") is ReactState
    with pytest.raises(UntrustedCode, match=r"graphs\.mine"):
        Trust().follow("graphs.mine:State", "state")


def test_a_reference_to_nothing_says_so() -> None:
    assert find("graphs.react:nothing") is None
    with pytest.raises(GraphUnknown, match="has no 'nothing'"):
        resolve("graphs.react:nothing")
    assert ref_of(react) == "graphs.react:react"


def _environment(folder: Path, *install: str) -> Path:
    """A new environment with this library in it, and the packages that it needs from the running one."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    site = next((folder / "lib").glob("python*")) / "site-packages"
    inherited = [path for path in sys.path if path.endswith("site-packages")]
    (site / "inherited.pth").write_text("\n".join(inherited))
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", *install]
    subprocess.run(pip, check=True, timeout=300)
    return python


@pytest.fixture(scope="module", params=["wheel", "editable"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Each of the two ways to install the library."""
    place = tmp_path_factory.mktemp(request.param)
    _fill(place)
    python = _environment(place / "venv", *(("-e", str(ROOT)) if request.param == "editable" else (str(ROOT),)))
    return Place(place, python)


@pytest.mark.peer
def test_a_folder_graphs_shadows_no_strategy_where_the_library_is_installed(installed: Place) -> None:
    where = Path(installed("-P", "-c", "import orchestrator; print(orchestrator.__file__)").strip())
    assert where.is_relative_to(ROOT) == ("editable" in installed.path.name), where
    _tries(installed)


@pytest.mark.peer
def test_a_wheel_installs_no_package_graphs_and_a_checkout_has_it_as_the_same_modules(installed: Place) -> None:
    found = installed("-P", "-c", "from importlib.util import find_spec; print(find_spec('graphs'))")
    if "wheel" in installed.path.name:
        assert found == "None\n"
    else:
        installed("-P", "-c", BOTH)


@pytest.mark.peer
def test_the_texts_of_errors_are_installed(installed: Place) -> None:
    assert installed("-P", "-m", "orchestrator", "explain", "C2").startswith("C2\n\nBranches meet")


@pytest.mark.peer
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_type_checkers_know_the_strategies(installed: Place, checker: str) -> None:
    file = installed.path / "checked.py"
    file.write_text(CHECKED)
    of = {"mypy": ["--strict", "--python-executable", installed.python], "pyright": ["--pythonpath", installed.python]}
    command = [sys.executable, "-m", checker, *of[checker], file]
    done = subprocess.run(command, cwd=installed.path, capture_output=True, text=True, timeout=300)
    faults = [line for line in done.stdout.splitlines() if "error" in line and "checked.py" in line]
    assert len(faults) == 1, done.stdout + done.stderr
    assert "max_step" in faults[0]
