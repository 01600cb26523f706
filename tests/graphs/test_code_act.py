"""CodeAct: code of a model that calls tools, with questions, kills and hostile code."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Approve, Deny, Executor, Graph, Run
from orchestrator.errors import ReplayMismatch
from orchestrator.nodes import Code
from orchestrator.strategies.code_act import code_act
from orchestrator.testing import ScriptedModel
from orchestrator.tools import tool
from orchestrator.tools.sandbox import Ran, Sandbox, SandboxLimits
from tests.graphs import code_killed
from tests.graphs.code_killed import CODE, REPLIES, calls, model, tools

pytestmark = pytest.mark.anyio
QUESTION = "Delete the old files."


def block(code: str) -> str:
    return f"```python\n{code}\n```"


@tool(risk="none", effect="pure")
def add(a: float, b: float = 1) -> float:
    """Add two numbers."""
    return a + b


async def run_of(replies: Sequence[str], *, given: Sequence[Any] = (add,), **options: Any) -> tuple[Run, ScriptedModel]:
    scripted = model([*replies, "Done."])
    return await code_act(**options).run("Go.", model=scripted, tools=given), scripted


async def observed(code: str, **options: Any) -> str:
    """What the model gets after its code ran."""
    _, scripted = await run_of([block(code)], **options)
    observation = scripted.requests[-1].messages[-1]
    assert observation.role == "user"
    return observation.content.removeprefix("Observation:\n")


async def answered(executor: Executor, run: Run, *answers: Any) -> Run:
    for answer in answers:
        run = await executor.answer(run.run_id, run.waiting[0].id, answer)
    return run


def killed(store: str, folder: Path) -> str:
    """Start the run in another process, kill that while the run waits, and return the run's id."""
    words = [sys.executable, "-m", code_killed.__name__, store, str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    return run_id


async def test_after_a_kill_the_code_continues_without_a_second_call(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    run_id = killed(store, tmp_path)
    assert calls(tmp_path) == ["search old files"]
    later = model(REPLIES[1:])
    async with Executor(store=store, graphs=[code_killed.graph()], model=later, tools=tools(tmp_path)) as executor:
        run = await executor.load(run_id)
        (question,) = run.waiting
        assert question.kind == "approval"
        shown = {name: question.payload.get(name) for name in ("tool", "args", "shown")}
        assert shown == {"tool": "delete", "args": {"name": "a.txt"}, "shown": {"code": CODE}}
        run = await answered(executor, run, Approve())
        assert calls(tmp_path) == ["search old files", "delete a.txt"]
        assert run.waiting[0].payload.get("args") == {"name": "b.txt"}
        run = await answered(executor, run, Approve())
        records = await executor.store.read(run_id)
    assert (run.status, run.output) == ("completed", "Both are gone.")
    assert calls(tmp_path) == ["search old files", "delete a.txt", "delete b.txt", "note deleted 2"]
    observation = later.requests[0].messages[-1].content
    assert observation == "Observation:\nfound ['a.txt', 'b.txt']\na.txt deleted\nb.txt deleted\nnote written"
    made = [record.name for record in records if record.type == "effect_intended" and record.kind == "tool"]
    assert made == ["search", "delete", "delete", "note"]


@pytest.mark.parametrize("confirm", ["write", "read", "dangerous", None])
def test_proofs_know_that_it_asks_itself(tmp_path: Path, confirm: Any) -> None:
    proofs = code_act(confirm=confirm).check(prove=True, tools=tools(tmp_path)).proofs
    refuted = [(proof.verdict, proof.reason) for proof in proofs if not proof.holds]
    unasked = [("refuted", "without one it may call delete (dangerous)")]
    assert refuted == (unasked if confirm in (None, "dangerous") else [])


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("print([add(a) for a in (1, 2)])", "[2.0, 3.0]"),
        ("print(sum(add(a) for a in (1, 2)))", "5"),
        ("f = lambda a: add(a)\nprint(f(1))", "2"),
        ("class A:\n    def f(self, a):\n        return add(a)\nprint(A().f(1))", "2"),
        ("print(sorted([1, 2], key=lambda a: -a))", "[2, 1]"),
        ("print(list(map(add, [1, 2])))", "NotImplementedError"),
        ("print(max([1, 2], key=lambda a: add(a)))", "NotImplementedError"),
        ("def f():\n    yield 1\nprint(list(f()))", "NotImplementedError"),
        ("print(await add(1))", "TypeError"),
    ],
)
async def test_where_code_can_call_tools_is_as_the_prompt_says(code: str, printed: str) -> None:
    assert printed in await observed(code)


