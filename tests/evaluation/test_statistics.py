"""The statistics of an evaluation equal values by hand, and those of scipy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.evaluation.statistics import bootstrap, kappa, mcnemar, quantile, wilson

_KEPT = Path(__file__).with_name("scipy_values.json")
SCIPY: dict[str, dict[str, Any]] = json.loads(_KEPT.read_text())


def _pair(text: str) -> tuple[int, int]:
    first, second = text.split("/")
    return int(first), int(second)


def test_the_interval_of_a_share_by_hand() -> None:
    # 1 of 2 with z = 1: (0.5 + 0.25) / 1.5 = 0.5, half of it sqrt(0.125 + 0.0625) / 1.5
    assert wilson(1, 2, z=1) == pytest.approx((0.5 - 0.1875**0.5 / 1.5, 0.5 + 0.1875**0.5 / 1.5))
    assert wilson(0, 0) == (0, 1)


def test_intervals_and_p_values_are_those_of_scipy() -> None:
    for text, ends in SCIPY["wilson"].items():
        assert wilson(*_pair(text)) == pytest.approx(tuple(ends), abs=1e-12), text
    for text, value in SCIPY["mcnemar"].items():
        assert mcnemar(*_pair(text)) == pytest.approx(value, rel=1e-9), text


def test_the_p_value_of_a_difference_by_hand() -> None:
    assert mcnemar(0, 0) == 1
    assert mcnemar(1, 5) == pytest.approx(2 * (1 + 6) / 64)
    assert mcnemar(5, 1) == mcnemar(1, 5)
    assert mcnemar(30_000, 20_000) == pytest.approx(0, abs=1e-9)  # 2 ** 50,000 is no float


def test_the_bootstrap_is_repeatable_and_covers_the_mean() -> None:
    differences = [1.0] * 30 + [0.0] * 60 + [-1.0] * 10
    low, high = bootstrap(differences, seed=3)
    assert (low, high) == bootstrap(differences, seed=3)
    # The standard error of the mean is sqrt((0.4 - 0.2 ** 2) / 100) = 0.06.
    assert low == pytest.approx(0.2 - 1.96 * 0.06, abs=0.02)
    assert high == pytest.approx(0.2 + 1.96 * 0.06, abs=0.02)
    assert bootstrap([0.5] * 5) == (0.5, 0.5)
    assert bootstrap([]) == (0, 0)


def test_agreement_beyond_chance_by_hand() -> None:
    # Cohen's table of two raters: both yes 20, both no 15, the others 5 and 10: kappa 0.4
    pairs = [(True, True)] * 20 + [(True, False)] * 5 + [(False, True)] * 10 + [(False, False)] * 15
    assert kappa(pairs) == pytest.approx(0.4)
    assert kappa([(True, True), (False, False)]) == 1
    assert kappa([(True, True)] * 3) is None
    assert kappa([]) is None


def test_quantiles_are_interpolated() -> None:
    assert quantile([1, 2, 3, 4], 0.5) == 2.5
    assert quantile([1, 2, 3, 4, 5], 0.95) == pytest.approx(4.8)
    assert (quantile([], 0.5), quantile([7], 0.95)) == (0, 7)


@pytest.mark.full  # the values are kept, and compared above
@pytest.mark.peer
def test_the_kept_values_are_those_that_scipy_gives(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path], check=True)
    subprocess.run([tmp_path / "bin/python", "-m", "pip", "install", "--quiet", "scipy>=1.15"], check=True)
    found = subprocess.run(
        [tmp_path / "bin/python", Path(__file__).with_name("scipy_values.py")], check=True, capture_output=True
    )
    made = json.loads(found.stdout)
    for name, values in SCIPY.items():
        assert made[name].keys() == values.keys()
        for key, value in values.items():
            assert made[name][key] == pytest.approx(value, rel=1e-9), (name, key)
