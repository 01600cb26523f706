"""Calls in several rounds: what a server asks for first is a question of the run, and the call is made once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Context, Deny, Executor, Graph, Run, Update, node
from orchestrator.errors import InvalidAnswer, ReplayMismatch
from orchestrator.tools.mcp import McpToolbox
from orchestrator.tools.mcp.elicitation import secret_in
from orchestrator.tools.mcp.rounds import MOST_ROUNDS
from tests.tools.mcp import asking
from tests.tools.mcp.asking import Paying, paying, retrying, toolbox

pytestmark = pytest.mark.anyio
STATE = "Zust\u00e4nd/+=  \U0001f511\r\n1"
"""A state that is not changed on its way."""
MODERN = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}
PAID: dict[str, Any] = {"result": {"content": [{"type": "text", "text": "paid"}]}}
NAME = {"type": "object", "properties": {"name": {"type": "string", "minLength": 2}}, "required": ["name"]}


def form(message: str, schema: Any = NAME, **more: Any) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema, **more}}


def asks(state: str | None, **requests: Any) -> dict[str, Any]:
    said = {"resultType": "input_required", "inputRequests": requests, "requestState": state}
    return {"result": {name: value for name, value in said.items() if value}}


def says(*rounds: Any) -> dict[str, Any]:
    return {"server/discover": [[{"result": MODERN}]], "tools/call": [[one] for one in rounds]}


def calls(folder: Path) -> list[dict[str, Any]]:
    """The parameters of each call that the server got, without what is in all of them."""
    lines = (folder / "calls").read_text().splitlines()
    return [{name: value for name, value in json.loads(line).items() if name != "_meta"} for line in lines]


TWO = says(asks(STATE, you=form("Who are you?"), other=form("Who else?")), asks("second", sure=form("Sure?")), PAID)
CALL = {"name": "pay", "arguments": {}}


def accepted(name: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": name}}


async def test_each_request_is_a_question_and_the_rounds_are_one_effect(tmp_path: Path) -> None:
    async with Executor(graphs=[paying], tools=[toolbox(tmp_path, TWO)]) as executor:
        run = await executor.start(paying, {})
        asked = []
        while run.status == "paused":
            (question,) = run.waiting
            asked.append((question.kind, question.prompt.partition("asks: ")[2]))
            assert question.schema == NAME
            assert STATE not in question.model_dump_json()
            run = await executor.answer(run.run_id, question.id, {"name": f"Ann {len(asked)}"})
        assert (run.status, run.output) == ("completed", "paid")
        records = await executor.store.read(run.run_id)
    assert asked == [("input", "Who are you?"), ("input", "Who else?"), ("input", "Sure?")]
    assert calls(tmp_path) == [
        CALL,
        {**CALL, "inputResponses": {"you": accepted("Ann 1"), "other": accepted("Ann 2")}, "requestState": STATE},
        {**CALL, "inputResponses": {"sure": accepted("Ann 3")}, "requestState": "second"},
    ]
    effects = [record for record in records if record.type == "effect_settled"]
    assert len({record.key for record in effects}) == 1
    assert [(record.ok, record.may_have_happened) for record in effects] == [(False, False)] * 3 + [(True, True)]


async def _answered(executor: Executor, run_id: str, times: int) -> Run:
    run = await executor.load(run_id)
    for _ in range(times):
        run = await executor.answer(run_id, run.waiting[0].id, {"name": "Ann"})
    return run


def killed(store: str, folder: Path, said: Any, name: str, *, until: Path | None = None) -> str:
    """Start a run in another process, kill that when the run waits (and a file exists), and return the run's id."""
    words = [sys.executable, asking.__file__, store, str(folder), json.dumps(said), name]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as process:
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        while until is not None and not until.exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    return run_id


