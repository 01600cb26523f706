"""What became of a call, asked and answered at a terminal and by commands."""

from __future__ import annotations

import json
import shlex

import pytest

from orchestrator.cli.terminal_questions import outcome_of
from orchestrator.kernel.question import Question, Value
from orchestrator.render.terminal.event_lines import question_text
from tests.support.shell import Done, Shell

LOST = '''
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel

from orchestrator import Context, Graph, Retry, Update, append, node, tool

class Log(BaseModel):
    log: Annotated[list[str], append] = []

def call() -> None:
    with open("calls.txt", "a") as calls:
        calls.write("called\\n")
    if Path("calls.txt").read_text() == "called\\n":
        raise ConnectionResetError("gone")

@tool(effect="irreversible", risk="dangerous")
def text() -> str:
    """Returns a text."""
    call()
    return "called again"

@tool(effect="irreversible", risk="dangerous")
def number() -> int:
    """Returns a number."""
    call()
    return 1

@tool(effect="irreversible", risk="dangerous")
def nothing() -> None:
    """Returns nothing."""
    call()

@tool(effect="irreversible", risk="dangerous")
def silent():
    """Does not say what it returns."""
    call()

def graph_of(name):
    @node(retry=Retry(wait=0, on=("ConnectionError",)))
    async def work(state: Log, ctx: Context) -> Update:
        found = await ctx.tool(name)
        if found.failed:
            raise ConnectionError(found.error)
        return {"log": repr(found.output)}
    return Graph(name=name, state=Log, nodes={"work": work}, edges="START -> work -> END", output="log")

text_graph, number_graph, nothing_graph, silent_graph = map(graph_of, ("text", "number", "nothing", "silent"))
tools = [text, number, nothing, silent]
'''
SHOWN = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}


def begun(shell: Shell, kind: str) -> Done:
    """A run that asks what became of its call."""
    (shell.place / "lost.py").write_text(LOST)
    done = shell("run", f"lost:{kind}_graph", "--tools", "lost", "--run-id", "r")
    assert (done.code, called(shell)) == (3, 1)
    return done


def called(shell: Shell) -> int:
    return len(shell.read("calls.txt"))


def printed(done: Done) -> list[list[str]]:
    """The answers that a command printed, without the program's own name."""
    lines = [shlex.split(line) for line in done.err.splitlines() if " orchestrator answer r " in line]
    return [words[words.index("answer") + 2 :] for words in lines]


@pytest.mark.parametrize(
    ("kind", "form"), [("text", "TEXT"), ("number", "JSON"), ("silent", "JSON"), ("nothing", None)]
)
def test_each_choice_is_printed_as_a_whole_command_and_the_dangerous_one_last(
    shell: Shell, kind: str, form: str | None
) -> None:
    done = begun(shell, kind)
    happened, failed, retry = printed(done)
    assert [happened[0], failed[0], retry[0]] == ["happened", "failed", "retry"]
    assert happened[3:] == ([] if form is None else ["--result", form])
    assert "It happened; its result is ..." in done.err or form is None
    assert "It did not happen: call it now. If it did happen, it happens twice." in done.err
    shown = shell("show", "r")
    assert shown.out.count("orchestrator answer r ") == 3


@pytest.mark.parametrize(
    ("kind", "result", "output"),
    [
        ("text", "by hand", "'by hand'"),
        ("text", "3.10", "'3.10'"),
        ("number", "7", "7"),
        ("silent", '{"a": 1}', "{'a': 1}"),
        ("silent", "by hand", "'by hand'"),
        ("silent", '"3.10"', "'3.10'"),
        ("silent", "null", "None"),
        ("nothing", None, "None"),
    ],
)
def test_the_result_of_a_call_is_given_with_the_answer(
    shell: Shell, kind: str, result: str | None, output: str
) -> None:
    begun(shell, kind)
    given = () if result is None else ("--result", result)
    done = shell("answer", "r", "happened", *given)
    assert (done.code, json.loads(done.out)) == (0, [output]), done.err
    assert called(shell) == 1


def test_the_line_about_an_answer_has_all_of_it(shell: Shell) -> None:
    begun(shell, "text")
    assert 'answered "' not in shell("answer", "r", "retry").err
    assert "  answer retry text {}  by " in shell("show", "r").out
    shell("run", "tool_user", "What is 12*7?", "--run-id", "d")
    assert 'denied "too much" by ' in shell("deny", "d", "--reason", "too much").err
    assert '  deny "too much" multiply {"a": 12, "b": 7}  by ' in shell("show", "d").out
    assert "1 step, 1 call, 0 tokens" in shell("show", "r").out


