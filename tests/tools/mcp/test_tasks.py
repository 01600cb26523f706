"""Calls that servers answer with a task: the run sleeps, and goes on with the same task, in any process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import Executor
from orchestrator.kernel.records import EffectIntended, TimerSet
from orchestrator.stores.requests import NewRun
from orchestrator.tools.mcp.tasks import TaskLost, begun, later
from tests.tools.mcp.asking import paying, retrying, slowly, toolbox
from tests.tools.mcp.test_rounds import NAME, PAID, accepted, calls, form, killed
from tests.tools.mcp.test_serving_tasks import SLOW, command

pytestmark = pytest.mark.anyio

CAN = {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
MODERN = {"supportedVersions": ["2026-07-28"], "capabilities": CAN, "resultType": "complete"}
MADE: dict[str, Any] = {"taskId": "t-1", "status": "working", "ttlMs": None, "pollIntervalMs": 10}


def state(status: str, **more: Any) -> dict[str, Any]:
    return {"result": {**MADE, "status": status, "resultType": "complete", **more}}


DONE = state("completed", **PAID)


def says(*states: Any, **more: Any) -> dict[str, Any]:
    """What a server of 2026-07-28 says whose tool is a task with these states."""
    return {
        "server/discover": [[{"result": MODERN}]],
        "tools/call": [[{"result": {**MADE, "resultType": "task"}}]],
        "tasks/get": [[one] for one in states],
        "tasks/cancel": [[{"result": {"resultType": "complete"}}]],
        "tasks/update": [[{"result": {"resultType": "complete"}}]],
        **more,
    }


def requests(folder: Path) -> list[tuple[str, Any]]:
    """The requests about tasks that the server got: method, and the answers in it."""
    lines = [json.loads(line) for line in (folder / "tasks").read_text().splitlines()]
    assert {line["taskId"] for line in lines} == {"t-1"}
    return [(line["method"], line.get("inputResponses")) for line in lines]


async def test_a_task_is_a_wait_of_the_run(tmp_path: Path) -> None:
    async with Executor(
        graphs=[paying], tools=[toolbox(tmp_path, says(state("working"), state("working"), DONE))]
    ) as executor:
        run = await executor.start(paying, {})
        assert (run.status, run.output) == ("completed", "paid")
        records = await executor.store.read(run.run_id)
    assert len(calls(tmp_path)) == 1
    assert requests(tmp_path) == [("tasks/get", None)] * 3
    assert sum(isinstance(one, TimerSet) for one in records) == 3
    assert len({one.key for one in records if isinstance(one, EffectIntended)}) == 1


async def test_what_the_server_says_about_the_state_is_progress(tmp_path: Path) -> None:
    server = says(state("working", statusMessage="Half of it\x1b[2J"), DONE)
    box = toolbox(tmp_path, server)
    async with Executor(graphs=[paying], tools=[box]) as executor, executor.stream(paying, {}) as live:
        told = [event.data async for event in live if event.type == "progress"]
    assert [(one["text"], one["tool"]) for one in told] == [("Half of it", "pay")]


async def test_only_in_a_run_a_server_may_make_a_task_unless_it_must(tmp_path: Path) -> None:
    def declared() -> list[bool]:
        lines = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
        return ["extensions" in line["_meta"]["io.modelcontextprotocol/clientCapabilities"] for line in lines]

    async with toolbox(tmp_path, says(DONE, **{"tools/call": [[PAID]]})) as box:
        assert (await box.execute(name="pay")).output == "paid"
        assert declared() == [False]
    must = {"error": {"code": -32021, "message": "Missing required client capability"}}
    async with toolbox(tmp_path, says(DONE, **{"tools/call": [[must], [PAID]]})) as box:
        assert (await box.execute(name="pay")).output == "paid"
        assert declared() == [False, False, True]
    async with Executor(graphs=[paying], tools=[toolbox(tmp_path, says(DONE))]) as executor:
        assert (await executor.start(paying, {})).output == "paid"
        assert declared()[-1] is True


async def test_outside_of_a_run_it_is_waited_for(tmp_path: Path) -> None:
    async with toolbox(tmp_path, says(state("working"), DONE)) as box:
        assert (await box.execute(name="pay")).output == "paid"
    assert requests(tmp_path) == [("tasks/get", None)] * 2


@pytest.mark.parametrize("asked", [False, True])
async def test_a_task_outlives_a_kill_also_while_its_state_is_asked_for(tmp_path: Path, asked: bool) -> None:
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    made = {**MADE, "resultType": "task", "pollIntervalMs": 10 if asked else 2_000}
    silent = says([], **{"tools/call": [[{"result": made}]], "tasks/get": [[]]})
    run_id = killed(store, tmp_path, silent, "paying", until=tmp_path / "tasks" if asked else None)
    async with Executor(
        store=store, graphs=[paying], tools=[toolbox(tmp_path, says(state("working"), DONE))]
    ) as executor:
        run = await executor.load(run_id)
        assert "t-1" not in f"{run.waiting}"
        run = await executor.resume(run_id)
        assert (run.status, run.output) == ("completed", "paid")
    assert len(calls(tmp_path)) == 1


@pytest.mark.full
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_of_another_program_outlives_a_kill(tmp_path: Path) -> None:
    """The server is `orchestrator serve-mcp`, which is built on the SDK, in a process of its own."""
    (tmp_path / "slow.py").write_text(SLOW)
    store = f"sqlite:///{tmp_path / 'client.db'}"
    with command(tmp_path) as (_, address):
        run_id = killed(store, tmp_path, address, "slowly")
        (tmp_path / "go").touch()
        async with Executor(store=store, graphs=[slowly], tools=[toolbox(tmp_path, address)]) as executor:
            run = await executor.resume(run_id)
            assert run.status == "completed"
            assert "'output': ['one', 'two']" in run.output
    assert (tmp_path / "log").read_text().split() == ["one", "two"]


async def test_what_a_task_asks_is_a_question_of_the_run_and_is_answered_once(tmp_path: Path) -> None:
    asking = state("input_required", inputRequests={"you": form("Who are you?")})
    both = state("input_required", inputRequests={"you": form("Who are you?"), "sure": form("Sure?")})
    server = says(asking, asking, both, DONE)  # it still shows what was answered
    async with Executor(graphs=[paying], tools=[toolbox(tmp_path, server)]) as executor:
        run = await executor.start(paying, {})
        for said in ("Who are you?", "Sure?"):
            (question,) = run.waiting
            assert (question.kind, question.schema, question.prompt.partition("asks: ")[2]) == ("input", NAME, said)
            run = await executor.answer(run.run_id, question.id, {"name": "Ann"})
        assert run.output == "paid"
    told = [answers for method, answers in requests(tmp_path) if method == "tasks/update"]
    assert told == [{"you": accepted("Ann")}, {"sure": accepted("Ann")}]
    assert len(calls(tmp_path)) == 1


async def test_the_end_of_a_run_cancels_its_task(tmp_path: Path) -> None:
    server = says(state("working", pollIntervalMs=60_000), DONE)
    async with Executor(graphs=[retrying], tools=[toolbox(tmp_path, server)]) as executor:
        run_id = await executor.submit(retrying, {})
        while not (tmp_path / "tasks").exists() or (await executor.load(run_id)).status != "paused":  # noqa: ASYNC110
            await anyio.sleep(0.01)
        run = await executor.cancel(run_id)
        assert run.status == "cancelled"
        assert requests(tmp_path)[-1] == ("tasks/cancel", None)
        run = await executor.resume(run_id, retry=True)  # what it had done is not known
        assert [question.kind for question in run.waiting] == ["unknown_outcome"]
    assert len(calls(tmp_path)) == 1


async def test_a_fork_neither_goes_on_with_the_task_of_its_parent_nor_cancels_it(tmp_path: Path) -> None:
    server = says(state("working", pollIntervalMs=60_000), DONE)
    async with Executor(graphs=[paying], tools=[toolbox(tmp_path, server)]) as executor:
        run_id = await executor.submit(paying, {})
        while not (tmp_path / "tasks").exists() or (await executor.load(run_id)).status != "paused":  # noqa: ASYNC110
            await anyio.sleep(0.01)
        before = requests(tmp_path)
        head = next(one.seq for one in await executor.store.read(run_id) if isinstance(one, TimerSet))
        fork = await executor.fork(run_id, at=head)
        assert [question.kind for question in fork.waiting] == ["approval"]  # whether to call it again
        assert (await executor.cancel(fork.run_id)).status == "cancelled"
        assert requests(tmp_path) == before
        await executor.cancel(run_id)
        assert requests(tmp_path) == [*before, ("tasks/cancel", None)]


async def test_a_replay_asks_for_no_task(tmp_path: Path) -> None:
    async with Executor(graphs=[paying], tools=[toolbox(tmp_path, says(state("working"), DONE))]) as executor:
        run = await executor.start(paying, {})
        before = requests(tmp_path)
        replay = await executor.replay(run.run_id)
        assert (replay.status, replay.run.output, replay.same) == ("completed", "paid", True)
        assert (requests(tmp_path), len(calls(tmp_path))) == (before, 1)


async def test_a_task_is_in_no_page_and_no_event(tmp_path: Path) -> None:
    server = says(state("working", taskId="t-hidden", pollIntervalMs=60_000))
    server["tools/call"] = [[{"result": {**MADE, "resultType": "task", "taskId": "t-hidden"}}]]
    async with Executor(graphs=[paying], tools=[toolbox(tmp_path, server)]) as executor:
        run_id = await executor.submit(paying, {})
        while not (tmp_path / "tasks").exists() or (await executor.load(run_id)).status != "paused":  # noqa: ASYNC110
            await anyio.sleep(0.01)
        run = await executor.load(run_id)
        assert "t-hidden" in str(await executor.store.read(run_id))
        assert "t-hidden" not in run.to_html()
        await executor.cancel(run_id)


GONE = {"error": {"code": -32602, "message": "Task has expired"}}


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (GONE, "does not know its task any more: MCP server 'python': Task has expired"),
        (state("cancelled", statusMessage="No more money"), "has cancelled its task: No more money"),
        (state("made up"), "gives its task the unknown status 'made up'"),
        (state("completed"), "gives its task the unknown status 'completed'"),
    ],
)
async def test_a_task_that_is_lost_is_asked_about(tmp_path: Path, end: Any, words: str) -> None:
    async with Executor(graphs=[retrying], tools=[toolbox(tmp_path, says(state("working"), end, DONE))]) as executor:
        run = await executor.start(retrying, {})
        (question,) = run.waiting
        assert question.kind == "unknown_outcome"
        assert words in question.payload["error"]
        assert len(calls(tmp_path)) == 1
        run = await executor.answer(run.run_id, question.id, {"choice": "retry"})
        assert (run.output, len(calls(tmp_path))) == ("paid", 2)  # a new call, which a person has decided


async def test_a_task_that_fails_has_failed_in_the_servers_words(tmp_path: Path) -> None:
    failed = state("failed", error={"code": -32603, "message": "API rate limit exceeded"})
    async with Executor(graphs=[paying], tools=[toolbox(tmp_path, says(failed))]) as executor:
        run = await executor.start(paying, {})
        assert "MCP server 'python': API rate limit exceeded" in str(run.error)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"method": "sampling/createMessage", "params": {}}, "gives servers no access to its models"),
        (form("Your key?", {"type": "object", "properties": {"api_key": {}}}), "asks for 'api_key', a secret"),
    ],
)
async def test_a_task_that_asks_for_what_is_refused_is_cancelled_and_asked_about(
    tmp_path: Path, request_: Any, words: str
) -> None:
    server = says(state("input_required", inputRequests={"a": request_}))
    async with Executor(graphs=[retrying], tools=[toolbox(tmp_path, server)]) as executor:
        (question,) = (await executor.start(retrying, {})).waiting
        assert question.kind == "unknown_outcome"
        assert words in question.payload["error"]
    assert requests(tmp_path) == [("tasks/get", None), ("tasks/cancel", None)]


@pytest.mark.parametrize("task", [None, "", 7, "x" * 2_000])
async def test_a_task_without_a_usable_id_is_refused(tmp_path: Path, task: Any) -> None:
    server = says(DONE)
    server["tools/call"] = [[{"result": {**MADE, "resultType": "task", "taskId": task}}]]
    async with Executor(graphs=[paying], tools=[toolbox(tmp_path, server)]) as executor:
        assert "a task without a usable id" in str((await executor.start(paying, {})).error)


async def test_a_server_that_ends_between_two_requests_is_asked_again(tmp_path: Path) -> None:
    server = says(state("working"), state("working"), DONE)
    server["tasks/get"] = [[state("working"), 3], [DONE]]  # each process says the first of these
    async with Executor(graphs=[paying], tools=[toolbox(tmp_path, server)]) as executor:
        run_id = await executor.submit(paying, {})
        while len((tmp_path / "starts").read_text().split()) < 4:  # noqa: ASYNC110
            await anyio.sleep(0.01)
        run = await executor.cancel(run_id)
        assert run.status == "cancelled"
    assert len(calls(tmp_path)) == 1


# -- servers of 2025-11-25, which the client asks for a task -----------------------------------------------------------


def older(*states: Any, support: str = "optional", **more: Any) -> dict[str, Any]:
    can = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}, "cancel": {}}}
    tool = {"name": "pay", "inputSchema": {"type": "object"}, "execution": {"taskSupport": support}}
    made = {"taskId": "t-1", "status": "working", "ttl": None, "pollInterval": 10}
    return {
        "initialize": [[{"result": {"protocolVersion": "2025-11-25", "capabilities": can, "serverInfo": {}}}]],
        "tools/list": [[{"result": {"tools": [tool]}}]],
        "tools/call": [[{"result": {"task": made}}]],
        "tasks/get": [[{"result": {**made, "status": one}}] for one in states],
        "tasks/result": [[PAID]],
        **more,
    }


async def test_an_older_server_is_asked_for_a_task(tmp_path: Path) -> None:
    async with Executor(graphs=[paying], tools=[toolbox(tmp_path, older("working", "completed"))]) as executor:
        assert (await executor.start(paying, {})).output == "paid"
    (call,) = calls(tmp_path)
    assert call["task"]["ttl"] > 0
    assert [method for method, _ in requests(tmp_path)] == ["tasks/get", "tasks/get", "tasks/result"]


@pytest.mark.parametrize("support", ["optional", "required"])
async def test_outside_of_a_run_only_a_tool_that_needs_one_becomes_a_task(tmp_path: Path, support: str) -> None:
    more = {} if support == "required" else {"tools/call": [[PAID]]}
    async with toolbox(tmp_path, older("completed", support=support, **more)) as box:
        assert (await box.execute(name="pay")).output == "paid"
    assert ["task" in call for call in calls(tmp_path)] == [support == "required"]


async def test_what_an_older_task_asks_is_asked_when_its_result_is(tmp_path: Path) -> None:
    asks = {"id": "e1", **form("Who are you?")}
    server = older("working", "input_required", **{"tasks/result": [[asks]], "answer": [[PAID]]})
    async with Executor(graphs=[paying], tools=[toolbox(tmp_path, server)]) as executor:
        run = await executor.start(paying, {})
        (question,) = run.waiting
        assert question.prompt.endswith("asks: Who are you?")
        run = await executor.answer(run.run_id, question.id, {"name": "Ann"})
        assert run.output == "paid"
    assert len(calls(tmp_path)) == 1


# -- when the state is asked for ---------------------------------------------------------------------------------------


def test_the_longer_a_task_takes_the_more_rarely_it_is_asked_about() -> None:
    kept = {"round": 0, **begun({"taskId": "t", "pollIntervalMs": 1_000})}
    count = 0
    while kept["waited"] < 10 * 3_600:
        kept, count = later(kept, {"pollIntervalMs": 1_000}), count + 1
        assert kept["pause"] >= 1
        assert kept["pause"] <= max(1.0, kept["waited"] / 10)
    assert count < 140


def test_it_is_asked_about_before_the_server_forgets_it() -> None:
    kept = {"round": 0, **begun({"taskId": "t", "ttlMs": 50_000, "pollIntervalMs": 1_000})}
    assert later({**kept, "waited": 49.0}, {"ttlMs": 50_000, "pollIntervalMs": 1_000})["pause"] <= 5


def test_a_server_that_forgets_at_once_is_not_asked_all_the_time() -> None:
    kept = {"round": 0, **begun({"taskId": "t", "ttlMs": 1, "pollIntervalMs": 0})}
    assert later({**kept, "waited": 3_600.0}, {"ttlMs": 1, "pollIntervalMs": 0})["pause"] >= 1


def test_a_server_that_is_not_reached_is_asked_again_for_a_while() -> None:
    kept = {"round": 0, **begun({"taskId": "t", "pollIntervalMs": 1_000})}
    for _ in range(10):
        kept = later(kept, {"missed": "MCP server 'x' cannot be reached"})
    assert 15 * 60 < kept["waited"] + kept["pause"] < 30 * 60
    with pytest.raises(TaskLost, match="'x' cannot be reached; so it is not known"):
        later(kept, {"missed": "MCP server 'x' cannot be reached"})
    assert later(kept, {"pollIntervalMs": 1_000})["missed"] == 0


@pytest.mark.parametrize("odd", [None, -5, True, "soon", 1e300, float("inf"), float("nan")])
def test_odd_times_of_a_server_are_bounded(odd: Any) -> None:
    assert 0.05 <= begun({"taskId": "t", "pollIntervalMs": odd, "ttlMs": odd})["pause"] <= 600


@pytest.mark.full
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_crash_after_any_record_leads_to_no_second_call(tmp_path: Path) -> None:
    """Only where the journal does not have the task yet is it not known what became of the call."""
    asking = state("input_required", inputRequests={"you": form("Who are you?")})
    server = says(state("working"), asking, state("working"), DONE)
    async with Executor(graphs=[paying], tools=[toolbox(tmp_path, server)]) as executor:
        run = await executor.start(paying, {})
        run = await executor.answer(run.run_id, run.waiting[0].id, {"name": "Ann"})
        assert run.output == "paid"
        records, info = await executor.store.read(run.run_id), await executor.store.info(run.run_id)
    first = next(one.seq for one in records if isinstance(one, EffectIntended))
    for head in range(first, len(records)):
        folder = tmp_path / str(head)
        folder.mkdir()
        later = says(*([asking] if head < len(records) / 2 else []), DONE)
        async with Executor(graphs=[paying], tools=[toolbox(folder, later)]) as executor:
            cut = info.changed(status="running", head=head, due=None)
            await executor.store.create(NewRun(cut, records[:head]))
            run = await executor.resume(run.run_id)
            if head == first:
                assert [question.kind for question in run.waiting] == ["unknown_outcome"]
                continue
            if run.status == "paused":
                run = await executor.answer(run.run_id, run.waiting[0].id, {"name": "Ann"})
            assert (run.status, run.output) == ("completed", "paid"), records[:head]
        assert not (folder / "calls").exists()
