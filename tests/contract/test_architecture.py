"""docs/architecture.md shows the library as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator._lazy import _ABOVE
from tests.architecture import LIBRARY, MAPS, PICTURES, PURPOSES, by_imports, package
from tests.render.pictures import shape

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")


@pytest.mark.full
@pytest.mark.parametrize("name", MAPS)
def test_a_map_is_of_the_imports_as_they_are(name: str) -> None:
    kept = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
    assert shape(kept) == shape(MAPS[name]()), "draw anew: python -m tests.architecture"
    assert f"](pictures/{name}.svg)" in PAGE


def test_each_package_uses_only_packages_above_it_in_the_table() -> None:
    table = PAGE.split("| package | holds |")[1].split("\n\n")[0]
    order = re.findall(r"^\| `?(\w+)", table, flags=re.M)
    assert set(order) == set(PURPOSES)
    for part, other in by_imports(package).edges:
        assert order.index(other) < order.index(part), f"{part} imports {other}"


def test_the_table_names_every_basic_file_and_the_page_counts_the_ways_up() -> None:
    row = PAGE.split("| basics: ")[1].split(" | ")[0]
    own = {part.lstrip("_") for part in PURPOSES}
    files = {path.stem for path in LIBRARY.glob("*.py")} - own - {"__init__", "__main__", "_lazy"}
    assert set(re.findall(r"`(\w+)`", row)) == files
    assert len(_ABOVE) == 6
    assert "Six conveniences run upward" in PAGE


def test_a_behaviour_is_found_in_three_clicks() -> None:
    rows = re.findall(r"^\| (.+?) \| \[`(.+?)`\]\(\.\./orchestrator/(.+?)\) \| `(\w+)` \|$", PAGE, flags=re.M)
    assert len(rows) >= 25
    assert len(rows) == PAGE.count("](../orchestrator/")
    for what, shown, file, name in rows:
        assert shown == file
        assert len(Path(file).parts) <= 3, what
        code = (LIBRARY / file).read_text(encoding="utf-8")
        assert re.search(rf"^ *(async )?(def|class) {name}\b", code, flags=re.M), f"{what}: no {name} in {file}"
