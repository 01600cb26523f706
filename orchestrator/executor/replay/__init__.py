"""Replays: a new run that takes its results from the journal of another one.

recording   what the journal of a run holds for a replay
running     a replay while it runs: what it takes, and which of its steps are live
calls       what a replay does with a call: it takes the recorded result, waits, or is live
steps       steps wait for what stopped them in the replayed run, questions get its answers
start       begins replays, and gives a run that is driven its recording
batch       replays of many runs in the background
"""

from __future__ import annotations

REPLAYED = "replay"
"""Who gave the answers, and made the cancels, of a replay itself."""
ABSENT = "absent"
"""Name of what stands for a model that a replay was not given."""
DEFAULT = "default"
"""Name of the model of nodes that name none, where models of a replay are given."""
