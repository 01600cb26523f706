"""Every strategy ends as if nothing had happened though its processes are killed at the writes to its journal.

Each strategy is a program of the crash kit, with the model that needs no server.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator import Approve, Question
from orchestrator.cli.graph_refs import shipped
from orchestrator.models import OfflineModel
from orchestrator.testing.crash import processes
from orchestrator.testing.crash.processes import Whole
from orchestrator.tools import tools_from_ref
from tests.support.kit import Forked

NAMES = tuple(shipped())


def answer(question: Question) -> object:
    """Allow every call; end a chat."""
    return "/bye" if question.kind == "input" else Approve()


def program(name: str) -> dict[str, Any]:
    """What a process of the crash kit runs."""
    graph = import_module(f"orchestrator.strategies.{name}").graph
    tools = tools_from_ref("arithmetic")
    return {"graph": graph, "input": "What is (3+4)*(2+4)?", "model": OfflineModel(), "tools": tools, "answer": answer}


globals().update({name: partial(program, name) for name in NAMES})


@pytest.fixture
def whole(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Whole:
    """An undisturbed run of a strategy. Processes are forked from one in which all is loaded: there are hundreds."""
    begin = partial(Forked, loads=(__name__,))
    monkeypatch.setattr(processes, "subprocess", SimpleNamespace(Popen=begin, PIPE=PIPE))
    return Whole(f"{__name__}:{request.param}", tmp_path, "asyncio", 60)


each = pytest.mark.parametrize("whole", NAMES, indirect=True)


@each
@pytest.mark.full
def test_it_ends_as_if_it_had_not_been_killed_again_and_again(whole: Whole) -> None:
    """Each process is killed at its sixth write, which is in the file then, and of which it never hears.

    A process writes that it took the run over, what it begins, and what came of that: it needs a few writes to come
    further.
    """
    life = whole.another()
    while (end := life.process(fault="torn", write=6)).killed:
        life.check(end, f"killed {life.stops} times")
        assert life.stops <= whole.report.writes, "the run does not go on"
    assert end.ended, end
    place = f"at its end, killed {life.stops} times"
    life.check(end, place)
    whole.compare(life, place)
    assert life.stops
    assert whole.report.status == "completed"


@each
@pytest.mark.storm
def test_whichever_write_it_is_killed_at_it_goes_on_as_if_it_had_not_been(whole: Whole, scale: int) -> None:
    """At every fifth write; from scale 5 on, at every one. Branches that write together make fewer writes."""
    places, stops = range(1, whole.report.writes + 1, max(1, 5 // scale)), 0
    for write in places:
        life, place = whole.another(), f"killed at write {write}"
        life.check(life.process(fault="torn", write=write), place)
        stops += life.stops
        life.to_the_end(place)
        whole.compare(life, place)
    assert 2 * stops > len(places)