async def test_the_state_goes_back_unchanged_after_a_kill_between_the_rounds(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    run_id = killed(store, tmp_path, TWO, "paying")
    later = {"server/discover": TWO["server/discover"], "tools/call": TWO["tools/call"][1:]}
    async with Executor(store=store, graphs=[paying], tools=[toolbox(tmp_path, later)]) as executor:
        run = await _answered(executor, run_id, 2)
        assert [question.prompt.partition("asks: ")[2] for question in run.waiting] == ["Sure?"]
        assert (await _answered(executor, run_id, 1)).output == "paid"
    assert [call.get("requestState") for call in calls(tmp_path)] == [None, STATE, "second"]


async def test_a_denial_is_told_to_the_server(tmp_path: Path) -> None:
    one = says(asks("s", you=form("Who are you?")), PAID)
    async with Executor(graphs=[paying], tools=[toolbox(tmp_path, one)]) as executor:
        run = await executor.start(paying, {})
        run = await executor.answer(run.run_id, run.waiting[0].id, Deny())
        assert run.output == "paid"
    assert calls(tmp_path)[1]["inputResponses"] == {"you": {"action": "decline"}}


PAGE = "https://bank.example/sign?state=%2Fa&key=1#x"


@pytest.mark.parametrize(
    ("answer", "told_"), [("accept", "accept"), ("decline", "decline"), ("cancel", "cancel"), (Deny(), "decline")]
)
@pytest.mark.parametrize("generation", ["newer", "older"])
async def test_an_address_is_shown_and_only_that_it_was_opened_is_told(
    tmp_path: Path, generation: str, answer: Any, told_: str
) -> None:
    params: dict[str, Any] = {"mode": "url", "url": PAGE, "message": "Sign in", "elicitationId": "e"}
    request = {"method": "elicitation/create", "params": params}
    server = says(asks("s", a=request), PAID) if generation == "newer" else older({"id": "e1", **request})
    store, box = f"sqlite:///{tmp_path / 'runs.db'}", toolbox(tmp_path, server)
    async with Executor(store=store, graphs=[paying], tools=[box]) as executor:
        run = await executor.start(paying, {})
        (question,) = run.waiting
        assert question.kind == "input"
        asked = f"MCP server 'python' asks you to open a page of bank.example: {PAGE}\nIt says: Sign in"
        assert question.prompt == asked
        with pytest.raises(InvalidAnswer):
            await executor.answer(run.run_id, question.id, {"password": "hunter2"})
        given = {"action": answer} if isinstance(answer, str) else answer
        assert (await executor.answer(run.run_id, question.id, given)).output == "paid"
    said = calls(tmp_path)[1]["inputResponses"]["a"] if generation == "newer" else told(tmp_path)[0]["result"]
    assert said == {"action": told_}
    assert not any(b"hunter2" in file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.parametrize("answer", ["accept", "decline"])
async def test_an_error_that_asks_for_an_address(tmp_path: Path, answer: str) -> None:
    """Servers of 2025-11-25 refuse the call, and take it when the page was opened."""
    asked = [{"mode": "url", "url": PAGE, "message": "Sign in", "elicitationId": "e"}]
    error = {"error": {"code": -32042, "message": "Sign in first", "data": {"elicitations": asked}}}
    server = {"tools/call": [[error], [PAID]]}
    async with Executor(graphs=[paying], tools=[toolbox(tmp_path, server)]) as executor:
        run = await executor.start(paying, {})
        (question,) = run.waiting
        assert question.prompt.endswith("It says: Sign in")
        run = await executor.answer(run.run_id, question.id, {"action": answer})
        if answer == "accept":
            assert run.output == "paid"
        else:
            assert "needs a page to be opened, and the user declined" in str(run.error)
    assert calls(tmp_path) == [CALL] * (2 if answer == "accept" else 1)


async def test_the_host_of_an_address_is_shown_as_it_is(tmp_path: Path) -> None:
    """Letters of another script that look like `paypal`."""
    request = form("Sign in", mode="url", url="https://p\u0430yp\u0430l.com/a")
    async with Executor(graphs=[paying], tools=[toolbox(tmp_path, says(asks("s", a=request), PAID))]) as executor:
        (question,) = (await executor.start(paying, {})).waiting
        assert "a page of xn--pypl-53dc.com: https://xn--pypl-53dc.com/a\n" in question.prompt


async def test_a_state_without_requests_is_sent_back_at_once(tmp_path: Path) -> None:
    one = says(asks("busy"), asks("busy again"), PAID)
    async with toolbox(tmp_path, one) as box:
        assert (await box.execute(name="pay")).output == "paid"
    assert [call.get("requestState") for call in calls(tmp_path)] == [None, "busy", "busy again"]


async def test_a_state_that_the_server_no_longer_takes_ends_in_its_words_and_a_question(tmp_path: Path) -> None:
    error = {"error": {"code": -32602, "message": "This state is too old"}}
    one = says(asks("old", you=form("Who?")), error, asks("new", you=form("Who?")), PAID)
    async with Executor(graphs=[retrying], tools=[toolbox(tmp_path, one)]) as executor:
        run = await executor.start(retrying, {})
        run = await _answered(executor, run.run_id, 1)
        (question,) = run.waiting
        assert question.kind == "unknown_outcome"
        assert "does not take the answers of the last round: This state is too old" in question.prompt
        assert len(calls(tmp_path)) == 2
        run = await executor.answer(run.run_id, question.id, {"choice": "retry"})
        assert len(calls(tmp_path)) == 3  # it begins anew, which a person has decided
        assert "requestState" not in calls(tmp_path)[2]
        assert (await _answered(executor, run.run_id, len(run.waiting))).output == "paid"


HIDDEN = {"type": "string", "format": "password"}
LOGIN = {"type": "object", "properties": {"password": HIDDEN}}


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"properties": {"login": LOGIN}}, "password"),
        ({"properties": {"value": {"anyOf": [HIDDEN, {"type": "null"}]}}}, "value"),
        ({"properties": {"value": {"$ref": "#/$defs/p"}}, "$defs": {"p": HIDDEN}}, "value"),
        ({"properties": {"a": {"$ref": "#/$defs/p"}}, "$defs": {"p": LOGIN, "q": {"$ref": "#/$defs/q"}}}, "password"),
        ({"properties": {"value": {"$ref": "#/odd/p"}}, "odd": {"p": {"writeOnly": True}}}, "value"),
        ({"allOf": [{"properties": {"token": True}}]}, "token"),
        ({"properties": {"keys": {"type": "array", "items": {"type": "string", "writeOnly": True}}}}, "keys"),
        ({"patternProperties": {"^a": HIDDEN}}, "^a"),
        ({"required": ["api_key"]}, "api_key"),
        (HIDDEN, "a value"),
        ({"properties": {"town": {"type": "string", "default": {"format": "password"}}}}, ""),
        ({"properties": {"tree": {"$ref": "#/$defs/t"}}, "$defs": {"t": {"items": {"$ref": "#/$defs/t"}}}}, ""),
    ],
)
def test_a_secret_in_a_form_is_found_at_any_depth(schema: Any, name: str) -> None:
    assert secret_in(schema) == name


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"method": "sampling/createMessage", "params": {}}, "this client gives servers no access to its models"),
        ({"method": "roots/list"}, "this client names none"),
        ({"method": "made/up"}, "asks for 'made/up', which is unknown"),
        ("Who are you?", "asks for 'None', which is unknown"),
        (form("Sign in", mode="url", url="javascript:alert('secret-9876')"), "an address that is none of a page"),
        (form("Sign in", mode="url", url="https://user:secret-9876@127.0.0.1/"), "an address that is none of a page"),
        (form("Sign in", mode="url", url="https://evil.example\\.good.example/"), "whose host is not valid"),
        (form("Sign in", mode="url", url="https://evil.example%2f.good.example/"), "whose host is not valid"),
        (form("Sign in", mode="url", url="https://127.0.0.1/\nsecret-9876"), "an address that is none of a page"),
        (form("Sign in", mode="made up"), "asks in the mode 'made up', which is unknown"),
        (form("Who?", {"type": "array"}), "asks with a schema that cannot be used"),
        (
            form("Who?", {"type": "object", "properties": {"pin": {"type": "string", "format": "password"}}}),
            "asks for 'pin', a secret, which the protocol forbids in a form",
        ),
        (form("Who?", {"type": "object", "properties": {"api_key": {"type": "string"}}}), "asks for 'api_key', a secr"),
        (form("Who?", {"type": "object", "properties": {"login": LOGIN}}), "asks for 'password', a secret"),
        (form("x" * 110_000), "asks for too much input"),
    ],
)
async def test_what_is_not_asked_ends_the_call_in_words_and_stays_out_of_the_store(
    tmp_path: Path, request_: Any, words: str
) -> None:
    store = tmp_path / "runs.db"
    box = toolbox(tmp_path, says(asks("secret-9876", a=request_), PAID))
    async with Executor(store=f"sqlite:///{store}", graphs=[paying], tools=[box]) as executor:
        run = await executor.start(paying, {})
        assert run.status == "failed"
        assert words in str(run.error)
    assert calls(tmp_path) == [CALL]
    assert b"secret-9876" not in store.read_bytes()


