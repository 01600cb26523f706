"""The parts of docs/patterns.md: the examples, and the table and drawings that are generated from them."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from orchestrator import Graph
from orchestrator.render import to_text

PAGE = Path(__file__).parents[2] / "docs" / "patterns.md"
COMMAND = "python -m tests.patterns"
COUNT = 43
_BEGIN, _END = "<!-- table -->", "<!-- end of the table -->"
_HEADING = re.compile(r"^### (WCP-(\d+) (.+))$", re.M)
_CODE = re.compile(r"```python\n(.*?)```\n", re.S)
_DRAWING = re.compile(r"\n```text\n.*?```\n", re.S)
_VERDICT = re.compile(r"^\*\*(Supported|Partly|Not supported)\*\*,? ((?:`[^`]*`|[^`])*?)[.:](?:\s|$)", re.M | re.S)


@dataclass(frozen=True)
class Pattern:
    """One pattern of the page."""

    number: int
    title: str
    """Number and name."""
    code: str
    verdict: str
    """`Supported`, `Partly` or `Not supported`."""
    by: str
    """The construct."""
    graph: Graph
    names: dict[str, object]
    """All that the example, and those before it, define."""


def parts(text: str) -> list[str]:
    """The page at its patterns; the first part is what comes before them."""
    starts = [found.start() for found in _HEADING.finditer(text)]
    return [text[a:b] for a, b in zip([0, *starts], [*starts, len(text)], strict=True)]


@cache
def patterns() -> dict[int, Pattern]:
    """All patterns of the page by number, in its order. Their code is run, each behind the ones before it."""
    head, *others = parts(PAGE.read_text(encoding="utf-8"))
    module = sys.modules["patterns_page"] = ModuleType("patterns_page")
    code = _CODE.search(head)
    assert code is not None
    _run(code[1], module)
    found: dict[int, Pattern] = {}
    for part in others:
        heading, block, verdict = _HEADING.search(part), _CODE.search(part), _VERDICT.search(part)
        assert heading is not None
        assert block is not None, heading[1]
        assert verdict is not None, heading[1]
        _run(block[1], module)
        number = int(heading[2])
        assert number not in found, heading[1]
        by = " ".join(verdict[2].removeprefix("by ").split())
        names = dict(vars(module))
        found[number] = Pattern(number, heading[3], block[1], verdict[1], by, names["graph"], names)
    return found


def _run(code: str, module: ModuleType) -> None:
    exec(compile(code, str(PAGE), "exec"), vars(module))


def table() -> str:
    """The table of all patterns, by number."""
    rows = ["| WCP | pattern | | by |", "|---|---|---|---|"]
    for number, one in sorted(patterns().items()):
        link = re.sub(r"[^\w\- ]", "", f"wcp-{number} {one.title}").lower().replace(" ", "-")
        rows.append(f"| {number} | [{one.title}](#{link}) | {one.verdict.lower()} | {one.by} |")
    return "\n".join(rows)


def made() -> str:
    """The page with its table and its drawings as they are now."""
    head, *others = parts(PAGE.read_text(encoding="utf-8"))
    before, _, rest = head.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    text = f"{before}{_BEGIN}\n\n{table()}\n\n{_END}{after}"
    for part, one in zip(others, patterns().values(), strict=True):
        drawing = to_text(one.graph).partition("\n")[2]  # without its name
        bare = _DRAWING.sub("", part)
        text += _CODE.sub(lambda found, drawing=drawing: f"{found[0]}\n```text\n{drawing}```\n", bare, count=1)  # type: ignore[misc]
    return text
