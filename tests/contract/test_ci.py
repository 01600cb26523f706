"""What must hold before a change lands runs in parts, here and on the machines of the host of the repository."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RUN = ROOT / ".ci" / "run"
ASKED_FOR = {"full", "release"}
"""Parts that run only if they are named."""
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def parts() -> list[str]:
    """The parts of `.ci/run`."""
    found = re.search(r"^parts=\((.+)\)$", RUN.read_text(), re.M)
    assert found
    return found[1].split()


def workflow(path: Path) -> Any:
    """A workflow as data."""
    return yaml.safe_load(path.read_text())


def test_each_part_is_a_function_and_is_explained() -> None:
    text = RUN.read_text()
    assert [part for part in parts() if not re.search(rf"^{part}\(\) {{$", text, re.M)] == []
    assert re.findall(r"^# (\w+) {2,}\S", text, re.M) == parts()
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert [part for part in parts() if f"`{part}`" not in contributing] == []


def test_a_part_that_is_not_there_is_refused() -> None:
    found = subprocess.run([RUN, "nothing"], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (2, f"no part 'nothing': there are {' '.join(parts())}\n")


def test_all_parts_but_those_that_are_asked_for_run_unless_some_are_named() -> None:
    found = re.search(r"^\[ \$# -gt 0 \] \|\| set -- ([a-z ]+)", RUN.read_text(), re.M)
    assert found
    assert {*found[1].split()} == {*parts()} - ASKED_FOR


def test_the_tests_of_no_part_may_be_skipped() -> None:
    assert re.search(r"^export .*\bNO_SKIPS=1", RUN.read_text(), re.M)


def test_each_part_is_a_job() -> None:
    (job,) = workflow(ROOT / ".github" / "workflows" / "checks.yml")["jobs"].values()
    assert job["strategy"]["matrix"]["part"] == [part for part in parts() if part != "release"]


def test_a_release_checks_every_extra_and_every_python_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = ast.parse((ROOT / ".ci" / "release.py").read_text())
    (uses,) = [
        one.value for one in found.body if isinstance(one, ast.Assign) and getattr(one.targets[0], "id", "") == "USES"
    ]
    modules = ast.literal_eval(uses)
    assert modules.keys() == project["optional-dependencies"].keys() - {"test", "bench", "docs", "dev"}
    for module in modules.values():
        assert importlib.util.find_spec(f"orchestrator.{module}"), module


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_reads_only_and_uses_what_is_pinned(path: Path) -> None:
    found = workflow(path)
    assert found["permissions"] == {"contents": "read"}
    for job in found["jobs"].values():
        assert "permissions" not in job
        used = [step["uses"] for step in job["steps"] if "uses" in step]
        assert [name for name in used if not re.fullmatch(r"actions/(checkout|setup-python)@[0-9a-f]{40}", name)] == []
    assert "secrets" not in path.read_text()
