"""What docs/memory.md shows is what happens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator import Executor
from tests.contract.test_readme import awaited, blocks

VISITS, ITEMS, SEARCH, MEANING = blocks("docs/memory.md")

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of the page are made in a directory of their own."""
    monkeypatch.chdir(tmp_path)


async def test_a_user_is_greeted_by_the_number_of_the_visit(capsys: pytest.CaptureFixture[str]) -> None:
    code = VISITS.replace("anyio.run(main)", "await main()")
    assert code != VISITS
    for first in (1, 3):
        await awaited(code, {"__name__": "page"})
        lines = [f"Hello ada, this is visit {number}" for number in (first, first + 1)]
        assert capsys.readouterr().out.splitlines() == lines


async def test_items_are_put_read_listed_and_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    async with Executor() as executor:
        await awaited(ITEMS, {"memory": executor.memory})
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("{'text': 'vegan, allergic to nuts'} ")
    assert first.endswith(" None")
    assert rest == ["['code', 'diet']", "[('users', '42')]", "True"]


async def test_words_are_searched_for(capsys: pytest.CaptureFixture[str]) -> None:
    async with Executor() as executor:
        await awaited(SEARCH, {"memory": executor.memory})
    assert capsys.readouterr().out.startswith("[('diet', 0.")


async def test_meaning_is_searched_for() -> None:
    async def embed(texts: list[str]) -> Sequence[Sequence[float]]:
        return [[float("cat" in text or "animal" in text), 1.0] for text in texts]

    names = await awaited(MEANING, {"embed": embed})
    assert [item.key for item in names["found"]] == [item.key for item in names["words"]] == ["pet"]
