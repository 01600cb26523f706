"""`terminal`: a shell that keeps its state, and of which nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, ToolResult, node
from orchestrator.errors import GraphUnknown
from orchestrator.tools import tools_from_ref
from orchestrator.tools.builtin.terminal import BoundedOutput, Terminal
from tests.support.programs import next_line, piped
from tests.tools.builtin.processes import alive, token, wait_for, wait_until_gone

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="what is held is held on Linux")]
on_one_loop = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""Of tests that look at shells and processes, which know nothing of event loops."""


@asynccontextmanager
async def opened(**given: Any) -> AsyncIterator[Terminal]:
    terminal = Terminal(**given)
    try:
        yield terminal
    finally:
        with anyio.CancelScope(shield=True):
            await terminal.release(id="test")


async def run(terminal: Terminal, command: str, **given: Any) -> ToolResult:
    try:
        result = await terminal(command=command, id="test", **given)
    except Exception as error:
        return terminal.failure(error)
    assert isinstance(result, ToolResult)
    return result


# -- what it is ----------------------------------------------------------------------------------------------------


def test_it_is_a_group_of_its_own_and_says_how_dangerous_it_is() -> None:
    [terminal] = tools_from_ref("terminal")
    assert (terminal.name, terminal.group, terminal.risk, terminal.effect, terminal.ends) == (
        "terminal", "terminal", "dangerous", "irreversible", False,
    )  # fmt: skip
    assert set(terminal.to_param()["function"]["parameters"]["properties"]) == {"command", "restart"}


