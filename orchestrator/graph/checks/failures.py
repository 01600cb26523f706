"""C1: edges for time-outs that cannot happen, and retries for errors that do not exist."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from functools import cache

from orchestrator import errors
from orchestrator.graph.checks.words import mend_name
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.node import Node
from orchestrator.graph.topology import ANY
from orchestrator.problem import Problem

TIMEOUT = "timeout"


def failure_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """`: timeout` edges of nodes without a time-out, and names in `Retry(on=...)` that match no error."""
    for edge in dict.fromkeys(graph.edges):
        if edge.outcome != TIMEOUT:
            continue
        if edge.source == ANY and not any(can_time_out(node) for node in graph.nodes.values()):
            none = "no node has a timeout: give one timeout=SECONDS, or remove the edge"
            yield Problem("C1.edge", f"edge {edge} is never taken, because {none}", (), (str(edge),))
        elif edge.source in graph.nodes and not can_time_out(graph.nodes[edge.source]):
            field = graph.nodes[edge.source].timed_by
            none = f"{edge.source} has no {field}: give it {field}=SECONDS, or remove the edge"
            yield Problem("C1.edge", f"edge {edge} is never taken, because {none}", (), (str(edge),))
    for name, node in graph.nodes.items():
        for error in node.retry.on if node.retry is not None else ():
            fault = _fault_of(error)
            if fault is not None:
                yield Problem("C1.retry", f"retry of {name} is on {error!r}, {fault}", (name,))


def can_time_out(node: Node) -> bool:
    """Whether a node, or one in the graph inside it, has a time-out."""
    inner = node.subgraph
    timed = getattr(node, node.timed_by, None) is not None
    return timed or (inner is not None and any(can_time_out(one) for one in inner.nodes.values()))


def _fault_of(error: str) -> str | None:
    """What is wrong with the name of an error, where that is certain: a class may be defined later."""
    module, colon, qualname = error.rpartition(":")
    if colon:
        loaded = sys.modules.get(module)
        if loaded is None:
            return None
        found: object = loaded
        for part in qualname.split("."):
            found = getattr(found, part, None)
        if isinstance(found, type) and issubclass(found, BaseException):
            actual = f"{found.__module__}:{found.__qualname__}"
            return None if actual == error else f"which is defined as {actual!r}: write that, or {found.__name__!r}"
        return f"and module {module} has no error class {qualname}: correct the name"
    if not error.isidentifier():
        return "which is not a class name: write 'ClassName' or 'module:ClassName'"
    if error in _known() or _is_loaded(error, BaseException):
        return None
    likely = mend_name(error, _known(), "")
    return f"and no error has this name: {likely}" if likely else None


@cache
def _known() -> frozenset[str]:
    """Names of Python's own errors and of this library's."""
    return frozenset(
        name
        for module in (builtins, errors)
        for name, found in vars(module).items()
        if isinstance(found, type) and issubclass(found, BaseException)
    )


def _is_loaded(name: str, base: type[BaseException]) -> bool:
    seen: set[type] = set()
    ahead = [base]
    while ahead:
        kind = ahead.pop()
        if kind.__name__ == name:
            return True
        if kind not in seen:
            seen.add(kind)
            ahead.extend(type.__subclasses__(kind))
    return False
