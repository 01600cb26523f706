"""Checks of single parts of a graph: names, edges, nodes, state fields, and the fields that branches write."""

from __future__ import annotations

import builtins
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations

from orchestrator import errors
from orchestrator.errors import Problem
from orchestrator.graph.edges import Edge
from orchestrator.graph.faults import listed_names, suggest_name
from orchestrator.graph.fields import holds
from orchestrator.graph.function import Undigestible, node_code_digest
from orchestrator.graph.model import ITEM, GraphDefinition, Node
from orchestrator.graph.names import RULE, is_name, look_alikes
from orchestrator.graph.reading import UnresolvedNode
from orchestrator.graph.topology import ANY, DONE, END, IF_NAMED, RESERVED, START, STOP, FanOut, counts

# -- C1: names of the graph, its nodes and their outcomes ------------------------------------------------------


def name_problems(graph: GraphDefinition, *, stored: bool = False) -> Iterator[Problem]:
    """Yield faults in names: those that the arrow text cannot express, or in which they have another meaning.

    Args:
        graph: the graph.
        stored: True if the graph comes from a store: earlier versions had another rule for names.
    """
    if not (stored or is_name(graph.name)):
        yield Problem("C1.name", f"graph name {graph.name!r} is not a valid name: {RULE}")
    if not graph.nodes:
        yield Problem("C1.name", "the graph has no nodes: add one")
    for name in graph.nodes:
        if name in (START, END, STOP, ANY):
            yield Problem("C1.name", f"node name {name!r} has a special meaning in edges: rename the node", (name,))
        elif not (stored or is_name(name)):
            yield Problem("C1.name", f"node name {name!r} is not a valid name: {RULE}", (name,))
    for name, node in graph.nodes.items():
        yield from _outcome_problems(name, node.outcomes, stored=stored)
    for name in graph.limits.visits:
        if name not in graph.nodes:
            fix = suggest_name(name, graph.nodes, "name a node, or remove the limit")
            yield Problem("C1.name", f"limits.visits names {name!r}, which is not a node: {fix}")


def _outcome_problems(name: str, outcomes: tuple[str, ...], *, stored: bool) -> Iterator[Problem]:
    if not outcomes:
        yield Problem("C1.outcome", f"{name} declares no outcome: declare one, such as 'done'", (name,))
    for place, outcome in enumerate(outcomes):
        said = f"{name} declares outcome {outcome!r}"
        if outcome in RESERVED:
            why = "which every node has: remove it; edges can use it anyway"
            yield Problem("C1.outcome", f"{said}, {why}", (name,))
        elif outcome == "each" or not (stored or is_name(outcome)) or outcome in (START, END, STOP):
            yield Problem("C1.outcome", f"{said}, which no edge can name: rename it", (name,))
        elif outcome in outcomes[:place]:
            yield Problem("C1.outcome", f"{said} twice: remove one", (name,))


def look_alike_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Yield names of one kind that look alike because they mix letters of several scripts."""
    ends = [end for edge in graph.edges for end in (edge.source, edge.target)]
    outcomes = [outcome for node in graph.nodes.values() for outcome in node.outcomes]
    labels = [edge.outcome for edge in graph.edges if edge.outcome is not None]
    for what, names in (("nodes", [*graph.nodes, *ends]), ("outcomes", [*outcomes, *labels]), ("pools", graph.pools)):
        for first, name, letter in look_alikes(names):
            alike = f"{what} {first!r} and {name!r} look alike, but the second has a {letter}"
            yield Problem("C1.name", f"{alike}: write them with the same letters, or rename one")


# -- C1: edges connect existing nodes, name declared outcomes, and leave no outcome without an edge ------------


def edge_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Yield faults of single edges, then outcomes that no edge takes, then edges that no outcome takes."""
    for edge in dict.fromkeys(graph.edges):
        yield from _end_problems(graph, edge)
        yield from _label_problems(graph, edge)
    for edge, count in Counter(graph.edges).items():
        if count > 1:
            yield _problem(edge, f"edge {edge} occurs {count} times: keep one")
    if not any(edge.source == START for edge in graph.edges):
        yield Problem("C1.edge", "nothing follows START: add 'START -> NODE'")
    exhausted = [edge for edge in graph.edges if edge.source == ANY and edge.outcome == "exhausted"]
    if len({edge.target for edge in exhausted}) > 1:
        targets = listed_names(edge.target for edge in exhausted)
        yield Problem("C1.edge", f"'* : exhausted' leads to {targets}: it is taken once, so keep one of them")
    yield from _coverage_problems(graph)


