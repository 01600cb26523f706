"""The command `workers`: who works on a store."""

from __future__ import annotations

import signal
import time
from typing import Any

from orchestrator.stores.rows import MAX_DEATHS
from tests.cli.test_worker import APP, FAULT, give_up
from tests.support.shell import Shell


def listed(shell: Shell, count: int) -> list[dict[str, Any]]:
    """Wait until so many workers are listed."""
    until = time.monotonic() + 60
    while len(found := shell("workers", "--json").json["workers"]) != count:
        assert time.monotonic() < until, found
        time.sleep(0.1)
    return found


def test_workers_are_listed_with_what_they_hold_and_those_that_were_killed_as_dead(shell: Shell) -> None:
    shell.place.joinpath("shop.py").write_text(APP)
    none = shell("workers")
    assert (none.code, none.out, "no workers in" in none.err) == (0, "", True)
    assert shell("workers", "--json").json == {"workers": [], "parked": []}
    assert shell("enqueue", "shop:graph", "--input", '{"n": 1}', "--run-id", "r").code == 0
    with shell.begin("worker", "--app", "shop:app", "--slots", "3") as worker:
        assert worker.first_line() == "first\n"
        (row,) = listed(shell, 1)
        assert (row["state"], row["worker"], row["graphs"], row["slots"]) == ("alive", True, ["slow"], 3)
        assert (row["held"], row["runs"]) == (1, ["r"])
        heading, line = shell("workers").out.splitlines()
        assert heading.split() == ["HOLDER", "STATE", "HOST", "PID", "HEARTBEAT", "HOLDS", "GRAPHS", "RUNS"]
        cells = line.split()
        assert (cells[0], cells[1], cells[3]) == (row["id"], "alive", str(row["pid"]))
        assert cells[-3:] == ["1/3", "slow", "r"]
        worker.signal(signal.SIGKILL)
        worker.end()
    (dead,) = listed(shell, 1)
    assert (dead["id"], dead["state"], dead["runs"]) == (row["id"], "dead", ["r"])


def test_a_worker_that_stops_as_it_should_is_gone_from_the_list(shell: Shell) -> None:
    shell.place.joinpath("shop.py").write_text(APP)
    with shell.begin("worker", "--app", "shop:app") as worker:
        listed(shell, 1)
        worker.signal(signal.SIGTERM)
        assert worker.end().code == 0
    assert listed(shell, 0) == []


def test_parked_runs_are_named_with_what_continues_them(shell: Shell) -> None:
    assert shell("enqueue", "tool_user", "What is 2+3?", "--run-id", "r").code == 0
    give_up(shell, "r", FAULT, MAX_DEATHS)
    told = shell("workers").err
    assert "parked runs: 1 (r)" in told
    assert "`resume RUN` continues it" in told
    (row,) = shell("workers", "--json").json["parked"]
    assert (row["run_id"], row["graph"], row["deaths"]) == ("r", "tool_user", MAX_DEATHS)
    assert "hunter22" not in row["fault"]
