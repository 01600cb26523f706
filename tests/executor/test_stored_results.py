"""Long results: the model is shown an excerpt, and reads the rest of the journal's result by `read_result`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from orchestrator import Executor, Graph, Run, ToolCall, tool
from orchestrator.errors import ToolError
from orchestrator.kernel.question import Approve
from orchestrator.kernel.records import Record, encode
from orchestrator.models import ModelRequest, Reply
from orchestrator.nodes import ClearResults, Compact, Execute, Respond
from orchestrator.stores import Store
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.wrapper import StoreWrapper
from orchestrator.strategies.chat import chat
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.strategies.react import react
from orchestrator.testing import ScriptedModel, assert_crash_safe
from orchestrator.tools.stored_results import OFFLOADED, ReadResult, StoredResult, excerpt, id_of
from tests.executor import offload_program
from tests.executor.offload_program import ID, TEXT, report
from tests.nodes.test_compact import called, result, talk_of
from tests.support.programs import run as run_program
from tests.support.stores import execute

pytestmark = pytest.mark.anyio
once = pytest.mark.parametrize("anyio_backend", ["asyncio"])


def model() -> ScriptedModel:
    return ScriptedModel(offload_program.reply)


def names(script: ScriptedModel) -> list[list[str]]:
    """The tools that were offered with each request."""
    tools: list[list[Any]] = [[*request.tools] for request in script.requests]
    return [[one["function"]["name"] for one in offered] for offered in tools]


def results(run: Run) -> list[str]:
    return [message.content for message in run.state.messages if message.role == "tool"]


def assert_read(run: Run) -> None:
    shown, by_offset, by_pattern = results(run)
    assert (run.status, run.output) == ("completed", "done")
    assert shown.startswith(f'[Excerpt of a result of {len(TEXT):,} characters: read_result(id="{ID}") reads it.]\n')
    assert TEXT[:2_600] in shown
    assert shown.endswith(TEXT[-1_300:])
    assert len(shown) < 4_300
    assert (
        by_offset
        == f"[Characters 40,000 to 40,030 of {len(TEXT):,}; continue with offset=40030]\n{TEXT[40_000:40_030]}"
    )
    assert by_pattern.startswith(f"[Places: 1, in {len(TEXT):,} characters]\n[at {TEXT.index('line 5000: 25'):,}]\n")
    assert "line 5000: 25000000\n" in by_pattern


@once
async def test_it_is_read_in_another_process_after_a_kill_in_a_fork_and_in_a_replay(url: str) -> None:
    assert run_program([url], module="tests.executor.offload_program").code == -9
    async with Executor(url, model=model(), tools=[report], graphs=[offload_program.graph]) as executor:
        run: Run = await executor.resume("r")
        assert_read(run)
        made = [record.name for record in await executor.store.read("r") if record.type == "effect_intended"]
        assert made.count("report") == 1, "its result came from the journal"
        replay = await executor.replay("r")
        assert_read(replay.run)
        assert replay.same
        reads = [one for one in await executor.store.read("r") if getattr(one, "name", "") == "read_result"]
        fork = await executor.fork("r", at=reads[0].seq - 1)
        assert_read(fork)
        await executor.delete("r")
        kept = await executor.fork(fork.run_id, at=reads[0].seq - 1)  # a fork has its own records
        assert_read(kept)


class Counted(StoreWrapper):
    """Notes which records are read."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.reads: list[tuple[int, int | None]] = []

    async def read(
        self, run_id: str, *, after: int = 0, upto: int | None = None, limit: int | None = None
    ) -> list[Record]:
        self.reads.append((after, upto))
        return await super().read(run_id, after=after, upto=upto, limit=limit)


@once
async def test_many_reads_of_a_result_do_not_read_the_journal_again() -> None:
    made = [ToolCall(id="r", name="report", arguments={})]
    made += [ToolCall(id=f"c{n}", name="read_result", arguments={"id": ID, "offset": n}) for n in range(20)]
    script = ScriptedModel([*(Reply(tool_calls=(call,)) for call in made), "done"])
    store = Counted(MemoryStore())
    async with Executor(store, model=script, tools=[report]) as executor:
        run: Run = await executor.start(function_call_agent(max_steps=99), "?")
    assert (run.status, len(results(run))) == ("completed", 21)
    whole = [after for after, upto in store.reads if upto is None]
    single = [upto - after for after, upto in store.reads if upto is not None]
    assert (len(whole), single) == (1, [1] * 20)


