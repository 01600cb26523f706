"""C4: nodes to which a message interrupts a graph stand outside of all forks."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.graph.definition import GraphDefinition
from orchestrator.problem import Problem


def interrupt_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Nodes with `on_busy="interrupt"` inside a fork: all branches are merged there, so no fork can be open.

    Wants a shape that checked out.
    """
    topology = graph.topology
    for name, node in graph.nodes.items():
        if getattr(node, "on_busy", None) != "interrupt":
            continue
        for fork, fans in topology.fans.items():
            closing = [join for join in topology.joins_of(fork) if topology.closes[join]]
            starts = [target for fan in fans for target in fan.targets]
            if name not in topology.reachable(starts, (fork, *closing)) or name in closing:
                continue
            mend = "let it stand behind the fork's join, or set on_busy='queue'"
            yield Problem(
                "C4", f"{name} interrupts its graph (on_busy='interrupt') inside fork {fork}: {mend}", (name,)
            )
            break
