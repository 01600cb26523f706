"""Workers and their database on hosts of their own: hosts and cables fail, and runs go on as if nothing had been."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.executor.cluster import cluster
from tests.executor.cluster_faults import KINDS, OF_WORKERS, Fault, plan
from tests.executor.cluster_figures import Figures, figures
from tests.support.programs import run

TTL = 2.0
QUICK = {"connect_timeout": 2, "keepalives_idle": 1, "keepalives_interval": 1, "keepalives_count": 2,
         "tcp_user_timeout": 1000}  # fmt: skip
"""A worker notices a silent network within its lease; leases that last as long as usual need none of it."""


def storm(faults: list[Fault], seed: int) -> Figures:
    """Let faults happen to a cluster that works, one after the other, and hold what came of it against the laws."""
    with cluster(seed=seed, ttl=TTL, **QUICK) as found:
        for fault in faults:
            found.strike(fault)
        found.office.close()
        result = figures(found)
    result.check()
    return result


def test_a_plan_of_faults_follows_from_its_seed_and_has_all_kinds() -> None:
    one = plan(1, 45, TTL)
    assert one == plan(1, 45, TTL)
    assert one != plan(2, 45, TTL)
    assert set(Counter(fault.kind for fault in one).values()) == {45 // len(KINDS)}
    assert {fault.victim for fault in one if fault.kind in OF_WORKERS} == {0, 1}
    longer = [fault.length > TTL for fault in one if fault.kind not in ("kill", "database_kill")]
    assert any(longer)
    assert not all(longer)


@pytest.mark.hosts
def test_runs_go_on_and_nothing_is_done_twice_whatever_fails() -> None:
    longer = [Fault(kind, number % 2, 0.3, 0.3 if kind == "database_kill" else TTL * 1.3)
              for number, kind in enumerate(KINDS)]  # fmt: skip
    result = storm(longer, seed=1)
    print("\n".join(result.lines()))
    assert result.runs > len(KINDS)
    assert len(result.taken_over) > 2, "the victims had nothing to do"


@pytest.mark.hosts
def test_a_worker_that_is_cut_off_is_listed_as_lapsed_until_it_is_healed() -> None:
    with cluster(seed=2, ttl=TTL, **QUICK) as found:
        url, (victim, other) = found.database.url(), found.workers

        def listed() -> dict[str, str]:
            done = run(("workers", "--json", "--store", url), module="orchestrator")
            assert done.code == 0, done.err
            return {one["host"]: one["state"] for one in json.loads(done.out)["workers"] if one["worker"]}

        both_alive = {victim.host.name: "alive", other.host.name: "alive"}
        found.wait_for(lambda: listed() == both_alive, "both are listed")
        victim.host.unplug()
        found.wait_for(lambda: listed() == both_alive | {victim.host.name: "lapsed"}, "one is listed as lapsed")
        victim.host.plug()
        found.wait_for(lambda: listed() == both_alive, "it is listed again", victim)
        found.office.close()
        figures(found).check()


@pytest.mark.storm
@pytest.mark.timed
def test_a_storm_of_faults(scale: int) -> None:
    """`--storm-scale N`: 15 N faults."""
    result = storm(plan(scale, 15 * scale, TTL), seed=scale)
    print("\nstorm of faults:", *result.lines(), sep="\n  ")
    assert result.faults.total() == 15 * scale
