"""Where a node failed is said: by the run, also after a restart, in the log, and by what `check=True` raises."""

from __future__ import annotations

import copy
import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Limits, Retry, Run, node, tool
from orchestrator.errors import OrchestratorError, RunFailed, ToolError
from orchestrator.executor.failures import MOST_SAID, traceback_of
from orchestrator.kernel.records import Failure
from orchestrator.nodes import Ask, Execute, Subgraph
from orchestrator.tools import ToolResult
from orchestrator.views.tracebacks import MOST, code_of, place_of, trace_data, traceback_parts
from tests.support.sizes import quick_on, sized

pytestmark = pytest.mark.anyio

SECRET = "sk-live-0123456789abcdef0123456789"


class State(BaseModel):
    question: str = ""
    tool: str = ""
    args: dict[str, Any] = {}
    result: Any = None


def look_up(prices: dict[str, int]) -> int:
    return prices["tea"]


@node
def wrong() -> dict[str, object]:
    never_shown = "a value of a variable"
    return {"result": look_up({never_shown: 1})}


def of(work: Any, **options: Any) -> Graph:
    return Graph(name="g", state=State, nodes={"work": work}, edges="START -> work -> END", **options)


def traceback(run: Run) -> str:
    assert run.error is not None
    return run.error.traceback


