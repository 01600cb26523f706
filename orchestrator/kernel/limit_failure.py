"""A spent limit as a failure: the error of an exhausted run, and `ctx.error` behind an exhausted edge.

Steps are counted and refused in `kernel.admission`; `seconds` run out in `executor.drive`.
"""

from __future__ import annotations

from orchestrator.graph.limits import Limits
from orchestrator.kernel.records import Failure

SPENT = "LimitSpent"
"""`type` of such a failure."""


def limit_failure(graph: str, limits: Limits, limit: str, node: str, path: str) -> Failure:
    """The failure that stands for a spent limit of a graph.

    Args:
        graph: its name.
        limits: its limits.
        limit: a field of `Limits`, or `nested` for an unnamed limit of the graph inside the node.
        node: the node that was refused, if any.
        path: the graph's path in the run.
    """
    if limit == "nested":
        words = f"a limit of the graph inside {node!r} is spent"
    elif limit == "visits":
        words = f"visits={limits.visits.get(node, 1)} of node {node!r} are spent"
    else:
        words = f"{limit}={_number(getattr(limits, limit, None))} are spent"
    if limit not in ("nested", "visits") and node:
        words += f" before {node!r}"
    return Failure(type=SPENT, message=f"{words} in graph {graph!r}", node=node, path=path)


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