@pytest.mark.parametrize(
    ("kind", "words", "said"),
    [
        ("text", ("happened",), "or --result on the command line"),
        ("text", ("happened", "--result", "TEXT"), "replace TEXT"),
        ("text", ("failed", "--result", "x"), "needs the answer `happened`"),
        ("text", ("maybe",), "wants one of happened, failed, retry"),
        ("number", ("happened",), "needs the result"),
        ("number", ("happened", "--result", "many"), "the result must be a whole number"),
        ("silent", ("happened",), "null if it returned nothing"),
        ("nothing", ("happened", "--result", "5"), "the result must be null, not 5"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_with_exit_code_2(
    shell: Shell, kind: str, words: tuple[str, ...], said: str
) -> None:
    begun(shell, kind)
    done = shell("answer", "r", *words)
    assert (done.code, said in done.err) == (2, True), done.err
    assert shell("show", "r", "--json").json["status"] == "paused"
    assert called(shell) == 1


def test_a_result_is_refused_for_another_question(shell: Shell) -> None:
    assert shell("run", "trial:number", "--run-id", "n").code == 3
    done = shell("answer", "n", "4", "--result", "4")
    assert (done.code, "to a question about the outcome of a call" in done.err) == (2, True)


def test_a_fork_takes_what_became_of_a_call_of_its_parent(shell: Shell) -> None:
    done = begun(shell, "text")
    question = printed(done)[0][2]
    bare = shell("fork", "r", "--answer", f"{question}=happened")
    assert (bare.code, '{"choice": "happened", "result": ...}' in bare.err) == (2, True)
    wrong = shell("fork", "r", "--answer", f'{question}={{"choice": "happened", "result": 5}}')
    assert (wrong.code, "must be a string" in wrong.err) == (2, True)
    fork = shell("fork", "r", "--answer", f'{question}={{"choice": "happened", "result": "by fork"}}')
    assert (fork.code, json.loads(fork.out)) == (0, ["'by fork'"]), fork.err
    assert called(shell) == 1


def test_at_a_terminal_the_call_is_made_again_only_after_a_second_question(shell: Shell) -> None:
    (shell.place / "lost.py").write_text(LOST)
    with shell.terminal("run", "lost:text_graph", "--tools", "lost", "--run-id", "r", env=SHOWN) as terminal:
        terminal.wait_for("What became of it? [happened/failed/retry]")
        terminal.type("retry\r")
        terminal.wait_for("If it did happen, it happens twice. Type yes to call it:")
        terminal.type("y\r")
        terminal.wait_for("What became of it? [happened/failed/retry]")
        assert called(shell) == 1
        terminal.type("retry\r")
        terminal.wait_for("Type yes to call it:")
        terminal.type("yes\r")
        assert terminal.end() == 0
    assert "called again" in terminal.shown
    assert called(shell) == 2


def test_at_a_terminal_a_result_is_asked_for_until_it_fits(shell: Shell) -> None:
    (shell.place / "lost.py").write_text(LOST)
    with shell.terminal("run", "lost:number_graph", "--tools", "lost", "--run-id", "r", env=SHOWN) as terminal:
        for typed in ("", "many", "7"):
            terminal.wait_for("What became of it? [happened/failed/retry]")
            terminal.type("happened\r")
            terminal.wait_for("Its result (JSON):")
            terminal.type(f"{typed}\r")
        assert terminal.end() == 0
    assert "the result must be a whole number" in terminal.shown
    assert called(shell) == 1


REFUSED = Question(
    id="q", kind="unknown_outcome", node="pay", prompt="pay returned, and its result was refused.",
    payload={"tool": "pay", "args": {"a": 1}, "why": "refused", "error": "not a number", "returned": "NaN"},
    choices=("happened", "failed", "retry"), schema={"type": "integer"},
)  # fmt: skip


def test_of_a_result_that_was_refused_the_words_say_that_the_call_happened() -> None:
    text = question_text(REFUSED)
    assert "Use this result instead ... (JSON)" in text
    assert "Call it again. It happened once, and happens twice." in text
    assert '  error  "not a number"\n  returned  "NaN"' in text
    assert outcome_of(REFUSED, "5") == Value(value={"choice": "happened", "result": 5})