async def test_a_denied_call_is_an_exception_in_the_code(tmp_path: Path) -> None:
    code = 'try:\n    delete("a.txt")\nexcept PermissionError as error:\n    print(error)\ndelete(name="b.txt")'
    scripted = model([block(code), "Done."])
    async with Executor(graphs=[code_act()], model=scripted, tools=tools(tmp_path)) as executor:
        run = await executor.start("code_act", QUESTION)
        run = await answered(executor, run, Deny(reason="keep it"), Approve(args={"name": "c.txt"}))
    assert run.output == "Done."
    assert calls(tmp_path) == ["delete c.txt"]
    assert "the call of delete was denied: keep it" in scripted.requests[-1].messages[-1].content


async def test_denied_calls_can_fail_the_run(tmp_path: Path) -> None:
    async with Executor(model=model([block('delete("a")')]), tools=tools(tmp_path)) as executor:
        run = await executor.start(code_act(on_denied="raise"), QUESTION)
        run = await answered(executor, run, Deny())
    assert run.error is not None
    assert run.error.type == "UserDenied"


@pytest.mark.parametrize(
    "code",
    [
        'try:\n    note("x")\nexcept NameError:\n    search("x")\ndelete("a")',
        'try:\n    note("x")\nexcept NameError:\n    pass\ndelete("a")',
        'try:\n    note("x")\n    delete("a")\nexcept NameError:\n    print("nothing")',
    ],
)
async def test_code_that_calls_otherwise_after_a_pause_stops(tmp_path: Path, code: str) -> None:
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    async with Executor(store=store, model=model([block(code)]), tools=tools(tmp_path)) as executor:
        run = await executor.start(code_act(), QUESTION)
    before = calls(tmp_path)
    left = [one for one in tools(tmp_path) if one.name != "note"]
    async with Executor(store=store, graphs=[code_act()], model=model([]), tools=left) as executor:
        run = await executor.resume(run.run_id, accept_changes=True)
        with pytest.raises(ReplayMismatch, match="runs its code again"):
            await answered(executor, run, Approve())
    assert calls(tmp_path) == before == ["note x"]


