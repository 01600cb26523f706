"""docs/code_tour.md leads to places that are there, and its program does what the page shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.architecture import LIBRARY

PAGE = (Path(__file__).parents[2] / "docs" / "code_tour.md").read_text(encoding="utf-8")


def test_its_program_prints_the_journal(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    (journal,) = re.findall(r"```text\n(.*?)```", PAGE, re.S)
    (tmp_path / "letter.py").write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, "letter.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert [line.rstrip() for line in done.stdout.splitlines()] == journal.splitlines()


def test_its_eight_stops_are_functions_of_the_files_that_they_name() -> None:
    stops = re.findall(r"^\[`(.+?)`\]\(\.\./orchestrator/(.+?)\), `(\w+)`", PAGE, re.M)
    assert len(stops) == 8
    for shown, file, name in stops:
        assert shown == file
        code = (LIBRARY / file).read_text(encoding="utf-8")
        assert re.search(rf"^ *(async )?def {name}\b", code, flags=re.M), f"no {name} in {file}"


def test_all_places_that_it_names_are_there() -> None:
    named = set(re.findall(r"`([a-z_]+/[\w/]*|[\w/]+\.py)`", PAGE)) - {"docs/kinds/"}
    assert len(named) > 20
    assert [name for name in sorted(named) if not (LIBRARY / name).exists()] == []
