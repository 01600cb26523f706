"""Why here, and a run as a page, on the command line: no key, no code of the run, only the store."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.support.shell import Shell
from tests.support.trial import SECRET


@pytest.fixture(scope="module")
def ran(shared: Shell) -> Shell:
    """A place with runs in it, whose code is gone."""
    shared("run", "trial:writer", "x", "--run-id", "writer", "--tools", "trial")
    shared.all(
        ("run", "trial:two", "roses", "--run-id", "two"),
        ("run", "trial:bad", "x", "--run-id", "bad"),
    )
    (shared.place / "trial.py").unlink()
    return shared


def page_data(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.full
def test_why_tells_where_a_run_stands(ran: Shell) -> None:
    waits, failed, unknown, wrong = ran.look(
        ("why", "writer"), ("why", "bad", "--json"), ("why", "nosuch"), ("why", "writer", 9999)
    )
    assert waits.code == 0
    assert "it is waiting for an answer: approval at " in waits.out
    assert "  came  " in waits.out
    assert failed.json["status"] == "failed"
    assert " failed (record " in failed.json["why"]
    assert failed.json["steps"][0]["status"] == "failed"
    assert SECRET not in failed.out
    assert unknown.code == 4
    assert wrong.code == 2
    assert "it has 1 to " in wrong.err


def test_why_of_a_step_and_show_say_the_same(ran: Shell) -> None:
    show, shown = ran.look(("show", "writer"), ("show", "writer", "--json"))
    first = shown.json["history"][0]["seq"]
    one, as_json = ran.look(("why", "writer", first), ("why", "writer", first, "--json"))
    assert shown.json["why"] in show.out
    assert as_json.json["why"] in show.out
    assert f"record {first})" in one.out
    assert set(as_json.json) == {"run_id", "seq", "status", "why", "steps", "untaken"}
    assert set(as_json.json["steps"][0]) == {"seq", "step", "status", "came", "went", "not_taken", "waits"}


def test_a_run_becomes_a_page(ran: Shell) -> None:
    written, two, printed, graph = ran.all(
        ("render", "two", "-o", "two.html"),
        ("render", "writer", "bad", "-o", "both.html"),
        ("render", "two", "--format", "html", "--at", 3),
        ("render", "react", "-o", "react.html"),
    )
    assert [done.code for done in (written, two, printed, graph)] == [0, 0, 0, 0]
    (one,) = page_data((ran.place / "two.html").read_text())
    assert (one["run"], one["status"]) == ("two", "paused")
    assert [data["run"] for data in page_data((ran.place / "both.html").read_text())] == ["writer", "bad"]
    assert SECRET not in (ran.place / "both.html").read_text()
    assert page_data(printed.out)[0]["head"] == 3
    assert page_data((ran.place / "react.html").read_text()) == []


def test_two_runs_go_into_a_page_only(ran: Shell) -> None:
    picture, unknown = ran.look(("render", "two", "bad", "-o", "x.svg"), ("render", "two", "nosuch", "-o", "x.html"))
    assert picture.code == 2
    assert "use --format html" in picture.err
    assert unknown.code == 4
    assert not list(ran.place.glob("x.*"))
