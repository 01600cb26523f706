"""What the code does is what is frozen. `python -m tests.frozen` prints the differences."""

from __future__ import annotations

import pytest

from tests.frozen.drawings import graphviz
from tests.frozen.index import TEXTS, made
from tests.frozen.texts import differences, kept

LONG = frozenset({"journals-generated", "journals-rules", "terminal", "stores", "drawings", "layouts", "pages"})
"""Texts that take seconds."""
SECOND = frozenset({"journals-contract", "journals-strategies", "live", "checks"})
"""Texts that take a second or more."""


MARKS = {**dict.fromkeys(LONG, pytest.mark.storm), **dict.fromkeys(SECOND, pytest.mark.full)}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in TEXTS])
def test_what_is_done_is_what_is_frozen(name: str) -> None:
    if name == "layouts" and graphviz() not in kept(name):
        return  # another Graphviz lays out otherwise
    assert "\n".join(differences(name, made(name))) == ""
