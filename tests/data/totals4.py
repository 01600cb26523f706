"""The store in `totals4.db.gz`: a file of schema version 4, with a row for each part of what a run spent.

The version before wrote it: five runs of a ReAct agent (two wait for an approval, one called a tool that failed), one
that failed, and one of each of two plain graphs. Of these `asks` waits, and has no totals and no questions, as a
migration of a still earlier file left such runs. `totals4.json` has what that version said of it: sums in groups, the
totals of each run, and the runs with failed tools.
"""

from __future__ import annotations

from pathlib import Path

STORE = Path(__file__).with_name("totals4.db.gz")
EXPECTED = Path(__file__).with_name("totals4.json")
