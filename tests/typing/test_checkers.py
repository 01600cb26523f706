"""What mypy and pyright, at their strictest, report in a user's program: each mistake, and nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
ROOT = Path(__file__).parents[2]
MOST = 600
"""Seconds that a checker may take."""

pytestmark = pytest.mark.peer

Found = dict[str, dict[int, list[str]]]
"""File -> line -> what a checker says of it."""


def run(folder: Path, *words: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, timeout=MOST,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr or done.stdout
    return done.stdout


def grouped(faults: list[tuple[str, int, str]]) -> Found:
    found: Found = {}
    for file, line, words in faults:
        found.setdefault(Path(file).name, {}).setdefault(line, []).append(words)
    return found


def mypy(folder: Path) -> Found:
    said = run(
        folder,
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "--output=json",
        "--config-file=",
        ".",
        MYPYPATH=str(ROOT),
    )
    faults = [json.loads(line) for line in said.splitlines()]
    return grouped([(one["file"], one["line"], one["message"]) for one in faults if one["severity"] == "error"])


def pyright(folder: Path) -> Found:
    options = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(ROOT)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(options))
    said = run(folder, "pyright", "--outputjson", "--pythonpath", sys.executable)
    faults = json.loads(said)["generalDiagnostics"]
    return grouped([(one["file"], one["range"]["start"]["line"] + 1, one["message"]) for one in faults])


RIGHT = ("right.py", "page.py", "readme.py", "model_0.py", "model_1.py")


def python_in(page: str) -> list[str]:
    """The blocks of Python in a page."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S)


def marked(name: str) -> Mapping[int, str]:
    """Line -> the mistake in it, of those that say `# E: ...`."""
    lines = enumerate((DATA / name).read_text().splitlines(), 1)
    return {number: mark[1] for number, line in lines if (mark := re.search(r"# E: (.+)", line))}


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_each_mistake_is_reported_and_nothing_else(checker: Callable[[Path], Found], tmp_path: Path) -> None:
    for name in ("right.py", "wrong.py"):
        shutil.copy(DATA / name, tmp_path)
    (tmp_path / "page.py").write_text("\n\n".join(python_in("docs/typing.md")))
    (tmp_path / "readme.py").write_text(python_in("README.md")[0])
    for number, model in enumerate(python_in("docs/own_models.md")):
        (tmp_path / f"model_{number}.py").write_text(model)
    found = checker(tmp_path)
    assert {name: found[name] for name in RIGHT if name in found} == {}, "right programs"
    mistakes, seen = marked("wrong.py"), found.get("wrong.py", {})
    assert len(mistakes) > 30
    assert {line: mistakes[line] for line in mistakes.keys() - seen.keys()} == {}, "mistakes that are not reported"
    assert {line: seen[line] for line in seen.keys() - mistakes.keys()} == {}, "lines without a mistake"
