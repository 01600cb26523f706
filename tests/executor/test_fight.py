"""Four processes fight over the same runs, and one after the other is stopped past its leases and goes on."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Sequence

import anyio
import pytest

from orchestrator.errors import RunUnknown
from orchestrator.kernel.records import EffectIntended, EffectSettled, Ended, Record
from orchestrator.stores import open_store
from orchestrator.stores.base import Store
from tests.executor.contest import AT_A_TIME
from tests.executor.lives import Life, Program, programs
from tests.executor.outside import Outside, outside
from tests.executor.test_kill import IRREVERSIBLE, names, unsettled
from tests.support.stores import Places, assert_at_rest

TTL = 0.7
LONG_TTL = 4.0
"""For processes that are to keep their lease until they are stopped, also on a busy machine."""


class Kept:
    """What was durable at some time, to be there ever after."""

    def __init__(self, store: Store, run_ids: Sequence[str]) -> None:
        self._store = store
        self.journals: dict[str, list[Record]] = {run_id: [] for run_id in run_ids}

    def check(self) -> None:
        """Hold every journal against what it was."""
        for run_id, before in self.journals.items():
            try:
                now = self._store.read_now(run_id)
            except RunUnknown:
                now = []
            assert now[: len(before)] == before, f"{run_id}: records that were durable are gone, or others"
            assert [record.seq for record in now] == list(range(1, len(now) + 1)), run_id
            self.journals[run_id] = now

    @property
    def over(self) -> bool:
        """Whether every run has ended."""
        return all(journal and isinstance(journal[-1], Ended) for journal in self.journals.values())


def stopped_in_turn(lives: Sequence[Life], kept: Kept, chance: random.Random, stops: int) -> int:
    """Stop one process after the other for longer than its leases last; how many stops found runs to fight for."""
    for number in range(stops):
        time.sleep(chance.uniform(0.05, 0.3))
        victim = chance.choice(lives)
        victim.send(signal.SIGSTOP)
        time.sleep(TTL * chance.uniform(1.2, 1.6))
        kept.check()
        over = kept.over
        victim.send(signal.SIGCONT)
        if over:
            return number
    return stops


def holders(journal: Sequence[Record]) -> int:
    """How many times a run was taken up."""
    return sum(record.type in ("run_started", "resumed") for record in journal)


def check(world: Outside, kept: Kept) -> None:
    """Hold what the outside saw, and the journals, against what is promised."""
    known: set[str] = set()
    ends: dict[str, float] = {}
    for run_id, journal in kept.journals.items():
        assert [record.status for record in journal if isinstance(record, Ended)] == ["completed"], run_id
        assert isinstance(journal[-1], Ended)
        assert not unsettled(journal), run_id
        outside_names = names(journal, run_id)
        known |= set(outside_names.values())
        ends |= {outside_names[record.key]: record.ts for record in journal if isinstance(record, EffectSettled)}
        keys = Counter((r.activation, r.name, r.digest, r.occurrence, r.attempt) for r in journal if is_first(r))
        assert set(keys.values()) == {1}, f"{run_id}: one effect under two keys"
    for asked in world.asked:
        assert asked.key in known, f"{asked} was asked for and no journal knows of it"
        late = asked.began > ends.get(asked.key, asked.began)
        assert not late or asked.what not in IRREVERSIBLE, f"{asked} began too late"
    for (what, key), times in Counter((asked.what, asked.key) for asked in world.asked).items():
        assert times == 1 or what not in IRREVERSIBLE, f"{what} {key} was done {times} times"


def is_first(record: Record) -> bool:
    """Whether this is the first intent of an effect."""
    return isinstance(record, EffectIntended) and not record.again


def fight(
    places: Places, found: Sequence[Program], seed: int, runs: int, stops: int, slowest: float
) -> tuple[int, int]:
    """One fight: how many stops fell into it, and how many times runs changed hands."""
    run_ids = [f"r{number}" for number in range(runs)]
    url = places.new()
    store = open_store(url)
    chance = random.Random(seed)
    kept = Kept(store, run_ids)
    with outside(seed, slowest) as world:
        lives = [
            program.begin(
                "fight", store=url, url=world.url, runs=run_ids, ttl=TTL, backend=("asyncio", "trio")[number % 2]
            )
            for number, program in enumerate(found)
        ]
        hit = stopped_in_turn(lives, kept, chance, stops)
        for life in lives:
            life.result()
        kept.check()
        check(world, kept)
    anyio.run(store.close)
    assert_at_rest(url, run_ids)
    return hit, sum(holders(journal) for journal in kept.journals.values())


def test_runs_that_four_processes_fight_for_are_each_driven_once(places: Places) -> None:
    with programs(4, "contest") as found:
        hit, taken = fight(places, found, seed=1, runs=8, stops=3, slowest=0.4)
    print(f"{hit} stops, 8 runs were taken up {taken} times")
    assert hit >= 2, "the runs were over before anybody was stopped"
    assert taken > 8, "no run changed hands"


def fight_for_threads(places: Places, found: Sequence[Program], seed: int, runs: int) -> int:
    """A fight in which the holder of each run is stopped while calls wait for threads; how many were taken over."""
    run_ids = [f"r{number}" for number in range(runs)]
    url = places.new()
    store = open_store(url)
    kept = Kept(store, run_ids)
    taken = 0
    with outside(seed, slowest=0.05) as world:
        lives = {}
        for number, program in enumerate(found):
            backend = ("asyncio", "trio")[(number + seed) % 2]
            life = program.begin(
                "fight", store=url, url=world.url, runs=run_ids, graph="books", ttl=LONG_TTL, backend=backend
            )
            lives[life.name] = life
        for _ in run_ids:
            gate = world.close("book")
            before = len(world.asked)
            crowded = world.crowded("book", AT_A_TIME, before, seconds=60)
            if crowded is None:
                break  # they are all over
            victim = lives[crowded]
            victim.stop(url)
            gate.set()
            keys = {asked.key for asked in world.asked if asked.life == crowded}
            until = time.monotonic() + 120
            while time.monotonic() < until and not ended_with(kept, keys):
                time.sleep(0.05)
            taken += ended_with(kept, keys)
            victim.send(signal.SIGCONT)
        world.gates.pop("book").set()
        for life in lives.values():
            life.result()
        kept.check()
        check(world, kept)
    return taken


def ended_with(kept: Kept, keys: set[str]) -> bool:
    """Whether every run has ended that made one of these calls."""
    kept.check()
    journals = [one for run_id, one in kept.journals.items() if keys & set(names(one, run_id).values())]
    return all(isinstance(journal[-1], Ended) for journal in journals)


def test_no_call_is_made_by_a_process_that_was_stopped_while_its_calls_waited_for_threads(places: Places) -> None:
    with programs(2, "contest") as found:
        assert fight_for_threads(places, found, seed=1, runs=1) == 1


@pytest.mark.storm
def test_a_long_fight_for_threads(places: Places, scale: int) -> None:
    taken = 0
    with programs(3, "contest") as found:
        for seed in range(200, 200 + scale):
            taken += fight_for_threads(places, found, seed, runs=6)
    assert taken >= scale


@pytest.mark.storm
def test_a_long_fight(places: Places, scale: int) -> None:
    hits = 0
    with programs(4, "contest") as found:
        for seed in range(100, 100 + scale):
            hit, taken = fight(places, found, seed, runs=40, stops=12, slowest=0.8)
            print(f"seed {seed}: {hit} stops, 40 runs were taken up {taken} times")
            hits += hit
    assert hits >= 3 * scale