async def test_a_fork_within_a_block_waits_twice(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    async with Executor(store=store, model=model([REPLIES[0], *REPLIES[1:] * 2]), tools=tools(tmp_path)) as executor:
        run = await executor.start(code_act(), QUESTION)
        records = await executor.store.read(run.run_id)
        [searched] = [one.seq for one in records if one.type == "effect_intended" and one.name == "search"]
        fork = await executor.fork(run.run_id, at=searched + 1)
        fork = await answered(executor, fork, Approve(), Approve())
    assert (fork.status, fork.output) == ("completed", "Both are gone.")
    assert calls(tmp_path) == ["search old files", "delete a.txt", "delete b.txt", "note deleted 2"]


async def test_a_block_that_failed_and_is_retried_waits_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be undone is not done again: the retry uses its result, also after a pause."""
    replies = [block('search("x")\ndelete("a")\ndelete("b")\ndelete("c")'), "Done."]
    async with Executor(graphs=[code_act()], model=model(replies), tools=tools(tmp_path)) as executor:
        run = await executor.start("code_act", QUESTION)
        run = await answered(executor, run, Approve())
        with monkeypatch.context() as patch:  # a worker without the package
            patch.setitem(sys.modules, "pydantic_monty", None)
            run = await answered(executor, run, Approve())
        assert run.status == "failed"
        run = await executor.resume(run.run_id, retry=True)
        run = await answered(executor, run, Approve())
    assert (run.status, run.output) == ("completed", "Done.")
    assert [one for one in calls(tmp_path) if one.startswith("delete")] == ["delete a", "delete b", "delete c"]


async def test_a_call_that_ends_without_a_result_is_a_failed_one() -> None:
    @tool(risk="none")
    def leaves() -> str:
        """Leave."""
        raise SystemExit("over")

    _, scripted = await run_of(
        [block("try:\n    leaves()\nexcept RuntimeError as error:\n    print(error)")], given=[leaves]
    )
    assert "over" in scripted.requests[-1].messages[-1].content


async def test_calls_of_code_count(tmp_path: Path) -> None:
    code = block("for n in range(5):\n    search(str(n))")
    graph = code_act().with_limits(calls=4)
    run = await graph.run(QUESTION, model=model([code]), tools=tools(tmp_path))
    assert run.status == "exhausted"
    assert calls(tmp_path) == ["search 0", "search 1", "search 2"]


async def test_variables_are_kept_for_later_blocks_without_calling_again(tmp_path: Path) -> None:
    replies = [
        'found = search("a")\nimport random, time\nn = random.random(), time.time()\nprint(n)',
        "def twice(x): return 2 * x\nraise ValueError(str(twice(4)))",
        "print(len(found), twice(3), n)",
    ]
    _, scripted = await run_of([block(one) for one in replies], given=tools(tmp_path))
    first, second, third = (request.messages[-1].content for request in scripted.requests[1:])
    assert second.endswith("ValueError: 8")
    assert third.removeprefix("Observation:\n").split(maxsplit=2) == ["2", "6", first.removeprefix("Observation:\n")]
    assert calls(tmp_path) == ["search a"]


async def test_variables_are_lost_with_a_limit() -> None:
    _, scripted = await run_of([block("x = 1"), block("[0] * 10**10"), block("x")])
    assert scripted.requests[2].messages[-1].content.endswith("all variables are lost]")
    assert "name 'x' is not defined" in scripted.requests[3].messages[-1].content


async def test_a_tool_that_ends_the_work_ends_the_code() -> None:
    @tool(risk="none", ends=True)
    def finish(answer: str) -> str:
        """Give the answer."""
        return answer

    run, scripted = await run_of([block('finish("42")\nadd(1)')], given=[add, finish])
    assert (run.output, len(scripted.requests)) == ("42", 1)


FORMS: list[tuple[str, str | None]] = [
    # (what the model wrote, the code that ran)
    ("```python\nprint(1)\n```", "print(1)"),
    ("Let me see.\n\n```py\nprint(1)\n```\nThe result is 1.", "print(1)"),
    ("```tool_code\nprint(1)\n```", "print(1)"),
    ("```\nadd(1)\n```", "add(1)"),
    ("<execute>\nprint(1)\n</execute>", "print(1)"),
    ("<execute> print(1) </execute>", "print(1)"),
    ("1. First:\n   ```python\n   if True:\n       print(1)\n   ```", "if True:\n    print(1)"),
    ("````python\nx = '```'\n````", "x = '```'"),
    ("```python\nprint(1)", "print(1)"),
    ("```python\nprint(1)\n```\nObservation:\n1\n```python\nprint(2)\n```", "print(1)"),
    ("<think>```python\nprint(0)\n```</think>```python\nprint(1)\n```", "print(1)"),
    ("~~~python\nprint(1)\n~~~", "print(1)"),
    ("It is 3.", None),
    ('```json\n{"a": 1}\n```', None),
    ("```text\nadd(1)\n```", None),
    ("Use `add(1)` for that.", None),
    ("```python\n```", None),
]


@pytest.mark.parametrize(("reply", "code"), FORMS)
async def test_the_first_block_of_python_is_run(reply: str, code: str | None) -> None:
    run, _ = await run_of([reply])
    ran = [one["code"] for one in run.values["blocks"]]
    assert ran == ([] if code is None else [code])


async def test_the_functions_are_described(tmp_path: Path) -> None:
    @tool(name="my-tool", risk="none")
    def mine(words: list[str], kind: str = "a") -> str:
        """Do it.

        Args:
            words: Some ```python words.
        """
        return f"{kind} {words}"

    _, scripted = await run_of([block('print(tool_my_tool(["x"]), tool_my_tool(words=[], kind="b"))')], given=[mine])
    system = scripted.requests[0].messages[0].content
    assert "def tool_my_tool(words: list, kind: str = None):\n    Do it.\n    words: Some ```¦python words." in system
    assert scripted.requests[1].messages[-1].content == "Observation:\na ['x'] b []"


async def test_an_observation_with_code_is_no_code_when_it_is_repeated() -> None:
    @tool(risk="read")
    def page() -> str:
        """Read a page."""
        return "```python\nadd(1)\n```\n<execute>\nadd(2)\n</execute>"

    _, scripted = await run_of([block("print(page())")], given=[add, page])
    observation = scripted.requests[1].messages[-1].content.removeprefix("Observation:\n")
    run, _ = await run_of([observation])
    assert run.values["blocks"] == []


HOSTILE = [
    ("while True: pass", "TimeoutError: more than 1 s"),
    ("x = [0] * 10**10", "memory limit exceeded"),
    ("def f(n): return f(n)\nf(1)", "RecursionError"),
    ("open('/etc/passwd').read()", "PermissionError"),
    ("import os\nos.environ['HOME']", "not supported"),
    ("import subprocess", "ModuleNotFoundError"),
    ("import socket", "ModuleNotFoundError"),
    ("__import__('os').system('true')", "NameError"),
    ("exec('import os; os.getcwd(); open(1)')", "Error"),
    ("nothing(1)", "name 'nothing' is not defined"),
    ("add.__globals__", "AttributeError"),
    ("for n in range(10_000):\n    try: add(n)\n    except RuntimeError: pass", "at most 100 calls"),
    ("while True:\n    try: nothing()\n    except NameError: pass", "suspension limit"),
    ("import time\nwhile True: time.time()", "suspension limit"),
    ("add({1, 2})", "add() takes numbers, texts, lists and dicts"),
    ("x = [1]\nfor _ in range(60): x = [x, x]\nadd(x)", "more than 1,000,000 characters and values"),
    ("x = []\nx.append(x)\nadd(x)", "wrong arguments"),
    ("list(map(add, [1], [2]))", "call it in a loop or a comprehension, not by map"),
    ("add(1, 2, 3)", "add() takes 2 arguments, and 3 were given"),
    ("add(1, a=2)", "two values for the argument 'a'"),
    ("add()", "'a' is missing"),
    ("add('x')", "wrong arguments"),
    ("print('x' * 10**7)", "characters left out]"),
    ("'x' * 10**7", "..."),
    ("print(", "SyntaxError"),
    ("raise SystemExit('over')", "SystemExit: over"),
    ("'\\ud800'", ""),
    ("x = 1\x00", ""),
    ("#" * 200_000, "the limit is 100000"),
]


@pytest.mark.parametrize(("code", "words"), HOSTILE)
async def test_hostile_code_is_bounded_and_its_error_observed(code: str, words: str) -> None:
    observation = await observed(code, code_seconds=1)
    assert words in observation
    assert len(observation) < 31_000


async def test_a_block_that_is_stopped_by_the_clock_is_observed_in_the_same_words_each_time() -> None:
    model = ScriptedModel({"think": [block("while True: print(1)"), "Done."]})
    async with Executor(model=model, tools=[add]) as executor:
        run = await executor.start(code_act(code_seconds=0.2), "Go.")
        replayed = await executor.replay(run.run_id)
    assert (run.output, replayed.run.output) == ("Done.", "Done.")
    assert model.requests[1].messages[-1].content == (
        "Observation:\nError: TimeoutError: more than 0.2 s; what the code printed is left out\n"
        "[a limit was reached: all variables are lost]"
    )


def test_a_sandbox_that_dies_is_observed_in_the_same_words_each_time() -> None:
    sandbox = Sandbox(SandboxLimits(memory=1 << 24, seconds=60, depth=100, output=1_000), reproducible=True)
    threading.Timer(0.1, sandbox.kill).start()
    found = sandbox.start("while True: print(1)", ())
    sandbox.close()
    assert found == Ran("", "", "MemoryError or TimeoutError: the sandbox died; what the code printed is left out")


async def test_an_earlier_block_that_now_reaches_a_limit_costs_its_variables_and_the_model_is_shown_that() -> None:
    graph = Graph(
        name="blocks",
        state=Code.ListState,
        nodes={"act": Code(calls="pending", results="messages", blocks="blocks", seconds=0.5)},
        edges="START -> act\nact -> END",
    )
    pending = [
        {"id": str(number), "name": "python", "arguments": {"code": code}}
        for number, code in enumerate(("print(2)", "print(3)"))
    ]
    state = {"pending": pending, "blocks": [{"code": "x = 1"}, {"code": "while True: pass"}]}
    run = await graph.run(state, tools=[add])
    outputs = [message["content"] for message in run.values["messages"]]
    assert outputs == ["2\n[a limit was reached: all variables are lost]", "3"]
    assert [one["code"] for one in run.values["blocks"]] == ["print(2)", "print(3)"]


@pytest.mark.parametrize("last_answer", [False, True])
async def test_spent_steps(last_answer: bool) -> None:
    scripted = ScriptedModel({"think": lambda _: block("1"), "conclude": ["The answer."]})
    run = await code_act(2, last_answer=last_answer).run("Go.", model=scripted, tools=[add])
    assert (run.status, run.output) == ("exhausted", "The answer." if last_answer else "")


async def test_without_tools_code_computes() -> None:
    _, scripted = await run_of([block("print(sum(range(10)))")], given=[])
    assert scripted.requests[1].messages[-1].content == "Observation:\n45"


async def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    run, _ = await run_of([block("1")])
    assert run.status == "failed"
    assert "running code needs the package pydantic-monty: python -m pip install" in str(run.error)
