"""Checks of nodes: kinds, graphs inside them, pools, interrupts, caches and failures."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator, Mapping
from functools import cache

from orchestrator import errors
from orchestrator.errors import Problem
from orchestrator.graph.checks.edges import listed, mend_name
from orchestrator.graph.function import Undigestible, node_code_digest
from orchestrator.graph.model import ITEM, GraphDefinition, Node
from orchestrator.graph.names import RULE, is_name
from orchestrator.graph.reading import UnresolvedNode
from orchestrator.graph.topology import ANY, DONE, END, IF_NAMED, START, STOP

# -- C1: what kinds of nodes check themselves ------------------------------------------------------------------


def kind_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """The faults that nodes find in themselves, see `Node.problems_in`."""
    for name, node in graph.nodes.items():
        for fault in node.problems_in(name, graph):
            yield Problem("C1.node", fault, (name,))


# -- C1: what goes into a subgraph and comes out of it ---------------------------------------------------------
# A subgraph's `inputs` and `outputs` read like assignments, target first: `inputs` maps fields of the inner state to
# fields of ours, `outputs` fields of ours to fields of the inner state. Ours are ports, and checked as such.


MOST_DEEP = 50
"""How deep graphs may be inside each other, the outermost counted: what is written as JSON has to be read again."""


def nested_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Fields that the inner state does not have, and those of it that nothing fills."""
    for name, node in graph.nodes.items():
        inner = node.subgraph
        if inner is None:
            continue
        if inner.depth >= MOST_DEEP:
            fault = f"the graph inside {name} has graphs nested {inner.depth} deep"
            yield Problem("C1.nested", f"{fault}, and the limit is {MOST_DEEP}: combine some of them", (name,))
            continue
        schema = inner.schema
        inputs, outputs = _mapping(node, "inputs"), _mapping(node, "outputs")
        for what, fields in (("inputs", inputs.keys()), ("outputs", outputs.values())):
            for field in fields:
                if field not in schema.fields:
                    mend = mend_name(str(field), schema.fields, "add the field, or name another")
                    no = f"and state {schema.name} of its graph {inner.name} has no such field"
                    yield Problem("C1.field", f"{what} of {name} name {field!r}, {no}: {mend}", (name,))
        for field in schema.fields:
            if schema.field(field).required and field not in inputs:
                fault = f"{name} gives its graph {inner.name} no {field!r}, which has no default"
                yield Problem("C1.field", f"{fault}: add it to inputs=", (name,))


def mapping_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Fields of ours that a subgraph's `inputs` and `outputs` use although its `reads` and `writes` leave them out."""
    for name, node in graph.nodes.items():
        if node.subgraph is None:
            continue
        used = (
            ("inputs", "reads", (field for field in _mapping(node, "inputs").values() if field != ITEM), node.reads),
            ("outputs", "writes", _mapping(node, "outputs"), node.writes),
        )
        for what, verb, fields, allowed in used:
            for field in fields:
                if allowed is not None and field not in allowed:
                    fault = f"{what} of {name} use {field!r}, which its {verb}= leaves out"
                    yield Problem("C1.field", f"{fault}: add {field!r} to {verb}=", (name,))


