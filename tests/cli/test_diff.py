"""`orchestrator diff`."""

from __future__ import annotations

import pytest

from tests.support.shell import Shell


@pytest.mark.full
def test_a_diff_as_text_as_json_and_as_a_page(shell: Shell) -> None:
    results = shell.all(
        ("run", "tool_user", "What is 2+3?", "--approve", "none", "--run-id", "one"),
        ("run", "tool_user", "What is 2+3?", "--approve", "none", "--run-id", "two"),
        ("run", "tool_user", "What is 2+4?", "--approve", "none", "--run-id", "three"),
        ("diff", "one", "two"),
        ("diff", "one", "three", "--json"),
        ("diff", "one", "three", "--page", "both.html"),
        ("diff", "one", "nothing"),
        ("diff", "nothing", "one"),
    )
    same, other, page, *unknown = results[3:]
    assert same.code == 0
    assert "Both took the same steps" in same.out
    assert other.code == 0
    assert other.json["same"] is False
    assert other.json["differences"][0]["kind"] == "state"
    assert page.code == 0
    assert "wrote both.html" in page.err
    text = (shell.place / "both.html").read_text()
    assert "<html" in text
    assert "three" in text
    assert [one.code for one in unknown] == [4, 4]
