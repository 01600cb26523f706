"""What the page on tools says, run from its beginning to its end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tools.md").read_text()


def test_the_examples_run_one_after_the_other() -> None:
    made: dict[str, Any] = {"__name__": "page"}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert len(blocks) >= 5
    for block in blocks:
        exec(compile(block, "docs/tools.md", "exec", dont_inherit=True), made)  # the project's own page


def test_its_links_lead_somewhere() -> None:
    for name in re.findall(r"\]\(([\w/-]+\.md)", PAGE):
        assert (ROOT / "docs" / name).is_file(), name