@pytest.mark.parametrize("server", ["newer", "older"])
@pytest.mark.parametrize("now", ["nothing", "another call", "other arguments"])
async def test_code_that_no_longer_makes_a_call_which_waits_is_refused(tmp_path: Path, server: str, now: str) -> None:
    """Arguments that differ each time are those of the call that waits."""
    code = "as it was"

    @node
    async def pay(state: Paying, ctx: Context) -> Update:
        if code == "as it was" or code == "other arguments":
            return {"said": str((await ctx.tool("pay", {"id": code}, check=True)).output)}
        return (
            {"said": str(await ctx.effect("other", lambda: "done", returns=str, effect="irreversible"))}
            if code != "nothing"
            else {}
        )

    graph = Graph(name="changed", state=Paying, nodes={"pay": pay}, edges="START -> pay -> END", output="said")
    says_ = says(asks("s", you=form("Who are you?")), PAID) if server == "newer" else older(elicits("Who are you?"))
    async with Executor(graphs=[graph], tools=[toolbox(tmp_path, says_)]) as executor:
        run = await executor.start(graph, {})
        code = now
        if now == "other arguments":
            assert (await _answered(executor, run.run_id, 1)).output == "paid"
            return
        with pytest.raises(ReplayMismatch, match=r"waits in the middle of pay .*Resume it with the code"):
            await _answered(executor, run.run_id, 1)
        code = "as it was"
        assert (await executor.resume(run.run_id)).output == "paid"


