"""Pages keep what they read of a run; of a run that is deleted they show nothing, though another one has its id."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from orchestrator.clock import Clock
from orchestrator.executor.run_log import LastSeen
from orchestrator.stores.rows import RunInfo
from orchestrator.web.endpoint import Service
from tests.web.api import Api, api, letter

PAGES = (
    "inbox", "runs/same/questions", "runs/same", "runs/same/data", "runs", "compare?runs=same,other",
    "compare?runs=other,same",
)  # fmt: skip


@pytest.fixture
def server() -> Iterator[Api]:
    with api(letter) as found:
        found.start("letter", run_id="other")
        yield found


def shown(server: Api, page: str) -> str:
    answer = server.client.get(f"/{page}")
    assert answer.status_code == 200, (page, answer.text)
    return answer.text


def replaced(server: Api, *, elsewhere: bool) -> None:
    server.post("runs", 201, graph="letter", input="GONE", run_id="same", wait=True)
    for page in PAGES:
        assert "GONE" in shown(server, page), page
    if elsewhere:  # by another process, of which the server knows nothing
        server.portal.call(server.executor.delete, "same")
    else:
        assert server.client.delete("/api/runs/same").status_code == 200
    server.post("runs", 201, graph="letter", input="THERE", run_id="same", wait=True)


@pytest.mark.full
@pytest.mark.parametrize("elsewhere", [False, True])
def test_another_run_with_the_id_of_a_deleted_one_shows_its_own_words(server: Api, elsewhere: bool) -> None:
    replaced(server, elsewhere=elsewhere)
    for page in PAGES:
        found = shown(server, page)
        assert "GONE" not in found, page
        assert "THERE" in found, page


@pytest.mark.full
def test_what_was_read_of_a_run_is_dropped_when_it_is_deleted(server: Api) -> None:
    replaced(server, elsewhere=False)
    server.client.delete("/api/runs/same")
    (kept,) = [one for one in gc.get_objects() if type(one) is Service and one.executor is server.executor]
    assert [key[0] for key in kept.surroundings] == ["other"]
    assert "same" not in kept.feeds._feeds
    assert not any("same" in ids for ids in kept.alignments._kept)


class Steady(Clock):
    """A clock that a test moves."""

    time = 0.0

    def now(self) -> float:
        return 1000.0

    def steady(self) -> float:
        return self.time


def test_a_run_with_the_id_of_a_deleted_one_has_its_own_deadline() -> None:
    clock = Steady()
    last_seen = LastSeen(clock)
    old = RunInfo("same", "letter", "paused", created=1.0, updated=900.0, head=4, due=5000.0)
    assert not last_seen.overdue(old)
    clock.time = 5000.0
    assert last_seen.overdue(old)
    assert not last_seen.overdue(RunInfo("same", "letter", "paused", created=2.0, updated=900.0, head=4, due=5000.0))
