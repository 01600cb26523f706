"""LangGraph with its beta `DeltaChannel`."""

from tests.benchmarks.subjects.langgraph import DELTA as WORKLOADS

__all__ = ["WORKLOADS"]
