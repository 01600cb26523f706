"""Proofs against the kernel: on small generated graphs every run is tried, and every witness is made a run."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace

import pytest

from orchestrator import Graph
from orchestrator.errors import InvalidGraph
from orchestrator.graph import Limits, Proof
from orchestrator.graph.edges import Edge
from orchestrator.graph.model import Node
from orchestrator.graph.report import WitnessStep
from orchestrator.graph.topology import END, START
from orchestrator.nodes import Confirm, Execute, Subgraph
from tests.support.sizes import sized

from .proved import (
    Paths,
    ProvedState,
    Step,
    acting,
    calling,
    is_covered,
    uses_an_approval_of_another_branch,
    wipe,
    writing,
)  # fmt: skip
from .proving import Explorer, State, Tags, at_last, replayed, waiting_at_last

SEEDS = range(*(int(end) for end in os.environ.get("PROOFS", sized("0-45", "0-90")).split("-")))
"""The environment variables name others: `PROOFS=1000-2000`, and graphs of up to `PROOF_NODES=8` nodes."""
MET = "the call is approved once, and another branch may make it, too"
"""Why a claim may be undecided here: branches with one approval first meet at a join, as docs/proofs.md says."""
NODES, STATES = int(os.environ.get("PROOF_NODES", "6")), sized(150, 300)


def text(graph: Graph) -> str:
    """The graph, for messages."""
    nodes = {name: (node.kind, node.join, node.rest, sorted(node.writes or ())) for name, node in graph.nodes.items()}
    return f"{'; '.join(map(str, graph.edges))} | {nodes}"


def told(proof: Proof) -> str:
    return f"{proof.verdict}: {' -> '.join(map(str, proof.witness))} / {' -> '.join(map(str, proof.beside))}"


@pytest.mark.full
@pytest.mark.parametrize("compared", ["calls", "writes"])
def test_a_claim_is_proved_if_and_only_if_no_run_breaks_it_and_the_kernel_makes_every_witness(compared: str) -> None:
    counts = sum((COMPARED[compared](seed, NODES) for seed in SEEDS), Counter[str]())
    print(dict(counts))
    assert not any("undecided" in name for name in counts)
    for about in ABOUT[compared]:
        assert min(counts[f"{about} {verdict}"] for verdict in ("proved", "refuted")) > 0


@pytest.mark.storm
@pytest.mark.parametrize("compared", ["calls", "writes"])
def test_that_holds_of_graphs_of_up_to_eight_nodes(compared: str, scale: int) -> None:
    """`--storm-scale N`: 15 N drawn graphs, of which some are no graphs."""
    counts = sum((COMPARED[compared](seed, 8) for seed in range(2_000, 2_000 + 15 * scale)), Counter[str]())
    print(dict(counts))
    assert not any("undecided" in name for name in counts)
    assert counts["whole"] > 0
    assert counts["met at a join"] * 50 <= counts["graphs"]


def compared_calls(seed: int, nodes: int) -> Counter[str]:
    """Compare with every run: calls are confirmed, joins fire, runs end."""
    counts: Counter[str] = Counter()
    graph = calling(seed, nodes)
    if graph is None:
        return counts
    tags = Paths(graph)
    bare: set[str] = set()
    twice: set[str] = set()
    ran: set[str] = set()

    def see(state: State) -> None:
        for token in state.run.running.values():
            ran.add(token.node)
            if token.node in tags.acting:
                bare.update(token.node for path in state.tags[token.key] if not is_covered(graph, path, token.node))
        twice.update(uses_an_approval_of_another_branch(graph, tags, state))

    found = Explorer(graph, tags, most=STATES).explore(see)
    proofs = graph.check(prove=True).proofs
    counts["graphs"] += 1
    counts["whole"] += found.whole
    refuted = {proof.witness[-1].node for proof in proofs if proof.about == "confirmed" and not proof.holds}
    assert bare <= refuted, f"{seed}: {bare - refuted} are called without a confirmation: {text(graph)}"
    assert not found.whole or refuted <= bare | twice, f"{seed}: {refuted - bare - twice} never are: {text(graph)}"
    assert refuted <= set(acting(graph))
    joins = {proof.claim.split()[0] for proof in proofs if proof.about == "joins" and not proof.holds}
    never = set(graph.topology.joins) - ran
    assert not joins & ran, f"{seed}: {joins & ran} fire: {text(graph)}"
    assert not found.whole or joins == never, f"{seed}: {never} never fire: {text(graph)}"
    caught = any(proof.about == "ends" and not proof.holds for proof in proofs)
    assert not found.whole or caught == found.stuck, f"{seed}: {text(graph)}"
    for proof in proofs:
        met = proof.verdict == "undecided" and proof.reason == MET and bool(graph.topology.joins)
        counts["met at a join" if met else f"{proof.about} {proof.verdict}"] += 1
        if proof.about in ("confirmed", "joins", "ends") and proof.witness:
            there = waiting_at_last if proof.about == "joins" else at_last
            assert replayed(graph, [proof.witness], there()), f"{seed}: {told(proof)}: {text(graph)}"
            counts["replayed"] += 1
    return counts


def compared_writes(seed: int, nodes: int) -> Counter[str]:
    """Compare with every run: which fields concurrent branches write."""
    counts: Counter[str] = Counter()
    graph = writing(seed, nodes)
    if graph is None or not graph.topology.fans:
        return counts
    counts["graphs"] += 1
    proofs = [proof for proof in graph.check(prove=True).proofs if proof.about == "writes"]
    for field in ("f", "g"):
        if not any(field in (node.writes or ()) for node in graph.nodes.values()):
            continue
        explorer = Explorer(graph, Tags(), field=field, most=STATES)
        # Where joins let branches run, writes of late ones stand beside others without a conflict.
        settled = any(node.rest == "run" for node in graph.nodes.values())
        breaks = explorer.conflicting if settled else explorer.concurrent
        both: list[State] = []
        found = explorer.explore(lambda state, breaks=breaks, both=both: both.append(state) if breaks(state) else None)
        proof = next((proof for proof in proofs if f"may write {field!r}" in proof.reason), None)
        counts["writes proved" if proof is None else f"writes {proof.verdict}"] += 1
        counts["whole"] += found.whole
        assert not both or proof is not None, f"{seed}: {field} is written twice: {text(graph)}"
        if proof is not None:
            assert both or settled or not found.whole, f"{seed}: {field} never is: {told(proof)}: {text(graph)}"
            paths = (proof.witness, proof.beside)
            there = replayed(graph, paths, lambda explorer, state: explorer.concurrent(state), field=field)
            assert there, f"{seed}: {field}: {told(proof)}: {text(graph)}"
            counts["replayed"] += 1
    return counts


@pytest.mark.full
def test_a_witness_is_replayed_where_a_loop_writes_the_field_without_end() -> None:
    assert compared_writes(2053, 8)["replayed"] == 2


def test_a_join_that_takes_two_has_one_at_once_so_that_the_next_branch_drops_the_others() -> None:
    assert compared_writes(2120, 8)["writes proved"] == 2


def test_behind_a_spent_limit_a_fork_back_to_a_node_that_ran_ends_the_run() -> None:
    assert compared_calls(2080, 8)["confirmed refuted"] == 0


def test_a_call_behind_a_join_that_another_branch_passes_again_is_undecided() -> None:
    assert compared_calls(2291, 8)["met at a join"] == 1


COMPARED = {"calls": compared_calls, "writes": compared_writes}
ABOUT = {"calls": ("confirmed", "ends"), "writes": ("writes",)}


@pytest.mark.full
def test_a_cycle_that_spends_no_limit_goes_round_and_with_limits_every_run_ends() -> None:
    counts: Counter[str] = Counter()
    for seed in range(sized(40, 120)):
        drawn = calling(seed, NODES)
        if drawn is None:
            continue
        dice = random.Random(f"bounded {seed}")
        graph = drawn.with_limits(Limits(steps=None, visits={n: 1 for n in drawn.nodes if dice.random() < 0.5}))
        proof = next(proof for proof in graph.check(prove=True).proofs if proof.about == "bounded")
        counts[proof.verdict] += 1
        if not proof.holds:
            last = proof.witness[-1].node
            first = next(place for place, step in enumerate(proof.witness) if _is_round(proof, place))
            assert proof.witness[first].node == last
            again = (*proof.witness[:-1], *proof.witness[first:-1] * 2, proof.witness[-1])
            free = drawn.with_limits(Limits(steps=None))
            assert replayed(free, [again], at_last()), f"{seed}: {told(proof)}: {text(graph)}"
            assert not {step.node for step in proof.witness[first:]} & set(graph.limits.visits)
        else:
            explorer = Explorer(graph, Tags())
            for _ in range(3):
                state = explorer.first()
                while (ways := list(explorer.following(state))) and state.depth < 200:
                    state = dice.choice(ways)
                assert state.run.result is not None, f"{seed}: no end in sight: {text(graph)}"
    assert min(counts["refuted"], counts["proved"]) > 0
    print(dict(counts))


def _is_round(proof: Proof, place: int) -> bool:
    """Whether the cycle of a witness begins at a place: the reason names its nodes."""
    names = [step.node for step in proof.witness[place:]]
    return proof.reason.startswith(" -> ".join(names) + " goes round")


@pytest.mark.full
def test_a_subgraph_is_proved_as_its_nodes_in_its_place_would_be() -> None:
    counts: Counter[str] = Counter()
    for seed in range(sized(150, 300)):
        dice = random.Random(f"inlined {seed}")
        outer, inner = (_plain(calling(dice.randrange(100_000), most)) for most in (5, 4))
        if outer is None or inner is None or inner.topology.fans:
            continue
        places = [name for name, node in outer.nodes.items() if isinstance(node, Step) and node.outcomes == ("done",)]
        if not places:
            continue
        place = dice.choice(places)
        sub = Subgraph(inner, join=outer.nodes[place].join)
        nested = outer.replace({place: sub})
        flat = _inlined(outer, inner, place)
        if flat is None:
            continue
        verdicts = _verdicts(nested, place)
        assert verdicts == _verdicts(flat, place), f"{seed}: {text(outer)} {text(inner)}"
        counts.update(verdicts.values())
        for proof in nested.check(prove=True).proofs:
            if proof.about == "confirmed" and not proof.holds:
                counts["replayed"] += 1
                assert replayed(nested, [proof.witness], at_last()), f"{seed}: {told(proof)}: {text(nested)}"
    assert min(counts["refuted"], counts["proved"]) > 0
    print(dict(counts))


@pytest.mark.full
def test_a_join_that_waits_for_a_loop_without_end_never_fires_and_so_is_no_node_that_reaches_no_end() -> None:
    edges = """
        START -> s
        s -> x, y -> k -> a -> b, c
        b -> s : again
        c -> j -> END
    """
    nodes: dict[str, Node] = {name: Step() for name in "sxyac"}
    nodes |= {"b": Step(said=("again",)), "k": Step().with_(join="all"), "j": Step().with_(join="all")}
    graph = Graph(name="g", state=ProvedState, nodes=nodes, edges=edges, limits=Limits(steps=None))
    proofs = graph.check(prove=True).proofs
    (never,) = (proof for proof in proofs if proof.about == "joins" and not proof.holds)
    assert never.claim == "j can fire"
    assert " -> ".join(map(str, never.witness)) == "START -> s -> x -> k -> a -> c -> j"
    assert replayed(graph, [never.witness], waiting_at_last())
    assert not replayed(graph, [never.witness], at_last(), most=500)
    caught = [proof for proof in proofs if proof.about == "ends" and not proof.holds]
    assert [proof.witness[-1].node for proof in caught] == ["s", "x", "y", "k", "a", "b", "c"]
    assert all(replayed(graph, [proof.witness], at_last()) for proof in caught)


def test_a_join_that_a_branch_can_reach_until_it_stops_the_graph_never_fires() -> None:
    edges = """
        START -> s -> b, d
        b -> j -> wipe -> END
        d -> s : again
        d -> STOP : done
    """
    nodes: dict[str, Node] = {"s": Step(), "b": Step(), "d": Step(said=("again", "done"))}
    nodes |= {"j": Step().with_(join="all"), "wipe": Execute().with_(tools=(wipe,))}
    graph = Graph(name="g", state=ProvedState, nodes=nodes, edges=edges, limits=Limits(steps=None))
    proofs = graph.check(prove=True).proofs
    (never,) = (proof for proof in proofs if proof.about == "joins")
    assert told(never) == "refuted: START -> s -> b -> j / "
    assert never.reason == "j never fires: a concurrent branch can reach it until it stops the graph"
    assert replayed(graph, [never.witness], waiting_at_last())
    assert [proof.verdict for proof in proofs if proof.about in ("ends", "confirmed")] == ["proved", "proved"]
    ran: set[str] = set()
    Explorer(graph, Tags()).explore(lambda state: ran.update(token.node for token in state.run.running.values()))
    assert ran == {"s", "b", "d"}


def test_a_witness_through_a_map_subgraphs_and_a_spent_limit_is_made_by_the_kernel() -> None:
    call = Execute().with_(tools=(wipe,))
    inmost = Graph(name="inmost", state=ProvedState, nodes={"execute": call}, edges="START -> execute -> END")
    nodes = {"look": Step(), "deep": Subgraph(inmost)}
    inner = Graph(name="inner", state=ProvedState, nodes=nodes, edges="START -> look -> deep -> END")
    edges = """
        START -> plan -> work : each xs
        work -> meet -> sure
        sure -> END
        * -> late : exhausted
        late -> END
    """
    around: dict[str, Node] = {
        "plan": Step(), "work": Subgraph(inner), "meet": Step().with_(join="all"), "sure": Confirm(), "late": call,
    }  # fmt: skip
    graph = Graph(name="g", state=ProvedState, nodes=around, edges=edges)
    found = [proof for proof in graph.check(prove=True).proofs if proof.about == "confirmed"]
    assert [" -> ".join(map(str, proof.witness)) for proof in found] == [
        "START -> plan (a limit is spent) -> late",
        "START -> plan -> work/START -> work/look -> work/deep/START -> work/deep/execute",
    ]
    assert all(replayed(graph, [proof.witness], at_last()) for proof in found)


def _plain(graph: Graph | None) -> Graph | None:
    """The same with approvals of what comes next, if it has no edges for limits and failures."""
    if graph is None or {edge.outcome for edge in graph.edges} & {"exhausted", "error"}:
        return None
    calls = {n: node for n, node in graph.nodes.items() if isinstance(node, Confirm) and node.tool is not None}
    return graph.replace({name: Confirm(join=node.join) for name, node in calls.items()})


def _verdicts(graph: Graph, place: str) -> dict[str, str]:
    """Acting node -> whether all paths to it are confirmed; nodes of the graph inside have their place before them."""
    proofs = [proof for proof in graph.check(prove=True).proofs if proof.claim.startswith("every path to")]
    return {proof.claim.split()[3].replace(f"{place}/", f"{place}-"): proof.verdict for proof in proofs}


def _inlined(outer: Graph, inner: Graph, place: str) -> Graph | None:
    """The outer graph with the nodes of the inner one instead of one of its nodes, if the checks take it."""
    first = [edge.target for edge in inner.edges if edge.source == START]
    join = outer.nodes[place].join
    ways_out = [edge for edge in outer.edges if edge.source == place]
    edges = [
        replace(edge, target=f"{place}-in") if edge.target == place else edge
        for edge in outer.edges
        if edge.source != place
    ]
    edges += [Edge(f"{place}-in", f"{place}-{name}" if name != END else f"{place}-out") for name in first]
    for edge in inner.edges:
        if edge.source != START:
            target = f"{place}-out" if edge.target in (END, "STOP") else f"{place}-{edge.target}"
            edges.append(replace(edge, source=f"{place}-{edge.source}", target=target))
    for edge in ways_out:
        source = f"{place}-out"
        edges.append(replace(edge, source=source, target=f"{place}-in" if edge.target == place else edge.target))
    still = Step(said=("done",))
    nodes = {name: node for name, node in outer.nodes.items() if name != place}
    nodes |= {f"{place}-in": still.with_(join=join), f"{place}-out": still}
    nodes |= {f"{place}-{name}": node for name, node in inner.nodes.items()}
    try:
        return Graph(name="g", state=ProvedState, nodes=nodes, edges=tuple(edges), limits=outer.limits)
    except InvalidGraph:
        return None


@pytest.mark.full
@pytest.mark.parametrize("shape", ["choices", "diamonds", "race"])
def test_the_cost_of_a_proof_grows_with_the_graph_and_not_with_its_paths(shape: str) -> None:
    graph = {"choices": _choices, "diamonds": _diamonds, "race": _race}[shape](count := sized(25, 60))
    assert len(graph.nodes) > count  # and twice as many paths for each
    graph.check(prove=True)


def _step(*said: str, writes: str = "") -> Step:
    return Step(said=said or ("done",), effect="irreversible", writes=frozenset(filter(None, (writes,))))


def _choices(count: int) -> Graph:
    """A row of choices: 2 ** count paths."""
    lines = ["START -> a0"]
    for n in range(count):
        after = f"a{n + 1}" if n < count - 1 else "END"
        lines += [f"a{n} -> b{n} : x", f"a{n} -> c{n} : y", f"b{n} -> {after}", f"c{n} -> {after}"]
    nodes = {f"{kind}{n}": _step("x", "y") if kind == "a" else _step() for n in range(count) for kind in "abc"}
    return Graph(name="g", state=ProvedState, nodes=nodes, edges="\n".join(lines))


def _diamonds(count: int) -> Graph:
    """A row of forks and joins."""
    lines = ["START -> a0"]
    for n in range(count):
        lines += [f"a{n} -> b{n}, c{n} -> j{n}", f"j{n} -> {f'a{n + 1}' if n < count - 1 else 'END'}"]
    nodes = {f"{kind}{n}": _step(writes="f" * (kind != "c")) for n in range(count) for kind in "abcj"}
    nodes |= {f"j{n}": _step(writes="f").with_(join="all") for n in range(count)}
    return Graph(name="g", state=ProvedState, nodes=nodes, edges="\n".join(lines))


def _race(count: int) -> Graph:
    """A map over a row of choices, of whose items the first wins; only the last nodes write."""
    lines = ["START -> m", "m -> a0 : each xs", "j -> END"]
    for n in range(count):
        one, two = (f"a{n + step}" if n + step < count else "j" for step in (1, 2))
        lines += [f"a{n} -> {one} : x", f"a{n} -> {two} : y"]
    nodes = {f"a{n}": _step("x", "y", writes="f" * (n == count - 1)) for n in range(count)}
    nodes |= {"m": _step(), "j": _step().with_(join=1)}
    return Graph(name="g", state=ProvedState, nodes=nodes, edges="\n".join(lines))


@pytest.mark.full
def test_a_witness_is_a_path_that_the_kernel_does_not_make_if_a_step_of_it_is_wrong() -> None:
    graph = next(made for seed in range(100) if (made := calling(seed, 6)) is not None and len(made.nodes) > 3)
    wrong = (WitnessStep(START, "done"), WitnessStep("nowhere", "done"), WitnessStep(next(iter(graph.nodes))))
    assert not replayed(graph, [wrong], at_last(), most=200)