def _problem(edge: Edge, message: str) -> Problem:
    return Problem("C1.edge", message, (), (str(edge),))


def _end_problems(graph: GraphDefinition, edge: Edge) -> Iterator[Problem]:
    if edge.source not in graph.nodes and edge.source not in (START, ANY):
        if edge.source in (END, STOP):
            yield _problem(edge, f"edge {edge} starts at {edge.source}, where no edge can start: remove it")
        else:
            fix = suggest_name(edge.source, (*graph.nodes, START), "add the node, or remove the edge")
            yield _problem(edge, f"edge {edge} starts at {edge.source!r}, which is not a node: {fix}")
    if edge.target not in graph.nodes and edge.target not in (END, STOP):
        if edge.target in (START, ANY):
            yield _problem(edge, f"edge {edge} leads to {edge.target}, which is not a target: name a node")
        else:
            fix = suggest_name(edge.target, (*graph.nodes, END, STOP), "add the node, or remove the edge")
            yield _problem(edge, f"edge {edge} leads to {edge.target!r}, which is not a node: {fix}")


def _label_problems(graph: GraphDefinition, edge: Edge) -> Iterator[Problem]:
    if edge.source == ANY:
        if edge.outcome not in RESERVED:
            yield _problem(edge, f"edge {edge}: '*' takes only a reserved outcome ({listed_names(RESERVED)}): name one")
        if edge.each is not None:
            yield _problem(edge, f"edge {edge}: '*' cannot map: remove 'each {edge.each}'")
    elif edge.source == START:
        if edge.outcome is not None:
            yield _problem(edge, f"edge {edge}: START has no outcomes: remove {edge.outcome!r}")
    elif edge.source in graph.nodes and edge.outcome is not None and edge.outcome not in RESERVED:
        declared = graph.nodes[edge.source].outcomes
        if edge.outcome not in (*declared, *graph.nodes[edge.source].if_named):
            fix = suggest_name(edge.outcome, declared, "declare it, or remove the edge")
            but = f"{edge.source} declares {listed_names(declared)} only"
            yield _problem(edge, f"edge {edge} is for outcome {edge.outcome!r}, and {but}: {fix}")


def _coverage_problems(graph: GraphDefinition) -> Iterator[Problem]:
    labels: dict[str, set[str]] = {name: set() for name in graph.nodes}
    general: dict[str, Edge] = {}
    for edge in graph.edges:
        if edge.source in labels:
            if edge.outcome is None:
                general.setdefault(edge.source, edge)
            else:
                labels[edge.source].add(edge.outcome)
    for name, node in graph.nodes.items():
        left = [outcome for outcome in node.outcomes if outcome not in labels[name]]
        if name not in general:
            for outcome in left:
                label = "" if node.outcomes == ("done",) else f" : {outcome}"
                fault = f"outcome {outcome!r} of {name} has no edge"
                yield Problem("C1.outcome", f"{fault}: add '{name} -> NODE{label}'", (name,))
        elif not left and node.outcomes:
            edge = general[name]
            why = f"every outcome of {name} has its own edge"
            yield _problem(edge, f"edge {edge} is never taken: {why}; remove it, or name one")


# -- C1: checks by the node kinds themselves -------------------------------------------------------------------


