"""A real model, whose replies nobody wrote: every strategy with tools, whole and streamed; cancelling; a killed server.

The model is so small that many of its answers are wrong, and its server drops tools. What counts is that no run ends
because a reply could not be read or was cut.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, OpenAIModel, Retry, node
from orchestrator.cli.graph_refs import shipped
from orchestrator.errors import ModelUnavailable
from orchestrator.models.probe import probe
from orchestrator.nodes import Decide
from orchestrator.strategies import (
    chat,
    code_act,
    evaluator_optimizer,
    function_call,
    function_call_agent,
    llm_compiler,
    orchestrator_workers,
    plan_and_execute,
    plan_and_solve,
    plan_and_solve_prompt,
    react,
    reflexion,
    rewoo,
    router,
    self_ask,
    self_consistency,
    supervisor,
    swarm,
    tool_user,
    tree_of_thoughts,
)
from orchestrator.tools import tools_from_ref
from tests.support.ports import free_port
from tests.support.real_model import PACKAGES, ROOT, RealModel, environment, running
from tests.support.sizes import sized

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(3600)]

peer, storm = pytest.mark.peer, pytest.mark.storm
once = pytest.mark.parametrize("anyio_backend", ["asyncio"])
WAYS = ("whole", "streamed")
each_way = pytest.mark.parametrize("way", WAYS)

QUESTIONS = (
    ("What is 20+(2*4)?", "28"), ("What is 3*7?", "21"), ("What is 100-37?", "63"), ("What is 144/12?", "12"),
    ("What is 2 to the power of 10?", "1024"), ("Add 15 and 27.", "42"), ("Multiply 6 by 9.", "54"),
    ("What is 81 divided by 9?", "9"), ("Subtract 8 from 50.", "42"), ("What is (5+3)*2?", "16"),
    ("What is 12*12?", "144"), ("What is 7+8+9?", "24"), ("What is 1000/8?", "125"), ("What is 9-14?", "-5"),
    ("How much is 25 times 4?", "100"), ("A box has 12 eggs. How many eggs are in 5 boxes?", "60"),
    ("Tom has 9 apples and eats 4. How many are left?", "5"), ("What is 3 to the power of 4?", "81"),
    ("What is 17+5?", "22"), ("What is half of 90?", "45"),
)  # fmt: skip
STRATEGIES: dict[str, Callable[[], Graph]] = {
    "function_call": function_call.function_call,
    "function_call_agent": lambda: function_call_agent.function_call_agent(max_steps=4),
    "react": lambda: react.react(max_steps=4),
    "react, bracket": lambda: react.react(protocol="bracket", max_steps=4, last_answer=True),
    "plan_and_solve_prompt": lambda: plan_and_solve_prompt.plan_and_solve_prompt(form="number"),
    "chat": lambda: chat.chat(max_steps=4),
    "tool_user": lambda: tool_user.tool_user(max_steps=4, max_seconds=None),
    "plan_and_solve": lambda: plan_and_solve.plan_and_solve(max_steps=4),
    "rewoo": rewoo.rewoo,
    "self_consistency": lambda: self_consistency.self_consistency(2, form="text"),
    "evaluator_optimizer": lambda: evaluator_optimizer.evaluator_optimizer(1),
    "router": lambda: router.router(max_steps=4),
    "orchestrator_workers": lambda: orchestrator_workers.orchestrator_workers(4),
    "reflexion": lambda: reflexion.reflexion(2, max_rounds=3),
    "supervisor": lambda: supervisor.supervisor(max_steps=3, max_rounds=3),
    "swarm": lambda: swarm.swarm(max_steps=3),
    "self_ask": lambda: self_ask.self_ask(3, max_rounds=3),
    "tree_of_thoughts": lambda: tree_of_thoughts.tree_of_thoughts(1, branches=2),
    "code_act": lambda: code_act.code_act(3, last_answer=True, code_seconds=1),
    "llm_compiler": lambda: llm_compiler.llm_compiler(max_plans=2),
    "plan_and_execute": lambda: plan_and_execute.plan_and_execute(3, max_rounds=2),
}
FIRST = ("tool_user", "function_call", "react", "plan_and_solve", "rewoo")
"""Those that are asked in small tests, too."""
each = pytest.mark.parametrize("strategy", STRATEGIES)
CLASSES = {"billing": "about money", "bugs": "about what does not work", "other": "everything else"}


def model_of(server: RealModel, **options: Any) -> OpenAIModel:
    return OpenAIModel("smollm2", server.url, temperature=0, seed=1, **{"max_tokens": 160, **options})


async def ends(server: RealModel, strategy: str, way: str, questions: Sequence[tuple[str, str]]) -> list[str]:
    """How the runs of these questions ended; prints how many of their answers are right."""
    found, right = [], 0
    streams: dict[str, Any] = {"streams": "always"} if way == "streamed" else {}
    async with model_of(server) as model, Executor(model=model, tools=tools_from_ref("arithmetic"), **streams) as all_:
        for question, answer in questions:
            run = await all_.start(STRATEGIES[strategy](), question, approve="none")
            right += answer in re.findall(r"-?\d+", str(run.output).replace(",", ""))
            told = run.error is not None and run.status != "exhausted"  # a spent limit is no reply that cannot be used
            found.append(f"{run.status}: {question} {run.error}" if told else run.status)
    print(f"{strategy}, {way}: {right} of {len(questions)} answers are right")
    return found


GOOD = {"completed", "exhausted", "paused"}
"""A conversation is paused when it has answered."""


def test_every_strategy_that_ships_is_here() -> None:
    assert {name.partition(",")[0] for name in STRATEGIES} == set(shipped())


@peer
@once
@pytest.mark.parametrize(("strategy", "way"), [*zip(sized(FIRST, STRATEGIES), itertools.cycle(WAYS), strict=False)])
async def test_no_run_ends_because_of_a_reply(real_model: RealModel, strategy: str, way: str) -> None:
    assert set(await ends(real_model, strategy, way, QUESTIONS[: sized(1, 2)])) <= GOOD


@storm
@pytest.mark.full
@once
@each_way
@each
async def test_no_run_of_many_ends_because_of_a_reply(
    real_model: RealModel, strategy: str, way: str, scale: int
) -> None:
    """`--storm-scale N`: N questions more, up to 10, or all for the strategy `tool_user`."""
    count = min(len(QUESTIONS) if strategy == "tool_user" else 10, scale)
    assert set(await ends(real_model, strategy, way, QUESTIONS[2 : 2 + count])) <= GOOD


@peer
@once
async def test_what_this_server_supports_is_found_out(real_model: RealModel) -> None:
    async with model_of(real_model) as model:
        found = await probe(model)
    rows = {one.feature: one.found for one in found.findings}
    assert rows | {"stream": "yes", "tools": "dropped", "answers in a schema": "json_schema"} == rows
    assert rows | {"usage": "yes", "usage of a stream": "yes", "stop": "yes", "bounds in a schema": "yes"} == rows
    assert rows["log probabilities"] == "yes"
    assert (found.window, found.text_tools) == (4096, True)
    assert found.profile == model.profile.model_copy(update={"window": 4096})


class Mail(BaseModel):
    question: str
    found: object = None
    sure: float | None = None


@peer
@once
@each_way
@pytest.mark.parametrize("constrain", ["auto", "never"])
async def test_every_decision_has_a_probability(
    real_model: RealModel, way: str, constrain: Literal["auto", "never"]
) -> None:
    """If the reply names the choice alone; whether it is right is up to the model."""
    streams: dict[str, Any] = {"streams": "always"} if way == "streamed" else {}
    forms: tuple[dict[str, Any], ...] = ({"yes_no": True}, {"choices": CLASSES}, {"score": (1, 5)})
    async with model_of(real_model) as model, Executor(model=model, **streams) as executor:
        for form in forms:
            it = Decide(**form, threshold=0.0001, probability="sure", constrain=constrain, retries=3)
            ends = "\n".join(f"it -> END : {outcome}" for outcome in it.outcomes)
            graph = Graph(name="decision", state=Mail, nodes={"it": it}, edges=f"START -> it\n{ends}")
            run = await executor.start(graph, {"question": "I was charged twice."})
            if constrain == "auto":
                assert run.status == "completed", run.error
                assert 0 <= run.values["sure"] <= 1, form
            elif run.status == "completed" and run.values["sure"] is not None:
                assert 0 <= run.values["sure"] <= 1, form


class State(BaseModel):
    topic: str
    first: str = ""
    second: str = ""


@node
async def short(state: State, ctx: Context) -> dict[str, str]:
    """Ask for a few words."""
    return {"first": (await ctx.model.complete(f"Name a {state.topic}.", max_tokens=8)).text}


@node
async def long(state: State, ctx: Context) -> dict[str, str]:
    """Ask for a reply that takes a while: the server is told not to end it before `max_tokens`."""
    return {"second": (await ctx.model.complete(f"Write a story about a {state.topic}.")).text}


BOTH = Graph(
    name="both", state=State, input="topic", output="second", nodes={"short": short, "long": long},
    edges="START -> short -> long -> END",
)  # fmt: skip
LONG: dict[str, Any] = {"max_tokens": 3000, "extra_body": {"ignore_eos": True}}


async def until(condition: Callable[[], bool], seconds: float = 0.1) -> None:
    """Wait until something is seen at the server, which tells nobody, by looking every so many seconds."""
    while not await anyio.to_thread.run_sync(condition):  # noqa: ASYNC110
        await anyio.sleep(seconds)


@peer
@each_way
async def test_cancelling_stops_the_work_of_the_server(real_model: RealModel, way: str) -> None:
    streams: dict[str, Any] = {"streams": "always"} if way == "streamed" else {}
    async with model_of(real_model, **LONG) as model, Executor(model=model, **streams) as executor:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: executor.start(BOTH, "dragon", run_id="r"))
            most = 0

            def begun() -> bool:
                nonlocal most
                most = max((most, *real_model.decoding()))
                return most >= 20

            await until(begun)
            await executor.cancel("r")
            # It notices that the client is gone once nothing else was asked of it for a second.
            await until(lambda: begun() and not real_model.decoding(), 1.5)
        assert (await executor.load("r")).status == "cancelled"
    assert most < 3000  # what it would have made


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RealModel]:
    """A server of one test's own, which it may kill."""
    with running(tmp_path / "log") as server:
        yield server


