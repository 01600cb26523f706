"""The disk form of the crash kit: nothing is wrong with what ships, and what is wrong elsewhere is found."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from orchestrator.executor import Executor
from orchestrator.stores import open_store
from orchestrator.testing import CrashUnsafe, assert_disk_safe
from orchestrator.testing.crash import processes
from orchestrator.testing.crash.child import Fault, before_and_after, log_of, tear
from orchestrator.testing.crash.processes import Life, written
from tests.support.executors import says, single
from tests.support.sizes import sized


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
def test_disks_that_fail_do_no_harm(anyio_backend: str) -> None:
    faults: list[Fault] = sized(["torn"], ["error", "torn"])
    report = assert_disk_safe("tests.testing.shop:shop_program", runs=1, faults=faults, seed=3, backend=anyio_backend)
    assert (report.status, report.stops) == ("completed", len(faults))


@pytest.mark.parametrize("anyio_backend", sized(["asyncio"], ["trio"]))
def test_a_strategy_survives_a_full_disk(anyio_backend: str) -> None:
    report = assert_disk_safe(
        "tests.testing.shop:tool_user_program", runs=1, faults=["full"], seed=10, backend=anyio_backend
    )
    assert (report.status, report.stops) == ("completed", 1)


@pytest.mark.storm
@pytest.mark.parametrize("program", ["shop_program", "tool_user_program"])
def test_a_storm_of_failing_disks_does_no_harm(program: str, scale: int, anyio_backend: str) -> None:
    report = assert_disk_safe(f"tests.testing.shop:{program}", runs=scale, seed=scale, backend=anyio_backend)
    print(f"\n{program} on {anyio_backend}: {report}")
    assert report.stops >= scale * 3 * 0.6  # of some runs the drawn write never comes


# -- what it finds -------------------------------------------------------------------------------------------------


def found_in(program: str, **options: object) -> str:
    """What the kit says of a program."""
    with pytest.raises(CrashUnsafe) as caught:
        assert_disk_safe(f"tests.testing.broken:{program}", runs=1, **options)
    return str(caught.value)


def test_it_finds_a_store_that_swallows_a_failed_write() -> None:
    found = found_in("swallowing", faults=["full"], seed=3)
    assert "run 0 of seed 3, disk full at write " in found
    assert "the journal does not say that it was intended" in found


@pytest.mark.storm
@pytest.mark.parametrize("fault", ["full", "error"])
@pytest.mark.parametrize(
    ("program", "said"), [("nameless", "the process gave up: no"), ("waiting", "the process has not ended in time")]
)
def test_it_finds_who_does_not_say_what_happened(program: str, said: str, fault: str) -> None:
    found = found_in(program, faults=[fault], seed=3, timeout=20.0)
    assert f"it must end with a `StoreUnavailable` that names the file; {said}" in found


# -- tearing -------------------------------------------------------------------------------------------------------


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """A store as a process leaves it that is killed right after it has written a run."""
    found = Life("program", tmp_path / "life", "asyncio", 60.0)

    async def live() -> None:
        file = tmp_path / "runs.db"
        store = open_store(f"sqlite:///{file}")
        async with Executor() as executor:
            for number in range(3):
                await executor.start(single(says("n"), name="g"), run_id=f"r{number}")
                await executor.store.copy(f"r{number}", store)
            for mine, its in ((file, found.file), (log_of(file), log_of(found.file))):
                shutil.copy(mine, its)
        await store.close()

    anyio.run(live)
    return found


def test_a_torn_write_is_there_or_not(life: Life, tmp_path: Path) -> None:
    before, after = (sorted(written(f"sqlite:///{file}")) for file in before_and_after(life.file))
    assert (before, after) == (["r0", "r1"], ["r0", "r1", "r2"])
    found = []
    for seed in range(30):
        copy = shutil.copy(life.file, tmp_path / "copy.db")
        shutil.copy(log_of(life.file), log_of(copy))
        done = tear(copy, random.Random(seed))
        found.append(sorted(written(f"sqlite:///{copy}")))
        assert found[-1] in (before, after), done
        with closing(sqlite3.connect(copy)) as file:
            assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert before in found
    assert after in found


@pytest.mark.parametrize("more", [False, True])
def test_it_is_seen_if_more_is_torn(life: Life, monkeypatch: pytest.MonkeyPatch, more: bool) -> None:
    if more:
        monkeypatch.setattr(processes, "tear", lambda file, chance: log_of(file).write_bytes(b""))
    processes._tear(life, random.Random(0))
    fault = "the journal ends neither before the torn write nor after it"
    assert life.faults == ([fault] if more else [])
