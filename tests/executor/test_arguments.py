"""Arguments of the calls that look at runs, fork and replay them: other types are refused by name, before anything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from operator import attrgetter
from typing import Any

import pytest

from orchestrator import App, Executor
from orchestrator.errors import InvalidValue, QuestionUnknown
from orchestrator.stores import Store
from orchestrator.stores.memory import MemoryStore
from orchestrator.strategies import react
from tests.support.executors import chain, says

pytestmark = pytest.mark.anyio
GRAPH = chain(says("a"), says("b"))
POSITIONS = (True, "x", "1", 1.5, -1, b"1", [1])


@pytest.fixture
async def executor(store: Store) -> AsyncIterator[Executor]:
    async with Executor(store, graphs=[GRAPH]) as found:
        await found.start(GRAPH, {}, run_id="r")
        yield found


async def refused(executor: Executor, call: str, *given: Any, **named: Any) -> str:
    """What the refusal of a call says; no run was made."""
    with pytest.raises(InvalidValue) as error:
        await attrgetter(call)(executor)(*given, **named)
    assert len((await executor.runs()).runs) == 1
    return str(error.value)


@pytest.mark.parametrize("call", ["fork", "replay", "load", "history"])
async def test_a_position_that_is_no_number_of_a_record_is_refused(executor: Executor, call: str) -> None:
    for at in POSITIONS:
        words = await refused(executor, call, "r", at=at)
        assert words == f"at={at!r}: the number of a record is expected, an int of 0 or more, or None"


async def test_why_of_a_position_that_is_no_number_of_a_record_is_refused(executor: Executor) -> None:
    run = await executor.load("r")
    for seq in POSITIONS:
        with pytest.raises(InvalidValue, match=r"^seq=.* the number of a record is expected"):
            run.why(seq)  # type: ignore[arg-type]


@pytest.mark.parametrize("call", ["fork", "replay", "replays.load", "load", "history", "forks.list"])
async def test_an_id_that_is_no_text_is_refused(executor: Executor, call: str) -> None:
    for run in (7, None, await executor.load("r")):
        words = await refused(executor, call, run)
        assert "give a str" in words
        assert type(run).__name__ in words
        assert "give a str" in await refused(executor, "diff", "r", run)
        assert "give a str" in await refused(executor, "diff", run, "r")


@pytest.mark.parametrize(
    ("call", "given", "words"),
    [
        ("fork", {"update": [1]}, "update is of type list: a mapping with str keys is expected"),
        ("fork", {"update": {1: 2}}, "update is of type dict: a mapping with str keys"),
        ("fork", {"answers": "yes"}, "answers is of type str"),
        ("fork", {"labels": 7}, "labels is of type int"),
        ("fork", {"branch": 7, "update": {}}, "branch: it is of type int: give a str"),
        ("fork", {"start": "no"}, "start='no': True or False is expected"),
        ("replay", {"update": "x"}, "update is of type str"),
        ("replay", {"models": ["m"]}, "models is of type list"),
    ],
)
async def test_other_arguments_of_another_type_are_refused_by_name(
    executor: Executor, call: str, given: dict[str, Any], words: str
) -> None:
    assert (await refused(executor, call, "r", **{"at": 1, **given})).startswith(words)


@pytest.mark.parametrize(
    ("call", "given", "words"),
    [
        ("schedules.put", (GRAPH, 3), "cron: it is of type int: give a str"),
        ("schedules.put", (GRAPH, "* * * * *", None), "timezone: it is of type int: give a str"),
        ("enqueue", (GRAPH,), "at='2027': use a datetime with a time zone, or Unix seconds"),
    ],
)
async def test_times_of_another_type_are_refused_by_name(
    executor: Executor, call: str, given: tuple[Any, ...], words: str
) -> None:
    named: dict[str, Any] = {"at": "2027"} if call == "enqueue" else {"timezone": 3} if len(given) > 2 else {}
    assert (await refused(executor, call, *given, **named)).startswith(words)


async def test_an_answer_to_no_question_of_a_fork_names_the_run_that_is_forked(executor: Executor) -> None:
    with pytest.raises(QuestionUnknown, match="run 'r' has no question 'zz'"):
        await executor.fork("r", at=1, answers={"zz": 1})


class Speaks:
    """A model without `stream`."""

    async def complete(self) -> None:
        """Say nothing."""


class Nameless:
    async def complete(self, *_: Any, **__: Any) -> None:
        """Say nothing."""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"graphs": GRAPH}, r"graphs= is one graph: give a list, graphs=\[\w+\]"),
        ({"graphs": ["react"]}, "an item of graphs= is of type str: give a list of graphs"),
        ({"graphs": [react]}, r"an item of graphs= is of type module: give the graph in it, react\.graph"),
        (
            {"graphs": [react.react]},
            r"an item of graphs= is of type function: give the graph that it returns, react\(\)",
        ),
        ({"graphs": "react"}, "graphs= is of type str: give a list of graphs"),
        ({"store": 3}, "store= is of type int: give a URL, such as 'sqlite:///runs.db', or a store"),
        ({"store": MemoryStore}, "store= is the class MemoryStore: give a URL"),
        (
            {"model": "gpt-4o-mini"},
            r"model='gpt-4o-mini' is a name: give a model, such as \w+\('gpt-4o-mini'\)",
        ),
        ({"model": 3}, "model= is of type int: give a model: an object with name and complete"),
        ({"model": Nameless()}, "model= is of type Nameless: its name is missing; give it a string `name`"),
        ({"model": Speaks}, "model= is the class Speaks: give a model"),
        ({"models": {"a": 3}}, r"models\['a'\]= is of type int: give a model"),
        ({"models": [3]}, "models= is of type list: give a mapping"),
        ({"pools": 3}, "pools= is of type int: give a mapping"),
        ({"pools": {"a": "2"}}, "pools={'a': '2'}: give the number of steps"),
        ({"observers": 3}, r"observers= is of type int: give a list of functions of \(run, seq\)"),
    ],
)
def test_an_executor_of_something_else_is_refused_with_what_to_give(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        Executor(**given)


def test_an_app_refuses_what_an_executor_refuses_when_it_is_made() -> None:
    wrong: list[Any] = [react]
    with pytest.raises(InvalidValue, match=r"give the graph in it, react\.graph"):
        App(graphs=wrong)
    named: Any = "gpt-4o-mini"
    with pytest.raises(InvalidValue, match="model='gpt-4o-mini' is a name"):
        App(graphs=[GRAPH], model=named)
    assert App(graphs=[GRAPH]).graphs == [GRAPH]