def kind_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Yield the faults that nodes find in themselves; see `Node.problems_in`."""
    for name, node in graph.nodes.items():
        for fault in node.problems_in(name, graph):
            yield Problem("C1.node", fault, (name,))


# -- C1: the inputs and outputs of subgraphs -------------------------------------------------------------------
# A subgraph's `inputs` and `outputs` read like assignments, target first: `inputs` maps fields of the inner state to
# fields of the outer state, `outputs` maps outer fields to inner ones. The outer fields are ports, and are checked as
# ports.


MOST_DEEP = 50
"""The most levels of nested graphs, including the outermost one: their JSON has to be read again."""


def nested_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Yield fields that the inner state lacks, and required inner fields that nothing sets."""
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
                    fix = suggest_name(str(field), schema.fields, "add the field, or name another")
                    no = f"and state {schema.name} of its graph {inner.name} has no such field"
                    yield Problem("C1.field", f"{what} of {name} name {field!r}, {no}: {fix}", (name,))
        for field in schema.fields:
            if schema.field(field).required and field not in inputs:
                fault = f"{name} gives its graph {inner.name} no {field!r}, which has no default"
                yield Problem("C1.field", f"{fault}: add it to inputs=", (name,))


def mapping_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Yield outer fields that a subgraph's `inputs` and `outputs` use although `reads` and `writes` leave them out."""
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
    """Yield outcomes of a subgraph by which its graph never enters END, and missing outcomes."""
    for name, node in graph.nodes.items():
        inner = node.subgraph
        if inner is None or node.outcomes_field is None or not getattr(node, node.outcomes_field):
            continue
        ways = _entries(inner)
        for outcome in node.outcomes:
            if outcome not in ways and outcome != DONE:
                fix = suggest_name(outcome, ways, "add an edge to END for it, or leave it out")
                fault = f"{name} declares outcome {outcome!r}, by which END of its graph {inner.name} is never entered"
                yield Problem("C1.outcome", f"{fault}: {fix}", (name,))
        left = [way for way in ways if way not in node.outcomes]
        if left and DONE not in node.outcomes:
            fault = (
                f"END of graph {inner.name} is entered by {listed_names(left)}, which outcomes= of {name} leaves out"
            )
            yield Problem("C1.outcome", f"{fault}: add it, or 'done' for all others", (name,))


def _entries(graph: GraphDefinition) -> list[str]:
    """Return the outcomes by which END or STOP of a graph can be entered."""
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


# -- C1 and C8: names of pools, and steps that would wait for each other's pools -------------------------------


def pool_problems(graph: GraphDefinition, *, stored: bool = False) -> Iterator[Problem]:
    """Yield unknown names of pools, and pools that can wait for each other in a circle."""
    for name in graph.pools:
        if not (stored or is_name(name)):
            yield Problem("C1.name", f"pool name {name!r} is not a valid name: {RULE}")
    for name, node in graph.nodes.items():
        if node.pool is not None and node.pool not in graph.pools:
            fix = suggest_name(node.pool, graph.pools, f"add it to the graph: pools={{{node.pool!r}: 1}}")
            yield Problem("C1.name", f"{name} names pool {node.pool!r}, which the graph does not have: {fix}", (name,))
    yield from _circles(graph)


def unnamed_pools(graph: GraphDefinition) -> Iterator[str]:
    """Yield a note on each pool that no node names: it has no effect."""
    named = {node.pool for node in graph.nodes.values()}
    for name in graph.pools:
        if name not in named:
            yield f"no node names pool {name!r}: give it to the nodes that share it, pool={name!r}, or remove it"


def _circles(graph: GraphDefinition) -> Iterator[Problem]:
    """Yield faults of C8: a step keeps its place while the graph inside waits for one, so the pools need an order."""
    waits = dict(_waits(graph, "", ()))
    if not waits:
        return
    import networkx as nx

    graph_of_pools: nx.DiGraph[str] = nx.DiGraph(list(waits))
    for circle in sorted(sorted(part) for part in nx.strongly_connected_components(graph_of_pools)):
        said = [text for pair, text in waits.items() if set(pair) <= set(circle)]
        if said:
            fix = "name pools inside each other in one order, and none inside itself"
            yield Problem("C8", f"{'; '.join(said)}: {fix}")


