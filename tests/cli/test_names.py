"""Names in any script, as the command line takes and shows them."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from tests.support.shell import Shell

APART = unicodedata.normalize("NFD", "größe")


def test_commands_take_such_names(shell: Shell, tmp_path: Path) -> None:
    text = (
        "name: größe\nstate: {fields: {größe: {type: int, default: 1}, seen: {type: str, default: ''}}}\n"
        "nodes: {'दो-नाम': {kind: ask, prompt: '?', answer: seen}}\nedges: START -> दो-नाम -> END\n"
    )
    file = tmp_path / "größe.yaml"
    file.write_text(text)
    assert shell("check", file).code == 0
    assert shell("run", file, "--run-id", "one").code == 3
    assert "one" in shell("runs", "--graph", APART).out
    assert "दो-नाम" in shell("show", "one").out
    assert shell("answer", "one", "x").code == 0
    assert shell("replay", "one", "--set", "größe=5").code in (0, 1)