async def test_a_server_that_asks_for_ever_is_stopped(tmp_path: Path) -> None:
    async with Executor(graphs=[paying], tools=[toolbox(tmp_path, says(asks("s", you=form("Who?"))))]) as executor:
        run = await executor.start(paying, {})
        for _ in range(MOST_ROUNDS):
            run = await _answered(executor, run.run_id, 1)
        assert run.status == "failed"
        assert f"for more than {MOST_ROUNDS} rounds" in str(run.error)
    assert len(calls(tmp_path)) == MOST_ROUNDS + 1


async def test_outside_of_a_run_nobody_can_be_asked(tmp_path: Path) -> None:
    async with toolbox(tmp_path, TWO) as box:
        assert "which only a run can ask a person for" in str((await box.execute(name="pay")).error)


async def test_a_fork_sends_no_state_of_its_parent(tmp_path: Path) -> None:
    async with Executor(graphs=[paying], tools=[toolbox(tmp_path, TWO)]) as executor:
        run = await executor.start(paying, {})
        fork = await executor.fork(run.run_id)
        run = await executor.answer(fork.run_id, fork.waiting[0].id, {"name": "Eve"})
        assert [question.kind for question in run.waiting] == ["approval"]
        assert len(calls(tmp_path)) == 1


async def test_a_server_made_with_the_sdk_takes_back_what_it_has_sealed(address: str) -> None:
    async with Executor(graphs=[paying], tools=[McpToolbox.http(address)]) as executor:
        run = await executor.start(paying, {})
        assert run.waiting[0].prompt.endswith("asks: Who gets it?")
        run = await executor.answer(run.run_id, run.waiting[0].id, {"name": "Ann"})
        assert run.waiting[0].prompt.endswith("asks: Sure, Ann?")
        run = await executor.answer(run.run_id, run.waiting[0].id, {"sure": True})
        assert run.output == "paid Ann: True"


