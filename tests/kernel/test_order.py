"""R6: one order of a run's updates, whatever the run is called and however long its branches take."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from orchestrator.kernel.plan import Plan
from orchestrator.kernel.queries import state_values
from orchestrator.kernel.version import FIRST, Path, Rank, order_among
from tests.support.sizes import sized

from .behave import Act, Behaviour, Script, Sight
from .build import plan
from .harness import Simulation
from .orders import orders

RUNS, FEWER = sized((40, 20), (300, 60))


def logs(graph: Plan, behaviour: Behaviour, runs: int = RUNS) -> Iterator[str]:
    """The transcripts of so many runs, each with an id and an order of landing of its own."""
    ways = itertools.cycle(orders(graph, 10))
    for number in range(runs):
        yield Simulation(graph, behaviour, order=next(ways), run_id=f"run {number}").run().log


class Writes(Script):
    """Only these nodes write."""

    def __init__(self, nodes: str, **lines: object) -> None:
        super().__init__(**lines)  # type: ignore[arg-type]
        self.nodes = nodes.split()

    def __call__(self, plan: Plan, sight: Sight) -> Act:
        act = super().__call__(plan, sight)
        return act if sight.node in self.nodes else Act(act.outcome, {}, act.retries, act.asks, act.fail)


def test_rounds_that_leave_branches_behind_have_one_order() -> None:
    """`work` and `note` have the same path in every round: the list of what `check` merged tells the rounds apart."""
    graph = plan("s -> work, note; work -> check; note -> END; check -> s : again; check -> END : ok", {"check": "all"})

    def check(sight: Sight) -> str:
        return "again" if sight.values["total"] < 4 else "ok"

    def note(sight: Sight) -> dict[str, str]:
        return {"log": f"round{sight.values['total']}"}

    def act(graph: Plan, sight: Sight) -> Act:
        update = {"s": {"total": 1}, "note": note(sight)}.get(sight.node, {})
        return Act(check(sight) if sight.node == "check" else "done", update)

    found = set()
    for number, order in zip(range(RUNS), itertools.cycle(orders(graph, 10)), strict=False):
        found.add(" ".join(run_values(graph, act, order, number)))
    assert found == {"round1 round2 round3 round4"}


def run_values(graph: Plan, behaviour: Behaviour, order: object, number: int) -> list[str]:
    """The log of one run, of nodes that write no trail."""
    simulation = Simulation(graph, behaviour, order=order, run_id=f"run {number}")  # type: ignore[arg-type]
    simulation.begin()
    while simulation.machine.ended is None:
        simulation.advance()
    return list(state_values(simulation.machine)["log"])


def test_two_joins_that_close_one_fork_have_one_order() -> None:
    """Both tokens stand at the fork's path again; j1 merged branch 0, and j2 branch 2."""
    graph = plan("s -> b, c, d, e; b, c -> j1 -> END; d, e -> j2 -> END")
    assert set(logs(graph, Writes("j1 j2"))) == {"j1 j2"}
    swapped = plan("s -> d, e, b, c; b, c -> j1 -> END; d, e -> j2 -> END")
    assert set(logs(swapped, Writes("j1 j2"))) == {"j2 j1"}


def test_the_oldest_item_of_the_list_decides() -> None:
    """j1 and j2 close fork s, then each opens a fork of its own and closes it: the first items differ."""
    graph = plan("s -> b, c, d, e; d, e -> j2 -> x, y -> j; b, c -> j1 -> v, w -> k")
    assert set(logs(graph, Writes("x v"), FEWER)) == {"v x"}
    assert set(logs(graph, Writes("j k"), FEWER)) == {"k j"}


def test_a_prefix_comes_first() -> None:
    """`note` of an earlier round has the list of that round, which later rounds begin with."""
    text = "z -> s, q; s -> work, note; work -> check; note -> END; check -> s : again; check -> m : ok; q -> m"
    graph = plan(text, {"check": "all", "m": "all"})

    def check(sight: Sight) -> str:
        return "again" if sight.visits < 3 else "ok"

    script = Script(check=check, note=lambda sight: {"log": f"note{sight.values['log'].count('s')}"})
    found = {" ".join(word for word in log.split() if word.startswith("note")) for log in logs(graph, script, FEWER)}
    assert found == {"note1 note2 note3 note4"}


# -- ranks by themselves --------------------------------------------------------------------------------------------


def items(rank: Rank) -> list[tuple[int, ...]]:
    """A rank as the rule has it: its path, then the list, oldest first."""
    found, step = [numbers(rank.path)], rank.joined
    listed = []
    while step is not None:
        listed.append(numbers(step.path))
        step = step.joined
    return found + listed[::-1]


def numbers(path: Path) -> tuple[int, ...]:
    found = []
    while path.parent is not None:
        found.append(path.index)
        path = path.parent
    return tuple(reversed(found))


@pytest.mark.parametrize("seed", range(sized(3, 8)))
def test_ranks_compare_as_the_words_of_the_rule(seed: int) -> None:
    """Path first, then the lists: tuples of Python compare the same way. Each token goes on once, as in a run."""
    dice, live, ranks = random.Random(seed), [FIRST], [FIRST]
    for _ in range(400):
        rank = live.pop(dice.randrange(len(live)))
        if rank.path.parent is not None and (len(live) > 3 or dice.random() < 0.3):
            live.append(Rank(rank.path.parent, rank, closed=True))
            ranks.append(live[-1])
        else:
            branches = [rank.branch("f", index) for index in range(dice.randint(1, 3))]
            live += branches
            ranks += branches
    assert any(len(items(rank)) > 10 for rank in ranks)
    told = [(rank, items(rank)) for rank in dice.sample(ranks, 100)]
    for (one, a), (other, b) in itertools.product(told, told):
        assert (one < other) == ((a[0], a[1:]) < (b[0], b[1:]))


@dataclass
class Ranked:
    key: str
    rank: Rank


@pytest.mark.parametrize("seed", range(5))
def test_branches_of_one_fork_are_sorted_as_any_others(seed: int) -> None:
    """Their numbers alone give the order that ranks give."""
    dice = random.Random(seed)
    begun = FIRST.branch("s", dice.randrange(3))
    forks = [begun, Rank(begun.path, begun, closed=True), begun.branch("t", 1)]
    for chosen in (forks[:1], forks[:2], forks[1:2], forks):
        tokens = [Ranked(f"{index:02}", dice.choice(chosen).branch("f", index)) for index in range(30)]
        dice.shuffle(tokens)
        words = [(items(token.rank)[0], items(token.rank)[1:]) for token in tokens]
        by_words = [tokens[place] for place in sorted(range(30), key=lambda place: (words[place], tokens[place].key))]
        assert sorted(tokens, key=order_among(tokens)) == by_words


def test_comparing_long_lists_costs_the_logarithm_of_their_length() -> None:
    """Thousands of rounds, each of which left a branch that ended."""
    rounds = sized(4_000, 20_000)
    calls = 0

    class Counted(Rank):
        __slots__ = ()

        def __getattribute__(self, name: str) -> object:
            nonlocal calls
            calls += 1
            return super().__getattribute__(name)

    rank: Rank = Counted(FIRST.path)
    left = []
    for _ in range(rounds):
        left.append(rank)
        rank = Counted(FIRST.path, rank, closed=True)
    dice = random.Random(1)
    for one, other in (dice.sample(range(rounds), 2) for _ in range(200)):
        assert (left[one] < left[other]) == (one < other)
    assert calls < rounds * 20 + 200 * 500
