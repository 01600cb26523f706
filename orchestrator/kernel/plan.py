"""A graph as the kernel needs it: shape, schema, limits, and the plans of its subgraphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.graph.edges import Edge
from orchestrator.graph.limits import Limits
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.state import StateSchema
from orchestrator.graph.topology import NodeShape, Topology


@dataclass(eq=False)
class Plan:
    """The part of a graph that the kernel uses. All runs of the graph share it, and it never changes."""

    name: str
    nodes: Mapping[str, NodeShape]
    edges: Sequence[Edge]
    schema: StateSchema
    limits: Limits = field(default_factory=Limits)
    output: object = None
    sub: Mapping[str, Plan] = field(default_factory=dict)
    graph: GraphDefinition | None = None
    topology: Topology = None  # type: ignore[assignment]  # made below when it is not given
    local: frozenset[str] = frozenset()
    pooled: Mapping[str, str] = field(default_factory=dict)
    """Node -> the pool that it names."""
    pools: Mapping[str, int | None] = field(default_factory=dict)
    """Pool -> its size, the smallest that this graph and those inside declare; None for any number."""
    later: Mapping[str, Plan] = field(default_factory=dict)
    """Content digest -> plan of a version of the graph that a run of this one may migrate to."""

    def __post_init__(self) -> None:
        if self.topology is None:
            self.topology = Topology(self.nodes, self.edges)
        sizes = dict(self.pools)
        for inner in self.sub.values():
            for name, size in inner.pools.items():
                known = sizes.get(name)
                sizes[name] = size if known is None else known if size is None else min(known, size)
        self.pools = sizes
        self.local = frozenset(name for name, entry in self.schema.fields.items() if entry.local)

    def __deepcopy__(self, memo: object) -> Plan:
        return self

    def followed_by(self, later: Mapping[str, Plan]) -> Plan:
        """Return the plan for folding a run from its first record on, when migrations have changed its graph.

        Args:
            later: content digest -> plan of each graph that the run migrated to, or may migrate to.
        """
        return replace(self, later={**self.later, **later}) if later else self

    @classmethod
    def of(cls, graph: GraphDefinition) -> Plan:
        """Return the plan of a graph, made once per graph object."""
        known = vars(graph).get("_plan")
        if isinstance(known, cls):
            return known
        plan = cls(
            name=graph.name,
            nodes={name: NodeShape(node.outcomes, node.join, node.rest) for name, node in graph.nodes.items()},
            edges=graph.edges,
            schema=graph.schema,
            limits=graph.limits,
            output=graph.output,
            sub={name: cls.of(node.subgraph) for name, node in graph.nodes.items() if node.subgraph is not None},
            pooled={name: node.pool for name, node in graph.nodes.items() if node.pool is not None},
            pools=graph.pools,
            graph=graph,
            topology=graph.topology,
        )
        vars(graph)["_plan"] = plan
        return plan
