"""Checks of the shop: `python check_shop.py`."""

import sys

from shop import total

CASES = (([10, 20], 10, 27), ([10, 20], 0, 30))
wrong = [
    f"total({prices}, {discount}) is {total(prices, discount)}, not {right}"
    for prices, discount, right in CASES
    if total(prices, discount) != right
]
print("all is well" if not wrong else "\n".join(wrong))
sys.exit(len(wrong))
