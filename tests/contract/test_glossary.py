"""The glossary has each concept of the public names once, with its code name and one link."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

import orchestrator
from orchestrator.kernel.records import EffectClass
from orchestrator.kernel.status import RunStatus
from orchestrator.tools.result import Risk

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "glossary.md").read_text(encoding="utf-8")
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ") and "| Code |" not in line]
TERMS = [row[0] for row in ROWS]
LINKED = r"\[[^\]]+\]\(([^)]+)\)"
CONCEPTS = (
    "graph", "node", "edge", "outcome", "state", "update", "reducer", "branch", "fork", "join", "map", "item", "run",
    "status", "journal", "record", "event", "snapshot", "effect", "effect ledger", "idempotency key", "activation",
    "attempt", "retry", "question", "answer", "approval", "policy", "confirm", "pause", "interrupt", "cancel", "resume",
    "recover", "lease", "heartbeat", "inbox", "command", "drive", "host", "run log", "store", "seal", "trust", "tool",
    "toolbox", "pool", "model", "middleware", "subgraph", "graph tool", "limits", "reservation", "view", "overlay",
    "trace",
)  # fmt: skip


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the site makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("concept", CONCEPTS)
def test_every_concept_is_a_term(concept: str) -> None:
    assert concept in TERMS


def test_every_term_is_there_once_with_three_cells() -> None:
    assert len(TERMS) == len(set(TERMS))
    assert [row for row in ROWS if len(row) != 3 or "`" not in row[1]] == []


@pytest.mark.parametrize("name", sorted({*orchestrator.__all__} - {"__version__"}))
def test_every_public_name_belongs_to_a_term(name: str) -> None:
    assert any(name in re.findall(r"\w+", row[1]) for row in ROWS)


@pytest.mark.parametrize("word", [*get_args(RunStatus), *get_args(EffectClass), *get_args(Risk)])
def test_every_status_effect_class_and_risk_is_explained(word: str) -> None:
    assert f"`{word}`" in PAGE


@pytest.mark.parametrize("row", ROWS, ids=TERMS)
def test_a_term_is_linked_once_to_a_part_that_exists(row: list[str]) -> None:
    (link,) = re.findall(LINKED, row[2])
    path, _, anchor = link.partition("#")
    page = DOCS / path
    assert page.exists()
    assert not anchor or anchor in anchors(page)
