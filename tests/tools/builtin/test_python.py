"""`python`: code in a sandbox that gives nothing away, and takes no more than it is allowed."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import ToolResult
from orchestrator.tools import tools_from_ref
from orchestrator.tools.builtin.python import Python, PythonSession
from orchestrator.tools.sandbox import Ran, Sandbox, SandboxLimits, shown_value
from tests.tools.builtin.processes import until

pytest.importorskip("pydantic_monty")
pytestmark = pytest.mark.anyio
on_one_loop = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""Of tests that look at the interpreter, which knows nothing of event loops."""


async def run(
    code: str, variables: dict[str, Any] | None = None, *, tool: Python | PythonSession | None = None
) -> ToolResult:
    given: dict[str, Any] = {"code": code} | ({} if variables is None else {"variables": variables})
    if not isinstance(tool, PythonSession):
        return await (tool or Python(seconds=0.4)).invoke(given)
    result = await tool(**given, id="test")
    assert isinstance(result, ToolResult)
    return result


def test_it_is_a_group_of_its_own_and_harmless() -> None:
    [python] = tools_from_ref("python")
    assert (python.name, python.group, python.risk, python.effect) == ("python", "python", "none", "pure")
    assert set(python.to_param()["function"]["parameters"]["properties"]) == {"code", "variables"}


@pytest.mark.parametrize(
    "given",
    [
        {"memory": 0}, {"seconds": 0}, {"depth": -1}, {"output_limit": 0}, {"seconds": float("inf")},
        {"seconds": float("nan")}, {"seconds": 1e30}, {"memory": 1 << 70}, {"depth": 1 << 70},
    ],
)  # fmt: skip
def test_limits_are_positive(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(given))}=.* positive"):
        Python(**given)


def test_limits_are_numbers() -> None:
    with pytest.raises(TypeError, match=r"memory=1\.5 is not a whole number"):
        Python(memory=1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  the fault


def workers() -> set[int]:
    """Ids of the interpreters' processes that this process has started and not ended."""
    found = set()
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        with suppress(OSError):  # the thread, or the process, has just ended
            for pid in (task / "children").read_text().split():
                if b"monty" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.add(int(pid))
    return found


# -- what it does --------------------------------------------------------------------------------------------------


@on_one_loop
@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("1 + 1", "2"),
        ("print('a')\n'b'", "a\n'b'"),
        ("print('a', end='')\n3", "a\n3"),
        ("x = 1", "(no output: end with an expression, or print)"),
        ("None", "(no output: end with an expression, or print)"),
        ("2 ** 100", "1267650600228229401496703205376"),
        ("import math, json\njson.dumps([math.floor(2.5)])", "'[2]'"),
        ("def f(n):\n    return 1 if n < 2 else n * f(n - 1)\n\nf(20)", "2432902008176640000"),
        ("sorted({'b': 1, 'a': 2}.items())", "[('a', 2), ('b', 1)]"),
        ("class A:\n    def __init__(self):\n        self.x = [1]\n\nA()", "A(x=[1])"),
        ("(1,), set(), {2}, frozenset({3}), {'k': None}", "((1,), set(), {2}, frozenset({3}), {'k': None})"),
    ],
)
async def test_what_is_printed_and_the_value_of_the_last_expression(code: str, output: str) -> None:
    assert await run(code) == ToolResult(output=output)


async def test_variables_are_given_as_data() -> None:
    hostile = "'; import os #"
    result = await run("rows[0]['n'] + len(text)", {"rows": [{"n": 1}], "text": hostile})
    assert result.output == str(1 + len(hostile))
    assert "not the name of a variable" in (await run("1", {"a b": 1})).text


async def test_an_error_is_a_failure_with_its_traceback_and_what_was_printed_before() -> None:
    result = await run("print('before')\ndef f():\n    return 1 / 0\nf()")
    assert result.exit_code == 1
    assert result.output == "before"
    assert str(result.error).startswith("before\nTraceback")
    assert "line 3, in f" in str(result.error)
    assert str(result.error).endswith("ZeroDivisionError: division by zero")
    assert "SyntaxError" in (await run("def (")).text


