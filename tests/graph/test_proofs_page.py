"""docs/proofs.md: its example is refuted as the page says, and drawn as it shows."""

from __future__ import annotations

from orchestrator.cli.graph_commands import report_text
from tests.graphs.pictures import PLACE
from tests.render.pictures import shape
from tests.render.proved import block, broken, cleaning, witness


def test_the_example_is_refuted_as_the_page_says() -> None:
    graph = cleaning()
    assert report_text(graph.name, graph.check(prove=True), ()) == block("text").rstrip("\n")


def test_the_picture_is_the_witness_of_the_example() -> None:
    assert [proof.about for proof in broken()] == ["confirmed"]
    kept = (PLACE / "witness.svg").read_text(encoding="utf-8")
    assert shape(kept) == shape(witness()), "redraw: python -m tests.graphs.pictures"
