"""`orchestrator serve`: real processes, from the address that they print to the signal that ends them."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.models.vendors import VENDORS, Says
from tests.support.shell import Process, Shell
from tests.support.sizes import sized
from tests.support.wire import Raw, Seen
from tests.support.wire import served as wire_served

GATED = """
import pathlib, anyio
from pydantic import BaseModel
from orchestrator import Graph, Update, node

class S(BaseModel):
    topic: str = ""

@node(effect="pure")
async def gated(state: S) -> Update:
    while not pathlib.Path("go").exists():
        pathlib.Path("began").touch()
        await anyio.sleep(0.01)
    return {"topic": state.topic.upper()}

graph = Graph(
    name="gated", state=S, input="topic", output="topic", nodes={"gated": gated}, edges="START -> gated -> END"
)
"""
LOADED = ("uvicorn.main", "uvicorn.protocols.http.auto", "starlette.applications")


@pytest.fixture
def place(tmp_path: Path) -> Shell:
    """A directory with a graph whose step waits for a file."""
    shell = Shell(tmp_path, inside=True)
    (tmp_path / "shop.py").write_text(GATED)
    return shell


@contextmanager
def served(shell: Shell, *words: object) -> Iterator[tuple[Process, str]]:
    """A server, and its address as it was printed."""
    with shell.begin("serve", *words, "--port", 0, loads=LOADED) as process:
        line = process.line(err=True)
        while "serving" not in line:
            line = process.line(err=True)
        found = re.match(r"serving (http://\S+) \(Ctrl-C ends it\)\n", line)
        assert found is not None, line
        yield process, found[1]


@pytest.mark.full
@pytest.mark.parametrize("number", sized([signal.SIGTERM], [signal.SIGTERM, signal.SIGINT]))
def test_a_signal_ends_it_at_once_and_its_runs_go_on_with_the_next_one(place: Shell, number: int) -> None:
    with served(place, "shop:graph") as (process, url):
        made = httpx2.post(f"{url}api/runs", json={"graph": "gated", "input": "bees", "run_id": "one"}, timeout=60)
        assert made.status_code == 201
        place.wait_for("began", 0)
        with httpx2.stream("GET", f"{url}api/runs/one/events", timeout=60) as stream:
            lines = stream.iter_lines()
            assert next(line for line in lines if "run_started" in line)
            process.signal(number)
            assert list(lines)[-1] == ""  # the stream ends in good order
        assert process.end().code == 0
    assert place("runs", "--json").json[0]["status"] == "interrupted"
    (place.place / "go").touch()
    with served(place, "shop:graph") as (_, url):
        place.until(lambda: httpx2.get(f"{url}api/runs/one", timeout=60).json()["status"] == "completed")
        assert httpx2.get(f"{url}api/runs/one", timeout=60).json()["output"] == "BEES"


def test_a_server_that_is_killed_leaves_runs_that_the_next_one_takes_up(place: Shell) -> None:
    with served(place, "shop:graph") as (process, url):
        httpx2.post(f"{url}api/runs", json={"graph": "gated", "input": "bees", "run_id": "one"}, timeout=60)
        place.wait_for("began", 0)
        process.signal(signal.SIGKILL)
        process.wait()
    with served(place, "shop:graph", "--read-only") as (_, url):
        assert httpx2.get(f"{url}api/runs/one", timeout=60).json()["status"] == "interrupted"
    with served(place, "shop:graph", "--model", "other=offline") as (process, url):
        while "left as they are, because they have other tools or models: one;" not in process.line(err=True):
            pass
        assert httpx2.get(f"{url}api/runs/one", timeout=60).json()["status"] == "interrupted"
    (place.place / "go").touch()
    with (
        served(place, "shop:graph") as (_, url),
        httpx2.stream("GET", f"{url}api/runs/one/events", timeout=60) as stream,
    ):
        assert any('"type": "ended"' in line for line in stream.iter_lines())
    done = place("runs", "--json").json[0]
    assert (done["status"], done["output"]) == ("completed", "BEES")


ASKING = (
    GATED.replace(
        'return {"topic": state.topic.upper()}', 'return {"topic": (await ctx.model.complete(state.topic)).text}'
    )
    .replace("gated(state: S)", "gated(state: S, ctx: Context)")
    .replace("import Graph", "import Context, Graph")
    + """
