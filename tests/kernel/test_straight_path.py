"""The straight path comes to the same state as the general one: every record is folded on both, and all is compared.

A fold that is watched takes the general path, so a second machine with an observer says what is right. Every law is
run this way, with the calls, limits, moves, failures and events of the other tests' runs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec import structs

from orchestrator.errors import InvalidGraph, StoreCorrupt
from orchestrator.graph.limits import Limits, Reserve
from orchestrator.kernel import records as r
from orchestrator.kernel.fold import apply, apply_stored, steps
from orchestrator.kernel.fold.steps import go_straight
from orchestrator.kernel.question import Question
from orchestrator.kernel.records import encode
from orchestrator.kernel.run_state import Delta, Observer, RunState
from orchestrator.kernel.snapshot import dump
from orchestrator.kernel.state import hash_id
from orchestrator.kernel.version import FIRST, ROOT, Rank, Version
from tests.support.sizes import rounds, sized

from .behave import Act, Behaviour, Script, Seeded, times
from .build import Lean, joins, plan
from .harness import Simulation, TooLongError
from .orders import Order, orders
from .sketches import settle, values_for
from .test_busy_snapshots import Busy
from .test_law_storms import LAWS  # all of them, as that module imports their homes
from .test_laws import DRAWN, MOST, Trial, quick, seeds
from .test_migrations import BreakingAndMoving
from .test_snapshots import differences

WATCHED = (Observer(),)


def on_the_general_path(machine: RunState) -> RunState:
    """The same state, whose records are folded on the general path from now on."""
    twin = machine.copy()
    twin.observers = WATCHED
    return twin


def same(machine: RunState, twin: RunState) -> None:
    """Both hold the same, in every field of every object, and give the same snapshot."""
    found = [line for line in differences(machine, twin) if not line.startswith("machine.observers")]
    assert not found, found[:3]
    if machine.root is not None:
        assert dump(machine) == dump(twin)
    for frame in machine.frames():
        if frame.result is None and (frame.exhausting is not None or frame.interrupting):
            assert frame in machine.exhausting_frames, "the straight path looks at these alone"


def keys(delta: Delta) -> tuple[list[str], list[str], list[tuple[str, str]]]:
    """What a record changed, by keys."""
    moved = [(activation.key, encode(answer)) for activation, _, answer in delta.moved]
    return [a.key for a in delta.started], [a.key for a in delta.cancelled], moved


@contextmanager
def both_paths() -> Iterator[Counter[str]]:
    """Fold every record of every simulation on both paths. Counts the steps, and those that went straight."""
    met: Counter[str] = Counter()
    land = Simulation.land

    def counted(run: RunState, record: r.StepDone) -> bool:
        straight = go_straight(run, record)
        if not run.observers:
            met["straight" if straight else "general"] += 1
        return straight

    def compared(simulation: Simulation, record: r.Record) -> Delta:
        machine: RunState = simulation.machine
        if machine.observers:
            return land(simulation, record)
        twin: RunState | None = vars(simulation).get("twin")
        if twin is None or twin.head != machine.head:
            twin = vars(simulation)["twin"] = on_the_general_path(machine)
        delta = land(simulation, record)
        assert keys(apply(twin, r.decode(r.encode(record)))) == keys(delta), f"record {record.seq}"
        try:
            same(machine, twin)
        except AssertionError as error:
            raise AssertionError(f"record {record.seq}, {record.type}: {error}") from error
        return delta

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "go_straight", counted)
        patch.setattr(Simulation, "land", compared)
        yield met


def under_law(law: str, examples: int) -> Counter[str]:
    """Run a law on both paths."""
    with both_paths() as met:
        LAWS[law](examples)
    return met


@pytest.mark.full
@pytest.mark.parametrize("law", sorted(LAWS))
def test_both_paths_give_the_same_under_every_law(law: str) -> None:
    assert under_law(law, sized(1, 4)).total() > 0


@pytest.mark.full
@quick
@given(kind=st.sampled_from(sorted(DRAWN)), seed=seeds, limits=st.booleans(), stops=st.booleans())
def test_both_paths_give_the_same_beside_calls_limits_and_breakpoints(
    kind: str, seed: int, limits: bool, stops: bool
) -> None:
    sketch, dice = settle(DRAWN[kind](seed)), random.Random(seed)
    try:
        nodes = list(sketch.plan().nodes)
        if limits:
            visits = {dice.choice(nodes): dice.randint(1, 3)}
            sketch.limits = Limits(steps=dice.randint(3, 30), visits=visits if dice.random() < 0.5 else {})
        made = sketch.plan()
    except InvalidGraph:
        assume(False)
        return
    before = [dice.choice(nodes)] if stops else []
    for number, order in enumerate(orders(made, 2, seed)):
        run = Busy(
            made, Seeded(seed, asks=0.1, retries=0.1, fails=0.02), order=order, seed=number, values=values_for(dice),
            most_steps=90, late=0.5, pauses=0.02, pause_before=before,
        )  # fmt: skip
        run.noise = 0.2
        with both_paths():
            try:
                run.run()
            except TooLongError:
                assume(False)


@pytest.mark.full
@quick
@given(kind=st.sampled_from(sorted(DRAWN)), seed=seeds, how=st.sampled_from(["fail", "any", "limit"]))
def test_both_paths_give_the_same_in_runs_that_break_off_and_move_to_other_graphs(
    kind: str, seed: int, how: str
) -> None:
    dice = random.Random(seed)
    limits = Limits(steps=dice.randrange(1, 12)) if how == "limit" else None
    trial = Trial.draw(kind, seed, limits, asks=0.1, retries=0.1)
    assume(trial is not None)
    assert trial is not None
    run = BreakingAndMoving(
        trial.plan, trial.behaviour, moves=0.2, at=() if how == "limit" else (dice.randrange(1, 9),), how=how,
        order=Order("random", seed), seed=seed, values=trial.values, most_steps=5 * MOST, probability=0,
    )  # fmt: skip
    with both_paths():
        try:
            run.run()
        except TooLongError:
            assume(False)


FAULTS: list[dict[str, Any]] = [
    {"update": {"total": "no number"}}, {"update": {"log": 1, "nowhere": 2}}, {"update": {"f": []}, "ops": {"f": "?"}},
    {"update": {"log": "x"}, "ops": {"log": "?"}}, {"reduced": {"total": None}}, {"outcome": "unheard-of"},
    {"update": {"nowhere": 2}, "reduced": {"nowhere": 2}},
    {"node": "other"}, {"activation": "gone"}, {"attempt": 7}, {"started": 9e9}, {"outcome": "error"},
]  # fmt: skip
"""What a damaged record may say."""


@pytest.mark.full
@quick
@given(kind=st.sampled_from(sorted(DRAWN)), seed=seeds, fault=st.sampled_from(FAULTS))
@example(kind="structured", seed=20359, fault={"update": {"log": 1, "nowhere": 2}})
def test_both_paths_refuse_the_same_records_with_the_same_words(kind: str, seed: int, fault: dict[str, Any]) -> None:
    trial = Trial.draw(kind, seed)
    assume(trial is not None)
    assert trial is not None
    try:
        records = trial.run(Order("first")).records
    except TooLongError:
        assume(False)
        return
    machine = RunState(trial.plan)
    for record in records:
        if isinstance(record, r.StepDone):
            damaged = structs.replace(record, **fault)
            one, other = machine.copy(), on_the_general_path(machine)
            said = [refusal(one, damaged), refusal(other, damaged)]
            assert said[0] == said[1]
            if said[0] is None:
                same(one, other)
        apply(machine, record)


def refusal(machine: RunState, record: r.Record) -> str | None:
    """Why a record is not folded in; None if it is."""
    try:
        apply_stored(machine, record)
    except StoreCorrupt as error:
        return str(error)
    return None


LOOP = "a -> b -> c : again; b -> END : ok; c -> b"
ROUNDS = Script(b=times(5, "again", "ok"))


def one(text: str, behaviour: Behaviour = ROUNDS, /, *, pauses: Sequence[str] = (), **options: Any) -> Simulation:
    """A run at its first record, whose longest running step lands first."""
    run = Simulation(plan(text, **options), behaviour, order=Order("first"), pause_before=pauses)
    run.begin()
    return run


@pytest.mark.parametrize("fault", [{"update": {"nowhere": 2}}, {"update": {"nowhere": 2}, "reduced": {"nowhere": 2}}])
def test_an_update_of_a_field_that_the_state_does_not_have_is_refused_on_both_paths(fault: dict[str, Any]) -> None:
    run = one(LOOP)
    record = r.StepDone(**step(run, "a"), started=1.0, ended=2.0, **fault)
    for machine in (run.machine.copy(), on_the_general_path(run.machine)):
        with pytest.raises(StoreCorrupt, match="there is no field 'nowhere'"):
            apply_stored(machine, record)


def test_an_update_of_a_stopped_step_with_such_a_field_is_refused() -> None:
    run = one("a -> b, c -> j", Script(b=Act(fail="broken")))
    put(run, "a")
    late = r.StepDone(**step(run, "c"), started=1.0, ended=2.0, update={"nowhere": 2})
    put(run, "b")
    assert run.machine.stopped
    with pytest.raises(StoreCorrupt, match="there is no field 'nowhere'"):
        apply_stored(run.machine, structs.replace(late, seq=run.machine.head + 1))


def to_its_end(run: Simulation) -> Simulation:
    """Drive it on."""
    while run.machine.ended is None:
        run.advance()
    return run


def step(run: Simulation, node: str) -> dict[str, Any]:
    """What a record about a running step of this node begins with."""
    found = next(a for a in run.machine.running.values() if a.node == node)
    return {**run.head(), "activation": found.key, "node": node}


def put(run: Simulation, *nodes: str) -> None:
    """Let the steps of these nodes land, or begin the graph inside."""
    for node in nodes:
        run.step(next(a for a in run.machine.running.values() if a.node == node))


def only(*nodes: str) -> Behaviour:
    """Only these nodes write. What the others do leaves no version behind, where no field is local."""
    return lambda plan, sight: Act("done", {"f": 1} if sight.node in nodes else {})


def beside_branches_that_run_on() -> Simulation:
    run = one("a -> b, c -> j; j -> x -> y", only("x"), joined=joins(j=1), rest=["j"], schema=Lean)
    put(run, "a", "b", "j", "x")
    return run


def beside_what_ended_before() -> Simulation:
    return one("s -> work, note; work -> j; note -> END; j -> x -> y", only("note", "x"), schema=Lean)


def in_a_branch_that_is_the_last() -> Simulation:
    return one("a -> b, c; c -> END; b -> x -> j", only("b", "x"), schema=Lean)


def of_a_node_in_a_pool() -> Simulation:
    graph = replace(plan(LOOP), pooled={"c": "printer"}, pools={"printer": 1})
    run = Simulation(graph, ROUNDS)
    run.begin()
    return run


def with_a_call_that_it_made() -> Simulation:
    run = one(LOOP)
    run.land(r.EffectIntended(**step(run, "a"), key="k", digest="d", kind="tool", name="t", effect="read"))
    put(run, "a")
    assert not run.machine.ledger.entries()
    return run


def with_steps_left_in_a_graph_that_failed() -> Simulation:
    run = one("p -> w -> q; w -> r : error", Script(b=Act(fail="broken")), sub={"w": plan("a -> b, c -> j")})
    put(run, "p", "w", "a", "b", "w")
    assert not run.machine.stopped
    return run


def a_turn_of_the_graph_around_comes_first() -> Simulation:
    graph = plan("s -> w, v; v -> x; w, x -> j", limits=Limits(concurrency=1), sub={"w": plan(LOOP)})
    run = Simulation(graph, ROUNDS, order=Order("first"))
    run.begin()
    put(run, "s", "w", "v", "a")
    assert [token.node for token in run.machine.running.values()] == ["x"]
    return run


def a_place_in_a_pool_comes_first() -> Simulation:
    inner = plan("s -> p, y -> j", limits=Limits(steps=None, concurrency=1), sub={"y": plan(LOOP)})
    inner = replace(inner, pooled={"p": "printer"}, pools={"printer": 1})
    graph = replace(plan("s -> x, v -> j", sub={"v": inner}), pooled={"x": "printer"}, pools={"printer": 1})
    run = Simulation(graph, ROUNDS, order=Order("first"))
    run.begin()
    for token in ("s", "v", "s", "y", "x", "a"):
        put(run, token)
    return run


def with_what_it_reserves() -> Simulation:
    run = one(LOOP)
    intent = {**step(run, "a"), "key": "k", "digest": "d", "kind": "model", "name": "m", "effect": "read"}
    run.land(r.EffectIntended(**intent, reserve=Reserve(tokens=5, calls=1)))
    put(run, "a")
    assert not run.machine.reserves
    return run


def with_an_event_that_is_never_taken_again() -> Simulation:
    run = one(LOOP)
    run.land(r.EventReceived(**run.head(), name="mail", data={}))
    run.land(r.Asked(**step(run, "a"), question=Question(id="q", kind="event", node="a", event="mail")))
    put(run, "a")
    assert not run.machine.events.kept
    return run


def where_an_event_interrupts() -> Simulation:
    run = one(LOOP)
    run.land(r.EventReceived(**run.head(), name="c", data={}, interrupts=""))
    return run


def in_a_replay_that_set_steps_aside() -> Simulation:
    run = one(LOOP)
    behind = {hash_id(key, "b", "0"): r.SetAside(attempts=3) for key in run.machine.running}
    run.land(r.Forked(**run.head(), run_id="fork", parent="run", at=1, root="run", set_aside=behind))
    put(run, "a")
    assert [token.attempt for token in run.machine.running.values()] == [4]
    return run


def of_a_paused_run() -> Simulation:
    run = one(LOOP)
    run.land(r.Paused(**run.head(), by="test"))
    put(run, "a")
    assert not run.machine.running
    return run


def before_a_node_to_pause_at() -> Simulation:
    return one(LOOP, pauses=["c"])


def behind_a_spent_limit() -> Simulation:
    run = one("a -> b -> a; * -> n : exhausted; n -> o -> n", checked=False)
    run.land(r.LimitSpent(**run.head(), frame="", limit="calls"))
    return run


def of_a_node_whose_visits_are_limited() -> Simulation:
    return one(LOOP, limits=Limits(visits={"c": 2}))


def where_fewer_steps_may_run_from_now_on() -> Simulation:
    run = one("s -> w, v -> j", sub={"w": plan(LOOP), "v": plan(LOOP)})
    put(run, "s", "w", "v")
    run.land(r.LimitsChanged(**run.head(), limits=Limits(concurrency=1)))
    put(run, "a")
    assert len(run.machine.running) == 1
    return run


def while_time_runs_out() -> Simulation:
    run = one("s -> w, v -> j", sub={"w": plan(LOOP), "v": plan(LOOP)})
    put(run, "s", "w", "v")
    run.land(r.LimitSpent(**run.head(), frame="", limit="calls"))
    put(run, "a")
    assert len(run.machine.running) == 1
    return run


def with_an_error_to_hand_on() -> Simulation:
    run = one("a -> b -> c; a -> c : error", Script(a=Act(fail="broken")))
    put(run, "a")
    assert [token.error is not None for token in run.machine.running.values()] == [True]
    return run


def under_the_name_that_a_record_says() -> Simulation:
    run = one(LOOP)
    run.land(r.StepDone(**{**step(run, "a"), "node": "other"}, update={"log": "a"}, started=1.0, ended=3.0))
    return run


def with_history_that_was_kept() -> Simulation:
    run = one("a -> b -> c", only("c"), schema=Lean)
    (token,) = run.machine.running.values()
    token.version = Version(token.version.values, parents=(token.version,), key="earlier")
    del vars(run)["twin"]
    return run


def with_a_list_of_branches_that_was_kept() -> Simulation:
    run = one(LOOP)
    (token,) = run.machine.running.values()
    token.rank = Rank(ROOT, FIRST)
    del vars(run)["twin"]
    return run


SINGULAR = (
    beside_branches_that_run_on, beside_what_ended_before, in_a_branch_that_is_the_last, of_a_node_in_a_pool,
    with_a_call_that_it_made, with_steps_left_in_a_graph_that_failed,
    a_turn_of_the_graph_around_comes_first, a_place_in_a_pool_comes_first, with_what_it_reserves,
    with_an_event_that_is_never_taken_again, where_an_event_interrupts, in_a_replay_that_set_steps_aside,
    of_a_paused_run, before_a_node_to_pause_at, behind_a_spent_limit, of_a_node_whose_visits_are_limited,
    where_fewer_steps_may_run_from_now_on, while_time_runs_out, with_an_error_to_hand_on,
    under_the_name_that_a_record_says, with_history_that_was_kept, with_a_list_of_branches_that_was_kept,
)  # fmt: skip
"""Steps that look as if they could go straight, one for each thing that forbids it, or that it has to keep."""


@pytest.mark.parametrize("case", SINGULAR, ids=lambda case: case.__name__)
def test_both_paths_give_the_same_for_a_step(case: Callable[[], Simulation]) -> None:
    with both_paths():
        to_its_end(case())


def straight_steps(text: str, **options: Any) -> Counter[str]:
    """The steps of a run of five rounds."""
    with both_paths() as met:
        to_its_end(one(text, **options))
    return met


def test_lone_steps_go_straight_and_the_last_does_not() -> None:
    assert straight_steps(LOOP) == {"straight": 11, "general": 1}
    assert straight_steps(LOOP, limits=Limits(steps=1000, concurrency=1)) == {"straight": 11, "general": 1}


def test_so_do_those_of_a_graph_inside_that_runs_alone_and_those_behind_a_join() -> None:
    inside = straight_steps("p -> w -> q", sub={"w": plan(LOOP)})
    assert inside == {"straight": 13, "general": 2}
    behind = straight_steps("a -> x, y -> j -> b -> c : again; b -> END : ok; c -> b")
    assert behind == {"straight": 11, "general": 4}


def test_steps_beside_others_or_at_a_spent_limit_do_not() -> None:
    beside = straight_steps("z -> a, e; e -> END; a -> b -> c : again; b -> END : ok; c -> b")
    assert beside["straight"] == 0
    spent = straight_steps(LOOP, limits=Limits(steps=5))
    assert spent == {"straight": 4, "general": 1}


@pytest.mark.storm
@pytest.mark.parametrize("law", sorted(LAWS))
def test_a_storm_of_both_paths(law: str, scale: int) -> None:
    """`--storm-scale N`: N times 30 graphs under each law; 8 at scale 1."""
    assert under_law(law, rounds(8, 30, scale)).total() > 0