@on_one_loop
async def test_a_reference_names_its_directory(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    [terminal] = tools_from_ref("terminal:work", str(tmp_path))
    assert (await terminal(command="pwd")).text.startswith(f"{tmp_path}/work\n")
    with pytest.raises(GraphUnknown, match="is not a directory"):
        tools_from_ref("terminal:nowhere", str(tmp_path))


@pytest.mark.parametrize(
    "given", [{"timeout": 0}, {"timeout": -1}, {"timeout": float("nan")}, {"output_limit": 1}, {"memory": 0}]
)
def test_limits_are_positive(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="positive"):
        Terminal(**given)


def test_one_name_is_no_list_of_them() -> None:
    with pytest.raises(TypeError, match=r"write env=\['PATH'\]"):
        Terminal(env="PATH")


# -- one shell -----------------------------------------------------------------------------------------------------

SHELLS = ["bash", "/bin/sh"]


@pytest.mark.parametrize(("shell", "anyio_backend"), [("bash", "asyncio"), ("/bin/sh", "trio")])
async def test_directory_variables_and_functions_are_kept(shell: str, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    async with opened(cwd=tmp_path, shell=shell) as terminal:
        first = await run(terminal, 'cd inner; x=7; f() { echo "in f: $1"; }')
        assert first.text == f"[new shell in {tmp_path}]"
        assert (await run(terminal, 'pwd; echo "$x"; f a')).text == f"{tmp_path}/inner\n7\nin f: a\n"


WAYS: list[tuple[str, int, str]] = [
    ("echo out; echo err >&2", 0, "out\nerr\n"),
    ("true", 0, "(no output)"),
    ("(exit 7)", 7, "[exit code 7]"),
    ("printf 'no newline'; false", 1, "no newline\n[exit code 1]"),
    ("cat; echo end", 0, "end\n"),  # nobody types
    ("read answer; echo \"$? <$answer>\"", 0, "1 <>\n"),
    ("cat <<'EOF'\n$x 'quoted' \"twice\"\nEOF", 0, "$x 'quoted' \"twice\"\n"),
    ("echo $(( 6 * 7 )); echo \\\n  two", 0, "42\ntwo\n"),
    ("echo 'ä€🎉'", 0, "ä€🎉\n"),
    ("printf '\\377\\376'", 0, "��"),
    ("tty", 1, "not a tty\n[exit code 1]"),
    ("nosuchcommand_ 2>/dev/null", 127, "[exit code 127]"),
    ("printf() { echo mine; }; printf x", 0, "mine\n"),
    ("exec 9>&- 3>/dev/null; echo fine", 0, "fine\n"),
    ("# nothing but a remark", 0, "(no output)"),
    ("echo '0 0123456789abcdef' >&9", 2, "9: Bad file descriptor"),
]  # fmt: skip


@on_one_loop
@pytest.mark.parametrize("shell", SHELLS)
async def test_ways_of_commands(shell: str, tmp_path: Path) -> None:
    async with opened(cwd=tmp_path, shell=shell) as terminal:
        await run(terminal, "true")
        for command, code, text in WAYS:
            result = await run(terminal, command)
            if text.startswith("9:"):
                assert text.partition(": ")[2].lower() in result.text.lower()
                assert result.failed
            else:
                assert (result.exit_code, result.text) == (code, f"Error: {text}" if code else text)


@on_one_loop
@pytest.mark.parametrize("shell", SHELLS)
async def test_a_syntax_error_is_a_result_and_the_shell_goes_on(shell: str, tmp_path: Path) -> None:
    async with opened(cwd=tmp_path, shell=shell) as terminal:
        await run(terminal, "x=1")
        for command in ("if", "echo 'open", "echo )", "$((", "}", "cat <<EOF"):
            await run(terminal, command)
            assert (await run(terminal, "echo $x")).text == "1\n", command


@pytest.mark.full
@on_one_loop
async def test_a_command_that_ends_the_shell_says_so_and_the_next_gets_a_new_one(tmp_path: Path) -> None:
    async with opened(cwd=tmp_path) as terminal:
        for command, code in [("exit 3", 3), ("set -e; false", 1), ("kill -9 $$", 137), ("exec true", 0)]:
            result = await run(terminal, f"x=1; {command}")
            assert result.exit_code == code
            assert "the shell ended; the next command gets a new one" in result.text
            result = await run(terminal, 'echo "<$x>"')
            assert result.text == f"<>\n[new shell in {tmp_path}]"


MANY = """
    import anyio, os
    from orchestrator.tools.builtin.terminal import Terminal

    async def main():
        for number in range(8):
            print((await Terminal(timeout=5)(command=f"exit_code() {{ return {number}; }}; exit_code")).exit_code)
            os.open(os.devnull, os.O_RDONLY)

    anyio.run(main)
"""


@pytest.mark.storm
def test_it_does_not_matter_which_descriptors_are_free() -> None:
    program = [sys.executable, "-c", textwrap.dedent(MANY)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.split() == [str(number) for number in range(8)]


@on_one_loop
async def test_restart_begins_anew_and_ends_what_was_started(tmp_path: Path) -> None:
    word = token()
    async with opened(cwd=tmp_path) as terminal:
        assert (await run(terminal, f"x=1; sleep {word} & echo on")).text.startswith("on\n")
        wait_for(word, 1)
        assert (await run(terminal, 'echo "<$x>"', restart=True)).text == f"<>\n[new shell in {tmp_path}]"
        assert not alive(word)


@on_one_loop
async def test_a_job_in_the_background_goes_on_and_what_it_prints_comes_with_later_commands(tmp_path: Path) -> None:
    async with opened(cwd=tmp_path) as terminal:
        await run(terminal, "{ while [ ! -e go ]; do sleep 0.01; done; echo late; touch done; } &")
        assert "late" in (await run(terminal, "touch go; while [ ! -e done ]; do sleep 0.01; done")).text


@on_one_loop
async def test_calls_are_made_one_after_the_other(tmp_path: Path) -> None:
    async with opened(cwd=tmp_path) as terminal:
        results: list[str] = []

        async def call(number: int) -> None:
            results.append((await run(terminal, f"a={number}; sleep 0.02; echo $a")).text.split("\n")[0])

        async with anyio.create_task_group() as group:
            for number in range(4):
                group.start_soon(call, number)
        assert sorted(results) == ["0", "1", "2", "3"]


# -- what goes in --------------------------------------------------------------------------------------------------


@pytest.mark.full
@on_one_loop
async def test_only_listed_variables_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "evil"))
    monkeypatch.setenv("MINE", "yes")
    (tmp_path / "evil").write_text("echo evil")
    async with opened(cwd=tmp_path) as terminal:
        text = (await run(terminal, "env")).text
        assert "secret" not in text
        assert "evil" not in text
        assert "MINE" not in text
        assert "\nPATH=" in f"\n{text}"
    async with opened(cwd=tmp_path, env=["PATH", "MINE"]) as terminal:
        assert (await run(terminal, "echo $MINE$HOME")).text.startswith("yes\n")
    async with opened(cwd=tmp_path, env={"A": "1 2"}, shell="/bin/sh") as terminal:
        assert (await run(terminal, 'echo "$A"')).text.startswith("1 2\n")


@on_one_loop
@pytest.mark.parametrize(
    ("given", "command", "says"),
    [
        ({"cwd": "no/such/place"}, "true", "no/such/place"),
        ({"shell": "no-such-shell"}, "true", "no shell 'no-such-shell'"),
        ({}, "echo a\0b", "NUL"),
    ],
)
async def test_what_cannot_be_run(given: dict[str, Any], command: str, says: str) -> None:
    async with opened(**given) as terminal:
        result = await run(terminal, command)
        assert result.exit_code == 1
        assert says in str(result.error)


@on_one_loop
async def test_a_program_that_is_no_shell_is_told(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("#!/no/such/interpreter\n")
    (tmp_path / "broken").chmod(0o755)
    async with opened(cwd=tmp_path, shell=str(tmp_path / "broken")) as terminal:
        result = await run(terminal, "true")
        assert result.exit_code == 127
        assert "No such file" in result.text


# -- what comes out ------------------------------------------------------------------------------------------------


@on_one_loop
async def test_long_output_is_cut_in_the_middle_and_says_how_much(tmp_path: Path) -> None:
    async with opened(cwd=tmp_path, output_limit=1000) as terminal:
        await run(terminal, "true")
        result = await run(terminal, "echo begin; yes | head -c 3000000; echo end")
        assert result.text.startswith("begin\ny\n")
        assert result.text.endswith("y\nend\n")
        assert "[... 2999010 bytes left out ...]" in result.text
        assert len(result.text) < 1100
        assert result.metadata == {"bytes": 3000010}


@given(st.lists(st.binary(max_size=30), max_size=20), st.integers(2, 60))
def test_what_is_kept_is_the_beginning_and_the_end(pieces: list[bytes], limit: int) -> None:
    kept = BoundedOutput(limit)
    for piece in pieces:
        kept.add(piece)
    whole = b"".join(pieces)
    if len(whole) <= limit:
        assert kept.text() == whole.decode(errors="replace")
        assert kept.cut == 0
    else:
        head, tail = whole[: limit // 2], whole[len(whole) - (limit - limit // 2) :]
        note = f"\n[... {len(whole) - limit} bytes left out ...]\n"
        assert kept.text() == head.decode(errors="ignore") + note + tail.decode(errors="ignore")


# -- the end -------------------------------------------------------------------------------------------------------

ESCAPES = [
    "sleep {word} &",
    "nohup sleep {word} >/dev/null 2>&1 &",
    "setsid sleep {word} &",
    "(setsid sh -c 'setsid sleep {word} & sleep {word}' &)",
    "sh -c 'trap \"\" TERM HUP INT QUIT; sleep {word}; sleep {word}' &",
    "env -i /bin/sleep {word} &",
    "(setsid sh -c '(setsid sleep {word} <&- >&- 2>&- &) &' &)",  # without parent, group, session and files
    "sleep {word} | cat | cat &",
    "sh -c 'kill -STOP $$; : {word}' &",
    "sh -c 'while :; do sleep {word} & sleep 0.1; done' &",
    "disown -a 2>/dev/null; sleep {word} & disown",
]


def all_escapes(word: str) -> str:
    return "\n".join(one.replace("{word}", word) for one in ESCAPES)


@pytest.mark.full
@on_one_loop
async def test_a_command_that_takes_too_long_is_killed_with_all_that_was_started(tmp_path: Path) -> None:
    word = token()
    async with opened(cwd=tmp_path, timeout=1.5) as terminal:
        await run(terminal, all_escapes(word))
        wait_for(word, len(ESCAPES))
        result = await run(terminal, f"echo before; sleep {word}")
        assert not alive(word)
        assert result.exit_code == 124
        assert result.failed
        assert result.text.startswith("Error: before\n[exit code 124]\n[killed after 1.5 s")
        assert (await run(terminal, "echo after")).text.startswith("after\n[new shell")


@on_one_loop
@pytest.mark.parametrize("command", ["while :; do :; done", "trap '' TERM INT; yes"])
async def test_what_never_ends_is_ended(command: str, tmp_path: Path) -> None:
    async with opened(cwd=tmp_path, timeout=0.05) as terminal:
        assert (await run(terminal, command)).exit_code == 124


async def test_a_call_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    word = token()
    async with opened(cwd=tmp_path) as terminal:
        with anyio.move_on_after(30) as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(run, terminal, f"{all_escapes(word)}\nsleep {word}")
                await anyio.to_thread.run_sync(wait_for, word, len(ESCAPES))
                scope.cancel()
        assert not alive(word)


@on_one_loop
async def test_the_end_of_the_shell_is_the_end_of_its_jobs(tmp_path: Path) -> None:
    word = token()
    async with opened(cwd=tmp_path) as terminal:
        await run(terminal, all_escapes(word))
        wait_for(word, len(ESCAPES))
        await run(terminal, "exit 0")
        assert not alive(word)


@on_one_loop
async def test_a_command_that_kills_its_warden_takes_nothing_along(tmp_path: Path) -> None:
    word = token()
    async with opened(cwd=tmp_path) as terminal:
        result = await run(terminal, f"sleep {word} & setsid sleep {word} & kill -9 $PPID; sleep {word}")
        assert result.exit_code == 137
        assert not alive(word)
        assert (await run(terminal, "echo on")).text.startswith("on\n")


PROGRAM = """
    import anyio, sys
    from orchestrator.tools.builtin.terminal import Terminal

    async def main():
        terminal = Terminal()
        await terminal(command=sys.argv[1], id="a")
        print("ready", flush=True)
        await terminal(command=sys.argv[2], id="a")

    anyio.run(main, backend=sys.argv[3])
"""


@pytest.mark.full
@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.storm)])
def test_nothing_outlives_this_process_however_it_ends(how: int, tmp_path: Path) -> None:
    word = token()
    commands = [all_escapes(word), f"sleep {word}"]
    program = [
        sys.executable,
        "-c",
        textwrap.dedent(PROGRAM),
        *commands,
        "trio" if how == signal.SIGKILL else "asyncio",
    ]
    with piped(program, cwd=tmp_path, stderr=subprocess.DEVNULL) as (process, said):
        assert next_line(said) == "ready\n"
        wait_for(word, len(ESCAPES) + 1)
        os.kill(process.pid, how)
        process.wait(60)
    wait_until_gone(word)