from orchestrator.testing import ScriptedModel
slow, fast = (ScriptedModel(lambda request, name=name: f"{name}'s reply", name=name) for name in ("slow", "fast"))
"""
)
"""The graph whose step asks a model when the file is there, and two models."""


def test_a_run_with_a_chosen_model_keeps_it_when_its_server_is_killed(place: Shell) -> None:
    (place.place / "shop.py").write_text(ASKING)
    words = ("shop:graph", "chat", "--model", "shop:slow", "--model", "fast=shop:fast")
    with served(place, *words) as (process, url):
        for name, chosen in (("usual", {}), ("taken", {"model": "fast"}), ("resumed", {"model": "fast"})):
            body = {"graph": "gated", "input": "bees", "run_id": name, **chosen}
            assert httpx2.post(f"{url}api/runs", json=body, timeout=60).status_code == 201
        body = {"graph": "chat", "input": "Hello", "run_id": "talk", "model": "fast", "wait": True}
        assert httpx2.post(f"{url}api/runs", json=body, timeout=60).json()["status"] == "paused"
        place.wait_for("began", 0)
        process.signal(signal.SIGKILL)
        process.wait()
    (place.place / "go").touch()
    assert place("resume", "resumed").out == "fast's reply\n"
    asked = place("show", "talk", "--json").json["waiting"][0]["id"]
    assert place("answer", "talk", "Still there?", "--question", asked).code == 3
    assert place("show", "talk", "--transcript").out.count("think  fast,") == 2
    with served(place, *words) as (_, url):
        for name, said in (("usual", "slow's reply"), ("taken", "fast's reply")):
            where = f"{url}api/runs/{name}"
            place.until(lambda where=where: httpx2.get(where, timeout=60).json()["status"] == "completed")
            assert httpx2.get(where, timeout=60).json()["output"] == said


def test_a_run_of_a_server_is_continued_by_other_commands(place: Shell) -> None:
    with served(place, "tool_user") as (_, url):
        body = {"graph": "tool_user", "input": "What is 20+8?", "run_id": "one", "wait": True}
        assert httpx2.post(f"{url}api/runs", json=body, timeout=60).json()["status"] == "paused"
        assert httpx2.post(f"{url}api/runs", json={**body, "approve": "none"}, timeout=60).status_code == 403
    asked = place("show", "one", "--json").json["waiting"][0]["id"]
    assert place("approve", "one", "--question", asked).out == "28\n"


def test_another_address_than_loopback_wants_a_token(place: Shell) -> None:
    with served(place, "shop:graph", "--host", "0.0.0.0") as (_, url):
        address, _, query = url.partition("?")
        assert re.fullmatch(r"token=[\w-]{40,}", query)
        assert httpx2.get(f"{address}api/runs", timeout=60).status_code == 401
        with httpx2.Client(timeout=60, follow_redirects=True) as browser:
            entered = browser.get(url)
            assert (entered.status_code, "token" in str(entered.url)) == (200, False)
            assert browser.get(f"{address}api/runs").json()["runs"] == []
            assert browser.get(f"{address}api/runs", headers={"Host": "evil.example"}).status_code == 403
    with served(place, "shop:graph", "--token", "my-own-long-token") as (_, url):
        assert url.endswith("?token=my-own-long-token")


def test_it_starts_the_shipped_graphs_when_none_is_named(place: Shell) -> None:
    with served(place) as (_, url):
        names = {one["name"] for one in httpx2.get(f"{url}api/graphs", timeout=60).json()["graphs"]}
    assert {"react", "rewoo", "tool_user", "chat"} <= names


def test_what_it_cannot_use_is_one_line(place: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = place("serve", "shop:graph", "--port", port)
    said = (
        f"error: --host 127.0.0.1 --port {port}: Address already in use; choose another port, or 0 for any free port\n"
    )
    assert (done.code, done.err.splitlines(keepends=True)[-1]) == (2, said)
    for words, fault in (
        (("nothing:graph",), "no module"), (("shop:graph", "shop:graph"), "same name"),
        (("shop:graph", "--token", "short"), "16 to 200"), (("shop:graph", "--approve", "much"), "none, read, write"),
        (("shop:graph", "--read-only", "--store", "sqlite:///nothing.db"), "there is no store"),
        (("shop:graph", "--host", "no such host"), "--host no such host"),
    ):  # fmt: skip
        done = place("serve", *words)
        assert (done.code, fault in done.err) == (2, True), done.err


LIMITED = """
import resource
from orchestrator.__main__ import command

resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
command()
"""


@pytest.mark.full
@pytest.mark.parametrize(
    "words", [("serve", "shop:graph"), ("serve-mcp", "shop:graph", "--http")], ids=lambda words: words[0]
)
def test_half_open_connections_neither_end_it_nor_fill_its_log(place: Shell, words: tuple[str, ...]) -> None:
    (place.place / "limited.py").write_text(LIMITED)
    token = "a-token-that-is-long-enough"
    headers, env = {"Authorization": f"Bearer {token}"}, {"ORCHESTRATOR_TOKEN": token}
    with ExitStack() as stack, place.begin(*words, "--port", 0, module="limited", env=env) as process:
        line = process.line(err=True)
        while "serving" not in line:
            line = process.line(err=True)
        address = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert address is not None
        port = int(address[1])
        for number in range(300):
            opened = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            if number % 2:
                opened.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
            else:  # refused before its body has come
                opened.sendall(b"POST /api/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{")
        for _ in range(5):
            found = httpx2.get(f"http://127.0.0.1:{port}/api/runs", headers=headers, timeout=60)
            assert found.status_code == (200 if words[0] == "serve" else 404)
            for _ in range(50):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), 60)).sendall(b"no request\r\n\r\n")
        process.signal(signal.SIGTERM)
        written = process.end().err
        assert len(written) < 100_000
        assert "Too many open files" not in written


def test_the_token_comes_from_a_file_or_the_environment(place: Shell) -> None:
    token = "a-token-that-is-long-enough"
    (place.place / "token").write_text(f"{token}\n", encoding="utf-8-sig")  # as some editors save it
    with served(place, "shop:graph", "--token-file", "token") as (_, url):
        assert url.endswith(f"?token={token}")
    with place.begin("serve", "shop:graph", "--port", 0, env={"ORCHESTRATOR_TOKEN": token}) as process:
        line = process.line(err=True)
        while "serving" not in line:
            line = process.line(err=True)
        assert token in line
    for words, fault in (
        (("--token-file", "missing"), "No such file"), (("--token-file", "token", "--token", token), "use one"),
        (("--token-file", "/dev/null"), "16 to 200"),
    ):  # fmt: skip
        done = place("serve", "shop:graph", *words)
        assert (done.code, fault in done.err) == (2, True), done.err


TALK = """
name: talk
state: {name: S, fields: {question: str, one: {type: str, default: ""}, two: {type: str, default: ""},
  three: {type: str, default: ""}}}
input: question
output: three
nodes:
  first: {kind: complete, model: gpt, result: one}
  second: {kind: complete, model: claude, prompt: "{one}", result: two}
  third: {kind: complete, model: google, prompt: "{two}", result: three}
edges: START -> first -> second -> third -> END
"""


PATHS = {"responses": "/responses", "anthropic": "/messages", "gemini": ":"}
"""Interface -> what its addresses contain."""


@pytest.mark.full
def test_the_nodes_of_a_yaml_graph_name_models_of_each_interface(place: Shell) -> None:
    """One server answers in the three forms, each at its address."""

    def answer(seen: Seen) -> Raw | dict[str, Any]:
        name = next(name for name, part in PATHS.items() if part in seen.path)
        return VENDORS[name].answer(seen, Says(f"{name} says hello"))

    (place.place / "talk.yaml").write_text(TALK)
    models = ("gpt=responses:gpt-5", "claude=anthropic:claude-opus-4-6", "google=gemini:gemini-3-pro-preview")
    with wire_served(answer) as wire:
        for name in PATHS:
            model = VENDORS[name].model(wire.url)
            place.env |= {model.wire.address: VENDORS[name].place(wire.url), model.wire.keys[0]: "a-key"}
        with served(place, "talk.yaml", *(word for one in models for word in ("--model", one))) as (_, url):
            start = {"graph": "talk", "input": "hi", "run_id": "r", "wait": True}
            made = httpx2.post(f"{url}api/runs", json=start, timeout=90)
            assert made.status_code in (200, 201), made.text
            run = httpx2.get(f"{url}api/runs/r", timeout=60).json()
    assert run["output"] == "gemini says hello"
    assert [seen.body.get("model") for seen in wire.seen[:2]] == ["gpt-5", "claude-opus-4-6"]
    assert "responses says hello" in str(wire.seen[1].body)
    assert "anthropic says hello" in str(wire.seen[2].body)
