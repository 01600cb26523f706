"""What docs/caching.md shows is what happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator import Executor
from tests.contract.test_readme import awaited, blocks

LOOK, REMOVAL = blocks("docs/caching.md")

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


async def test_the_second_run_has_the_result_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = LOOK.replace("anyio.run(main)", "await main()")
    assert code != LOOK
    await awaited(code, {"__name__": "page"})
    assert capsys.readouterr().out.splitlines() == ["searching", "about tea [False]", "about tea [True]"]
    async with Executor("sqlite:///runs.db") as executor:
        assert len(await executor.cache.list()) == 1
        await awaited(REMOVAL, {"executor": executor})
        assert await executor.cache.list() == []
