"""LangGraph with its beta `DeltaChannel`."""

from tests.benchmarks.subjects.langgraph import DELTA as WORKLOADS
from tests.benchmarks.subjects.langgraph import DELTA_PREPARED as PREPARED

__all__ = ["PREPARED", "WORKLOADS"]
