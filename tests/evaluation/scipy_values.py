"""Values of scipy for the statistics of an evaluation: `python -m tests.evaluation.scipy_values`, where scipy is.

They are kept in `scipy_values.json`, so that the tests of every change need no scipy. A test of the tier `peer` makes
them again, in an environment of its own.
"""

from __future__ import annotations

import json

WILSON = ((0, 1), (0, 10), (1, 10), (5, 10), (10, 10), (17, 60), (56, 60), (199, 200), (9000, 10000))
MCNEMAR = ((0, 1), (1, 1), (0, 6), (4, 9), (6, 12), (10, 2), (40, 70), (700, 600))


def main() -> None:
    """Print the values as JSON."""
    from scipy import stats

    wilson = {f"{k}/{n}": [*stats.binomtest(k, n).proportion_ci(method="wilson")] for k, n in WILSON}
    exact = {f"{b}/{c}": float(stats.binomtest(b, b + c).pvalue) for b, c in MCNEMAR}
    print(json.dumps({"wilson": wilson, "mcnemar": exact}, separators=(",", ":")))


if __name__ == "__main__":
    main()
