"""The table of docs/evaluation.md is what an evaluation gives."""

from __future__ import annotations

import pytest

from tests.evaluation.table import PAGE, measured, page_with, table


@pytest.mark.full
def test_the_table_of_the_page_is_measured() -> None:
    found = measured()
    assert found.simulated
    assert PAGE.read_text() == page_with(table(found)), "`python -m tests.evaluation` writes it"