async def test_the_error_of_a_run_has_file_line_function_and_source(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(store) as executor:
        found = await executor.start(of(wrong), {})
    text = traceback(found)
    assert text.startswith("Traceback (most recent call last):\n")
    assert f'File "{__file__}", line ' in text
    assert 'in look_up\n    return prices["tea"]\n' in text
    assert text.endswith("KeyError: 'tea'")
    assert "a value of a variable" not in text.replace('never_shown = "a value of a variable"', "")
    async with Executor(store) as other:  # no code, another executor
        again = await other.load(found.run_id)
        assert traceback(again) == text
        (failed,) = [one for one in await other.history(found.run_id) if one.error is not None]
        assert failed.error is not None
        assert failed.error.traceback == text
    assert json.loads(json.dumps(found.to_json()))["error"]["traceback"] == text


async def test_a_failure_inside_of_a_subgraph_or_of_a_tool_is_told_where_it_was_raised() -> None:
    outer = Graph(name="o", state=State, nodes={"inner": Subgraph(of(wrong))}, edges="START -> inner -> END")
    async with Executor() as executor:
        assert "in look_up" in traceback(await executor.start(outer, {}))


def test_a_journal_without_tracebacks_reads_as_before() -> None:
    old = Failure.model_validate({"type": "KeyError", "message": "'k'"})
    assert (old.traceback, "traceback" in old.model_dump(mode="json")) == ("", False)


async def test_the_users_frames_come_before_those_of_libraries() -> None:
    @node
    def bad() -> None:
        json.loads("{oops")

    async with Executor() as executor:
        text = traceback(await executor.start(of(bad), {}))
    own, _, libraries = text.partition("  behind it, in libraries:\n")
    assert 'json.loads("{oops")' in own
    assert "decoder.py" in libraries
    assert "executor" not in own.replace("tests/executor", "")


async def test_a_traceback_is_read_back_with_the_users_line_first_and_libraries_apart() -> None:
    @node
    def bad() -> None:
        json.loads("{oops")

    async with Executor() as executor:
        text = traceback(await executor.start(of(bad), {}))
    assert place_of(text).startswith(f'  File "{__file__}", line ')
    assert code_of(text) == 'json.loads("{oops")'
    own, library, error = traceback_parts(text)
    assert [part.library for part in (own, library, error)] == [False, True, False]
    assert "decoder.py" in library.text
    assert error.text.startswith("json.decoder.JSONDecodeError: ")


def test_a_traceback_from_elsewhere_is_bounded_and_blanked_and_needs_no_form() -> None:
    assert trace_data("") is None
    for text in ("nonsense", "  behind it, in libraries:", "\n" * 50, 'Traceback (most recent call last):\n  File "'):
        assert trace_data(text) is not None
        assert place_of(text) == code_of(text) == ""
    found = trace_data(f"{'x' * 100_000}\nValueError: the key is {SECRET}")
    assert found is not None
    assert SECRET not in str(found)
    assert len(str(found)) < MOST + 200


async def test_causes_and_groups_are_told_and_all_of_it_is_bounded() -> None:
    @node
    def chained() -> None:
        try:
            look_up({})
        except KeyError as error:
            raise ValueError("no price") from error

    @node
    def several() -> None:
        raise ExceptionGroup("many", [ValueError(f"number {n}") for n in range(100)])

    @node
    def deep() -> None:
        def down(n: int) -> None:
            down(n + 1)

        down(0)

    @node
    def long() -> None:
        raise ValueError("x" * 1_000_000)

    async with Executor() as executor:
        text = traceback(await executor.start(of(chained), {}))
        assert "direct cause" in text
        assert text.index("KeyError: 'tea'") < text.index("ValueError: no price")
        text = traceback(await executor.start(of(several), {}))
        assert "error 4 of 100" in text
        assert "and 96 more errors" in text
        text = traceback(await executor.start(of(deep), {}))
        assert "frames left out" in text
        for one in (chained, several, deep, long):
            assert len(traceback(await executor.start(of(one), {}))) <= MOST


def test_an_error_that_caused_itself_and_one_without_words_are_told() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert traceback_of(one).count("ValueError: one") == 1
    assert "it has no message" in traceback_of(Mute())


@quick_on("trio")
async def test_a_message_without_end_is_kept_by_its_beginning_and_its_end(tmp_path: Path) -> None:
    @node
    def long() -> None:
        raise ValueError("begin" + "x" * sized(5_000_000, 50_000_000) + "end")

    async with Executor(f"sqlite:///{tmp_path}/runs.db") as executor:
        run = await executor.start(of(long), {})
        assert (await executor.load(run.run_id)).error == run.error
    assert run.error is not None
    assert run.error.message.startswith("begin")
    assert run.error.message.endswith("end")
    assert len(run.error.message) < MOST_SAID + 100


async def test_secrets_in_source_and_message_are_blanked_in_the_traceback_and_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @node
    def leaks() -> None:
        raise ValueError("sk-live-0123456789abcdef0123456789")

    with caplog.at_level(logging.DEBUG, logger="orchestrator"):
        async with Executor() as executor:
            found = await executor.start(of(leaks), {})
    assert "[redacted]" in traceback(found)
    assert SECRET not in traceback(found)
    assert SECRET not in caplog.text
    assert "[redacted]" in caplog.text


async def test_no_control_character_of_an_error_reaches_the_log(caplog: pytest.LogCaptureFixture) -> None:
    @node
    def paints() -> None:
        raise ValueError("\x1b[31mred \u202eback\r")

    with caplog.at_level(logging.DEBUG, logger="orchestrator"):
        async with Executor() as executor:
            await executor.start(of(paints), {}, run_id="r1")
    assert "ValueError: \\u001b[31mred \\u202eback\\u000d" in caplog.text
    assert not set("\x1b\u202e\r") & set(caplog.text)


async def test_the_log_tells_of_failures_with_run_node_and_traceback_and_of_attempts_that_are_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    again = wrong.with_(retry=Retry(attempts=2, wait=0.001, on=("KeyError",)))
    with caplog.at_level(logging.WARNING, logger="orchestrator"):
        async with Executor() as executor:
            found = await executor.start(of(again), {}, run_id="r1")
    first, last = [record for record in caplog.records if record.name.startswith("orchestrator")]
    assert (first.levelname, last.levelname) == ("WARNING", "ERROR")
    assert "run r1: work (attempt 1) failed, and is retried in" in first.getMessage()
    assert last.getMessage() == f"run r1: work (attempt 2) failed: KeyError: 'tea'\n{traceback(found)}"
    assert (vars(last)["run_id"], vars(last)["node"], vars(last)["path"]) == ("r1", "work", "")


async def test_what_an_edge_takes_is_no_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    @node
    def seen(ctx: Context[None]) -> dict[str, object]:
        assert ctx.error is not None
        return {"result": ctx.error.traceback}

    graph = Graph(
        name="g", state=State, nodes={"work": wrong, "seen": seen},
        edges="START -> work -> END\nwork -> seen : error\nseen -> END", output="result",
    )  # fmt: skip
    with caplog.at_level(logging.WARNING, logger="orchestrator"):
        async with Executor() as executor:
            found = await executor.start(graph, {})
    assert "in look_up" in found.output
    assert caplog.records == []


# -- runs that have to complete ------------------------------------------------------------------------------------


async def test_check_raises_with_the_traceback_unless_the_run_completes() -> None:
    fine = node(effect="pure")(lambda: {"result": 1})
    assert (await of(fine).run({}, check=True)).status == "completed"
    with pytest.raises(RunFailed) as raised:
        await of(wrong).run({}, run_id="r2", check=True)
    error = raised.value
    assert (error.run_id, error.status, error.type) == ("r2", "failed", "KeyError")
    assert str(error).startswith("run 'r2' failed: KeyError: 'tea' (at work)\n\nTraceback (most recent call last):\n")
    assert "in look_up" in error.traceback
    assert (await of(wrong).run({})).status == "failed"
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (str(again), again.run_id, again.traceback) == (str(error), "r2", error.traceback)
    assert isinstance(error, OrchestratorError)


def test_run_sync_checks_too() -> None:
    with pytest.raises(RunFailed, match="KeyError: 'tea'"):
        of(wrong).run_sync({}, check=True)


async def test_a_run_that_is_paused_or_exhausted_has_not_completed_either() -> None:
    asking = of(Ask(prompt="Which one?", answer="result"))
    async with Executor() as executor:
        found = await executor.start(asking, {})
        assert found.status == "paused"
        with pytest.raises(RunFailed, match=f"is paused: it waits for input {found.waiting[0].id}: Which one[?]"):
            found.raise_for_status()
        done = await executor.answer(found.run_id, found.waiting[0].id, "this")
        assert done.raise_for_status() is done
    with pytest.raises(RunFailed, match="is exhausted: LimitSpent: visits=1 of node 'work' are spent"):
        (await _loop().run({})).raise_for_status()


def _loop() -> Graph:
    again = node(effect="pure", outcomes=("again", "end"))(_says_again)
    return Graph(
        name="l", state=State, nodes={"work": again}, edges="START -> work\nwork -> work : again\nwork -> END : end",
        limits=Limits(visits={"work": 1}),
    )  # fmt: skip


def _says_again() -> Any:
    from orchestrator import Outcome

    return Outcome("again")


async def test_a_tool_that_failed_is_named_by_what_check_raises() -> None:
    @tool(risk="none", effect="pure")
    def broken() -> str:
        """Break."""
        raise ToolError("out of order")

    graph = of(Execute())
    with pytest.raises(RunFailed, match="ToolFailed: tool 'broken' failed: out of order"):
        await graph.run({"tool": "broken"}, tools=[broken], check=True)


# -- tools that raise ----------------------------------------------------------------------------------------------


@tool(risk="none", effect="irreversible")
def prices() -> int:
    """Give a price."""
    return look_up({})


def is_of_tool(text: str) -> bool:
    """Whether a traceback begins with where the tool raised, and says after it what failed for that."""
    tool, _, step = text.partition("That made the call of the tool fail")
    where = f'File "{__file__}", line ' in tool and 'in look_up\n    return prices["tea"]\nKeyError: ' in tool
    return where and "ToolFailed: tool 'prices' failed: " in step


@pytest.mark.parametrize("store", ["memory://", "sqlite"])
async def test_a_step_that_fails_because_a_tool_raised_tells_where_the_tool_raised(store: str, tmp_path: Path) -> None:
    @node(tools=[prices])
    async def checks(ctx: Context[None]) -> None:
        await ctx.tool("prices", check=True)

    @node(tools=[prices])
    async def wraps(ctx: Context[None]) -> None:
        try:
            await ctx.tool("prices", check=True)
        except Exception as error:
            raise RuntimeError("no price") from error

    url = store if store != "sqlite" else f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url, tools=[prices]) as executor:
        for graph in (of(Execute()), of(checks)):
            found = await executor.start(graph, {"tool": "prices"})
            assert is_of_tool(traceback(found))
            assert len(traceback(found)) <= MOST
            assert traceback(await executor.load(found.run_id)) == traceback(found)
        text = traceback(await executor.start(of(wraps), {}))
        assert is_of_tool(text)
        assert text.endswith("RuntimeError: no price")


