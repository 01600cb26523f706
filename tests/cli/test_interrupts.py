"""Runs that are stopped: by a signal, by another process, by nobody reading."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.test_watch import here
from tests.support import trial
from tests.support.programs import run
from tests.support.shell import Shell
from tests.support.sizes import FULL


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_a_run_which_then_goes_on(shell: Shell, number: signal.Signals) -> None:
    with shell.begin("run", "trial:waits", "x", "--run-id", "w", "--json") as process:
        shell.wait_for("slow.txt")
        process.signal(number)
        done = process.end()
    assert (done.code, done.json["status"], done.json["steps"]) == (130, "interrupted", 1)
    (shell.place / "go").touch()
    done = shell.go_on(done)
    assert (done.code, json.loads(done.out)) == (0, ["one", "slow", "last"])
    assert len(shell.read("slow.txt")) == 2
    assert len(shell.read("last.txt")) == 1


def test_a_second_signal_ends_at_once(shell: Shell) -> None:
    with shell.begin("run", "trial:blocks", "x", "--run-id", "b", "--events") as process:
        shell.wait_for("slow.txt")
        process.signal(signal.SIGINT)
        shell.until(lambda: process.ended or process.signal(signal.SIGINT))
        done = process.end()
    assert done.code == 130
    (shell.place / "go").touch()
    done = shell("resume", "b")
    assert (done.code, json.loads(done.out)) == (0, ["one", "stuck", "last"])


RESULT = ["one", "slow", "last"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_the_result_was_told_leaves_its_exit_code(shell: Shell, number: signal.Signals) -> None:
    (shell.place / "go").touch()
    for turn, delay in enumerate((0.0, 0.002, 0.01, 0.03)):
        with shell.begin("run", "trial:waits", "x", "--run-id", f"r{turn}") as process:
            told = os.read(process._out, 1 << 16).decode()
            time.sleep(delay)
            process.signal(number)
            process.signal(number)
            out, err = process.read()
            assert (process.wait(), json.loads(told + out)) == (0, RESULT), err
            assert "Traceback" not in err
            assert "KeyboardInterrupt" not in err


SLOW_END = """
import atexit, signal, threading, time
from orchestrator.cli import signals

signals.begin()
with signals.telling(0):
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)
    print("told", flush=True)

class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(0.5)

threading.slow = Slow()  # goes when Python takes its modules apart, after its handlers
"""


AT_EACH_LINE = """
import os, signal, sys
from orchestrator.cli import signals

signals.begin()

def end(number):
    "The exit code of a process that gets a signal at this line after its result was told; 77 if it has fewer lines."
    seen = 0

    def trace(frame, event, _):
        nonlocal seen
        if frame.f_code.co_filename != signals.__file__:
            return None
        seen += event == "line"
        if seen == number:
            sys.settrace(None)
            signal.raise_signal(signal.SIGTERM)
        return trace

    try:
        with signals.telling(5):
            sys.settrace(trace)  # the result is told
    except KeyboardInterrupt:
        return 130
    return 5 if seen >= number else 77

codes = []
while not codes or codes[-1] != 77:
    child = os.fork()
    if not child:
        os._exit(end(len(codes) + 1))
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(*codes[:-1])
"""


def test_a_signal_at_any_line_after_the_result_was_told_leaves_its_exit_code() -> None:
    done = subprocess.run([sys.executable, "-c", AT_EACH_LINE], capture_output=True, text=True, timeout=60, check=False)
    codes = done.stdout.split()
    assert len(codes) > 5, done.stderr
    assert set(codes) == {"5"}


LENT = """
import signal, time
from orchestrator.cli import signals

with signals.lent():
    signals.begin()
    with signals.telling(0):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
time.sleep(0.5)
print("goes on", signal.getsignal(signal.SIGALRM) is signal.SIG_DFL)
"""


def test_a_program_that_calls_a_command_is_not_ended_by_an_earlier_signal() -> None:
    done = subprocess.run([sys.executable, "-c", LENT], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "goes on True\n", "")


def test_an_end_that_takes_longer_than_a_second_signal_leaves_keeps_the_exit_code() -> None:
    done = subprocess.run([sys.executable, "-c", SLOW_END], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "told\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_moment_gives_the_results_exit_code_or_130_and_no_traceback(
    shell: Shell, number: signal.Signals
) -> None:
    (shell.place / "go").touch()
    for turn, delay in enumerate((0.0, 0.02, 0.05, 0.1, 0.15, 0.25)):
        with shell.begin("run", "trial:waits", "x", "--run-id", f"r{turn}") as process:
            said = os.read(process._err, 1).decode()
            time.sleep(delay)
            process.signal(number)
            out, err = process.read()
            code = process.wait()
        assert "Traceback" not in said + err
        assert "KeyboardInterrupt" not in said + err
        assert code == (0 if out and json.loads(out) == RESULT else 130), (code, out, err)


LOOKS = """
import signal, sys
import anyio
from orchestrator.cli import signals, run_lookup, store_commands

async def interrupts():
    signal.raise_signal(signal.SIGINT)  # while a task of a group runs

async def look(*_, **options):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(interrupts)
        await anyio.sleep_forever()

signals.begin()
try:
    if sys.argv[1] == "look":
        run_lookup.looking("sqlite:///runs.db", look)
    else:
        store_commands.copy_store = look
        store_commands.store_copy("sqlite:///runs.db", "sqlite:///copy.db")
except KeyboardInterrupt:
    print("ended in order")
