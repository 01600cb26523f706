"""An app for batches: `orchestrator worker --app tests.engines.batch_program:app`."""

from __future__ import annotations

from orchestrator.executor import App
from orchestrator.models.offline import OfflineModel
from orchestrator.strategies import react, rewoo, tool_user

app = App(graphs=[react.graph, rewoo.graph, tool_user.graph], model=OfflineModel(), tools=["arithmetic"])
"""The last one of them asks before each call."""