async def test_where_a_tool_raised_is_journaled_with_its_call_and_is_in_no_state_and_no_prompt() -> None:
    seen: list[ToolResult] = []

    @node(tools=[prices])
    async def work(ctx: Context[None]) -> dict[str, object]:
        seen.append(await ctx.tool("prices"))
        if len(seen) == 1:
            raise ConnectionError  # the next attempt is given what the journal has
        return {"result": seen[-1]}

    async with Executor() as executor:
        run = await executor.start(of(work.with_(retry=Retry(attempts=2, wait=0.001))), {})
        records = [one for one in await executor.store.read(run.run_id) if one.type == "effect_settled"]
    assert run.status == "completed", run.error
    assert [one.result["traceback"] for one in records] == [seen[0].traceback]  # type: ignore[index]
    assert [("in look_up" in one.traceback, one.text, one.model_dump()) for one in seen] == [
        (True, "Error: Unexpected error executing tool prices: KeyError: 'tea'", seen[0].model_dump())
    ] * 2
    assert "look_up" not in json.dumps(run.values, default=str) + repr(seen) + json.dumps(seen[0].model_dump())
    assert "traceback" not in ToolResult.model_json_schema()["properties"]


async def test_a_tool_that_says_why_it_failed_has_a_traceback_if_it_is_the_users() -> None:
    @tool(risk="none", effect="pure")
    def refuses() -> str:
        """Refuse."""
        raise ToolError("out of order")

    graph = of(Execute())
    async with Executor(tools=[refuses]) as executor:
        run = await executor.start(graph, {"tool": "refuses"})
    assert 'raise ToolError("out of order")' in traceback(run)


