"""docs/errors.md: every code has a section, its examples do what the page says, and `explain` prints it."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import orchestrator
from orchestrator import errors
from orchestrator.cli.explain_command import PAGE, sections
from orchestrator.kernel.question import QuestionKind
from tests.support.shell import Shell

SOURCES = Path(orchestrator.__file__).parent
SETUP, *_ = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
BLOCK = re.compile(r"^```(yaml|python)\n(.*?)^```", re.M | re.S)
CHECKS = [code for code in sections() if re.fullmatch(r"C\d.*", code)]


def raised_codes() -> Iterator[str]:
    """Codes in the calls of `Problem` in the library; an empty one is of a fault that has none."""
    for file in SOURCES.rglob("*.py"):
        for call in re.findall(r"\bProblem\(\s*([^,()]+),", file.read_text(encoding="utf-8")):
            if call.startswith('"'):
                yield ast.literal_eval(call)


def test_every_code_of_a_check_has_a_section_and_the_other_way_round() -> None:
    assert {code for code in raised_codes() if code} == {*CHECKS, "ArrowSyntaxError"}


def test_every_other_code_is_an_error_a_status_or_a_question() -> None:
    others = [code for code in sections() if code not in CHECKS]
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type)}
    assert {*others} - kinds == {"exhausted", "interrupted", "unknown_outcome"}
    assert "unknown_outcome" in QuestionKind.__args__


def found_by_check(shell: Shell, text: str) -> set[str]:
    (shell.place / "graph.yaml").write_text(text, encoding="utf-8")
    return {problem["code"] for problem in shell("check", "graph.yaml", "--json").json["problems"]}


def found_by_running(text: str, names: dict[str, Any], backend: str) -> set[str]:
    """Codes of what a program in Python comes to: the error that it raises, or the state of its `run`."""
    code = compile(text, "example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def main() -> None:
        made = eval(code, names)
        if inspect.iscoroutine(made):
            await made

    try:
        anyio.run(main, backend=backend)
    except errors.InvalidGraph as error:
        return {problem.code for problem in error.problems}
    except errors.OrchestratorError as error:
        return {type(error).__name__}
    run = names.get("run")
    if run is None:
        return {"completed"}
    return {run.status, *(one.kind for one in run.waiting), *([] if run.error is None else [run.error.type])}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("code", [*sections()])
def test_the_first_example_has_the_problem_and_the_second_has_not(
    code: str, backend: str, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shell.place)
    monkeypatch.syspath_prepend(shell.place)
    monkeypatch.delitem(sys.modules, "greetings", raising=False)
    names: dict[str, Any] = {"__name__": "example"}
    exec(SETUP, names)
    blocks = BLOCK.findall(sections()[code])
    assert 1 <= len(blocks) <= 2
    found = [
        found_by_check(shell, text) if kind == "yaml" else found_by_running(text, names, backend)
        for kind, text in blocks
    ]
    assert code in found[0]
    assert all(code not in after and not after & {"failed", "interrupted", "exhausted"} for after in found[1:]), found


def test_explain_prints_a_section_or_the_list_and_takes_the_beginning_of_codes(shell: Shell) -> None:
    one = shell("explain", "c2")
    assert one.out.startswith("C2\n\nBranches meet at a node")
    assert sections()["C2"].strip() in one.out
    rows = [line.split()[0] for line in shell("explain").out.splitlines()]
    assert rows == ["CODE", *sections()]
    several = shell("explain", "C1", "exhausted", "--json").json
    assert [row["code"] for row in several] == [*(code for code in CHECKS if code.startswith("C1.")), "exhausted"]
    assert several[-1]["text"] == sections()["exhausted"]


@pytest.mark.parametrize(
    ("word", "fix"),
    [("C22", "did you mean C2?"), ("graphchange", "did you mean GraphChanged?"), ("zzz", "explain` lists the codes")],
)
def test_an_unknown_code_suggests_the_nearest(word: str, fix: str, shell: Shell) -> None:
    done = shell("explain", word)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: no error has the code {word!r}; ")
    assert fix in done.err
    assert "explain error" not in done.err


TWO_CODES = """
name: answer
state: {fields: {reply: {type: str, default: ""}}}
output: answer
nodes:
  write: {kind: complete, prompt: Say hello.}
edges: START -> wirte -> END
"""


def test_a_message_ends_with_one_command_for_all_of_its_codes(shell: Shell) -> None:
    (shell.place / "graph.yaml").write_text(TWO_CODES, encoding="utf-8")
    for done in (shell("check", "graph.yaml"), shell("run", "graph.yaml")):
        assert done.err.splitlines()[-1].endswith("orchestrator explain C1.field C1.outcome C1.edge"), done.err
        assert done.err.count("explain") == 1
    assert "did you mean 'write'? (C1.edge)" in done.err


def test_a_message_of_another_error_ends_with_its_command(shell: Shell) -> None:
    shell("run", "tool_user", "What is 2+2?", "--approve", "none", "--run-id", "one")
    assert shell("resume", "one").err.splitlines()[-1].endswith("orchestrator explain RunEnded")
    assert "explain" not in shell("show", "no_such_run").err


RUNS = """
from orchestrator import Graph, Outcome, node
from pydantic import BaseModel

class State(BaseModel):
    text: str = ""

@node
def work(state: State):
    return {"txt": ""}

failing = Graph(name="failing", state=State, nodes={"work": work}, edges="START -> work -> END")
"""


def test_a_run_that_failed_or_spent_a_limit_ends_with_the_command(shell: Shell) -> None:
    (shell.place / "some_runs.py").write_text(RUNS, encoding="utf-8")
    failed = shell("run", "some_runs.py:failing")
    assert [line.split("orchestrator ")[-1] for line in failed.err.splitlines()].count("explain InvalidUpdate") == 1
    spent = shell("run", "tool_user", "What is 2+2?", "--max-steps", "1")
    assert "orchestrator explain exhausted" in spent.err


def test_an_error_inside_a_message_is_explained_too(shell: Shell) -> None:
    done = shell("run", "chat", "hi", "--model", "openai:any")
    assert "failed at sorry: StepError: ModelMisconfigured: " in done.err
    explain, _, resume = done.err.splitlines()[-3:]
    assert explain.endswith("orchestrator explain ModelMisconfigured")
    assert resume.endswith("--retry")
