"""Every law of the kernel on many generated graphs."""

from __future__ import annotations

import pytest

# Laws are declared where their rules are tested. All of them are here in every process, whatever it imported before.
from . import test_events, test_forks_of_runs, test_laws, test_pools, test_reopening
from .test_laws import LAWS

DECLARED = (test_laws, test_events, test_forks_of_runs, test_pools, test_reopening)


def test_each_module_declares_laws() -> None:
    homes = {law.__module__ for law in LAWS.values()}
    assert homes == {module.__name__ for module in DECLARED}


@pytest.mark.storm
@pytest.mark.parametrize("law", sorted(LAWS))
def test_a_storm_of_each_law(law: str, scale: int) -> None:
    """`--storm-scale N`: N times 30 graphs for each law."""
    LAWS[law](30 * scale)
