"""Statistics of an evaluation: intervals, paired differences and agreement. Plain numbers in, plain numbers out."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import NamedTuple

_Z95 = 1.959963984540054
"""The 97.5 % quantile of the standard normal distribution."""
_DRAWS = 2_000_000
"""Draws of one bootstrap at most, which bounds its time."""
_FEWEST, _MOST = 200, 2000
"""Fewest and most resamples of a bootstrap."""


class Interval(NamedTuple):
    """An interval by its ends."""

    low: float
    high: float


def wilson(successes: float, trials: int, z: float = _Z95) -> Interval:
    """Return the score interval of a proportion.

    Unlike the normal approximation it stays within [0, 1], and is useful for few trials and for proportions near 0 or 1
    (Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22, 1927; recommended by
    Brown, Cai and DasGupta, "Interval estimation for a binomial proportion", Statistical Science 16, 2001).

    Args:
        successes: number of successes; a sum of shares is allowed.
        trials: number of trials.
        z: quantile of the standard normal distribution; the default gives 95 %.

    Returns:
        The interval; (0, 1) without trials.
    """
    if not trials:
        return Interval(0.0, 1.0)
    share, spread = successes / trials, z * z / trials
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / trials + spread / (4 * trials))
    return Interval(max(0.0, centre - half), min(1.0, centre + half))


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the two-sided p-value of McNemar's exact test: do two variants differ in how many rows are right?

    Rows on which both agree say nothing about a difference. Of the others, each variant wins half if there is none
    (McNemar, Psychometrika 12, 1947; the exact form is a binomial test, see Fagerland, Lydersen and Laake, BMC Medical
    Research Methodology 13:91, 2013).

    Args:
        only_first: rows that only the first variant has right.
        only_second: rows that only the second variant has right.
    """
    trials = only_first + only_second
    tail = 0
    term = 1
    for k in range(min(only_first, only_second) + 1):
        tail += term
        term = term * (trials - k) // (k + 1)
    # Integers as long as possible: 2 ** trials is no float for many rows.
    return min(1.0, float(2 * tail / 2**trials))


def bootstrap(differences: Sequence[float], seed: int = 0) -> Interval:
    """Return the 95 % percentile interval of a mean of paired differences.

    Rows are drawn with replacement (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13): 2,000
    samples, fewer for more than 1,000 rows, 200 at least. The same seed gives the same interval.

    Args:
        differences: for each row, the score of one variant minus that of the other.
        seed: seed of the draws.

    Returns:
        The interval; (0, 0) without rows.
    """
    count = len(differences)
    if not count:
        return Interval(0.0, 0.0)
    chance = random.Random(seed)
    samples = min(_MOST, max(_FEWEST, _DRAWS // count))
    means = sorted(math.fsum(chance.choices(differences, k=count)) / count for _ in range(samples))
    return Interval(quantile(means, 0.025), quantile(means, 0.975))


def kappa(pairs: Sequence[tuple[bool, bool]]) -> float | None:
    """Return Cohen's kappa: the agreement of two raters beyond chance, 1 for full agreement, 0 for that of chance.

    From Cohen, "A coefficient of agreement for nominal scales", Educational and Psychological Measurement 20, 1960.

    Args:
        pairs: the two verdicts on each case.

    Returns:
        The coefficient; None if there are no cases, or if both raters gave one and the same verdict to all of them.
    """
    count = len(pairs)
    if not count:
        return None
    observed = sum(one == other for one, other in pairs) / count
    first, second = (sum(pair[rater] for pair in pairs) / count for rater in (0, 1))
    chance = first * second + (1 - first) * (1 - second)
    return None if chance == 1 else (observed - chance) / (1 - chance)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values, interpolated linearly (type 7 of Hyndman and Fan, 1996); 0 without values."""
    if not ordered:
        return 0.0
    place = (len(ordered) - 1) * share
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