@once
async def test_a_result_is_stored_once_and_deleted_with_its_run(url: str) -> None:
    async with Executor(url, model=model(), tools=[report]) as executor:
        run: Run = await executor.start(offload_program.graph, "?", run_id="a")
        texts = [encode(record).decode() for record in await executor.store.read("a")]
        assert sum("line 3000: " in text for text in texts) == 1, "in the record of its call alone"
        assert len(run.state.model_dump_json()) < 10_000
        assert execute(url, "SELECT count(*) FROM payloads") == [(1,)]
        other = await asks(executor, {"id": ID})
        assert results(other) == [f"Error: this run has no result with the id '{ID}': use an id from an excerpt"]
        await executor.delete("a")
        assert execute(url, "SELECT count(*) FROM payloads") == [(0,)]


async def asks(executor: Executor, *calls: Mapping[str, Any], graph: Graph | None = None) -> Run:
    """A run whose model only calls `read_result`, with these arguments."""
    made = [Reply(tool_calls=(ToolCall(id="c", name="read_result", arguments=dict(one)),)) for one in calls]
    store = executor.store
    async with Executor(store, model=ScriptedModel([*made, "done"]), tools=[report]) as other:
        run: Run = await other.start(graph or function_call_agent(max_steps=99), "?")
        assert (run.status, run.output) == ("completed", "done")
        return run


HOSTILE: dict[str, Mapping[str, Any]] = {
    "no id": {},
    "empty": {"id": ""},
    "list": {"id": [ID]},
    "path": {"id": "../../etc/passwd"},
    "zero": {"id": "\0"},
    "surrogate": {"id": "\ud800"},
    "long": {"id": "x" * 1_000_000},
    "negative": {"id": ID, "offset": -1},
    "huge": {"id": ID, "offset": 10**30, "limit": 10**30},
    "other": {"id": ID, "path": "/etc/passwd"},
}


@once
async def test_hostile_arguments_are_refused() -> None:
    async with Executor() as executor:
        found = results(await asks(executor, *HOSTILE.values()))
    assert len(found) == len(HOSTILE)
    assert all(text.startswith("Error: ") and len(text) < 2_000 for text in found), found


REPEATED, X = "a" * 999_999 + "B", "x" * 18_000
NOT_IN = "does not occur in the 1,000,000 characters from 0 on]"
PATTERNS: dict[str, tuple[str, str, Mapping[str, Any], str]] = {
    "no regular expression": (REPEATED, "(a+)+$", {}, f"['(a+)+$' {NOT_IN}"),
    "long": (REPEATED, "a" * 400_000 + "c", {}, f"[{'a' * 100!r} {NOT_IN}"),
    "end": (REPEATED, "ab", {}, f"[Places: 1, in 1,000,000 characters]\n[at 999,998]\n{'a' * 151}B"),
    "from": ("one two one", "ONE", {"offset": 1}, "[Places: 1, in 11 characters]\n[at 8]\nne two one"),
    "letters that become two": ("\u0130 one", "one", {}, "[Places: 1, in 5 characters]\n[at 2]\n\u0130 one"),
    "any case beside them": ("\u0130 ONE", "One", {}, "[Places: 1, in 5 characters]\n[at 2]\n\u0130 ONE"),
    "that letter": ("\u0130ZM\u0130R", "izmir", {}, "[Places: 1, in 5 characters]\n[at 0]\n\u0130ZM\u0130R"),
    "a letter with two small forms": ("σοφός", "ΦΌΣ", {"offset": 1}, "[Places: 1, in 5 characters]\n[at 2]\nοφός"),
    "its form within a word": ("ΣΟΦΌΣΑ", "φός", {"offset": 1}, "[Places: 1, in 6 characters]\n[at 2]\nΟΦΌΣΑ"),
    "limit": ("ab" * 9, "b", {"limit": 3}, "[Places: 1, in 18 characters; continue with offset=5]\n[at 1]\nabab"),
    "none": ("abc", "", {}, "[Characters 0 to 3 of 3]\nabc"),
    "most": (
        "x" * 30_000,
        "",
        {"limit": 10**9},
        "[Characters 0 to 18,000 of 30,000; continue with offset=18000]\n" + X,
    ),
}


