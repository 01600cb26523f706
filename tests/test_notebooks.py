"""The notebooks run, from the first cell to the last."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client import KernelManager
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelManager]:
    """One for all of them: to begin one costs more than to run a notebook."""
    manager = KernelManager()
    manager.start_kernel(cwd=str(FOLDER))
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.full] * bool(number), id=path.stem)
        for number, path in enumerate(sorted(FOLDER.glob("*.ipynb")))
    ],
)
def test_notebook_runs(path: Path, kernel: KernelManager) -> None:
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))  # no name of the one before is known
    client = NotebookClient(notebook, km=kernel, timeout=120, resources={"metadata": {"path": str(FOLDER)}})
    try:
        client.execute()
    finally:
        client.kc.stop_channels()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ()) if "data" in output]
    assert any("image/svg+xml" in output["data"] for output in shown)