@peer
@once
@each_way
@pytest.mark.parametrize("how", ["retry", "resume"])
async def test_a_run_goes_on_when_its_killed_server_is_back(own_server: RealModel, way: str, how: str) -> None:
    retry = Retry(attempts=100, wait=0.5, factor=1) if how == "retry" else None
    streams: dict[str, Any] = {"streams": "always"} if way == "streamed" else {}
    options = {**LONG, "max_tokens": 300}
    async with model_of(own_server, retry=retry, **options) as model, Executor(model=model, **streams) as executor:

        async def begin() -> None:
            try:
                await executor.start(BOTH, "dragon", run_id="r")
            except ModelUnavailable:
                assert how == "resume"

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(begin)
            await until(lambda: max(own_server.decoding(), default=0) >= 20)
            own_server.kill()
            if how == "retry":
                await anyio.sleep(1)  # the address answers nothing meanwhile
                own_server.start(wait=False)
        if how == "resume":
            assert (await executor.load("r")).status == "interrupted"
            own_server.start()
            await executor.resume("r")
        run = await executor.load("r")
        made = [one.key for one in await executor.store.read("r") if one.type == "effect_settled" and one.ok]
    assert (run.status, len(run.values["second"]) > 100) == ("completed", True)
    assert len(made) == 2  # the first answer was not asked for again


@peer
def test_the_three_commands_of_the_quickstart(tmp_path: Path) -> None:
    """Each as it is written, but for the port, and for the installation, which is that of the environment."""
    page = (ROOT / "docs/quickstart.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```sh\n(python -m pip install .*?)```", page, re.S)
    install, server, ask = block.splitlines()
    assert install.split()[-2:] == [package.partition("==")[0] for package in PACKAGES]
    port = str(free_port())
    script = f"{server.replace('.py', f'.py {port}')}\ntrap 'kill %1' EXIT\n{ask.replace('8080', port)}"
    # The server comes from an environment of its own, the program from this one.
    path = f"{environment() / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {"PATH": path, "HOME": str(tmp_path), "ORCHESTRATOR_STORE": f"sqlite:///{tmp_path}/runs.db"}
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "listening on" in done.stdout
    assert done.stdout.splitlines()[-1]