async def test_calls_know_nothing_of_each_other() -> None:
    tool = Python()
    await run("x = 1\nlen = None\nimport math\nmath.pi = 3", tool=tool)
    assert "NameError" in (await run("x", tool=tool)).text
    assert (await run("import math\n(len('ab'), math.pi > 3)", tool=tool)).output == "(2, True)"


@on_one_loop
async def test_a_run_can_keep_its_variables() -> None:
    tool = PythonSession(seconds=0.3)
    try:
        assert (await run("x = 40", tool=tool)).output == "[a new interpreter: the variables of earlier code are gone]"
        assert (await run("x + 2", tool=tool)).output == "42"
        assert "division" in (await run("1 / 0", tool=tool)).text
        assert (await run("x", tool=tool)).output == "40"
        for words in ("memory limit", "time limit exceeded", "worker exceeded"):  # only words, and no limit
            assert "the variables are lost" not in (await run(f"raise ValueError('{words}')", tool=tool)).text
        assert (await run("x", tool=tool)).output == "40"
        assert "the variables are lost" in (await run("while True: pass", tool=tool)).text
        lost = await run("x", tool=tool)
        assert "NameError" in lost.text
        assert "a new interpreter" in lost.text
    finally:
        await tool.release(id="test")


# -- what it does not do -------------------------------------------------------------------------------------------

ESCAPES = [
    "open('{file}').read()",
    "open('{file}', 'w').write('x')",
    "open('{file}', 'a')",
    "open('../../../../../../../../{file}')",
    "from pathlib import Path\nPath('{file}').read_text()",
    "from pathlib import Path\nPath('{file}').unlink()",
    "from pathlib import Path\nlist(Path('/').iterdir())",
    "import os\nos.listdir('/')",
    "import os\nos.environ['PATH']",
    "import os\nos.getenv('PATH').upper()",
    "import os\nos.system('touch {file}')",
    "import os\nos.fork()",
    "import os\nos.kill(1, 9)",
    "import os\nos.remove('{file}')",
    "import sys\nsys.modules['os']",
    "import sys\nsys._getframe()",
    "import subprocess",
    "import socket",
    "import urllib.request",
    "import ctypes",
    "import importlib",
    "import pickle",
    "import builtins",
    "import gc",
    "__import__('os').system('touch {file}')",
    "eval(\"__import__('os')\")",
    "exec('import socket')",
    "compile('1', 'x', 'eval')",
    "globals()['__builtins__']",
    "().__class__.__base__.__subclasses__()",
    "object.__subclasses__()",
    "(lambda: 0).__globals__",
    "(lambda: 0).__code__",
    "(x for x in [1]).gi_frame.f_back",
    "getattr((), '__cl' + 'ass__')",
    "'{{0.__class__.__init__.__globals__}}'.format(1)",
    "type('X', (object,), {{}})",
    "input()",
    "breakpoint()",
    "try:\n    1 / 0\nexcept Exception as error:\n    error.__traceback__.tb_frame.f_globals",
]  # fmt: skip


def test_ways_out_of_the_sandbox_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "secret.txt"
    file.write_text("a secret")
    led: list[tuple[str, Ran]] = []
    sandbox = Sandbox(SandboxLimits(memory=64 << 20, seconds=5, depth=200, output=10_000))
    try:
        for code in ESCAPES:
            ran = sandbox.run(code.format(file=file), {})
            told = f"{ran.printed}{ran.value}{ran.error}"
            if ran.error is None or sandbox.lost or "a secret" in told or os.environ["PATH"] in told:
                led.append((code, ran))
            if [one.name for one in tmp_path.iterdir()] != ["secret.txt"] or file.read_text() != "a secret":
                led.append((code, ran))
    finally:
        sandbox.close()
    assert not led