@pytest.mark.parametrize(("text", "pattern", "options", "found"), PATTERNS.values(), ids=PATTERNS)
async def test_what_is_read(text: str, pattern: str, options: Mapping[str, Any], found: str) -> None:
    async def find(id_: str) -> StoredResult | None:
        return StoredResult(text) if id_ == id_of(text) else None

    reader = ReadResult(find)
    assert await reader.call(id_of(text), pattern=pattern, **options) == found
    with pytest.raises(ToolError, match="is after the end"):
        await reader.call(id_of(text), offset=len(text))


async def test_many_places_are_read_in_turn() -> None:
    text = "".join(f"{n} needle {'hay ' * 200}" for n in range(100))
    seen: list[str] = []
    offset: int | None = 0

    async def find(id_: str) -> StoredResult | None:
        return StoredResult(text)

    while offset is not None:
        found = await ReadResult(find).call("any", offset=offset, pattern="needle")
        seen += re.findall(r"^\[at ([\d,]+)\]$", found, re.MULTILINE)
        more = re.search(r"continue with offset=(\d+)", found)
        offset = int(more[1]) if more else None
        assert len(found) < 4_500
    assert [int(at.replace(",", "")) for at in seen] == [match.start() for match in re.finditer("needle", text)]


@once
@pytest.mark.parametrize("build", [react, function_call_agent, chat])
async def test_the_tool_is_offered_once_there_is_something_to_read(build: Any) -> None:
    script = model()
    async with Executor(model=script, tools=[report]) as executor:
        run: Run = await executor.start(build(**({} if build is not react else {"thought": "optional"})), "?")
    assert results(run)[0].startswith("[Excerpt")
    offered = names(script)
    assert offered == [["report"], *[["report", "read_result"]] * 3]
    assert build(offload=None).content != build().content


@once
async def test_without_offload_nothing_is_different() -> None:
    script = ScriptedModel([Reply(tool_calls=(ToolCall(id="c", name="report", arguments={}),)), "done"])
    async with Executor(model=script, tools=[report]) as executor:
        run: Run = await executor.start(function_call_agent(offload=None), "?")
    (message,) = [message for message in run.state.messages if message.role == "tool"]
    assert (message.data or {})["output"] == TEXT
    assert "characters are left out here" in message.content
    assert names(script) == [["report"]] * 2


@once
async def test_results_that_are_not_replaced() -> None:
    """Of a tool that ends the work, a call that was not made, and if a tool of the user has the name."""

    @tool(risk="read", effect="read", ends=True)
    def finish() -> str:
        """End."""
        return TEXT

    @tool(risk="read", effect="read")
    def read_result(id: str) -> str:  # noqa: A002  as the library's
        """Another."""
        return f"mine: {id}"

    ends = ScriptedModel([Reply(tool_calls=(ToolCall(id="c", name="finish", arguments={}),))])
    async with Executor(model=ends, tools=[finish]) as executor:
        run: Run = await executor.start(function_call_agent(), "?")
        assert run.output == TEXT
    named = ScriptedModel([Reply(tool_calls=(ToolCall(id="c", name="report", arguments={}),)), "done"])
    async with Executor(model=named, tools=[report, read_result]) as executor:
        run = await executor.start(function_call_agent(), "?")
        assert len(results(run)[0]) > 20_000
        assert OFFLOADED not in json.dumps([message.data for message in run.state.messages])


class Long(Respond.State, Compact.State):
    """A conversation, and its size."""

    question: str = ""


ACT = Execute(calls="pending", results="messages", offload=8_000)


def looping(**options: Any) -> Graph:
    nodes = {
        "think": Respond(question="question"),
        "act": Execute(calls="pending", results="messages", **options),
    }
    edges = "START -> think\nthink -> act : calls\nthink -> END : answer\nact -> think"
    return Graph(name="g", state=Respond.State, input="question", output="answer", nodes=nodes, edges=edges)


