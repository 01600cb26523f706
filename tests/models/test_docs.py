"""What the page on models says, run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator import OpenAIModel
from orchestrator.models import Profile
from orchestrator.models.profile import profile_of

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@pytest.mark.parametrize("code", BLOCKS)
def test_each_example_runs(code: str) -> None:
    made: dict[str, object] = {}
    exec(code, made)  # the project's own page
    assert any(isinstance(value, OpenAIModel) for value in made.values()) or "executor" in made


def test_the_table_of_flags_is_the_profile() -> None:
    rows = dict(re.findall(r"^\| `(\w+)`:? [^|]*\| ([^|]*) \|", PAGE, re.M) or [])
    named = set(re.findall(r"^\| `(\w+)`", PAGE, re.M))
    assert named >= set(Profile.model_fields)
    assert rows["system_role"] == "`system`"
    ours = profile_of("gpt-4o", None)
    assert (ours.strict_tools, ours.parallel_calls, ours.max_tokens) == (True, True, "max_completion_tokens")