def _waits(
    graph: GraphDefinition, path: str, held: tuple[tuple[str, str], ...]
) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield each pair of pools of which one is occupied while a step waits for the other, and the step's path.

    Args:
        graph: the graph, or one inside it.
        path: path of the graph.
        held: the pools that enclosing steps occupy, each with the path of its node.
    """
    for name, node in graph.nodes.items():
        place, pool = f"{path}{name}", node.pool
        for outer, around in held if pool is not None else ():
            assert pool is not None
            yield (outer, pool), f"{place} waits for pool {pool} while {around} holds {outer}"
        if node.subgraph is not None:
            yield from _waits(node.subgraph, f"{place}/", held if pool is None else (*held, (pool, place)))


# -- C4: nodes at which a message interrupts the graph are outside all forks -----------------------------------


def interrupt_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Yield nodes with `on_busy="interrupt"` inside a fork: all branches are merged there, so no fork may be open.

    The shape must be valid.
    """
    topology = graph.topology
    for name, node in graph.nodes.items() if topology.fans else ():
        if getattr(node, "on_busy", None) != "interrupt":
            continue
        for fork, fans in topology.fans.items():
            closing = [join for join in topology.joins_of(fork) if topology.closes[join]]
            starts = [target for fan in fans for target in fan.targets]
            if name not in topology.reachable(starts, (fork, *closing)) or name in closing:
                continue
            fix = "let it stand behind the fork's join, or set on_busy='queue'"
            yield Problem("C4", f"{name} interrupts its graph (on_busy='interrupt') inside fork {fork}: {fix}", (name,))
            break


# -- C1: results are cached only for nodes whose steps can be skipped ------------------------------------------


def cache_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Yield nodes with `cache=` whose steps a cached result cannot replace."""
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


# -- C1: edges for timeouts that cannot happen, and retries for errors that do not exist -----------------------


TIMEOUT = "timeout"


def failure_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Yield `: timeout` edges of nodes without a timeout, and names in `Retry(on=...)` that match no error."""
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
    """Return True if a node, or a node of the graph inside it, has a timeout."""
    inner = node.subgraph
    timed = getattr(node, node.timed_by, None) is not None
    return timed or (inner is not None and any(can_time_out(one) for one in inner.nodes.values()))


def _fault_of(error: str) -> str | None:
    """Return the fault in an error's name, if it is certain: a class may be defined later."""
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
    likely = suggest_name(error, _known(), "")
    return f"and no error has this name: {likely}" if likely else None


@cache
def _known() -> frozenset[str]:
    """Return the names of Python's own errors and of this library's."""
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


# -- C1: the state has every field that the graph, its edges and its nodes name --------------------------------


