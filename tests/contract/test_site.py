"""The documentation site has every page, and what CONTRIBUTING.md says of tasks and hooks is true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def pages(nav: object) -> Iterator[str]:
    """The pages that a part of the navigation names."""
    if isinstance(nav, str):
        yield nav
    for part in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from pages(part)


def test_the_navigation_names_every_page() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    docs = ROOT / "docs"
    there = {str(path.relative_to(docs)) for path in docs.rglob("*.md") if path.parent.name != "decisions"}
    named = list(pages(site["nav"]))
    assert set(named) == there
    assert len(named) == len(there), "each page has one place"


def test_the_front_page_leads_to_every_guide() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    parts = {name: list(pages(part)) for entry in site["nav"] for name, part in entry.items()}
    assert list(parts) == ["Home", "Tutorial", "How-to guides", "Explanation", "Reference"]
    front = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([\w/-]+\.md)\)", front))
    assert {*parts["Tutorial"], *parts["How-to guides"]} - linked == set()


def test_the_tasks_are_those_of_the_noxfile() -> None:
    sessions = re.findall(r"^@nox\.session.*\ndef (\w+)", (ROOT / "noxfile.py").read_text(encoding="utf-8"), re.M)
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`nox -s (\w+)", table))
    assert named | {"types"} == set(sessions)  # `nox` alone runs lint, types and tests


def test_hooks_download_nothing() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert {repository["repo"] for repository in hooks["repos"]} == {"local"}
    assert {hook["language"] for repository in hooks["repos"] for hook in repository["hooks"]} == {"system"}


def test_rows_of_tables_have_all_their_cells_and_closed_code() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
        for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
            rows = [re.split(r"(?<!\\)\|", row.strip())[1:-1] for row in table.splitlines()]
            for cells in rows:
                assert len(cells) == len(rows[0]), (page.name, cells)
                assert all(cell.count("`") % 2 == 0 for cell in cells), (page.name, cells)
