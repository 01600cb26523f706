"""No request holds the event loop up in proportion to what clients stored: large values are worked on elsewhere.

Every route of the table is asked for runs with a large value. A probe looks at each call of C code, and of functions
that hand all they get to one, in the thread of the event loop: none may get much. Other threads hold the interpreter
lock, and so the loop, while they are in such a call, so they work in pieces.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from traceback import walk_stack
from types import CodeType, FrameType
from typing import Any, ClassVar

import httpx2
import pytest
from pydantic import BaseModel, field_validator
from starlette.requests import Request

from orchestrator import Approve, Executor, Graph, redaction
from orchestrator.evaluation.kept import NAMESPACE
from orchestrator.evaluation.results import Evaluation
from orchestrator.json import PIECE, digest, digest_in_pieces, is_small
from orchestrator.nodes import Confirm
from orchestrator.stores import payloads
from orchestrator.visible import exact
from orchestrator.web.endpoint import Endpoint
from orchestrator.web.routes import ROUTES
from orchestrator.web.screens.pages import SCREENS
from tests.support.sizes import sized
from tests.web.api import Api, Note, api, chat, letter, payment, plain, wide

MB = 1 << 20
HERE, ELSEWHERE = 2 * PIECE, 4 * MB
"""Characters that one call may get in the thread of the event loop, and in another one."""
_WHOLE: dict[CodeType, str] = {
    json.JSONEncoder.encode.__code__: "o",
    json.JSONDecoder.decode.__code__: "s",
    BaseModel.model_dump_json.__code__: "self",
}
"""Functions that hand an argument to C code as a whole."""
_PARTS = {"from_json", "to_json", "validate_json", "sub", "findall", "sha256", "escape", "encode_basestring_ascii"}
"""Functions in C that take time in proportion to an argument, which is among the variables of their caller."""
_SLOW = {redaction.redact.__code__: "text", exact.__code__: "value"}
"""Functions that work in pieces, and so may get anything in another thread."""
_ENGINE = ("executor/drive.py", "executor/timers.py", "executor/step_tasks.py", "executor/commands.py")
"""What the steps and commands of a run do with its values happens on the loop that drives it."""
_ONE_VALUE = ("kernel/records.py", "stores/", "values.py", "views/run_diff.py")
"""A record is read and written whole, and a value is checked, and compared, whole: some milliseconds a megabyte."""
_MOST = 64 * MB - 200
"""Characters of the largest value: with what the graphs add to it a value may have 64 MB."""
_TIMEOUT = 1200
"""Seconds for a request: the probe looks at each call, and the machine may be busy."""
_QUICK = {"startswith", "endswith", "isascii", "__len__"}


class Probe:
    """Notes calls that get more than they may. What the steps of a run do with its values is not looked at."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.on = False
        self.loop = 0

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if not self.on:
            return
        if event == "call" and (name := self._argument(frame.f_code)):
            self._note(frame, frame.f_code.co_qualname, frame.f_locals[name])
        elif event == "c_call":
            owner = getattr(arg, "__self__", None)
            if isinstance(owner, str | bytes):
                if arg.__name__ not in _QUICK:
                    self._note(frame, f"{type(owner).__name__}.{arg.__name__}", owner)
            elif arg.__name__ in _PARTS:
                for value in [*frame.f_locals.values()]:
                    if isinstance(value, str | bytes | dict | list):
                        self._note(frame, arg.__name__, value)

    def _argument(self, code: CodeType) -> str:
        """The argument in proportion to which a function takes time; empty: that is not known, or it may."""
        return _WHOLE.get(code) or (_SLOW.get(code, "") if threading.get_ident() == self.loop else "")

    def _note(self, frame: FrameType, name: str, value: object) -> None:
        here = threading.get_ident() == self.loop
        if not is_small(value, HERE if here else ELSEWHERE):
            places = [
                f"{one.f_code.co_filename.rpartition('/orchestrator/')[2]}:{number}"
                for one, number in walk_stack(frame)
                if "/orchestrator/" in one.f_code.co_filename
            ]
            if not any(place.startswith(_ENGINE if here else (*_ENGINE, *_ONE_VALUE)) for place in places):
                self.found.append(f"{name} {'here' if here else 'elsewhere'}: {' < '.join(places[:12])}")