def field_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Yield fields that are missing or of a wrong type."""
    for what, names in (("input", graph.input), ("output", graph.output)):
        for name in (names,) if isinstance(names, str) else names or ():
            yield from _missing(graph, f"{what} of the graph is", name)
    for edge in dict.fromkeys(graph.edges):
        if edge.each is not None:
            yield from _map_problems(graph, edge, edge.each)
    for name, node in graph.nodes.items():
        yield from _node_problems(graph, name, node)


def _missing(
    graph: GraphDefinition, use: str, field: str, nodes: tuple[str, ...] = (), edges: tuple[str, ...] = ()
) -> Iterator[Problem]:
    known = graph.schema.fields
    if field not in known:
        fix = suggest_name(field, known, "add the field, or name another")
        message = f"{use} {field!r}, and state {graph.schema.name} has no such field: {fix}"
        yield Problem("C1.field", message, nodes, edges)


def _map_problems(graph: GraphDefinition, edge: Edge, field: str) -> Iterator[Problem]:
    yield from _missing(graph, f"edge {edge} maps over", field, edges=(str(edge),))
    if field in graph.schema.fields and not graph.schema.is_list(field):
        message = f"edge {edge} maps over {field!r}, which is not a list: make it a list, or name another field"
        yield Problem("C1.field", message, (), (str(edge),))


def _node_problems(graph: GraphDefinition, name: str, node: Node) -> Iterator[Problem]:
    for port, field in node.ports().items():
        wanted = node.port_type(port)
        if field not in graph.schema.fields:
            yield from _missing(graph, f"port {port!r} of {name} is", field, (name,))
        elif wanted is not None and not holds(graph.schema.field(field).annotation, wanted):
            no = f"which is not a {getattr(wanted, '__name__', wanted)}"
            message = f"port {port!r} of {name} is {field!r}, {no}: make it one, or name another field"
            yield Problem("C1.field", message, (name,))
    yield from _join_problems(graph, name, node)
    for verb, fields in (("reads", node.reads), ("writes", node.writes)):
        for field in sorted(fields or ()):
            yield from _missing(graph, f"{name} {verb}", field, (name,))


def _join_problems(graph: GraphDefinition, name: str, node: Node) -> Iterator[Problem]:
    """Check the field that contains a join's number of branches."""
    fields, join = graph.schema.fields, node.join
    if not isinstance(join, str):
        return
    if not counts(join):
        if join in fields and holds(graph.schema.field(join).annotation, int):
            message = f"{name} says join={join!r}, and the state has a field of that name: give the field another one"
            yield Problem("C1.field", message, (name,))
    elif join not in fields:
        fix = suggest_name(join, [*fields, "all", "each"], "add the field, or say join='all' or a number")
        message = f"{name} says join={join!r}, and state {graph.schema.name} has no such field: {fix}"
        yield Problem("C1.field", message, (name,))
    elif not holds(graph.schema.field(join).annotation, int):
        message = f"{name} says join={join!r}, which is not an int: make it one, or name another field"
        yield Problem("C1.field", message, (name,))


# -- C9: plain fields written by branches of one fork that no join brings together ---------------------------------
# Such updates meet when the graph ends, and are then certain to conflict. Only `writes=` declares what a node updates.


def write_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Yield plain fields that branches of one fork write and no join merges. The shape must be valid."""
    writers = {name: _plain_writes(graph, name) for name in graph.nodes}
    if not any(writers.values()):
        return
    topology = graph.topology
    seen: set[tuple[str, ...]] = set()
    for fork, fans in topology.fans.items():
        if topology.joins_of(fork):
            continue
        place = fork.partition("*")[0]
        for fan in fans:
            for problem in _fan_problems(graph, fork, place, fan, writers):
                if problem.nodes not in seen:
                    seen.add(problem.nodes)
                    yield problem


def _fan_problems(
    graph: GraphDefinition, fork: str, place: str, fan: FanOut, writers: dict[str, frozenset[str]]
) -> Iterator[Problem]:
    topology = graph.topology
    regions = []
    for target in fan.targets:
        region = topology.reachable((target,), (fork,))
        # Branches that can only STOP are never merged.
        regions.append([n for n in graph.nodes if n in region and writers[n] and END in topology.reachable((n,))])
    if fan.field is not None:
        for name in regions[0]:
            field = min(writers[name])
            fault = f"{name} runs once per item of {fan.field!r} and writes {field!r}, with no join after it"
            yield Problem("C9", f"{fault}: give {field!r} a reducer, or join the map", (name,))
        return
    for (one, first), (other, second) in combinations(zip(fan.targets, regions, strict=True), 2):
        for left in first:
            for right in second:
                both = writers[left] & writers[right]
                if both and left != right and left not in second and right not in first:
                    field = min(both)
                    where = f"in branches {one} and {other} of fork {place} that never join"
                    fault = f"{left} and {right} both write {field!r}, {where}"
                    yield Problem("C9", f"{fault}: give {field!r} a reducer, or join them", (left, right))


def _plain_writes(graph: GraphDefinition, name: str) -> frozenset[str]:
    writes = graph.nodes[name].writes or frozenset()
    fields = graph.schema.fields
    return frozenset(f for f in writes if f in fields and fields[f].plain and not fields[f].local)