def entry_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Outcomes of a subgraph by which END of its graph is never entered, and those that it leaves out."""
    for name, node in graph.nodes.items():
        inner = node.subgraph
        if inner is None or node.outcomes_field is None or not getattr(node, node.outcomes_field):
            continue
        ways = _entries(inner)
        for outcome in node.outcomes:
            if outcome not in ways and outcome != DONE:
                mend = mend_name(outcome, ways, "add an edge to END for it, or leave it out")
                fault = f"{name} declares outcome {outcome!r}, by which END of its graph {inner.name} is never entered"
                yield Problem("C1.outcome", f"{fault}: {mend}", (name,))
        left = [way for way in ways if way not in node.outcomes]
        if left and DONE not in node.outcomes:
            fault = f"END of graph {inner.name} is entered by {listed(left)}, which outcomes= of {name} leaves out"
            yield Problem("C1.outcome", f"{fault}: add it, or 'done' for all others", (name,))


def _entries(graph: GraphDefinition) -> list[str]:
    """The outcomes by which END or STOP of a graph can be entered."""
    topology = graph.topology
    found: dict[str, None] = {}
    for source, node in ((START, None), *graph.nodes.items()):
        for outcome in (DONE,) if node is None else (*node.outcomes, *IF_NAMED):
            if any(route.target in (END, STOP) for route in topology.routes(source, outcome)):
                found[outcome] = None
    return list(found)


def _mapping(node: object, attribute: str) -> Mapping[str, object]:
    found = getattr(node, attribute, None)
    return found if isinstance(found, Mapping) else {}


# -- C1 and C8: names of pools, and steps that would wait for each other's places ------------------------------


def pool_problems(graph: GraphDefinition, *, stored: bool = False) -> Iterator[Problem]:
    """Names of pools that are not known, and pools that could be waited for in a circle."""
    for name in graph.pools:
        if not (stored or is_name(name)):
            yield Problem("C1.name", f"pool name {name!r} is not a valid name: {RULE}")
    for name, node in graph.nodes.items():
        if node.pool is not None and node.pool not in graph.pools:
            mend = mend_name(node.pool, graph.pools, f"add it to the graph: pools={{{node.pool!r}: 1}}")
            yield Problem("C1.name", f"{name} names pool {node.pool!r}, which the graph does not have: {mend}", (name,))
    yield from _circles(graph)


def unnamed_pools(graph: GraphDefinition) -> Iterator[str]:
    """A note on each pool that no node names: it holds nothing back."""
    named = {node.pool for node in graph.nodes.values()}
    for name in graph.pools:
        if name not in named:
            yield f"no node names pool {name!r}: give it to the nodes that share it, pool={name!r}, or remove it"


def _circles(graph: GraphDefinition) -> Iterator[Problem]:
    """C8: a step keeps its place while the graph inside it waits for one, so the pools need an order."""
    waits = dict(_waits(graph, "", ()))
    if not waits:
        return
    import networkx as nx

    graph_of_pools: nx.DiGraph[str] = nx.DiGraph(list(waits))
    for circle in sorted(sorted(part) for part in nx.strongly_connected_components(graph_of_pools)):
        said = [text for pair, text in waits.items() if set(pair) <= set(circle)]
        if said:
            mend = "name pools inside each other in one order, and none inside itself"
            yield Problem("C8", f"{'; '.join(said)}: {mend}")


def _waits(
    graph: GraphDefinition, path: str, held: tuple[tuple[str, str], ...]
) -> Iterator[tuple[tuple[str, str], str]]:
    """Each two pools of which one is held while the other is waited for, and where.

    Args:
        graph: the graph, or one inside it.
        path: where it is.
        held: the pools that the steps around it hold, each with the path of its node.
    """
    for name, node in graph.nodes.items():
        place, pool = f"{path}{name}", node.pool
        for outer, around in held if pool is not None else ():
            assert pool is not None
            yield (outer, pool), f"{place} waits for pool {pool} while {around} holds {outer}"
        if node.subgraph is not None:
            yield from _waits(node.subgraph, f"{place}/", held if pool is None else (*held, (pool, place)))


# -- C4: nodes to which a message interrupts a graph stand outside of all forks --------------------------------


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


# -- C1: results are kept of nodes only whose steps can be left out --------------------------------------------


def cache_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Nodes with `cache=` whose results cannot stand for their steps."""
    for name, node in graph.nodes.items():
        fault = _fault(node) if node.cache is not None else ""
        if fault:
            yield Problem("C1.cache", f"{name} has cache={node.cache:g}, and {fault}", (name,))


def _fault(node: Node) -> str:
    if node.effect == "irreversible":
        return "is irreversible: a result from the cache would leave out what it does; remove cache="
    if node.subgraph is not None:
        return "runs a graph: set cache= on nodes inside it instead"
    if node.asks == "person":
        return "asks a person: an answer counts for one run; remove cache="
    if node.waits:
        return "only waits: remove cache="
    if isinstance(node, UnresolvedNode):
        return ""
    try:
        node_code_digest(node)
    except Undigestible as error:
        return f"its code depends on {error}, which no key can contain: pass it as deps, or set version="
    return ""


# -- C1: edges for time-outs that cannot happen, and retries for errors that do not exist ----------------------


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
