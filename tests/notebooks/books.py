"""The notebooks in `notebooks/`, executed, with outputs that are equal each time and that GitHub shows.

GitHub puts an SVG into its page without the style sheet, which leaves black boxes; so stored pictures are PNG. How
long things took is left out. A picture's `shape` says what is drawn, wherever it is and whichever font it has.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client import KernelManager
from nbclient import NotebookClient

from orchestrator.render.png import painted
from tests.notebooks.palette import indexed
from tests.render.pictures import shape, untimed

FOLDER = Path(__file__).parents[2] / "notebooks"
COMMAND = "python -m tests.notebooks"
MOST_BYTES = 500_000
"""Bytes of a notebook with its outputs: GitHub shows large ones late or not at all."""
_SVG, _PNG, _HTML, _TEXT = "image/svg+xml", "image/png", "text/html", "text/plain"
_DOTS = 144
"""Per inch; a page shows 96, and screens have more."""
_EMBEDDED = re.compile(r'src="data:image/svg\+xml;base64,([^"]*)"')
_PICTURES = re.compile(
    r"<style>.*?</style>|<iframe .*?</iframe>|<figure>.*?</figure>|<div [^>]*>|</div>|<img [^>]*>", re.DOTALL
)
"""What previews leave out of HTML, or may."""
_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_TOOK = re.compile(r"(?: #183;)? \d+(?:(?:\.|#46;)\d+)? (?:ms|s|min|h)(?=[\s\"]|$)")
_SECONDS = re.compile(r"(?<= )\d+\.\d\d$", re.MULTILINE)
_SECONDS_CELL = re.compile(r"<td>\d+\.\d\d</td></tr>")


def paths() -> list[Path]:
    """The notebooks, in their order."""
    return sorted(FOLDER.glob("*.ipynb"))


@contextmanager
def kernel(place: Path = FOLDER) -> Iterator[KernelManager]:
    """A kernel for notebooks, one after the other. It sees no settings of this machine."""
    manager = KernelManager()
    hidden = ("OPENAI_", "ORCHESTRATOR_")
    seen = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    manager.start_kernel(cwd=str(place), env=seen)
    try:
        yield manager
    finally:
        manager.shutdown_kernel(now=True)


def executed(path: Path, manager: KernelManager, *, paint: bool = False) -> nbformat.NotebookNode:
    """The notebook with the outputs that its cells have now.

    Args:
        path: the file.
        manager: runs it.
        paint: fill in the pictures, and not only what they show.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell raised an error.
    """
    book = nbformat.read(path, as_version=4)
    book.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))  # no name of the one before is known
    resources = {"metadata": {"path": str(FOLDER)}}
    client = NotebookClient(book, km=manager, timeout=120, resources=resources, record_timing=False)
    try:
        client.execute()
    finally:
        client.kc.stop_channels()
    del book.cells[0]
    return _settled(book, paint)


def stored(path: Path) -> nbformat.NotebookNode:
    """The notebook as it is kept."""
    return nbformat.read(path, as_version=4)


def write(book: nbformat.NotebookNode, path: Path) -> None:
    """Keep a notebook."""
    path.write_text(nbformat.writes(book).rstrip("\n") + "\n", encoding="utf-8")


def sources(book: nbformat.NotebookNode) -> str:
    """A digest of the code in a notebook: where it differs from the one kept in it, its outputs are of other code."""
    return _digest([cell.source for cell in book.cells if cell.cell_type == "code"])


def said(book: nbformat.NotebookNode) -> list[list[dict[str, Any]]]:
    """The outputs of each cell without the bytes of pictures, which depend on fonts and on Graphviz."""
    return [[_comparable(output) for output in cell.get("outputs", ())] for cell in book.cells]


def _comparable(output: nbformat.NotebookNode) -> dict[str, Any]:
    if "data" not in output:
        return dict(output)
    data = {name: text for name, text in output.data.items() if name != _PNG}
    return {"type": output.output_type, "data": data, "shape": output.metadata.get("shape")}


def _settled(book: nbformat.NotebookNode, paint: bool) -> nbformat.NotebookNode:
    book.metadata = nbformat.from_dict({
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "sources": sources(book),
    })  # fmt: skip
    number = 0
    for cell in book.cells:
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type != "code":
            continue
        number += 1
        cell.execution_count = number
        cell.outputs = [one for output in _joined(cell.outputs) for one in _kept(output, number, paint)]
    return book


def _joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Texts of one stream as one: how they were cut depends on when they came."""
    found: list[nbformat.NotebookNode] = []
    for output in outputs:
        if found and output.output_type == "stream" == found[-1].output_type and output.name == found[-1].name:
            found[-1].text += output.text
        else:
            found.append(output)
    return found


def _kept(output: nbformat.NotebookNode, number: int, paint: bool) -> Iterator[nbformat.NotebookNode]:
    """Texts without times, and a PNG for each picture: pictures inside of HTML may be left out."""
    if output.output_type == "stream":
        output.text = _timeless(output.text)
    if "execution_count" in output:
        output.execution_count = number
    if "data" not in output:
        yield output
        return
    data = output.data
    output.data = nbformat.from_dict({name: _timeless(data[name]) for name in (_TEXT, "text/markdown") if name in data})
    output.metadata = nbformat.from_dict({})
    svgs = [data[_SVG]] if _SVG in data else [b64decode(one).decode() for one in _EMBEDDED.findall(data.get(_HTML, ""))]
    table = _PICTURES.sub("", data.get(_HTML, ""))
    if "<table" in table or not svgs:
        if table:
            output.data = nbformat.from_dict({_HTML: _SECONDS_CELL.sub("<td>…</td></tr>", table), **output.data})
        yield output
    else:
        yield _with_picture(output, svgs.pop(0), paint)
    for svg in svgs:
        yield _with_picture(nbformat.v4.new_output("display_data", data={_TEXT: _label(svg)}), svg, paint)


def _with_picture(output: nbformat.NotebookNode, svg: str, paint: bool) -> nbformat.NotebookNode:
    """The same output with a picture; its metadata say how large it is, and what it shows."""
    svg = untimed(svg)
    width, height = (round(float(one)) for one in _SIZE.findall(svg)[0])
    png = b64encode(indexed(painted(svg, dpi=_DOTS))).decode() if paint else ""
    output.data = nbformat.from_dict({_PNG: png, **output.data})
    output.metadata = nbformat.from_dict({_PNG: {"width": width, "height": height}, "shape": _digest(_parts(svg))})
    return output


def _parts(svg: str) -> list[object]:
    """Nodes, edges and texts, each with its state; in no order, and without the shapes that they are made of."""
    return sorted(([sorted(said.items()), text] for _, said, text in shape(svg) if said or text), key=str)


def _label(svg: str) -> str:
    return re.findall(r' aria-label="([^"]*)"', svg)[0]


def _timeless(text: str) -> str:
    text = _TOOK.sub("", text)
    if any(line.endswith(" seconds") for line in text.splitlines()):
        text = _SECONDS.sub(lambda one: "…".rjust(len(one[0])), text)
    return text


def _digest(value: object) -> str:
    return sha256(json.dumps(value, ensure_ascii=False, default=str).encode()).hexdigest()[:16]
