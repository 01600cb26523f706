"""Decision records are numbered, dated, complete and listed in docs/design.md."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
RECORDS = sorted((DOCS / "decisions").glob("*.md"))
INDEX = (DOCS / "design.md").read_text(encoding="utf-8")


def test_numbers_have_no_gap() -> None:
    assert [path.name[:4] for path in RECORDS] == [f"{number:04}" for number in range(1, len(RECORDS) + 1)]


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
