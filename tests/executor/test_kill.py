"""A process is killed at any moment, over and over, and its run goes on in the next one as if nothing had been."""

from __future__ import annotations

import itertools
import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import RunUnknown
from orchestrator.kernel.records import EffectIntended, EffectSettled, Ended, Record, StepDone, StepRetried
from orchestrator.stores import open_store
from tests.executor.lives import Life, Program, programs
from tests.executor.outside import Outside, outside

IRREVERSIBLE = {"book", "order", "send"}


@dataclass
class Seen:
    """What the journal of a killed run promised at each death, and whether the outside saw it kept."""

    run_id: str
    settled: dict[str, Any] = field(default_factory=dict)
    """Effects whose end was durable at the last death -> their result."""
    head: int = 0
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


def check(world: Outside, records: Sequence[Record], seen: Seen) -> None:
    """Hold what the outside saw in the last life against the journal that the life before had left."""
    name_of = names(records, seen.run_id)
    known = set(name_of.values())
    since = world.asked[seen.requests :]
    for asked in world.asked:
        assert asked.key in known, f"{asked} was asked for and the journal does not know of it"
    kept = {name_of[key] for key in seen.settled}
    for asked in since:
        assert asked.key not in kept, f"{asked} was asked for again; its result had been journaled"
    for asked, times in Counter(since).items():
        assert times == 1, f"{asked} was asked for {times} times by one process"
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert len(records) >= seen.head, "records that were durable are gone"
    settled = {record.key: record.result for record in records if isinstance(record, EffectSettled) and record.ok}
    for key, result in seen.settled.items():
        assert settled[key] == result
    seen.settled, seen.head, seen.requests = settled, len(records), len(world.asked)


def killer(chance: random.Random, world: Outside, life: Life) -> threading.Timer | None:
    """Kill a process at some moment: after some time, or as a request arrives, or as it is answered."""
    way = chance.choice(("asked", "answered", "time", "time"))
    wait = chance.choice((0.0, 0.0, chance.uniform(0, 0.005)))

    def strike() -> None:
        time.sleep(wait)
        life.kill()

    if way == "time":
        timer = threading.Timer(chance.uniform(0, 0.15), life.kill)
        timer.start()
        return timer
    world.at(way, chance.randrange(6), strike)
    return None


def until_it_ends(
    program: Program, world: Outside, store: str, run_id: str, chance: random.Random, kills: int
) -> tuple[dict[str, Any], int, list[Record]]:
    """A run to its end, its process killed at most so many times: result, deaths and journal."""
    seen = Seen(run_id)
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
        check(world, records, seen)
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


def storm(tmp_path: Path, seeds: Sequence[int], kills: int) -> int:
    """Runs that are killed, held against one that is not; how often they were."""
    deaths = 0
    with programs() as (program,):
        with outside() as world:
            chance = random.Random(0)
            whole, none, journal = until_it_ends(program, world, f"sqlite:///{tmp_path}/whole.db", "r", chance, 0)
        assert none == 0
        assert whole["status"] == "completed", whole["error"]
        assert len(world.asked) == 1 + (4 + 1) * 2 + 2 + 1 + 3 * 2
        for seed in seeds:
            store = f"sqlite:///{tmp_path}/{seed}.db"
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
            with sqlite3.connect(f"{tmp_path}/{seed}.db") as file:
                assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            file.close()
    return deaths


def test_a_run_that_is_killed_over_and_over_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    deaths = storm(tmp_path, range(4), kills=12)
    assert deaths >= 20, "too few of the kills hit"


@pytest.mark.storm
def test_a_storm_of_kills(tmp_path: Path, scale: int) -> None:
    deaths = storm(tmp_path, range(1000, 1000 + 25 * scale), kills=20)
    assert deaths >= 75 * scale