# -- in runs -------------------------------------------------------------------------------------------------------


class Commands(BaseModel):
    commands: list[str] = []
    texts: list[str] = []


def each_command(name: str = "commands") -> Graph:
    """Its commands are given to the terminal one after the other; `ask` asks, `fail` fails."""

    @node
    async def work(state: Commands, ctx: Context) -> dict[str, object]:
        """Give all commands."""
        texts = []
        for command in state.commands:
            if command == "ask":
                await ctx.ask("input", prompt="Go on?")
            elif command == "fail":
                raise ValueError("no more")
            else:
                texts.append((await ctx.tool("terminal", command=command)).text)
        return {"texts": texts}

    return Graph(name=name, state=Commands, nodes={"work": work}, edges="START -> work -> END", output="texts")


@pytest.mark.full
@pytest.mark.parametrize(
    ("last", "status", "anyio_backend"), [("true", "completed", "asyncio"), ("fail", "failed", "trio")]
)
async def test_the_end_of_a_run_is_the_end_of_its_shell(last: str, status: str, tmp_path: Path) -> None:
    word = token()
    async with Executor(tools=[Terminal(cwd=tmp_path)]) as executor:
        run = await executor.start(each_command(), {"commands": [f"x=1; {all_escapes(word)}", "echo $x", last]})
        assert run.status == status
        await anyio.to_thread.run_sync(wait_until_gone, word)
        if status == "completed":
            assert run.output[1] == "1\n"


