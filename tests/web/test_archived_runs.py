"""Pages and answers of runs whose records are in an archive: with the archive, and without it."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.web.api import api
from tests.web.test_encrypted_runs import text_of

NEEDS = "run 'done': its records are in the archive"


@pytest.mark.full
def test_an_archived_run_is_read_with_its_archive_and_without_it_the_answer_says_where_it_is(tmp_path: Path) -> None:
    url, archive = f"sqlite:///{tmp_path}/runs.db", f"file://{tmp_path}/archive"
    with api(store=url, archive=archive) as served:
        served.start("plain", run_id="done")
        assert served.get("runs")["runs"][0]["archived"] is None
        assert "archived" not in text_of(served, "/runs")
        found = served.portal.call(partial(served.executor.archive, older_than=timedelta(0)))
        assert found.runs == ["done"]
        assert "draft of bees" in text_of(served, "/runs/done")
        assert served.get("runs/done")["output"] == ["draft of bees", "finished"]
        where = served.get("runs/done")["archived"]
        assert (where["archive"], where["size"]) == (archive, found.written)
        assert served.get("runs")["runs"][0]["archived"] == where
        line = f"{archive}, object {where['name']} ({where['size']:,} bytes)"
        assert f'title="Its records are in {line}">archived<' in text_of(served, "/runs")
        assert f'"archived":"{line}"' in text_of(served, "/runs/done"), "of the page's script"
    with api(store=url) as served:
        assert "bees" in text_of(served, "/runs"), "its row is there"
        assert NEEDS in text_of(served, "/runs/done", 409)
        assert NEEDS in served.get("runs/done", 409)["detail"]
        assert archive in served.get("runs/done", 409)["detail"]


def test_a_fork_by_the_page_moves_the_records_of_its_parent_back(tmp_path: Path) -> None:
    with api(store=f"sqlite:///{tmp_path}/runs.db", archive=f"file://{tmp_path}/archive") as served:
        served.start("plain", run_id="done")
        served.portal.call(partial(served.executor.archive, older_than=timedelta(0)))
        assert '"archived":"file:' in text_of(served, "/runs/done")
        forked = served.post("runs/done/fork", 201, at=2, run_id="other")
        assert forked["parent"]["run_id"] == "done"
        assert served.get("runs/done")["archived"] is None
        assert '"archived":null' in text_of(served, "/runs/done"), "the page notices, although no record came"