@once
async def test_a_graph_with_several_calls_and_a_failing_one(url: str) -> None:
    rows = {f"row {n}": {"b": n, "a": [n, None, 0.1]} for n in range(400)}

    @tool(risk="read", effect="read")
    def table() -> dict[str, object]:
        """Return data."""
        return dict(rows)

    @tool(risk="read", effect="read")
    def broken() -> str:
        """Fail with a long report."""
        raise RuntimeError("failed: " + TEXT[:9_000])

    ids: list[str] = []

    def answer(request: ModelRequest) -> Reply | str:
        told = [message.content for message in request.messages if message.role == "tool"]
        if not told:
            return Reply(tool_calls=tuple(ToolCall(id=n, name=n, arguments={}) for n in ("table", "broken", "report")))
        ids[:] = [found[1] for text in told if (found := re.search(r'read_result\(id="(\w+)"\)', text))]
        if len(told) > 3:
            return "done"
        return Reply(tool_calls=tuple(ToolCall(id=n, name="read_result", arguments={"id": n}) for n in ids))

    graph = looping(offload=2_000, on_failure="observe")
    async with Executor(url, model=ScriptedModel(answer), tools=[table, broken, report]) as executor:
        run: Run = await executor.start(graph, "?")
    assert (run.status, run.error) == ("completed", None)
    found = results(run)
    assert (len(ids), ids[0], ids[2]) == (3, id_of(json.dumps(rows)), ID)
    assert all(len(text) < 1_300 for text in found[:3])
    read = [text.partition("\n")[2][:14] for text in found[3:]]
    assert read == [json.dumps(rows)[:14], "Error: Unexpec", TEXT[:14]]


@once
@pytest.mark.parametrize("node", [Compact(usage="context_usage", keep=1), ClearResults(usage="context_usage", keep=1)])
async def test_the_tool_is_offered_after_its_result_was_replaced(node: Any) -> None:
    talk = talk_of(1, "short")
    for number in range(8):
        shown = result(f"report-{number}", excerpt(TEXT, 4_000), data={OFFLOADED: ID})
        talk += [called(f"report-{number}"), shown]
    talk += talk_of(2, "short")[1:]
    graph = Graph(
        name="g", state=Long, input=("messages", "context_usage"), output="answer",
        nodes={"shorten": node, "think": Respond(usage="context_usage"), "act": ACT},
        edges="START -> shorten -> think\nthink -> END : answer\nthink -> act : calls\nact -> shorten",
    )  # fmt: skip
    replacing = ScriptedModel({"shorten": lambda request: "sum", "think": ["done"]})
    async with Executor(model=replacing, tools=[report]) as executor:
        run: Run = await executor.start(graph, {"messages": talk, "context_usage": {"window": 3_000}})
    assert (run.status, run.error) == ("completed", None)
    texts = [message.content for message in run.state.messages]
    assert not any(text.startswith("[Excerpt") for text in texts)
    assert names(replacing)[-1] == ["report", "read_result"]
    if isinstance(node, ClearResults):
        line = f'was removed to save space. read_result(id="{ID}") reads it.]'
        assert sum(text.endswith(line) for text in texts) == 8


def test_an_offload_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="1000"):
        looping(offload=10)
    with pytest.raises(ValueError, match="message= or results="):
        Execute(offload=2_000)
    assert "offload" not in str(looping().data())


@once
@pytest.mark.parametrize("build", [react, function_call_agent, chat])
@pytest.mark.parametrize("context", ["compact", "none"])
async def test_a_run_from_before_that_waits_inside_a_call_goes_on(url: str, build: Any, context: str) -> None:
    asking = report.with_(risk="write")
    options = {"thought": "optional"} if build is react else {}
    async with Executor(url, model=model(), tools=[asking]) as executor:
        run: Run = await executor.start(build(context=context, offload=None, **options), "?", run_id="r")
        assert run.waiting[0].kind == "approval"
    async with Executor(url, model=model(), tools=[asking], graphs=[build(context=context, **options)]) as executor:
        run = await executor.answer("r", run.waiting[0].id, Approve())
        assert run.error is None
        assert results(run)[0].startswith("[Excerpt")
        assert "line 5000: 25000000\n" in results(run)[2]


@once
async def test_a_crash_at_each_write_changes_nothing() -> None:
    given = {"question": "?"}
    await assert_crash_safe(function_call_agent(max_steps=9), given, model=model(), tools=[report])