# -- servers before 2026-07-28, which ask in the middle of a call ------------------------------------------------------


def older(*rounds: Any) -> dict[str, Any]:
    """What a server says that asks by a request of its own, and pays when that is answered."""
    return {"tools/call": [rounds], "answer": [[PAID]]}


def elicits(message: str, schema: Any = NAME, **more: Any) -> dict[str, Any]:
    return {"id": "e1", **form(message, schema, **more)}


def told(folder: Path) -> list[Any]:
    """The server's answers to its own requests."""
    return [json.loads(line) for line in (folder / "answers").read_text().splitlines()]


async def test_an_older_server_waits_while_a_person_is_asked(tmp_path: Path) -> None:
    async with Executor(graphs=[paying], tools=[toolbox(tmp_path, older(elicits("Who are you?")))]) as executor:
        run = await executor.start(paying, {})
        (question,) = run.waiting
        assert (question.kind, question.prompt) == ("input", "MCP server 'python' asks: Who are you?")
        with pytest.raises(InvalidAnswer, match="name"):
            await executor.answer(run.run_id, question.id, {"name": 5})
        run = await executor.answer(run.run_id, question.id, {"name": "Ann"})
        assert (run.status, run.output) == ("completed", "paid")
    assert calls(tmp_path) == [CALL]
    assert told(tmp_path) == [{"result": accepted("Ann")}]


async def test_an_older_server_that_was_left_waiting_by_a_kill_is_asked_about(tmp_path: Path) -> None:
    store, one = f"sqlite:///{tmp_path / 'runs.db'}", older(elicits("Who are you?"))
    run_id = killed(store, tmp_path, one, "retrying")
    async with Executor(store=store, graphs=[retrying], tools=[toolbox(tmp_path, one)]) as executor:
        run = await _answered(executor, run_id, 1)
        (question,) = run.waiting
        assert (question.kind, question.payload["why"]) == ("unknown_outcome", "connection")
        assert "waited for an answer during the call, and the process" in question.payload["error"]
    assert calls(tmp_path) == [CALL]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (elicits("Sign in", mode="url", url="file:///etc/passwd"), "an address that is none of a page"),
        (elicits("Who?", {"type": "object", "properties": {"password": {}}}), "asks for 'password', a secret"),
        ({"id": "e1", "method": "sampling/createMessage", "params": {}}, "gives servers no access to its models"),
        ({"id": "e1", "method": "roots/list"}, "this client names none"),
    ],
)
async def test_an_older_server_is_told_what_is_not_asked(tmp_path: Path, request_: Any, words: str) -> None:
    async with Executor(graphs=[paying], tools=[toolbox(tmp_path, older(request_))]) as executor:
        assert (await executor.start(paying, {})).output == "paid"
    (answer,) = told(tmp_path)
    assert words in answer["error"]["message"]


async def test_an_older_server_that_ends_while_a_person_is_asked_is_asked_about(tmp_path: Path) -> None:
    one = {"tools/call": [[elicits("Who?"), 3]]}
    async with Executor(graphs=[retrying], tools=[toolbox(tmp_path, one)]) as executor:
        run = await executor.start(retrying, {})
        while run.waiting[0].kind == "input":  # it may have ended before the question was asked
            run = await _answered(executor, run.run_id, 1)
        assert [question.kind for question in run.waiting] == ["unknown_outcome"]
    assert calls(tmp_path) == [CALL]


async def test_an_older_server_outside_of_a_run_is_told_that_nobody_is_asked(tmp_path: Path) -> None:
    async with toolbox(tmp_path, older(elicits("Who?"))) as box:
        assert (await box.execute(name="pay")).output == "paid"
    assert "only a run can ask a person" in told(tmp_path)[0]["error"]["message"]