async def test_a_graph_called_as_a_tool_tells_where_it_failed() -> None:
    inner = of(wrong).as_tool("inner", "Fail.")
    async with Executor(tools=[inner], graphs=[of(wrong)]) as executor:
        run = await executor.start(of(Execute(), limits=Limits(steps=9)), {"tool": "inner", "args": {"question": "?"}})
    assert 'return prices["tea"]' in traceback(run)


async def test_what_a_tool_raised_is_bounded_and_holds_no_secret(tmp_path: Path) -> None:
    long = "x" * 590 + SECRET + "y" * 100_000

    @tool(risk="none", effect="pure")
    def loud() -> str:
        """Fail at length."""
        try:
            raise ValueError(long + "\ud800")
        except ValueError:
            raise ExceptionGroup("g", [ValueError(long) for _ in range(50)]) from ValueError(SECRET)

    async with Executor(f"sqlite:///{tmp_path}/runs.db", tools=[loud]) as executor:
        run = await executor.start(of(Execute()), {"tool": "loud"})
        records = [one for one in await executor.store.read(run.run_id) if one.type == "effect_settled"]
    told = [one.result["traceback"] for one in records]  # type: ignore[index]
    assert 0 < len(told[0]) <= MOST
    assert len(traceback(run)) <= MOST
    assert traceback(run).endswith("more characters)")
    for text in (told[0], traceback(run)):
        assert SECRET[:12] not in text
