"""Watching a run that another process drives, or nobody."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import anyio

from orchestrator import Executor, Graph
from orchestrator.kernel.question import Deny
from tests.support import trial
from tests.support.shell import Shell

PLAIN = {"NO_COLOR": "1"}
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def here(shell: Shell, graph: Graph, act: Callable[[Executor], Awaitable[object]]) -> None:
    """Do something with the store of the command line, from this process."""

    async def work() -> None:
        (shell.place / ".orchestrator").mkdir(mode=0o700, exist_ok=True)
        url = f"sqlite:///{shell.place}/.orchestrator/runs.db"
        async with Executor(store=url, graphs=[graph], tools=[trial.note]) as executor:
            await act(executor)

    anyio.run(work)


def waits(shell: Shell, graph: Graph = trial.writer) -> None:
    """A run that this process began, and left with a question: the command line does not trust it."""
    here(shell, graph, lambda executor: executor.start(graph, {}, run_id="w"))


def test_a_run_of_another_process_is_followed_to_its_end(shell: Shell) -> None:
    with shell.begin("run", "trial:waits", "x", "--run-id", "far") as far:
        shell.wait_for("slow.txt")
        with shell.terminal("watch", "far") as terminal, shell.begin("watch", "far") as lines:
            terminal.wait_for("slow")
            (shell.place / "go").touch()
            assert terminal.end() == 0
            plain = lines.end()
        assert far.end().code == 0
    shown = ESCAPES.sub("", terminal.shown)
    assert "✓ one" in shown
    assert "✓ completed" in shown
    assert shown.rstrip().endswith("]")
    assert plain.code == 0
    assert [line.split()[0] for line in plain.out.splitlines() if line.startswith("  ")][:3] == ["one", "slow", "last"]
    assert "\x1b" not in plain.out


def test_what_it_waits_for_is_asked_and_it_goes_on_here(shell: Shell) -> None:
    assert shell("run", "trial:writer", "x", "--tools", "trial", "--run-id", "w").code == 3
    with shell.terminal("watch", "w", "--by", "ann", env=PLAIN) as terminal:
        terminal.wait_for("Approve? [y/n/e] ")
        terminal.type("y\r")
        assert terminal.end() == 0
    assert "approved by ann" in terminal.shown
    assert "\x1b" not in terminal.shown
    assert (shell.place / "notes.txt").read_text() == "hello\n"


def test_an_answer_from_elsewhere_ends_the_asking(shell: Shell) -> None:
    waits(shell)

    async def deny(executor: Executor) -> None:
        await executor.answer("w", (await executor.load("w")).waiting[0].id, Deny())

    with shell.terminal("watch", "w") as terminal:
        terminal.wait_for("Approve? [y/n/e] ")
        here(shell, trial.writer, deny)
        assert terminal.end() == 0
    assert "denied by another process" in terminal.shown


def test_a_run_whose_question_another_process_answers_goes_on_to_its_output(shell: Shell) -> None:
    with shell.terminal("run", "trial:writer", "x", "--tools", "trial", "--run-id", "w", env=PLAIN) as terminal:
        terminal.wait_for("Approve? [y/n/e] ")
        assert "waits" in shell("show", "w").out
        with shell.begin("approve", "w", "--by", "ann") as other:
            ended = other.end()
        assert terminal.end() == 0
    shown = ESCAPES.sub("", terminal.shown)
    _, _, after = shown.partition("Approve? [y/n/e] ")
    assert "approved by ann" in after
    assert "Approve?" not in after
    assert "error" not in after
    assert after.rstrip().endswith("]")  # its output
    assert ended.code in (0, 7)  # one of the two goes on with the run
    assert (shell.place / "notes.txt").read_text() == "hello\n"


def test_code_is_not_imported_on_the_word_of_a_run_from_elsewhere(shell: Shell) -> None:
    waits(shell)
    url = f"sqlite:///{shell.place}/.orchestrator/runs.db"
    with shell.terminal("watch", "w", "--store", url, env=PLAIN) as terminal:
        terminal.wait_for("Approve? [y/n/e] ")
        terminal.type("y\r")
        assert "the answer is recorded" in terminal.wait_for("add --graph")
        terminal.wait_for(f"resume w --store {url}")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert shell.journal("w")[-1] == "answered"


def test_who_only_looks_is_asked_nothing(shell: Shell) -> None:
    waits(shell, trial.number)

    async def seven(executor: Executor) -> None:
        await executor.answer("w", (await executor.load("w")).waiting[0].id, 7)

    with shell.begin("watch", "w", "--json") as lines, shell.terminal("watch", "w", "--no-ask", env=PLAIN) as terminal:
        terminal.wait_for("answer w")
        here(shell, trial.number, seven)
        assert terminal.end() == 0
        *events, result = lines.end().lines
    assert "\n> " not in terminal.shown
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert (result["status"], result["output"]) == ("completed", 7)


def test_following_events_on_a_terminal_is_the_same_tree(shell: Shell) -> None:
    assert shell("watch", "nosuch").code == 4
    here(shell, trial.bad, lambda executor: executor.start(trial.bad, {}, run_id="b"))
    with shell.terminal("events", "b", "--follow") as terminal:
        assert terminal.end() == 0
    shown = ESCAPES.sub("", terminal.shown)
    assert "✗ broken" in shown
    assert "failed: RuntimeError: no luck with [redacted]" in shown
    assert "✗ failed" in shown
    for sign in (trial.SECRET, "\x1b]0;", "\u202e", "\x07"):
        assert sign not in terminal.shown
