"""What was counted in the graphs of one place, whichever activations they ran inside of."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial


@dataclass(slots=True)
class Tally:
    """Counts that nothing in the kernel depends on: drawings and reports are made of them."""

    visits: defaultdict[str, int] = field(default_factory=partial(defaultdict, int))
    """Node -> admissions."""
    taken: defaultdict[int, int] = field(default_factory=partial(defaultdict, int))
    """Number of an edge -> how often it was taken."""
    busy: defaultdict[str, float] = field(default_factory=partial(defaultdict, float))
    """Node -> seconds its steps took."""
