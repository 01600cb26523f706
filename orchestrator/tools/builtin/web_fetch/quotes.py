"""Where a tag can end, in a page whose quotes may be anything.

To look for the `>` of a tag behind its quoted attributes goes to the end of the page if there is none, and a page can
have such a tag every few letters. But wherever one begins to look, there are only three ways to read the quotes behind:
to be outside of them, in double ones, or in single ones. A quote swaps two of the ways and never makes them one, so all
tags share three readings, and of each it is known after one look at the page where its last `>` is.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left

_MARKS = re.compile("[\"'>]")


class Quotes:
    """The three ways to read the quotes of a page, numbered by where they begin: outside, in `"`, in `'`."""

    def __init__(self, page: str) -> None:
        outside, double, single = 0, 1, 2
        self._at = array("L")
        self._ways = bytearray([outside])
        self._last = [-1, -1, -1]
        """For each way the last `>` that is outside of its quotes."""
        for found in _MARKS.finditer(page):
            mark = found[0]
            if mark == ">":
                self._last[outside] = found.start()
                continue
            if mark == '"':
                outside, double = double, outside
            else:
                outside, single = single, outside
            self._at.append(found.start())
            self._ways.append(outside)

    def has_end(self, at: int) -> bool:
        """Whether a `>` follows outside of quotes, for who begins to read at a place and is outside of them there."""
        return self._last[self._ways[bisect_left(self._at, at)]] >= at
