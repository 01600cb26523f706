"""Names that replays use in records, and for models."""

from __future__ import annotations

REPLAYED = "replay"
"""Who gave the answers, and made the cancels, of a replay itself."""
ABSENT = "absent"
"""Name of what stands for a model that a replay was not given."""
DEFAULT = "default"
"""Name of the model of nodes that name none, where models of a replay are given."""
