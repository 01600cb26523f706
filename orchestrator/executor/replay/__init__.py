"""Replays: a new run that takes its results from the journal of another one.

    running        results of the replayed run that are not taken yet, and which steps are live
    steps          a call takes the recorded result, waits, or is live; questions get the recorded answers
    attach         reads the recording when a replay is about to be driven
    start_replay   starts one or many replays, and compares them with the replayed runs

The first three are imported only while a replay runs.
"""

from __future__ import annotations

REPLAYED = "replay"
"""Author of the answers that a replay takes from the replayed run, and of its own cancellations."""
ABSENT = "absent"
"""Name of the stand-in for a model that a replay was not given."""
DEFAULT = "default"
"""Name of the model of nodes that name none, if a replay is given models."""
