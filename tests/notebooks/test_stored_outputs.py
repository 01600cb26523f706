"""The notebooks run from the first cell to the last, and what is stored in them is what comes out."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_client import KernelManager

from tests.notebooks.books import COMMAND, MOST_BYTES, executed, kernel, paths, said, sources, stored

_OF_A_MACHINE = re.compile(r"/(?:tmp|home|root|Users|dev/shm|private)/|ipykernel|\b0x[0-9a-f]{6,}")
EACH = pytest.mark.parametrize("path", paths(), ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def shared() -> Iterator[KernelManager]:
    """One for all of them: to begin one costs more than to run a notebook."""
    with kernel() as manager:
        yield manager


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.full] * bool(number), id=path.stem) for number, path in enumerate(paths())],
)
def test_the_outputs_are_what_comes_out(path: Path, shared: KernelManager) -> None:
    now, kept = executed(path, shared), stored(path)
    for number, (found, expected) in enumerate(zip(said(now), said(kept), strict=True)):
        assert found == expected, f"cell {number} shows something else; store what it shows: {COMMAND} {path.stem}"


@EACH
def test_the_outputs_belong_to_the_code(path: Path) -> None:
    kept = stored(path)
    assert kept.metadata.get("sources") == sources(kept), (
        f"its code was changed; store its outputs: {COMMAND} {path.stem}"
    )
    counts = [cell.execution_count for cell in kept.cells if cell.cell_type == "code"]
    assert counts == [*range(1, len(counts) + 1)]


@EACH
def test_the_outputs_are_fit_for_a_reader_on_github(path: Path) -> None:
    kept = stored(path)
    assert path.stat().st_size < MOST_BYTES
    pictures = 0
    for cell in kept.cells:
        assert not cell.metadata
        for output in cell.get("outputs", ()):
            assert output.output_type != "error"
            assert output.get("name") != "stderr"
            data = output.get("data", {})
            assert data.keys() <= {"text/plain", "text/markdown", "text/html", "image/png"}
            pictures += "image/png" in data
            texts = [output.get("text", ""), *(text for name, text in data.items() if name != "image/png")]
            for text in texts:
                assert not _OF_A_MACHINE.search(text)
                assert tempfile.gettempdir() not in text
            assert not re.search("<(svg|script|style|img|iframe)", data.get("text/html", "")), (
                "previews leave these out"
            )
    assert pictures >= 2
