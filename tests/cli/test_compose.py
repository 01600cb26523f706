"""The compose file of docs/examples/scale: its workers, tried as processes on a database of the tests."""

from __future__ import annotations

import shutil
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.support.pg_standby import wait_for
from tests.support.postgres import PostgresDatabase
from tests.support.programs import ROOT
from tests.support.shell import Shell

EXAMPLE = ROOT / "docs" / "examples" / "scale"


@pytest.mark.full
def test_the_workers_of_the_compose_file_share_the_runs(postgres: PostgresDatabase, shell: Shell) -> None:
    services = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())["services"]
    workers = {name: service for name, service in services.items() if name != "database"}
    assert len(workers) == 3
    shutil.copy(EXAMPLE / "agents.py", shell.place)
    with ExitStack() as stack:
        env = {"ORCHESTRATOR_STORE": postgres.url}
        begun = []
        for service in workers.values():
            program, *words = service["command"]
            assert program == "orchestrator"
            assert service["environment"]["ORCHESTRATOR_STORE"].startswith("postgresql://")
            begun.append(stack.enter_context(shell.begin(*words, env=env)))
        at = ("--store", postgres.url)
        for number in range(9):
            put = shell("enqueue", "agents:orders", f"{number} kettles", "--run-id", f"r{number}", *at)
            assert put.code == 0, put.err
        wait_for(lambda: len(shell("runs", "--status", "completed", "--json", *at).json) == 9, 60)
        (row,) = shell("runs", "--search", "7 kettles", "--json", *at).json
        assert row["output"] == "shipped 7"
        assert [one["state"] for one in shell("workers", "--json", *at).json["workers"]] == ["alive"] * 3
        for one in begun:
            one.signal(signal.SIGTERM)
        assert [one.end().code for one in begun] == [0, 0, 0]


def test_the_image_of_the_compose_file_is_made_of_files_that_are_there() -> None:
    lines = (EXAMPLE / "Dockerfile").read_text().splitlines()
    copied = [Path(line.split()[1]) for line in lines if line.startswith("COPY")]
    assert copied
    assert all((ROOT / path).exists() for path in copied)
    compose = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())
    build = compose["x-worker"]["build"]
    assert (EXAMPLE / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).exists()