class Large:
    """A server whose store has runs with a large value.

    Args:
        server: the server.
        value: the value.
    """

    def __init__(self, server: Api, probe: Probe, value: str) -> None:
        self.server, self.probe, self._value = server, probe, value
        self._made: set[str] = set()

    def run(self, graph: str, name: str) -> str:
        """A run, made if it is not there."""
        if name not in self._made:
            self._made.add(name)
            given = {"topic": self._value} if graph == "wide" else self._value
            self._do(self.server.executor.start, graph, given, run_id=name)
        return name

    def evaluation(self, name: str) -> str:
        """The result of an evaluation with texts as large as they may be kept."""
        if name not in self._made:
            self._made.add(name)
            kept = Evaluation(
                name, "rows", ("exact",), (), (), (), 0, 0, 0, 0, 0, 0.0, remarks=(self._value[:800_000],)
            )
            self._do(self.server.executor.memory.put, NAMESPACE, name, kept.to_json())
        return name

    def replay(self, name: str, replay: str) -> str:
        """A replay of a run."""
        if replay not in self._made:
            self._made.add(replay)
            self._do(self.server.executor.replay, name, replay_id=replay)
        return replay

    def question(self, name: str) -> dict[str, str]:
        """What names the question of a run in an answer."""
        (asked,) = self._do(self.server.executor.load, name).waiting
        return {"question": asked.id, "digest": asked.digest}

    def batch(self, name: str) -> dict[str, object]:
        """What names a batch of replays that has begun."""
        self.server.post("replays", 201, runs=["big"], batch=name)
        return {"batch": name}

    def note(self) -> str:
        """The id of a new note on the run `big`."""
        note: str = self._do(self.server.executor.notes.write, "big", "to be deleted").id
        return note

    def _do(self, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        async def called() -> Any:
            return await function(*given, **named)

        return self.server.portal.call(called)


@pytest.fixture(
    scope="module",
    params=[1, pytest.param(8, marks=pytest.mark.full), pytest.param(64, marks=pytest.mark.storm)],
    ids=["1MB", "8MB", "largest"],
)
def large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Large]:
    """A server with runs of a large value; the largest one has 64 MB, in a bounded storm 16."""
    bounded = request.config.getoption("--storm-scale") == 1
    size = 16 if request.param == 64 and bounded else request.param
    place: Path = tmp_path_factory.mktemp("large")
    probe = Probe()
    threading.setprofile(probe)
    try:
        store = f"sqlite:///{place}/runs.db"
        settings = {"poll": 0.05, "sources": True}
        with api(
            letter, wide, payment, chat, store=store, settings=settings, send_buffer=MB, timeout=_TIMEOUT
        ) as server:
            probe.loop = server.portal.call(threading.get_ident)
            server.portal.call(sys.setprofile, probe)
            yield Large(server, probe, "a word " * (min(size * MB, _MOST) // 7 + 1))
            server.portal.call(sys.setprofile, None)
    finally:
        threading.setprofile(None)


# What each route is asked. One that is not here gets the run `big`, and no query; a new one that wants more says so.
_QUERIES: dict[str, Callable[[Large], str]] = {
    "diff_runs": lambda large: f"?runs=big,{large.run('letter', 'waiting')}",
    "align_runs": lambda large: f"?runs=big,{large.replay('big', 'again')}",
    "compare_step": lambda large: f"?runs=big,{large.run('letter', 'waiting')}&step=start",
    "view_comparison": lambda large: f"?runs=big,{large.run('letter', 'waiting')}&step=start",
    "view_compared_step": lambda large: f"?runs=big,{large.run('letter', 'waiting')}&step=start",
    "list_replays": lambda large: "?runs=big&batch=many",
    "view_replays": lambda large: "?runs=big&batch=many",
    "show_fork_form": lambda large: "?at=2",
    "export_run": lambda large: "?children=true",
    "show_source": lambda large: "?node=draft",
}
_BODIES: dict[str, Callable[[Large], dict[str, object]]] = {
    "start_run": lambda large: {"graph": "chat", "input": _SENT},
    "answer_question": lambda large: {**large.question("answer_question"), "approve": True},
    "resume_run": lambda large: {},
    "pause_run": lambda large: {},
    "cancel_run": lambda large: {},
    "fork_run": lambda large: {"at": 2, "start": False},
    "preview_fork": lambda large: {"at": 2},
    "replay_run": lambda large: {},
    "send_event": lambda large: {"event": "word", "data": _SENT},
    "check_graph": lambda large: {"text": "name: x", "draw": True},
    "try_graph": lambda large: {"text": _TRIED, "input": _SENT},
    "save_graph": lambda large: {"name": "saved", "text": _TRIED},
    "replay_runs": lambda large: {"runs": ["big"], "batch": "many"},
    "archive_run": lambda large: {},
    "write_note": lambda large: {"text": "a word " * 500},
    "stop_replays": lambda large: large.batch("stopped"),
    "log_out": lambda large: {},
}
_SENT = "a word " * (PIECE // 7)
_WAITING = ("answer_question", "resume_run", "cancel_run", "pause_run", "send_event")
"""Actions on runs that wait."""
_TRIED = """\
name: tried
state: {fields: {question: str, answer: {type: str, default: ""}}}
input: question
output: answer
nodes: {write: {kind: complete, prompt: "{question}", result: answer}}
edges: "START -> write -> END"
"""
_REFUSED = {"save_graph": 409, "archive_run": 409}
"""Actions that this server refuses."""


@pytest.mark.parametrize("route", [*ROUTES, *SCREENS][:: sized(4, 1)], ids=lambda route: route.action)
def test_a_route_holds_the_loop_up_by_no_large_value(large: Large, route: Endpoint) -> None:
    name = large.run("wide", "big")
    if route.action in _WAITING:
        name = large.run("payment", route.action)
    large.run("payment", "asks")
    if route.action == "delete_run":
        name = large.run("wide", "deleted")
    if route.action in ("view_evaluation", "show_evaluation"):
        large.evaluation("wide")
    note = large.note() if route.action == "delete_note" else ""
    path = route.path.format(run_id=name, name="wide", note=note) + _QUERIES.get(route.action, lambda _: "")(large)
    body = _BODIES[route.action](large) if route.method == "POST" else None
    large.probe.found.clear()
    large.probe.on = True
    try:
        answer = large.server.client.request(route.method, path, json=body, headers={"Accept": "text/html"})
    finally:
        large.probe.on = False
    assert answer.status_code == _REFUSED.get(route.action, route.status), answer.text[:500]
    assert not large.probe.found


@pytest.mark.parametrize("route", [route for route in ROUTES if route.streams], ids=lambda route: route.action)
def test_a_stream_holds_the_loop_up_by_no_large_value(large: Large, route: Endpoint) -> None:
    large.run("wide", "big")
    large.run("payment", "asks")
    path = route.path.format(run_id="big") + _QUERIES.get(route.action, lambda _: "")(large)
    large.probe.found.clear()
    large.probe.on = True
    try:
        stream = large.server.stream(path.removeprefix("/api/"), {"Accept": "text/event-stream"})
        for event in stream:
            if event["type"] in ("ready", "ended"):
                break
        stream.close()
    finally:
        large.probe.on = False
    assert not large.probe.found


@pytest.mark.parametrize("size", [1, 8, 64], ids="{}MB".format)
def test_a_body_of_more_than_a_mebibyte_is_refused_before_it_is_parsed(large: Large, size: int) -> None:
    body = {"graph": "chat", "input": "x" * (size * MB)}
    data = json.dumps(body).encode()
    large.probe.found.clear()
    large.probe.on = True
    try:
        answer = large.server.client.post("/api/runs", content=data, headers={"Content-Type": "application/json"})
    except httpx2.TransportError:  # one that is far too long is not read to its end
        answer = None
    finally:
        large.probe.on = False
    assert answer is None or answer.status_code == 413
    assert not large.probe.found


@pytest.mark.full
def test_a_problem_names_the_first_of_many_faults(large: Large) -> None:
    found = large.server.post("runs", 422, **{f"f{number}": 1 for number in range(50_000)})
    assert len(found["errors"]) == 51
    assert found["errors"][-1]["message"] == "and 49,951 more faults"


def test_the_form_of_a_fork_does_not_show_what_could_not_be_sent_back(large: Large) -> None:
    large.run("wide", "big")
    (branch,) = large.server.get("runs/big/fork/form?at=1")["branches"]
    shown = "topic" in branch["blanked"], json.loads(branch["values"]["topic"])
    assert shown == (True, "[not shown: it has more than 1,048,576 characters]")


class Slow(Note):
    """A state whose checks of large texts take as long as a test wants."""

    began: ClassVar[threading.Semaphore]
    go: ClassVar[threading.Event]

    @field_validator("topic")
    @classmethod
    def _check(cls, topic: str) -> str:
        if not is_small(topic):
            cls.began.release()
            assert cls.go.wait(60)
        return topic


slow: Graph = plain.model_copy(update={"name": "slow", "state": Slow})


@pytest.mark.parametrize(("users", "runs"), [("abcdefgh", "x"), ("a", "xyzxyzxy")], ids=["one run", "one user"])
def test_work_for_one_user_or_on_one_run_leaves_threads_for_others(users: str, runs: str) -> None:
    Slow.began, Slow.go = threading.Semaphore(0), threading.Event()
    asked = threading.Semaphore(0)

    def authorize(request: Request, action: str, run: object) -> str:
        asked.release()
        return request.headers.get("x-user", "other")

    def preview(user: str, run_id: str) -> int:
        body = {"at": 1, "update": {"topic": _SENT}}
        path = f"/api/runs/{run_id}/fork/preview"
        return server.client.post(path, json=body, headers={"x-user": user}).status_code

    with api(slow, plain, settings={"authorize": authorize}) as server, ThreadPoolExecutor(8) as clients:
        for run_id in {*runs}:
            server.start("slow", run_id=run_id)
        server.start("plain", run_id="small")
        while asked.acquire(blocking=False):
            pass
        try:
            found = [
                clients.submit(preview, user, run_id)
                for user, run_id, _ in zip(cycle(users), cycle(runs), range(8), strict=False)
            ]
            assert all(asked.acquire(timeout=60) for _ in range(8))
            assert all(Slow.began.acquire(timeout=60) for _ in range(2))
            for _ in range(5):  # the first one may come before more threads could be taken
                assert server.client.get("/api/runs/small/page.html", timeout=20).status_code == 200
        finally:
            Slow.go.set()
        assert {one.result() for one in found} == {200}


shown = Graph(
    name="shown", state=Note, input="topic", output="topic", edges="START -> confirm -> END",
    nodes={"confirm": Confirm(prompt="Send it?", show=["topic"])},
)  # fmt: skip


@pytest.mark.anyio
async def test_records_and_questions_with_large_values_are_hashed_in_a_thread(tmp_path: Path) -> None:
    hashing = {digest.__code__: "value", digest_in_pieces.__code__: "value", payloads.split.__code__: "data"}
    small: list[bool] = []

    def look(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and (name := hashing.get(frame.f_code)):
            small.append(is_small(frame.f_locals[name], PIECE))

    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[shown]) as executor:
        sys.setprofile(look)
        try:
            run = await executor.start("shown", "a word " * (2 * MB // 7))
            (asked,) = run.waiting
            run = await executor.answer(run.run_id, asked.id, Approve())
        finally:
            sys.setprofile(None)
    assert run.status == "completed"
    assert small
    assert all(small)
