"""Decision records are numbered, dated, complete, true of the tree and listed in docs/design.md."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
RECORDS = sorted((DOCS / "decisions").glob("*.md"))
LIBRARY = DOCS.parent / "orchestrator"
INDEX = (DOCS / "design.md").read_text(encoding="utf-8")


def test_each_number_is_that_of_one_record() -> None:
    numbers = [path.name[:4] for path in RECORDS]
    assert len({*numbers}) == len(numbers)


def test_links_have_the_number_of_their_record() -> None:
    link = re.compile(r"\[(?:decision\s+)?(\d+)\]\((?:\.\./)?(?:decisions/)?(\d{4}-[\w-]+\.md)\)")
    links = [found for path in sorted(DOCS.rglob("*.md")) for found in link.findall(path.read_text(encoding="utf-8"))]
    names = {path.name for path in RECORDS}
    assert len(links) > len(RECORDS)
    assert [(number, name) for number, name in links if name not in names or int(number) != int(name[:4])] == []


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_has_a_date_a_context_a_decision_and_what_was_rejected(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    head = re.match(rf"# {path.name[:4]}\. (.+)\n\n(\d{{4}}-\d\d-\d\d) · (.+)\n", text)
    assert head, "begin with the number, the title, the date and the subject"
    dt.date.fromisoformat(head[2])
    parts = re.split(r"^## (.+)\n", text, flags=re.M)[1:]
    assert parts[::2][:3] == ["Context", "Decision", "Rejected"]
    assert all(part.strip() for part in parts[1::2])
    subject = INDEX[INDEX.index(f"**{head[3]}**\n") :].split("\n\n**")[0]
    assert f"- [{path.name[:4]}](decisions/{path.name}) {head[1]}\n" in subject + "\n"


def test_the_index_lists_no_other_record() -> None:
    assert set(re.findall(r"\(decisions/(.+?)\)", INDEX)) == {path.name for path in RECORDS}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_places_that_a_decision_names_are_there(path: Path) -> None:
    decided = path.read_text(encoding="utf-8").split("## Decision\n")[1].split("## Rejected\n")[0]
    named = set(re.findall(r"`((?:[\w.]+/)+(?:\w+\.\w+)?)`", decided))
    roots = (LIBRARY, LIBRARY.parent)
    assert [name for name in sorted(named) if not any((root / name).exists() for root in roots)] == []


def test_the_dozen_to_know_are_where_it_says() -> None:
    rows = re.findall(r"^\| .+? \| \[`(.+?)`\]\(\.\./orchestrator/(.+?)\) `(\w+)` \| \[\d{4}\]", INDEX, flags=re.M)
    assert len(rows) == 12
    for shown, file, name in rows:
        assert shown == file
        code = (LIBRARY / file).read_text(encoding="utf-8")
        assert re.search(rf"^ *(async )?(def|class) {name}\b", code, flags=re.M), f"no {name} in {file}"
