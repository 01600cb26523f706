"""Every promise in docs/promises.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PROOF = re.compile(r"\[`(test_\w+)`\]\(([^)]+)\)")


def rows() -> list[str]:
    lines = (DOCS / "promises.md").read_text().splitlines()
    return [line for line in lines if line.startswith("| ") and not line.startswith("| moment")]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.split("|")[1].strip()[:60])
def test_a_promise_names_tests_that_exist(row: str) -> None:
    proofs = PROOF.findall(row.split("|")[3])
    assert proofs, "no test is named"
    assert row.split("|")[3].count("[`") == len(proofs)
    for name, path in proofs:
        text = (DOCS / path).read_text()
        assert re.search(rf"^(async )?def {name}\(", text, re.M), f"{path} has no {name}"


def test_all_parts_are_there() -> None:
    assert len(rows()) > 30