"""


@pytest.mark.parametrize("command", ["look", "copy"])
def test_a_signal_in_any_task_ends_a_command_that_looks(shell: Shell, command: str) -> None:
    here(shell, trial.bad, lambda executor: executor.start(trial.bad, {}, run_id="b"))
    ended = run([LOOKS, command], cwd=shell.place / ".orchestrator")
    assert (ended.code, ended.out, ended.err) == (0, "ended in order\n", "")


def test_runs_whose_process_died_are_recovered(shell: Shell) -> None:
    with (
        shell.begin("run", "trial:waits", "x", "--run-id", "w"),
        shell.begin("run", "trial:waits", "y", "--run-id", "gone"),
    ):
        shell.wait_for("slow.txt", 2)
    listed = shell("runs", "--status", "interrupted", "--json")
    assert {row["run_id"] for row in listed.json} == {"w", "gone"}
    (shell.place / "go").touch()
    done = shell("recover", "--json")
    assert done.code == 0
    assert {run["run_id"]: (run["status"], run["output"]) for run in done.json} == {
        name: ("completed", ["one", "slow", "last"]) for name in ("w", "gone")
    }
    assert len(shell.read("last.txt")) == 2


def test_what_cannot_be_recovered_is_told(shell: Shell) -> None:
    with shell.begin("run", "trial:waits", "x", "--run-id", "w"):
        shell.wait_for("slow.txt")
        shell.until(lambda: "step_done" in shell.journal("w"))  # before it, the other graph would fit
    (shell.place / "go").touch()
    module = shell.place / "trial.py"
    code = module.read_text().replace("START -> one -> slow -> last -> END", "START -> one -> last -> slow -> END")
    module.write_text(f"{code}\n# of another length: Python tells files of one second apart by that\n")
    done = shell("recover")
    assert (done.code, done.out) == (1, "")
    assert "error: w: it could not be resumed" in done.err
    assert "warning: run w cannot be recovered" in done.err


def test_a_run_that_another_process_drives(shell: Shell) -> None:
    """Is cancelled and paused from outside, refused, and waited for."""
    with (
        shell.begin("run", "trial:waits", "x", "--run-id", "c") as cancelled,
        shell.begin("run", "trial:waits", "x", "--run-id", "p") as paused,
        shell.begin("run", "trial:waits", "x", "--run-id", "i") as interrupted,
    ):
        shell.wait_for("slow.txt", 3)
        cancel, held = shell.all(("cancel", "c"), ("resume", "i"))
        assert (cancel.code, cancel.out) == (0, "c  waits  cancelled\n")
        assert (held.code, held.out) == (7, "")
        done = cancelled.end()
        assert (done.code, done.out) == (6, "")
        assert "cancelled by" in done.err

        with (
            shell.begin("pause", "p", "--reason", "lunch") as pause,
            shell.begin("resume", "i", "--wait", 60) as resume,
        ):
            # The pause is not there before what runs has landed, and the run not before it is given back.
            shell.until(lambda: "paused" in shell.journal("p"))
            assert not pause.ended
            assert not resume.ended
            interrupted.signal(signal.SIGINT)
            assert interrupted.end().code == 130
            (shell.place / "go").touch()
            assert pause.end().out == "p  waits  paused\n"
            done = resume.end()
            assert (done.code, json.loads(done.out)) == (0, ["one", "slow", "last"])
        done = paused.end()
    assert done.code == 3
    assert "paused by" in done.err
    assert done.command.endswith("resume p")
    done = shell.go_on(done)
    assert (done.code, json.loads(done.out)) == (0, ["one", "slow", "last"])


def test_who_reads_no_further_stops_the_run_and_it_goes_on(shell: Shell) -> None:
    with shell.begin("run", "trial:halves", "x", "--run-id", "h", "--events") as process:
        first = process.first_line()
        (shell.place / "go").touch()
        done = process.end()
    assert (json.loads(first)["type"], done.code) == ("run_started", 130)
    assert "h was interrupted" in done.err
    (shell.place / "go on").touch()
    assert shell.go_on(done).code == 0
    # The result of a run that has ended is lost with its reader, its exit code is not.
    with shell.begin("run", "trial:bad", "x", "--json") as process:
        process.read_no_further()
        done = process.end()
    assert done.code == 1
    assert "broken failed: RuntimeError: no luck with [redacted]" in done.err


@pytest.mark.full
def test_the_same_from_a_shell(shell: Shell) -> None:
    line = "python -m orchestrator run trial:halves x --run-id h --events"
    done = shell.sh(f"{line} | (head -1; touch go); echo ${{PIPESTATUS[0]}}")
    first, code = done.out.splitlines()
    assert (json.loads(first)["type"], code) == ("run_started", "130")
    assert "h was interrupted" in done.err
    (shell.place / "go on").touch()
    assert shell.go_on(done).code == 0
    done = shell.sh("python -m orchestrator run trial:bad x --json >&- ; echo $?")
    assert done.out == "1\n"
    assert "failed at broken: RuntimeError: no luck with [redacted]" in done.err
    assert done.err.replace("\n", "").isprintable()


def test_a_command_continues_when_stderr_is_closed_at_the_other_end(shell: Shell) -> None:
    (shell.place / "go").touch()
    if FULL:
        done = shell.sh("python -m orchestrator run trial:waits x 2>&1 >out.json | head -1")
        told, out = done.out, (shell.place / "out.json").read_text()
    else:
        with shell.begin("run", "trial:waits", "x") as process:
            told = process.first_line(err=True)
            out = process.end().out
    assert "started: waits" in told
    assert json.loads(out) == ["one", "slow", "last"]
    assert os.listdir(shell.place / ".orchestrator")
