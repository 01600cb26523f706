"""A spent limit in words: what a run that is exhausted says of itself, and what `ctx.error` is behind it."""

from __future__ import annotations

from orchestrator.graph.limits import Limits
from orchestrator.kernel.records import Failure

SPENT = "LimitSpent"
"""`type` of the failure that stands for a spent limit."""


def limit_failure(graph: str, limits: Limits, limit: str, node: str, path: str) -> Failure:
    """A spent limit of a graph as a failure.

    Args:
        limit: a field of `Limits`, or `nested` for one of a graph inside of the node that says no more.
        node: the node that was refused, if one was.
        path: where the graph is in the run.
    """
    if limit == "nested":
        words = f"a limit of the graph inside {node!r} is spent"
    elif limit == "visits":
        words = f"visits of {node!r}={limits.visits.get(node, 1)} are spent"
    else:
        words = f"{limit}={_number(getattr(limits, limit, None))} are spent"
    if limit not in ("nested", "visits") and node:
        words += f" before {node!r}"
    return Failure(type=SPENT, message=f"{words} in graph {graph!r}", node=node, path=path)


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
