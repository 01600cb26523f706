"""What docs/testing.md shows is what happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_readme import LONG, awaited, blocks, load

pytestmark = pytest.mark.anyio
PAGE = "docs/testing.md"


async def test_the_scripted_model() -> None:
    essay = load(blocks("README.md")[0], "testing_essay").essay
    code = blocks(PAGE)[0].replace('"long enough"', repr(LONG))
    names = await awaited(code, {"essay": essay})
    assert names["run"].values["drafts"] == ["short", LONG]


def test_the_clock_that_jumps() -> None:
    names = load(blocks(PAGE)[1], "testing_clock")
    assert names.run.output == "a minute later"


async def test_the_crash_kit(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = await awaited(blocks(PAGE)[3] + blocks(PAGE)[4], {"__name__": "testing_page"})
    assert names["report"].stops >= 6
    assert "unknown outcomes asked about" in capsys.readouterr().out
    program = names["shop_program"]()
    assert (await program.pop("graph").run(program.pop("input"), **program)).output == "paid tea"


def test_every_form_is_there() -> None:
    import orchestrator.testing

    page = (Path(__file__).parents[2] / PAGE).read_text()
    forms = ("assert_crash_safe", "assert_kill_safe", "assert_disk_safe")
    for name in (*forms, "STORE_CHECKS", "check_store", "MockClock", "ScriptedModel"):
        assert name in page
        assert getattr(orchestrator.testing, name)
