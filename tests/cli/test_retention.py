"""Commands about which runs a store keeps, and where: export, import, delete, prune, archive, restore."""

from __future__ import annotations

import json

import pytest

from tests.support.shell import Shell


@pytest.fixture
def ran(shell: Shell) -> Shell:
    """A place with runs in it, whose code is gone."""
    shell("run", "trial:two", "roses", "--run-id", "two")
    shell("run", "trial:bad", "x", "--run-id", "bad")
    shell("run", "trial:writer", "x", "--run-id", "writer", "--tools", "trial")
    shell("approve", "writer", "--no-resume")
    (shell.place / "trial.py").unlink()
    return shell


@pytest.mark.full
def test_runs_go_from_one_store_to_another(ran: Shell) -> None:
    file = ran.place / "runs.jsonl"
    exported, printed, unknown = (
        ran("export", "two", "writer", "-o", file),
        ran("export", "two"),
        ran("export", "nosuch", "-o", ran.place / "none.jsonl"),
    )
    assert (exported.code, exported.out) == (0, "")
    assert "2 runs written" in exported.err
    assert file.stat().st_mode & 0o777 == 0o600
    assert [json.loads(line)["type"] for line in printed.out.splitlines()][:3] == ["export", "graph", "run"]
    assert unknown.code == 4
    assert not (ran.place / "none.jsonl").exists()
    for words in (("export", "nosuch"), ("export", "two", "nosuch")):
        assert (ran(*words).code, ran(*words).out) == (4, ""), "nothing is on stdout before an error"
    other = ("--store", f"sqlite:///{ran.place}/other.db")
    added, again = ran("import", file, "--json", *other), ran("import", file, *other)
    assert added.json == {"runs": ["two", "writer"], "skipped": []}
    assert (again.code, again.out) == (0, "")
    assert "in the store already" in again.err
    assert ran("show", "writer", "--json", *other).json["state"] == ran("show", "writer", "--json").json["state"]
    file.write_text(file.read_text()[:-200])
    cut = ran("import", file, *other)
    assert cut.code == 1
    assert "of the export" in cut.err
    piped = ran("import", "-", "--store", f"sqlite:///{ran.place}/third.db", stdin=printed.out)
    assert piped.out == "two\n"


def test_runs_are_deleted_and_pruned(ran: Shell) -> None:
    refused, bad, dry, kept = (
        ran("prune"),
        ran("prune", "--older-than", "yesterday"),
        ran("prune", "--older-than", "0s", "--dry-run", "--json"),
        ran("prune", "--older-than", "30d"),
    )
    assert (refused.code, bad.code) == (2, 2)
    assert "--older-than or --keep" in refused.err
    assert "30d" in bad.err
    assert dry.json["runs"] == ["bad"]
    assert kept.out == ""
    assert ran("delete", "two", "nosuch").code == 4
    assert ran("delete", "two").out == "two\n"
    assert ran("show", "two").code == 4
    assert ran("prune", "--keep", "0", "--status", "failed").out == "bad\n"
    assert ran("prune", "--keep", "0", "--status", "paused").code == 2
    assert [row["run_id"] for row in ran("runs", "--json").json] == ["writer"]


@pytest.mark.full
def test_runs_are_archived_read_and_restored(ran: Shell) -> None:
    before = ran("show", "bad").out
    place = ran.place / "archive"
    assert ran("archive", "--older-than", "0s").code == 2  # no place
    assert "--older-than AGE" in ran("archive", "--to", place).err
    assert ran("archive", "--to", "ftp://x", "--older-than", "0s").code == 1
    dry = ran("archive", "--to", place, "--older-than", "0s", "--dry-run")
    assert (dry.out.split(), place.exists()) == (["bad"], False)
    assert "1 runs would be archived" in dry.err
    done = ran("archive", "--to", place, "--older-than", "0s", "--status", "failed")
    assert (done.code, done.out) == (0, "bad\n")
    assert "1 runs archived: " in done.err
    lost = ran("show", "bad")
    assert lost.code == 1
    assert f"in the archive {place.as_uri()}" in lost.err
    assert "ORCHESTRATOR_ARCHIVE" in lost.err
    ran.env["ORCHESTRATOR_ARCHIVE"] = str(place)
    (file,) = (one for one in place.rglob("*.jsonl"))
    line = f"{place.as_uri()}, object {file.relative_to(place)} ({file.stat().st_size:,} bytes)"
    assert ran("show", "bad").out == before.replace("\nhistory\n", f"\narchived  {line}\nhistory\n")
    (row,) = ran("runs", "--status", "failed", "--json").json
    assert (row["archived"]["archive"], row["archived"]["size"]) == (place.as_uri(), file.stat().st_size)
    assert ran("show", "bad", "--json").json["archived"] == row["archived"]
    assert "failed, archived" in ran("runs", "--status", "failed").out
    assert all(one["archived"] is None for one in ran("runs", "--status", "completed", "--json").json)
    assert ran("why", "bad").code == 0
    assert ran("render", "bad", "--format", "svg", "-o", ran.place / "bad.svg").code == 0
    assert ran("export", "bad", "-o", ran.place / "bad.jsonl").code == 0
    assert ran("import", file, "--store", f"sqlite:///{ran.place}/other.db").out == "bad\n"
    assert ran("archive", "--older-than", "0s", "--json").json["runs"] == []
    assert ran("store", "check").code == 0
    restored = ran("restore", "bad", "writer")
    assert (restored.code, restored.out) == (0, "bad\n")
    assert "writer is in the store already" in restored.err
    assert ran("restore", "nosuch").code == 4
    del ran.env["ORCHESTRATOR_ARCHIVE"]
    assert ran("show", "bad").out == before


def test_a_deletion_says_what_it_did_and_did_not_do(ran: Shell) -> None:
    place = ran.place / "archive"
    ran("archive", "--to", place, "--older-than", "0s")
    for words in (("delete", "two", "bad"), ("prune", "--keep", "0")):
        refused = ran(*words)
        assert refused.code == 1
        assert f"in the archive {place.as_uri()}" in refused.err
        assert refused.out == ("two\n" if words[0] == "delete" else "")
    assert "bad" in ran("prune", "--keep", "0", "--json").json["skipped"]
    ran.env["ORCHESTRATOR_ARCHIVE"] = str(place)
    done = ran("delete", "bad")
    assert (done.code, done.out) == (0, "bad\n")
    assert not [one for one in place.rglob("*.jsonl") if one.is_file()]
