"""The example in docs/replay.md does what the page says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "replay.md").read_text(encoding="utf-8")


@pytest.mark.anyio
async def test_the_example_replays_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = re.findall(r"```python\n(.*?)```", PAGE, re.S)[0]
    compiled = compile(code, "replay.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    await eval(compiled, {"__name__": "page"})
    said = capsys.readouterr().out
    assert "-Write about tea" in said
    assert "+Tell me about tea" in said
