"""docs/strategies says what the strategies are: pictures, options, commands and transcripts."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.app import run as command_line
from orchestrator.cli.graph_refs import shipped
from orchestrator.render import to_svg
from orchestrator.strategies.tree_of_thoughts import tree_of_thoughts
from orchestrator.testing import ScriptedModel
from tests.graphs import choice
from tests.graphs.pictures import PLACE, RUNS, run_of
from tests.render.counts import journaled_calls
from tests.render.pictures import shape, untimed

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "strategies"
PAGES = sorted(DOCS.glob("*.md"))
SHIPPED = shipped()


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def test_every_strategy_has_a_page_and_a_picture() -> None:
    assert set(SHIPPED) == set(RUNS)
    assert {path.stem for path in PAGES} == {*SHIPPED, "README", "rewoo_and_react"}
    for name in SHIPPED:
        assert f"]({name}.md)" in page("README")
        assert f"](../pictures/{name}.svg)" in page(name)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_picture_is_of_the_graph_as_it_is(name: str) -> None:
    import anyio

    run = anyio.run(run_of, name)
    kept = (PLACE / f"{name}.svg").read_text(encoding="utf-8")
    assert shape(kept) == shape(untimed(to_svg(run.definition, run))), "draw anew: python -m tests.graphs.pictures"
    assert len(shape(kept)) > 50


@pytest.mark.parametrize("name", SHIPPED)
def test_the_options_are_those_of_the_builder(name: str) -> None:
    """Each by its name and default, none besides."""
    builder = getattr(importlib.import_module(f"orchestrator.strategies.{name}"), name)
    table = page(name).partition("| option |")[2].partition("\n\n")[0]
    told = {
        option: default.strip().strip("`")
        for options, default in re.findall(r"^\| (`[^|]*) \|([^|]*)\|", table, re.MULTILINE)
        for option in re.findall(r"`(\w+)`", options)
    }
    parameters = inspect.signature(builder).parameters
    assert told.keys() == parameters.keys()
    for option, default in told.items():
        if default != "this file's words":
            assert ast.literal_eval(default) == parameters[option].default, option


@pytest.mark.anyio
@pytest.mark.parametrize("name", SHIPPED)
async def test_the_run_gives_what_the_page_shows(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    ((code, shown),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page(name), re.DOTALL)
    names: dict[str, Any] = {}
    result = eval(compile(code, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if result is not None:
        await result
    assert capsys.readouterr().out.rstrip() == shown.rstrip()


@pytest.mark.full
def test_the_comparison_of_all_is_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ((command, shown),) = re.findall(
        r"```console\n\$ orchestrator (.*?)\n```\n\n```text\n(.*?)```", page("README"), re.DOTALL
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ORCHESTRATOR_MODEL", raising=False)
    monkeypatch.delenv("ORCHESTRATOR_STORE", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', command)]
    with pytest.raises(SystemExit) as exit_code:
        command_line(words)
    assert exit_code.value.code == 0
    printed = [re.sub(r"\s+(\d+\.\d\d|SECONDS)$", "", line) for line in capsys.readouterr().out.splitlines()]
    assert printed == shown.splitlines()


@pytest.mark.anyio
async def test_the_table_of_all_is_what_is_measured() -> None:
    assert choice.kept() == await choice.table(), "measure anew: python -m tests.graphs.choice"


def test_the_table_of_choice_has_every_strategy() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\(\1\.md\) \|", page("README").partition("<!-- measured")[0], re.MULTILINE)
    assert sorted(rows) == sorted(SHIPPED)


def formulas(name: str, values: dict[str, int]) -> tuple[int, int]:
    """The model calls of a strategy by the table of choice, and those on the critical path."""
    row = page("README").partition("<!-- measured")[0].partition(f"| [{name}](")[2].partition("\n")[0].split("|")
    written = (one.replace("the agents'", "a").replace("the agent's", "a").strip() for one in row[3:5])
    first, second = (eval(re.sub(r"(?<=[\w)]) (?=[\w(])", " * ", one), dict(values)) for one in written)
    return first, second


MEASURED: dict[str, dict[str, int]] = {
    "code_act": {"r": 1},
    "evaluator_optimizer": {"t": 0},
    "function_call": {},
    "function_call_agent": {"r": 3},
    "llm_compiler": {"p": 1},
    "orchestrator_workers": {"p": 3, "r": 1},
    "plan_and_execute": {"n": 3, "R": 3},
    "plan_and_solve": {"n": 3, "R": 3},
    "react": {"r": 3},
    "reflexion": {"t": 1, "r": 3},
    "rewoo": {},
    "router": {"a": 4},
    "self_ask": {"n": 3, "R": 3},
    "self_consistency": {"v": 5},
    "supervisor": {"h": 1, "a": 4},
    "swarm": {"h": 1, "r": 0},
    "tool_user": {"n": 3},
    "tree_of_thoughts": {"d": 3, "b": 1, "k": 1},
}
"""The numbers in the formulas for the question that all strategies are measured by."""


@pytest.mark.parametrize("name", MEASURED)
def test_the_formulas_of_the_table_of_choice_give_what_is_measured(name: str) -> None:
    cells = choice.kept().partition(f"| [{name}](")[2].split("|")
    assert formulas(name, MEASURED[name]) == (int(cells[2]), int(cells[3]))


@pytest.mark.anyio
async def test_the_formula_of_a_tree_gives_the_calls_of_its_run() -> None:
    numbers = count()
    proposed = lambda _: json.dumps({"thoughts": [f"thought {next(numbers)}" for _ in range(3)]})  # noqa: E731
    model = ScriptedModel({"propose": proposed, "rate": lambda _: '{"score": 5}', "answer": lambda _: "A"})
    run = await tree_of_thoughts(max_steps=3, branches=3, beam=2).run("Why?", model=model)
    calls = sum(journaled_calls(run).values())
    assert (run.output, calls) == ("A", formulas("tree_of_thoughts", {"d": 3, "b": 2, "k": 3})[0])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_links_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / link).exists(), link
