"""The pictures in the documentation are those that are drawn."""

from __future__ import annotations

import pytest

from tests.render.pictures import FOLDER, pictures, shape

pytestmark = pytest.mark.anyio


async def test_pictures_in_the_documentation_are_what_is_drawn() -> None:
    made = await pictures()
    assert {file.name for file in FOLDER.glob("*.svg")} == set(made), "write them: python -m tests.render.pictures"
    for name, svg in made.items():
        kept = (FOLDER / name).read_text()
        assert shape(kept) == shape(svg), f"{name} is not what is drawn: python -m tests.render.pictures"