BOMBS = [
    "'a' * 10 ** 9",
    "[0] * 10 ** 9",
    "[0] * 4_000_000",
    "x = []\nwhile True: x.append('a' * 1000)",
    "d = {}\nwhile True: d[len(d)] = [0] * 100",
    "x = 'a'\nwhile True: x += x",
    "10 ** 10 ** 8",
    "list(range(10 ** 9))",
    "sorted(range(10 ** 7))",
    "'{:1000000000}'.format(1)",
    "f'{1:>1000000000}'",
    "'a'.replace('', 'b' * 10 ** 6) * 1000",
    "try:\n    x = 'a' * 10 ** 9\nexcept MemoryError:\n    x = [0] * 10 ** 9",
    "bytes(10 ** 9)",
    "import itertools\nlist(itertools.product(range(100), repeat=5))",
    "def f(): return f()\nf()",
    "f = lambda: [f() for _ in range(10)]\nf()",
    "(" * 100_000 + ")" * 100_000,
    "x = '" + "a" * 200_000 + "'",
    "int('9' * 1_000_000)",
    "while True: pass",
    "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "sum(range(10 ** 15))",
    "while True: print('a' * 1000)",
    "import time\ntime.sleep(100)",
    "import time\nwhile True: time.sleep(0.01)",
    "import asyncio\nasyncio.run(asyncio.sleep(100))",
    "import re\nre.match('(a|a)*$', 'a' * 40 + 'b').group()",
]


BOUNDED = Python(memory=16 << 20, seconds=0.08)


@on_one_loop
@pytest.mark.parametrize("code", BOMBS)
async def test_bombs_of_memory_depth_and_time_are_stopped(code: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await run(code, tool=BOUNDED)
    assert result.failed, result.text[:200]
    assert len(result.text) < 25_000
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    assert grown < 150, f"this process grew by {grown} MB"


@on_one_loop
@pytest.mark.parametrize(
    "code",
    [
        "len('a' * 50_000_000)",
        "len(list(range(1_500_000)))",
        "x = []\nfor i in range(300): x.append('a' * 200_000)\nlen(x)",
    ],
)
async def test_it_is_the_limit_of_memory_that_stops_what_takes_too_much(code: str) -> None:
    """Each takes less than a second, and without this limit comes to its end."""
    result = await run(code, tool=Python(memory=16 << 20, seconds=60))
    assert "MemoryError: memory limit exceeded" in result.text
    assert "16777216 bytes" in result.text


@on_one_loop
@pytest.mark.parametrize(
    "code",
    [
        "x = [0] * 100\nfor i in range(8): x = [x] * 100\nx",  # 10**18 numbers, if all were written out
        "x = {}\nfor i in range(60): x = {'a': x, 'b': x}\nx",
        "x = []\nx.append(x)\nx",
        "x = ()\nfor i in range(100_000): x = (x,)\nx",
        "2 ** 10 ** 6",
        "'x' * 10 ** 6",
        "print('x' * 10 ** 6)",
        "class A:\n    pass\na = A()\nfor i in range(200):\n    b = A()\n    b.x = a\n    b.y = a\n    a = b\na",
    ],
)
async def test_what_comes_out_is_short_whatever_the_value_is(code: str) -> None:
    result = await run(code, tool=Python(output_limit=2000))
    assert not result.failed, result.text[:200]
    assert len(result.text) < 2100


def test_a_value_is_written_as_python_writes_it() -> None:
    for value in (1, "a'b", b"\x00", 1.5, None, True, [], [1, [2]], (1,), (), {"a": {1, 2}}, frozenset(), ..., 2j):
        assert shown_value(value, 1000) == repr(value)
    assert shown_value([1, 2, 3], 4) == "[1, ..."


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_call_that_is_cancelled_ends_its_process() -> None:
    before = workers()
    with anyio.fail_after(120):
        async with anyio.create_task_group() as group:
            group.start_soon(partial(run, "while True: pass", tool=Python(seconds=3600)))
            await anyio.to_thread.run_sync(until, lambda: bool(workers() - before), "its process")
            await anyio.sleep(0.05)  # which is in the code by then, mostly
            group.cancel_scope.cancel()
    await anyio.to_thread.run_sync(until, lambda: workers() <= before, "the end of its process")


WITHOUT = """
import importlib.machinery as machinery, sys
from orchestrator.cli import main
find = machinery.PathFinder.find_spec
missing = lambda cls, name, *rest: None if name.startswith("pydantic_monty") else find(name, *rest)
machinery.PathFinder.find_spec = classmethod(missing)
main()
"""


@pytest.mark.full
def test_without_its_package_one_line_says_what_to_install_and_the_other_tools_are_there() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT, "tools"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    [line] = done.stderr.splitlines()
    assert 'pip install "agent-graph-orchestrator[sandbox]"' in line
    assert "terminal" in done.stdout
