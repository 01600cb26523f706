"""The commands `audit export` and `audit verify`, and what deletions leave for them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from tests.support.shell import Shell


@pytest.fixture
def ran(shell: Shell) -> Shell:
    shell("run", "trial:two", "roses", "--run-id", "two")
    shell("run", "trial:writer", "x", "--run-id", "writer", "--tools", "trial")
    shell("approve", "writer", "--no-resume")
    return shell


def test_an_audit_is_exported_checked_and_compared_with_its_store(ran: Shell) -> None:
    store = ("--store", "sqlite:///.orchestrator/runs.db")
    exported = ran("audit", "export", "-o", "audit.jsonl")
    assert (exported.code, exported.out) == (0, "")
    file = ran.place / "audit.jsonl"
    assert file.stat().st_mode & 0o777 == 0o600
    answered = next(one for one in map(json.loads, ran.read("audit.jsonl")) if one["type"] == "answered")
    assert (answered["decision"], bool(answered["by"]), bool(answered["shown"])) == ("approve", True, True)
    found = ran("audit", "verify", "audit.jsonl", "--json", *store)
    assert (found.code, found.json["runs"], found.json["seals"], found.json["faults"]) == (0, 2, True, [])
    assert found.json["records"] == found.json["sealed"]
    assert ran("export", "two", "-o", "two.jsonl").code == 0
    assert ran("delete", "two", "--reason", "asked for").code == 0
    gone = ran("audit", "export", "two")
    (proof,) = (one["proof"] for one in map(json.loads, gone.out.splitlines()) if one["type"] == "deleted")
    assert (proof["run_id"], proof["rule"], bool(proof["by"])) == ("two", "delete asked for", True)
    assert [one["to"] for one in proof["exports"]] == [str(ran.place / "two.jsonl")]
    assert ran("audit", "verify", "audit.jsonl", *store).code == 0
    with sqlite3.connect(ran.place / ".orchestrator" / "runs.db") as connection:
        connection.execute("DELETE FROM items")
    connection.close()
    lost = ran("audit", "verify", "audit.jsonl", *store)
    assert (lost.code, lost.out) == (1, "")
    assert "run 'two': it is not in the store, and there is no proof of its deletion" in lost.err


def test_what_is_wrong_with_a_file_or_a_key_is_said(ran: Shell) -> None:
    ran("audit", "export", "-o", "audit.jsonl")
    lines = ran.read("audit.jsonl")
    (ran.place / "short.jsonl").write_text("\n".join(lines[:-1]) + "\n")
    cut = ran("audit", "verify", "short.jsonl")
    assert (cut.code, f"line {len(lines)}: the last line is missing" in cut.err) == (1, True)
    (ran.place / "other").write_bytes(b"o" * 32)
    other = ran("audit", "verify", "audit.jsonl", "--key", "other")
    assert (other.code, "line 1: its seal was forged, or made with another key" in other.err) == (1, True)
    (ran.place / "tiny").write_bytes(b"x")
    tiny, none = ran("audit", "verify", "audit.jsonl", "--key", "tiny"), ran("audit", "export", "--key", "nosuch")
    assert (tiny.code, none.code) == (2, 2)
    assert "too short" in tiny.err
    assert ran("audit", "verify", "nosuch.jsonl").code == 1
    assert ran("audit", "export", "nosuch").code == 4
    shutil.rmtree(ran.place / "home")
    missing = ran("audit", "verify", "audit.jsonl")
    assert (missing.code, "--key FILE, or --no-seals" in missing.err) == (2, True)
    unsealed = ran("audit", "verify", "audit.jsonl", "--no-seals")
    assert (unsealed.code, "seals were not checked" in unsealed.out) == (0, True)
    assert ran("audit", "export", "--store", "sqlite:///none.db").code == 2
    assert not (ran.place / "none.db").exists()


def test_users_reasons_and_files_whose_names_are_not_utf8_are_in_proofs(ran: Shell) -> None:
    (folder := ran.place / "f\udcff").mkdir()
    user = {"LOGNAME": "u\udcff"}
    store = ("--store", f"sqlite:///{ran.place}/.orchestrator/runs.db")
    assert ran("export", "two", "-o", "two.jsonl", *store, env=user, cwd=folder).code == 0
    assert ran("delete", "two", "--reason", "bad\udcff", env=user).code == 0
    assert ran("prune", "--keep", "0", "--status", "failed", env=user).code == 0
    gone = ran("audit", "export", "two")
    (proof,) = (one["proof"] for one in map(json.loads, gone.out.splitlines()) if one["type"] == "deleted")
    assert (proof["by"], proof["rule"]) == ("u\ufffd", "delete bad\ufffd")
    assert [(one["to"], one["by"]) for one in proof["exports"]] == [(f"{ran.place}/f\ufffd/two.jsonl", "u\ufffd")]


def test_no_export_is_written_over_the_store(ran: Shell) -> None:
    before = (ran.place / ".orchestrator" / "runs.db").read_bytes()
    (ran.place / "link").symlink_to(".orchestrator/runs.db")
    for name in (".orchestrator/runs.db", ".orchestrator/runs.db-wal", "link"):
        for words in (("audit", "export"), ("export", "two")):
            refused = ran(*words, "-o", name)
            assert (refused.code, "this is a file of the store" in refused.err) == (2, True)
    assert (ran.place / ".orchestrator" / "runs.db").read_bytes() == before


def test_a_store_is_compared_only_with_the_key_that_the_file_was_written_with(ran: Shell) -> None:
    ran("audit", "export", "-o", "audit.jsonl")
    refused = ran("audit", "verify", "audit.jsonl", "--no-seals", "--store", "sqlite:///.orchestrator/runs.db")
    assert (refused.code, "--store needs the key" in refused.err) == (2, True)


def test_a_run_that_is_not_whole_is_said_by_the_export_and_by_its_check(ran: Shell) -> None:
    store = ("--store", "sqlite:///.orchestrator/runs.db")
    with closing(sqlite3.connect(ran.place / ".orchestrator" / "runs.db")) as connection, connection:
        query = "SELECT records.id FROM records JOIN runs ON runs.id = records.id >> 32 WHERE run_id = 'two'"
        connection.execute(f"UPDATE records SET data = x'7b' WHERE id = ({query} ORDER BY 1 LIMIT 1)")
    exported = ran("audit", "export", "-o", "audit.jsonl")
    assert (exported.code, "run two: not all of its records are in the audit" in exported.err) == (0, True)
    for words in ((), store, ("--no-seals",)):
        found = ran("audit", "verify", "audit.jsonl", *words)
        assert (found.code, found.out) == (1, "")
        assert "the file has only 0 records of run 'two': run 'two': record 1 is damaged" in found.err
    assert len(ran("audit", "verify", "audit.jsonl", "--json").json["faults"]) == 1
    with closing(sqlite3.connect(ran.place / ".orchestrator" / "runs.db")) as connection, connection:
        connection.execute("DELETE FROM runs WHERE run_id = 'two'")
    gone = ran("audit", "verify", "audit.jsonl", *store)
    assert "run 'two': it is not in the store, and there is no proof of its deletion" in gone.err


def test_a_file_that_was_exported_without_a_key_is_checked_without_seals(ran: Shell) -> None:
    program = (
        "import anyio, orchestrator as o\n"
        "async def main():\n"
        "    async with o.Executor('sqlite:///.orchestrator/runs.db') as executor:\n"
        "        print(*[line async for line in executor.audit()], sep='\\n', file=open('audit.jsonl', 'w'))\n"
        "anyio.run(main)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ran.place, env={**os.environ, **ran.env}, check=True)
    sealed = ran("audit", "verify", "audit.jsonl")
    assert (sealed.code, "line 1: it has no seal: see --no-seals" in sealed.err) == (1, True)
    unsealed = ran("audit", "verify", "audit.jsonl", "--no-seals")
    assert (unsealed.code, "2 runs with" in unsealed.out) == (0, True)


@pytest.mark.full
@pytest.mark.parametrize("to_file", [True, False])
def test_a_killed_export_leaves_no_file_that_is_taken_for_whole(ran: Shell, to_file: bool) -> None:
    for number in range(60):
        ran("run", "trial:two", "roses" * 100, "--run-id", f"more{number}")
    words = [sys.executable, "-m", "orchestrator", "audit", "export", "--content", *(["-o", "a.jsonl"] * to_file)]
    env = {**os.environ, **ran.env}
    with subprocess.Popen(words, cwd=ran.place, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        if to_file:
            ran.until(lambda: any(ran.place.glob("a.jsonl.*.part")))
        else:
            (ran.place / "a.jsonl").write_bytes(os.read(process.stdout.fileno(), 50_000))
        process.send_signal(signal.SIGKILL)
    was_faster = to_file and (ran.place / "a.jsonl").exists()
    for part in ran.place.glob("a.jsonl.*.part"):
        part.rename(ran.place / "a.jsonl")
    assert ran("audit", "verify", "a.jsonl").code == (0 if was_faster else 1)
