"""A process is killed at any moment, over and over, and its run goes on in the next one as if nothing had been."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from typing import Any

import anyio
import pytest

from orchestrator.errors import RunUnknown
from orchestrator.kernel.question import Value
from orchestrator.kernel.records import (
    Answered,
    Asked,
    EffectIntended,
    EffectSettled,
    Ended,
    Record,
    StepDone,
    StepRetried,
)
from orchestrator.stores import Store, open_store
from tests.executor.lives import Life, Program, programs
from tests.executor.outside import Outside, outside
from tests.executor.tour import IRREVERSIBLE as IRREVERSIBLE_IN_TOUR
from tests.support.sizes import sized
from tests.support.stores import Places, assert_at_rest

IRREVERSIBLE = {"book", "order", "send"}


@dataclass
class Seen:
    """What the journals of killed runs promised at each death, and whether the outside saw it kept."""

    settled: dict[str, Any] = field(default_factory=dict)
    """Effects whose end was durable at the last death -> their result."""
    heads: dict[str, int] = field(default_factory=dict)
    requests: int = 0


def names(records: Sequence[Record], run_id: str) -> dict[str, str]:
    """Effects in the journal -> what the outside knows them by."""
    found: dict[str, str] = {}
    for record in records:
        if isinstance(record, EffectIntended) and record.key not in found:
            if record.kind == "model":
                found[record.key] = record.request["messages"][-1]["content"]  # type: ignore[index]
            else:
                found[record.key] = f"{run_id} send" if record.name == "send" else record.key
    return found


def check(world: Outside, journals: Mapping[str, Sequence[Record]], seen: Seen) -> None:
    """Hold what the outside saw in the last life against the journals that the life before had left."""
    name_of: dict[str, str] = {}
    settled: dict[str, Any] = {}
    for run_id, records in journals.items():
        name_of |= names(records, run_id)
        settled |= {record.key: record.result for record in records if isinstance(record, EffectSettled) and record.ok}
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        assert len(records) >= seen.heads.get(run_id, 0), "records that were durable are gone"
        seen.heads[run_id] = len(records)
    known = set(name_of.values())
    for asked in world.asked:
        assert asked.key in known, f"{asked} was asked for and the journal does not know of it"
    since = world.asked[seen.requests :]
    kept = {name_of[key] for key in seen.settled}
    for asked in since:
        assert asked.key not in kept, f"{asked} was asked for again; its result had been journaled"
    for asked, times in Counter(since).items():
        assert times == 1, f"{asked} was asked for {times} times by one process"
    for key, result in seen.settled.items():
        assert settled[key] == result
    seen.settled, seen.requests = settled, len(world.asked)


def killer(chance: random.Random, world: Outside, life: Life, within: float = 0.15) -> threading.Timer | None:
    """Kill a process at some moment: after some time, or as a request arrives, or as it is answered.

    Args:
        chance: decides.
        world: which the process asks.
        life: the process.
        within: seconds.
    """
    way = chance.choice(("asked", "answered", "time", "time"))
    wait = chance.choice((0.0, 0.0, chance.uniform(0, 0.005)))

    def strike() -> None:
        time.sleep(wait)
        life.kill()

    if way == "time":
        timer = threading.Timer(chance.uniform(0, within), life.kill)
        timer.start()
        return timer
    world.at(way, chance.randrange(6), strike)
    return None


def until_it_ends(
    program: Program, world: Outside, store: str, run_id: str, chance: random.Random, kills: int
) -> tuple[dict[str, Any], int, list[Record]]:
    """A run to its end, its process killed at most so many times: result, deaths and journal."""
    seen = Seen()
    file = open_store(store)
    for deaths in itertools.count():
        backend = chance.choice(("asyncio", "trio"))
        life = program.begin("trip", store=store, url=world.url, run_id=run_id, backend=backend)
        timer = killer(chance, world, life) if deaths < kills else None
        told = life.end()
        world.at("asked", 0, None)
        if timer is not None:
            timer.cancel()
            timer.join()
        world.settle()
        try:
            records = file.read_now(run_id)
        except RunUnknown:
            records = []
        check(world, {run_id: records}, seen)
        if "result" in told:
            return told["result"], deaths, records
        assert told["ended"] == -9, told
    raise AssertionError


def unsettled(records: Sequence[Record]) -> set[str]:
    """Effects of which the journal does not say how they ended."""
    found: set[str] = set()
    for record in records:
        if isinstance(record, EffectIntended):
            found.add(record.key)
        elif isinstance(record, EffectSettled):
            found.discard(record.key)
    return found


def story(records: Sequence[Record]) -> list[tuple[Any, ...]]:
    """What every step did, whenever it did it."""
    return sorted(
        (record.path, record.node, record.attempt, record.outcome if isinstance(record, StepDone) else "retry",
         str(record.update) if isinstance(record, StepDone) else "")
        for record in records
        if isinstance(record, StepDone | StepRetried)
    )  # fmt: skip


def storm(places: Places, seeds: Sequence[int], kills: int) -> int:
    """Runs that are killed, held against one that is not; how often they were."""
    deaths = 0
    with programs() as (program,):
        with outside() as world:
            chance = random.Random(0)
            whole, none, journal = until_it_ends(program, world, places.new(), "r", chance, 0)
        assert none == 0
        assert whole["status"] == "completed", whole["error"]
        assert len(world.asked) == 1 + (4 + 1) * 2 + 2 + 1 + 3 * 2
        for seed in seeds:
            store = places.new()
            chance = random.Random(seed)
            with outside(seed) as world:
                result, died, records = until_it_ends(program, world, store, "r", chance, kills)
            deaths += died
            assert result == whole, f"seed {seed}"
            assert story(records) == story(journal), f"seed {seed}"
            assert isinstance(records[-1], Ended)
            assert not unsettled(records), f"seed {seed}"
            counts = Counter((asked.what, asked.key) for asked in world.asked)
            for (what, key), times in counts.items():
                assert times == 1 or what not in IRREVERSIBLE, f"seed {seed}: {what} {key} was done {times} times"
            assert {what for what, _ in counts} == {"model", "fetch", "book", "order", "send", "save"}
            assert_at_rest(store, ["r"])
            places.drop(store)
    return deaths


def test_a_run_that_is_killed_over_and_over_ends_as_if_it_had_not_been(places: Places) -> None:
    deaths = storm(places, range(sized(2, 3)), kills=sized(6, 12))
    assert deaths >= sized(3, 6), "too few of the kills hit"  # on a busy machine a run may end before its kill


@pytest.mark.storm
def test_a_storm_of_kills(places: Places, scale: int) -> None:
    deaths = storm(places, range(1000, 1000 + 6 * scale), kills=20)
    assert deaths >= 12 * scale


# -- several runs in one process, and nobody but a person who can look up what became of an effect ---------------------


@dataclass
class Tally:
    """What a storm came to."""

    runs: int = 0
    kills: int = 0
    """Processes that were killed while a run of theirs had not ended."""
    effects: Counter[str] = field(default_factory=Counter)
    """Class -> how many there were to do."""
    questions: int = 0
    """How often a person had to look what became of an effect."""
    happened: int = 0
    """How often it had happened."""
    repeated: Counter[str] = field(default_factory=Counter)
    """Class -> how often one was done once more."""
    lost: int = 0
    """Effects that the journal says were done, and that nobody saw."""

    def merge(self, other: Tally) -> None:
        """Count what another storm came to as well."""
        for part in fields(self):
            vars(self)[part.name] += getattr(other, part.name)

    def __str__(self) -> str:
        classes = sorted(self.effects)
        return (
            f"storm of kills: {self.runs} runs, {self.kills} kills, effects "
            f"{ {name: self.effects[name] for name in classes} }, {self.questions} questions ({self.happened} had "
            f"happened), repeated { {name: self.repeated[name] for name in classes} }, lost {self.lost}"
        )

    def add(self, world: Outside, run_id: str, records: Sequence[Record]) -> None:
        """Count one run that has ended."""
        done = Counter(asked.key for asked in world.asked if asked.what != "refused")
        name_of = names(records, run_id)
        class_of = {record.key: record.effect for record in records if isinstance(record, EffectIntended)}
        self.runs += 1
        for key, effect in class_of.items():
            times = done[name_of[key]]
            self.effects[effect] += 1
            self.repeated[effect] += max(0, times - 1)
            self.lost += not times
        asked = {r.question.id for r in records if isinstance(r, Asked) and r.question.kind == "unknown_outcome"}
        self.questions += len(asked)
        for record in records:
            if isinstance(record, Answered) and record.question in asked:
                told = record.answer.value if isinstance(record.answer, Value) else None
                self.happened += isinstance(told, dict) and told["choice"] == "happened"


def journals_of(store: Store, run_ids: Sequence[str]) -> dict[str, list[Record]]:
    """The records of those runs that are there."""
    found: dict[str, list[Record]] = {}
    for run_id in run_ids:
        with contextlib.suppress(RunUnknown):
            found[run_id] = store.read_now(run_id)
    return found


def all_to_their_ends(
    program: Program,
    world: Outside,
    url: str,
    run_ids: Sequence[str],
    chance: random.Random,
    kills: int,
    within: float = 0.15,
) -> tuple[dict[str, Any], int, dict[str, list[Record]]]:
    """Runs of one process to their ends, the process killed at most so many times: results, deaths and journals."""
    seen, deaths = Seen(), 0
    store = open_store(url)
    while True:
        life = program.begin(
            "tour", store=url, url=world.url, run_ids=run_ids, backend=chance.choice(("asyncio", "trio"))
        )
        timer = killer(chance, world, life, within) if deaths < kills else None
        told = life.end()
        world.at("asked", 0, None)
        if timer is not None:
            timer.cancel()
            timer.join()
        world.settle()
        journals = journals_of(store, run_ids)
        check(world, journals, seen)
        if "result" in told:
            anyio.run(store.close)
            return told["result"], deaths, journals
        assert told["ended"] == -9, told
        deaths += any(run_id not in journals or not isinstance(journals[run_id][-1], Ended) for run_id in run_ids)


def storm_of_questions(places: Places, sizes: Sequence[int], first: int = 0) -> Tally:
    """So many runs beside each other in one process and one store, one group after the other; each is killed.

    Args:
        places: where the stores are.
        sizes: of the groups.
        first: the number of the first group, by which its kills are drawn.
    """
    tally = Tally()
    with programs(module="tour") as (program,):
        with outside() as world:
            url = places.new()
            began = time.monotonic()
            whole, none, _ = all_to_their_ends(program, world, url, ["whole"], random.Random(0), 0)
            within = min(0.15, (time.monotonic() - began) / 4)  # on a quick machine a life does more in the same time
            assert none == 0
            assert whole["whole"]["status"] == "completed", whole
            assert len(set(world.asked)) == len(world.asked)
        for group, size in enumerate(sizes, first):
            url = places.new()
            run_ids = [f"{group}-{number}" for number in range(size)]
            with outside(group) as world:
                results, deaths, journals = all_to_their_ends(
                    program, world, url, run_ids, random.Random(group), kills=5 * size, within=within
                )
                tally.kills += deaths
                for run_id in run_ids:
                    expected = json.loads(json.dumps(whole["whole"]).replace("whole", run_id))
                    assert results[run_id] == expected, f"group {group}"
                    assert not unsettled(journals[run_id]), f"group {group}"
                    tally.add(world, run_id, journals[run_id])
                counts = Counter((one.what, one.key) for one in world.asked if one.what in {"order", "ship", "send"})
                assert len(counts) == IRREVERSIBLE_IN_TOUR * size, f"group {group}: {counts}"
                assert set(counts.values()) == {1}, f"group {group}: {counts}"
            assert_at_rest(url, run_ids)
            places.drop(url)
    assert tally.repeated["irreversible"] == 0
    assert tally.lost == 0
    assert tally.effects["irreversible"] == IRREVERSIBLE_IN_TOUR * tally.runs
    assert tally.questions >= tally.runs, tally  # one of each is asked for in any case
    if tally.runs >= 10:  # of a few it may be that no kill hits where it matters
        assert tally.questions > tally.runs, tally
        assert tally.kills >= 4 * tally.runs, f"too few of the kills hit: {tally}"
        assert tally.happened > 0, tally
    return tally


def test_what_nobody_can_look_up_is_asked_and_never_done_twice(places: Places) -> None:
    storm_of_questions(places, (3,))


@pytest.mark.storm
def test_a_storm_of_kills_and_questions(places: Places, scale: int) -> None:
    """`--storm-scale N`: 10 N runs, at least 40 N kills that hit."""
    tally = storm_of_questions(places, (1, 2, 3, 4) * scale)
    print(f"\n{tally}")


@pytest.mark.storm
def test_a_storm_of_thousands_of_kills(places: Places, scale: int, request: pytest.FixtureRequest) -> None:
    """`--storm-scale N`: at least 13 N * N kills that hit on each kind of store, 5,200 with 20, several at a time."""
    places.drop(places.new())  # its server has been started now
    size, at_once = 4, 3
    groups = -(-13 * scale * scale // (4 * size))  # each has 4 kills a run at least
    shares = [range(first, groups, at_once) for first in range(at_once)]
    began, tally = time.monotonic(), Tally()
    with ThreadPoolExecutor(at_once) as pool:
        storms = [
            pool.submit(storm_of_questions, places, (size,) * len(share), 10_000 * (place + 1))
            for place, share in enumerate(shares)
            if share
        ]
        for one in storms:
            tally.merge(one.result())
    assert tally.kills >= 13 * scale * scale
    kind = request.node.callspec.params["places"]
    print(f"\n{kind}: {tally}, in {time.monotonic() - began:.0f} s")
