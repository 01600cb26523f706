"""Tools of LangChain, pydantic-ai and the OpenAI Agents SDK as tools, with the real packages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.peers import said_by

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    """What the program with these tools says."""
    found: dict[str, Any] = json.loads(said_by("-m", "tests.tools.foreign_program"))
    return found


def test_name_description_and_parameters_are_those_of_the_other_framework(said: dict[str, Any]) -> None:
    about = said["about"]
    assert about["lc_add"] == ["Add two numbers.", "none", ["a", "b"]]
    assert about["pa_add"] == ["Add two numbers.", "dangerous", ["a", "b"]]
    assert about["oa_says"] == ["Say a text.", "dangerous", ["text"]]


def test_calls_give_results_and_failures(said: dict[str, Any]) -> None:
    added, wrong, failed, named, with_deps, upper, usage, oa_added, oa_said = said["results"]
    assert [added[0], with_deps[0], upper[0], oa_added[0], oa_said[0]] == ["3", "deps: 3", "TEA", "3", "deps: hello"]
    assert "'a' must be a whole number" in wrong[1]
    assert "no Rome" in failed[1]
    assert named[0] == "2 16", "the id of the call is its key"
    assert "reads 'usage' of its context" in usage[1]


def test_a_tool_that_only_its_provider_or_framework_can_call_is_refused(said: dict[str, Any]) -> None:
    by_provider, injected = said["refused"]
    assert "WebSearchTool" in by_provider
    assert "none that a provider runs" in by_provider
    assert "'lc_injected' of LangChain has the argument 'state'" in injected