@pytest.mark.full
@on_one_loop
async def test_each_run_has_a_shell_of_its_own(tmp_path: Path) -> None:
    async with Executor(tools=[Terminal(cwd=tmp_path)]) as executor:
        results: dict[int, Any] = {}

        async def start(number: int) -> None:
            commands = [f"x={number}; cd /", "sleep 0.05", "echo $x; pwd"]
            results[number] = (await executor.start(each_command(), {"commands": commands})).output[-1]

        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(start, number)
    assert results == {number: f"{number}\n/\n" for number in range(3)}


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_a_cancelled_run_leaves_nothing(tmp_path: Path) -> None:
    word = token()
    async with Executor(tools=[Terminal(cwd=tmp_path)]) as executor:
        await executor.submit(each_command(), {"commands": [f"{all_escapes(word)}\nsleep {word}"]}, run_id="r")
        await anyio.to_thread.run_sync(wait_for, word, len(ESCAPES))
        await executor.cancel("r")
        assert (await executor.wait("r")).status == "cancelled"
        await anyio.to_thread.run_sync(wait_until_gone, word)


@pytest.mark.full
@on_one_loop
async def test_the_end_of_the_executor_leaves_nothing_and_the_next_one_says_that_the_shell_is_new(
    tmp_path: Path,
) -> None:
    word = token()
    store = f"sqlite:///{tmp_path}/runs.db"
    terminal = Terminal(cwd=tmp_path)
    async with Executor(store, tools=[terminal]) as executor:
        run = await executor.start(
            each_command(), {"commands": [f"cd /; {all_escapes(word)}", "ask", "pwd"]}, run_id="r"
        )
        assert run.status == "paused"
    wait_until_gone(word)
    async with Executor(store, tools=[terminal], graphs=[each_command()]) as executor:
        run = await executor.answer("r", run.waiting[0].id, "yes")
    assert run.output[-1] == f"{tmp_path}\n[new shell in {tmp_path}]"


async def test_output_is_told_while_the_command_runs(tmp_path: Path) -> None:
    told: list[str] = []
    commands = ["echo begun; while [ ! -e go ]; do sleep 0.01; done; echo ended"]
    async with (
        Executor(tools=[Terminal(cwd=tmp_path)]) as executor,
        executor.stream(each_command(), {"commands": commands}) as live,
    ):
        async for event in live:
            if event.type == "progress":
                assert event.data["tool"] == "terminal"
                told.append(str(event.data["text"]))
                (tmp_path / "go").touch()
    assert "".join(told) == "begun\nended\n"
    assert told[0] == "begun\n"


# -- memory --------------------------------------------------------------------------------------------------------


@on_one_loop
async def test_a_process_gets_no_more_memory_than_its_limit(tmp_path: Path) -> None:
    take = f"{sys.executable} -S -c 'print(len(bytearray(%d << 20)))'"
    async with opened(cwd=tmp_path, memory=512 << 20) as terminal:
        assert (await run(terminal, take % 16)).text.startswith(f"{16 << 20}\n")
        refused = await run(terminal, take % 600)
        assert refused.exit_code == 1
        assert "MemoryError" in refused.text
        assert (await run(terminal, "echo alive")).text == "alive\n"
